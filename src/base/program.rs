//! Other programs, started without what is kitbag's alone.

use std::ffi::OsStr;
use std::process::Command;

/// The passphrase itself, as a variable.
pub const PASSPHRASE: &str = "KITBAG_PASSPHRASE";

/// The variable by which kitbag tells another one, which it starts, to be in the background.
pub const IN_BACKGROUND: &str = "KITBAG_IN_BACKGROUND";

/// A command that inherits the environment, save [`PASSPHRASE`] and [`IN_BACKGROUND`]. Every program of others is started so: each could hand on what it gets, to
/// a server (`SendEnv`) or to whatever it starts.
#[must_use]
pub fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env_remove(PASSPHRASE).env_remove(IN_BACKGROUND);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passphrase_is_not_handed_on() {
        let command = program("env");
        for variable in [PASSPHRASE, IN_BACKGROUND] {
            assert!(
                command.get_envs().any(|(name, value)| name == variable && value.is_none()),
                "{variable}"
            );
        }
    }
}
