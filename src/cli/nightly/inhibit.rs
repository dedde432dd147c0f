//! Keeps the machine from falling asleep in the middle of a backup, where logind is there.
//!
//! logind hands out locks as file descriptors, which `busctl` cannot take. `systemd-inhibit` can: it holds the lock for as long as a
//! command runs, here one that reads a pipe until it ends. The pipe's other end is kitbag's, so the lock ends with
//! kitbag, however that ends.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::hook::{Ended, wait_for};
use crate::base::cancel::Cancel;
use crate::base::program::program;

/// How long it may take to end once it was told to.
const GRACE: Duration = Duration::from_secs(1);

/// While this lives, the machine does not fall asleep by itself.
#[derive(Debug)]
pub struct Awake(Option<Child>);

impl Awake {
    /// From now on. Without logind, or without leave to do this, nothing happens, and nothing is said. Does not wait.
    #[must_use]
    pub fn keep() -> Self {
        let mut command = program("systemd-inhibit");
        command.args(["--what=sleep", "--mode=block", "--who=kitbag", "--why=A backup is going", "cat"]);
        // Ctrl-C is for kitbag, which still has to finish then.
        command.process_group(0);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.ok())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        drop(child.stdin.take());
        if !matches!(wait_for(child, GRACE, &Cancel::new()), Ok(Ended::Exited(_))) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
