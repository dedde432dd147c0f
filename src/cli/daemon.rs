//! Going to the background.
//!
//! A program that has threads cannot fork. So it is started once more, with the same arguments, and the first one waits until the second says that it is ready,
//! or has failed and said why. Passphrases are asked for by the second, which still has the terminal then.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, ExitStatus, Stdio};

use super::error::Failure;
use super::screen::Screen;

/// Tells the second one what it is.
pub const VARIABLE: &str = crate::base::program::IN_BACKGROUND;

/// Starts this program once more, and waits until it is ready. `Err` with its exit status if it ended before.
///
/// # Errors
/// When it cannot be started.
pub fn start() -> Result<Result<(), ExitStatus>, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("cannot go to the background: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    // With its environment as it is: it is this program, which needs the passphrase.
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(VARIABLE, OsStr::new("1")).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let mut ready = [0];
    match child.stdout.as_mut().map(|stdout| stdout.read(&mut ready)) {
        Some(Ok(1)) => Ok(Ok(())),
        _ => Ok(Err(child.wait().map_err(failed)?)),
    }
}

/// Says that this one, which runs in the background, is ready, and lets go of the terminal. What `screen` is told from now on goes to the log file or the
/// system's log.
///
/// # Errors
/// When that cannot be done.
pub fn ready(screen: &Screen) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("cannot go to the background: {error}"));
    let mut stdout = std::io::stdout();
    stdout.write_all(b"\n").and_then(|()| stdout.flush()).map_err(failed)?;
    let nothing = File::options().read(true).write(true).open("/dev/null").map_err(failed)?;
    screen.go_behind();
    // It may lead a session already.
    let _ = rustix::process::setsid();
    rustix::stdio::dup2_stdin(&nothing)
        .and_then(|()| rustix::stdio::dup2_stdout(&nothing))
        .and_then(|()| rustix::stdio::dup2_stderr(&nothing))
        .map_err(|errno| failed(errno.into()))
}
