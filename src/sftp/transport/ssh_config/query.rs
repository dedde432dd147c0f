//! A host's settings from `ssh -G`, which knows `Match`, `Include` and canonical names better than any copy of it.

use std::io;
use std::process::Stdio;

use super::settings::{Settings, split};
use super::{ConfigError, Destination, Origin, SshOptions};
use crate::base::program::program;

/// Asks the system's `ssh`. None where there is no such program.
pub(super) fn query(
    destination: &Destination,
    options: &SshOptions,
) -> Result<Option<Settings>, ConfigError> {
    let mut command = program("ssh");
    command.arg("-G").args(options.arguments());
    command.args(destination.arguments()).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ConfigError::Run { source }),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        // The first line names file and line; the last only says how many there were.
        let detail = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it gave no reason");
        return Err(ConfigError::Refused { detail: detail.to_owned() });
    }
    let mut settings = Settings::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some((keyword, rest)) = line.split_once(' ') else { continue };
        // Values are printed as they are, without quotes: only lists of files are split, at their blanks.
        let arguments = match keyword {
            "userknownhostsfile" | "globalknownhostsfile" => split(&format!("{keyword} {rest}"))
                .map_or_else(|| vec![rest.to_owned()], |words| words.into_iter().skip(1).collect()),
            _ => vec![rest.to_owned()],
        };
        settings.add(keyword, arguments, Origin::Program);
    }
    Ok(Some(settings))
}
