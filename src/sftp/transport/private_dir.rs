//! A directory for the socket of a private master of `ssh`.
//!
//! Whoever made it holds a lock on it (`flock`), which goes with the process, however that ends; `systemd-tmpfiles` heeds it, too. What a killed
//! process has left behind is removed when the next one makes its own.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat,
};

use crate::base::random_bytes;
use crate::base::time::{Clock, SystemClock};

const PREFIX: &str = "kitbag-";

/// The name of the socket.
const SOCKET: &str = "ssh";

/// A directory is made first and locked then: a younger one may be about to be locked. In seconds.
const YOUNG: i64 = 60;

/// A directory that only we can enter, removed when dropped.
#[derive(Debug)]
pub(super) struct PrivateDir {
    path: PathBuf,
    /// Where the file system knows no locks it has none, and is never taken for one left behind.
    _lock: OwnedFd,
}

impl PrivateDir {
    /// Makes one below `parent`, and removes there what processes of this user that do not run any more have left.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn new(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        let name: String = random_bytes::<8>().iter().map(|byte| format!("{byte:02x}")).collect();
        let path = parent.join(format!("{PREFIX}{name}"));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let dir = open(&path)?;
        let _ = flock(&dir, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { path, _lock: dir })
    }

    /// Where the socket is to be.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // What is left behind is removed by a later one.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Whether a directory is named as those that are made here.
fn is_named_so(name: &OsStr) -> bool {
    let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    name.is_some_and(|name| {
        name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Removes what was left behind. What is not quite as it would be then stays.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let oldest = SystemClock::new().now().secs.saturating_sub(YOUNG);
    for entry in entries.flatten().filter(|entry| is_named_so(&entry.file_name())) {
        let path = entry.path();
        // It stays locked until it is gone.
        let Some((dir, sockets)) = abandoned(&path, oldest) else { continue };
        let removed = sockets.iter().try_for_each(|name| unlinkat(&dir, name, AtFlags::empty()));
        let _ = removed.and_then(|()| unlinkat(CWD, &path, AtFlags::REMOVEDIR));
    }
}

/// The directory, locked, and what is in it, if it was left behind: it is ours, nobody has locked it, and there is nothing but sockets of `ssh` in it.
fn abandoned(path: &Path, oldest: i64) -> Option<(OwnedFd, Vec<OsString>)> {
    let dir = open(path).ok()?;
    let stat = fstat(&dir).ok()?;
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o7777 == 0o700;
    if !is_ours || stat.st_mtime >= oldest {
        return None;
    }
    flock(&dir, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut sockets = Vec::new();
    for entry in Dir::read_from(&dir).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        // `ssh` makes a socket under a name of its own, with a dot and letters behind, and renames it.
        let is_socket_name = name
            .strip_prefix(SOCKET.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."));
        let stat = statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if !is_socket_name || FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return None;
        }
        sockets.push(OsStr::from_bytes(name).to_owned());
    }
    Some((dir, sockets))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    /// A directory of an earlier run, with these sockets and files in it.
    fn left(parent: &Path, number: u8, sockets: &[&str], files: &[&str]) -> PathBuf {
        let path = parent.join(format!("kitbag-{number:016x}"));
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        for socket in sockets {
            UnixListener::bind(path.join(socket)).unwrap();
        }
        for file in files {
            fs::write(path.join(file), "x").unwrap();
        }
        age(&path);
        path
    }

    fn age(path: &Path) {
        assert!(Command::new("touch").args(["-d", "2 minutes ago"]).arg(path).status().unwrap().success());
    }

    #[test]
    fn what_a_killed_run_left_goes_with_the_next() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path();
        let gone = [left(parent, 1, &[], &[]), left(parent, 2, &["ssh", "ssh.aB3dEf0123456789"], &[])];
        PrivateDir::new(parent).unwrap();
        for path in gone {
            assert!(!path.exists(), "{}", path.display());
        }
        assert_eq!(fs::read_dir(parent).unwrap().count(), 0);
    }

    #[test]
    fn what_is_anybody_elses_stays() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path();
        // With things that nobody here has put there, or that are none of ours.
        let stays = [
            left(parent, 1, &["ssh"], &["letter"]),
            left(parent, 2, &["other"], &[]),
            left(parent, 3, &[], &["ssh"]),
        ];
        let open_to_all = left(parent, 4, &[], &[]);
        fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o755)).unwrap();
        let target = parent.join("target");
        fs::DirBuilder::new().mode(0o700).create(&target).unwrap();
        age(&target);
        symlink(&target, parent.join("kitbag-0000000000000005")).unwrap();
        let young = parent.join("kitbag-0000000000000006");
        fs::DirBuilder::new().mode(0o700).create(&young).unwrap();
        for name in
            ["kitbag-", "kitbag-00000000000000ag", "kitbag-000000000000000A", "kitbag-00000000000000007"]
        {
            fs::DirBuilder::new().mode(0o700).create(parent.join(name)).unwrap();
            age(&parent.join(name));
        }
        let before = fs::read_dir(parent).unwrap().count();
        // One that is in use, however long already.
        let held = PrivateDir::new(parent).unwrap();
        age(&held.path);
        drop(PrivateDir::new(parent).unwrap());
        assert!(held.path.exists());
        drop(held);
        assert_eq!(fs::read_dir(parent).unwrap().count(), before);
        assert!(stays[0].join("ssh").exists() && target.exists() && young.exists());
    }
}
