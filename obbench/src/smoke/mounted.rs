//! A program at work that shows something as a file system.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::SmokeError;
use crate::{clock, process};

/// How long it may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A mount; dropping it ends the program behind it.
pub(super) struct Mounted {
    at: PathBuf,
    child: Child,
}

impl Mounted {
    /// Runs the command, which mounts on `at` and tells so by a line.
    pub(super) fn start(mut command: Command, at: PathBuf) -> Result<Self, SmokeError> {
        let failed = || SmokeError::io("start a program that mounts");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed())?;
        let mut mounted = Self { at, child };
        let mut line = String::new();
        let stdout = mounted.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe.into()).map_err(failed())?;
        BufReader::new(stdout).read_line(&mut line).map_err(failed())?;
        if line.is_empty() {
            let complaint = "it mounts nothing".to_owned();
            return Err(SmokeError::Failed { what: "mount".to_owned(), code: 1, complaint });
        }
        Ok(mounted)
    }

    /// Where a saved path is seen.
    pub(super) fn path(&self, saved: &Path) -> PathBuf {
        self.at.join(saved.strip_prefix("/").unwrap_or(saved))
    }

    /// The most memory that the program took so far, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        process::signal(self.child.id(), Signal::INT);
        let child = &mut self.child;
        if !clock::wait_until(PATIENCE, || matches!(child.try_wait(), Ok(Some(_)))) {
            let _ = child.kill();
            let _ = child.wait();
            let _ = Command::new("fusermount3").args(["-u", "-z", "-q", "--"]).arg(&self.at).status();
        }
    }
}
