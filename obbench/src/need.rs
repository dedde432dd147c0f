//! Programs that a test needs and that not every machine has.
//!
//! A test that needs `sshd` begins with `if !need::program("sshd") { return; }`. Where the environment variable
//! `KITBAG_TEST_MUST_RUN` names the program (names are separated by commas), its absence is a failure instead of a
//! reason to skip: a check that everything passed must not be one that nothing ran.

use std::path::{Path, PathBuf};

/// The variable that names the programs without which tests fail rather than skip.
pub const MUST_RUN: &str = "KITBAG_TEST_MUST_RUN";

/// Where a program may stand, besides the directories of `PATH`.
const PLACES: [&str; 5] =
    ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/lib/openssh", "/usr/libexec/openssh"];

/// Whether a test that needs the program may run; says so on standard error when it is skipped.
///
/// # Panics
/// When the program is missing and [`MUST_RUN`] names it.
#[must_use]
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
pub fn program(name: &str) -> bool {
    if find(name).is_some() {
        return true;
    }
    assert!(!must_run(name), "{name} is not installed, and {MUST_RUN} names it");
    eprintln!("skipped: {name} is not installed");
    false
}

/// The same for whoever mounts something: `fuse` stands for the device and the program that mounts.
///
/// # Panics
/// When one of them is missing and [`MUST_RUN`] names `fuse`.
#[must_use]
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
pub fn fuse() -> bool {
    if Path::new("/dev/fuse").exists() && find("fusermount3").is_some() {
        return true;
    }
    assert!(!must_run("fuse"), "there is no FUSE here, and {MUST_RUN} names it");
    eprintln!("skipped: there is no FUSE here");
    false
}

/// Whether [`MUST_RUN`] names it.
#[must_use]
pub fn must_run(name: &str) -> bool {
    variable(MUST_RUN).is_some_and(|names| names.split(',').any(|one| one.trim() == name))
}

/// Where the program stands: a path as given, or a name looked up in `PATH` and the system's other places.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| PathBuf::from(name));
    }
    let path = variable("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(PLACES.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

#[expect(clippy::disallowed_methods, reason = "the only reading of the environment in this crate")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_there_and_nothing_else() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
        assert!(find("/bin/no-such-program").is_none());
        assert!(!program("no-such-program-anywhere"));
    }
}
