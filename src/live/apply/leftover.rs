//! What a restore that was killed has left behind: files under temporary names.
//!
//! A file is locked from its making until it is in its place. The lock goes with the process, however that ends, so whoever gets it has found a file that
//! nobody writes any more. Only the moment between making and locking is open: who finds its new file without a name then makes another. Where a
//! file system knows no locks, nothing is removed.

use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, unlinkat};
use rustix::io::retry_on_intr;

use super::Target;
use crate::entry::Kind;
use crate::live::stat::{stat_child, stat_fd};
use crate::live::{DirFd, LiveDir, Result};

const PREFIX: &str = ".kitbag-";

/// The temporary name of a run's file.
pub(super) fn temporary_name(nonce: u64, number: u64) -> Vec<u8> {
    format!("{PREFIX}{nonce:016x}-{number}").into_bytes()
}

/// Of which run this is a temporary name; none for every other name.
fn run_of(name: &[u8]) -> Option<u64> {
    let name = std::str::from_utf8(name).ok()?;
    let (nonce, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let (nonce, number) = (u64::from_str_radix(nonce, 16).ok()?, number.parse().ok()?);
    // Exactly as it is made: no sign, no capitals, no zeros in front.
    (temporary_name(nonce, number) == name.as_bytes()).then_some(nonce)
}

/// Locks a new file against [`Target::sweep`]. Says whether it still has its name.
pub(super) fn is_ours(file: impl AsFd) -> bool {
    // Where that is refused nobody else gets a lock either, and nothing is removed.
    let _ = retry_on_intr(|| flock(&file, FlockOperation::LockExclusive));
    fstat(&file).map_or(true, |stat| stat.st_nlink > 0)
}

impl Target {
    /// Removes from a directory what restores that do not run any more have left there under temporary names: regular files of this user (of anybody, for root:
    /// a file has its owner before its name). What cannot be removed stays, without a word.
    pub(super) fn sweep(&self, dir: &Arc<LiveDir>) -> Result<()> {
        let names = dir.names_where(|name| run_of(name).is_some_and(|nonce| nonce != self.nonce))?;
        if !names.is_empty() {
            let fd = dir.fd()?;
            for (name, _) in names.iter() {
                if let Some(lock) = self.take_over(&fd, name) {
                    let _ = unlinkat(&fd, name, AtFlags::empty());
                    drop(lock);
                }
            }
        }
        Ok(())
    }

    /// The file, locked, if it may be removed.
    fn take_over(&self, dir: &DirFd, name: &[u8]) -> Option<OwnedFd> {
        let stat = stat_child(dir, name).ok()?;
        if stat.kind != Kind::File || !(self.is_root || stat.uid == self.user) {
            return None;
        }
        // Over NFS only what is open for writing can be locked so.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(dir, name, flags, Mode::empty()).ok()?;
        let is_same = stat_fd(&file).is_ok_and(|now| now.is_same_inode(&stat));
        (is_same && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()).then_some(file)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::live::OwnerBy;
    use crate::live::apply::tests::{setting, wanted};
    use crate::monitor::Monitor;

    #[test]
    fn only_names_that_are_made_here() {
        assert_eq!(run_of(&temporary_name(0xabc, 17)), Some(0xabc));
        assert_eq!(run_of(&temporary_name(u64::MAX, u64::MAX)), Some(u64::MAX));
        for name in [
            ".kitbag-0000000000000abc-",
            ".kitbag-0000000000000abc",
            ".kitbag-abc-17",
            ".kitbag-0000000000000ABC-17",
            ".kitbag-0000000000000abc-+17",
            ".kitbag-0000000000000abc-017",
            ".kitbag-0000000000000abc-17~",
            ".kitbag-+000000000000abc-17",
            ".kitbag-0000000000000abc-99999999999999999999",
            "kitbag-0000000000000abc-17",
            ".kitbag-notes",
        ] {
            assert_eq!(run_of(name.as_bytes()), None, "{name}");
        }
        assert_eq!(run_of(b".kitbag-0000000000000abc-1\xff"), None);
    }

    #[test]
    fn what_a_killed_run_left_goes_with_the_next() {
        let setting = setting();
        let left = ".kitbag-0123456789abcdef-12";
        for dir in ["", "way/", "dir/"] {
            fs::create_dir_all(setting.path(dir)).unwrap();
            fs::write(setting.path(&format!("{dir}{left}")), "half").unwrap();
        }
        fs::write(setting.path(".kitbag-notes"), "mine").unwrap();
        symlink("nowhere", setting.path(".kitbag-0123456789abcdef-13")).unwrap();
        // One of another run that goes on, and one of this run.
        let other = Target::new(OwnerBy::Number, Arc::clone(&setting.monitor) as Arc<dyn Monitor>);
        let metadata = wanted(Kind::File, 0o600);
        let file = other.begin_file(&setting.root, b"file", &metadata).unwrap();
        let own = setting.target.begin_file(&setting.root, b"own", &metadata).unwrap();

        let root = setting.target.open(setting.path("").as_os_str().as_bytes()).unwrap();
        setting.target.ensure_way(&root, b"way").unwrap();
        setting.target.ensure_dir(&root, b"dir").unwrap();
        for dir in ["", "way/", "dir/"] {
            assert!(!setting.path(&format!("{dir}{left}")).exists(), "{dir}");
        }
        assert_eq!(fs::read(setting.path(".kitbag-notes")).unwrap(), b"mine");
        assert!(setting.path(".kitbag-0123456789abcdef-13").is_symlink());
        other.finish_file(file, &metadata, &[]).unwrap();
        setting.target.finish_file(own, &metadata, &[]).unwrap();
        assert!(setting.path("file").exists() && setting.path("own").exists());
    }

    /// Whatever moment the one looks around in, the other one's files and links come into being.
    #[test]
    fn two_runs_in_one_directory() {
        let setting = setting();
        let metadata = wanted(Kind::File, 0o600);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let monitor = Arc::clone(&setting.monitor) as Arc<dyn Monitor>;
                while !done.load(Ordering::Relaxed) {
                    let other = Target::new(OwnerBy::Number, Arc::clone(&monitor));
                    other.open(setting.path("").as_os_str().as_bytes()).unwrap();
                }
            });
            let made: Vec<Result<()>> = (0..3000_u32)
                .flat_map(|number| {
                    let name = format!("file {}", number % 7).into_bytes();
                    let file = setting.target.begin_file(&setting.root, &name, &metadata);
                    let file = file.and_then(|file| setting.target.finish_file(file, &metadata, &[]));
                    [file, setting.target.make_link((&setting.root, &name), &setting.root, b"link")]
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            for made in made {
                made.unwrap();
            }
        });
        setting.nothing_left_over();
    }
}
