//! What the tests of this module share.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::LiveDir;

/// A directory that is removed at the end, however deep it is (`TempDir` runs out of descriptors) and whatever is
/// immutable in it.
pub(super) struct Scratch(Option<tempfile::TempDir>);

impl Scratch {
    /// On the disk.
    pub(super) fn new() -> Self {
        Self(Some(tempfile::tempdir().unwrap()))
    }

    /// In memory: tmpfs keeps times of any year.
    pub(super) fn in_memory() -> Self {
        Self(Some(tempfile::tempdir_in("/dev/shm").unwrap()))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.as_ref().unwrap().path()
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The scratch directory as a root.
    pub(super) fn open(&self) -> Arc<LiveDir> {
        LiveDir::open_root(self.path().as_os_str().as_encoded_bytes()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(dir) = self.0.take().map(tempfile::TempDir::keep) else { return };
        let remove = || Command::new("rm").arg("-rf").arg(&dir).stderr(Stdio::null()).status();
        if !remove().is_ok_and(|status| status.success()) {
            // Slow in deep trees, so only where something is immutable.
            let _ = Command::new("chattr").args(["-Rf", "-ia"]).arg(&dir).status();
            let _ = remove();
        }
    }
}

/// Runs a program that must succeed.
pub(super) fn run(program: &str, args: &[&str], dir: &Path) {
    let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether the tests run as root, who may do what others may not.
pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
