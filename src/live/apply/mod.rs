//! Writing a tree below a directory, so that it becomes what it was.
//!
//! **Nothing is followed.** Each step goes by the descriptor of a directory and a name. A link that stands where a
//! directory belongs is removed, not walked through.
//!
//! **Nothing is shown too early.** What is made belongs to whoever runs this, with mode 0600 or 0700, under a
//! temporary name (`.kitbag-…`), and takes its place by a rename when it is complete: a half-restored file never
//! stands under its own name. What a run that was killed leaves under such names is removed by the next one that enters the directory.
//!
//! **The order that sticks**: contents, owner, xattrs, mode, times, and inode flags when the name is final. Changing
//! the owner takes away setuid bits and capabilities, so it comes before them; an ACL changes the mode; any of them
//! may need the file to be writable, and an immutable file takes nothing any more. A directory gets its own when all
//! that stands in it is done.
//!
//! **What only root may do** is done by root alone. For an ordinary user everything belongs to that user afterwards,
//! as with tar and restic: the group is set where the user is in it, the owner is not tried, and setuid and setgid
//! bits of another owner are left out, as `cp -p` does. What was refused is told once for each kind of thing, not
//! for each file.

mod attributes;
mod file;
mod leftover;
mod make;
mod remove;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

pub use file::NewFile;

use super::stat::stat_child;
use super::xattrs::proc_path;
use super::{DirFd, LiveDir, LiveError, Owners, Result, Stat, flags};
use crate::entry::{Kind, Metadata};
use crate::monitor::{Monitor, Problem, Severity};

/// By what the owner of a restored file is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnerBy {
    /// By the saved numbers: right for the machine that was backed up, and the same on every machine.
    #[default]
    Number,
    /// By the saved names where they exist here, else by number: right when moving to another machine.
    Name,
}

/// What could not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Refused {
    Owner,
    Xattrs,
    Mode,
    Times,
    Flags,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owner => "owner",
            Self::Xattrs => "extended attributes",
            Self::Mode => "mode",
            Self::Times => "time of modification",
            Self::Flags => "inode flags",
        })
    }
}

/// Writes trees. One serves all threads of a restore.
pub struct Target {
    owner_by: OwnerBy,
    owners: Owners,
    is_root: bool,
    user: u32,
    monitor: Arc<dyn Monitor>,
    told: Mutex<HashSet<(Refused, i32)>>,
    /// What makes temporary names unlike those of other processes, and unlike each other.
    nonce: u64,
    next: AtomicU64,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("owner_by", &self.owner_by)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Target {
    /// Problems that leave the file there, but not quite as it was, go to `monitor`.
    #[must_use]
    pub fn new(owner_by: OwnerBy, monitor: Arc<dyn Monitor>) -> Self {
        let user = rustix::process::geteuid();
        Self {
            owner_by,
            owners: Owners::new(),
            is_root: user.is_root(),
            user: user.as_raw(),
            monitor,
            told: Mutex::new(HashSet::new()),
            nonce: u64::from_be_bytes(crate::base::random_bytes()),
            next: AtomicU64::new(0),
        }
    }

    /// Opens the directory to restore into, following links in its path (it is the user's choice); makes it, and
    /// those above it, where it is missing.
    ///
    /// # Errors
    /// What the system said.
    pub fn open(&self, path: &[u8]) -> Result<Arc<LiveDir>> {
        std::fs::create_dir_all(OsStr::from_bytes(path))
            .map_err(|source| LiveError::System { action: "make the directory", source })?;
        let dir = LiveDir::open_root(path)?;
        // Whether that can be listed matters to nobody else.
        let _ = self.sweep(&dir);
        Ok(dir)
    }

    /// The directory `name` in `parent`: the one that is there, made accessible to this process, or a new one that
    /// nobody else can enter until [`finish_dir`](Self::finish_dir). Anything else under that name is removed.
    ///
    /// # Errors
    /// What the system said.
    pub fn ensure_dir(&self, parent: &Arc<LiveDir>, name: &[u8]) -> Result<Arc<LiveDir>> {
        let fd = parent.fd()?;
        let private = Mode::from_raw_mode(0o700);
        match mkdirat(&fd, name, private) {
            Ok(()) => return parent.child(name),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(LiveError::new("make the directory", errno)),
        }
        let stat = stat_child(&fd, name)?;
        if stat.kind == Kind::Directory {
            let dir = self.enter(parent, name, &stat)?;
            let _ = self.sweep(&dir);
            return Ok(dir);
        }
        self.remove(parent, name)?;
        mkdirat(&fd, name, private).map_err(|errno| LiveError::new("make the directory", errno))?;
        parent.child(name)
    }

    /// The directory `name` in `parent`, of which nothing is known but that it is on the way: the one that is there, or a
    /// new one as `mkdir` makes it. Anything else under that name is removed.
    ///
    /// # Errors
    /// What the system said.
    pub fn ensure_way(&self, parent: &Arc<LiveDir>, name: &[u8]) -> Result<Arc<LiveDir>> {
        let fd = parent.fd()?;
        match mkdirat(&fd, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => return parent.child(name),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(LiveError::new("make the directory", errno)),
        }
        if stat_child(&fd, name)?.kind == Kind::Directory {
            let dir = parent.child(name)?;
            let _ = self.sweep(&dir);
            return Ok(dir);
        }
        self.remove(parent, name)?;
        mkdirat(&fd, name, Mode::from_raw_mode(0o777))
            .map_err(|errno| LiveError::new("make the directory", errno))?;
        parent.child(name)
    }

    /// Opens an existing directory such that entries can be made and removed in it.
    fn enter(&self, parent: &Arc<LiveDir>, name: &[u8], stat: &Stat) -> Result<Arc<LiveDir>> {
        if !self.is_root && stat.mode & 0o700 != 0o700 {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let fd = openat(parent.fd()?, name, flags, Mode::empty())
                .map_err(|errno| LiveError::opening("open the directory", errno))?;
            let mode = Mode::from_raw_mode(u32::from(stat.mode | 0o700));
            // If that is refused, what is done next will tell.
            let _ = chmodat(CWD, proc_path(&fd), mode, AtFlags::empty());
        }
        let dir = parent.child(name)?;
        if dir.stat().is_protected {
            flags::set(dir.fd()?, 0, flags::PROTECTION)
                .map_err(|errno| LiveError::new("make the directory changeable", errno))?;
        }
        Ok(dir)
    }

    /// Gives a directory its metadata. To be called when all that stands in it is done.
    ///
    /// # Errors
    /// What the system said when the directory was looked for; what it refuses to set goes to the monitor.
    pub fn finish_dir(
        &self,
        dir: &Arc<LiveDir>,
        wanted: &Metadata,
        xattrs: &[super::RawXattr],
    ) -> Result<()> {
        let fd = dir.fd()?;
        let inode = attributes::Inode::open(&fd);
        let mut refused = |what, errno| self.refused(&dir.path(), what, errno);
        self.apply(&inode, wanted, xattrs, &mut refused)?;
        self.apply_flags(&fd, wanted.flags, flags::SETTABLE, &mut refused);
        Ok(())
    }

    /// A name that nothing else has.
    fn temporary_name(&self) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        leftover::temporary_name(self.nonce, number)
    }

    /// Moves what stands under a temporary name to its place, in place of whatever stands there.
    fn put_in_place(&self, dir: &Arc<LiveDir>, fd: &DirFd, temporary: &[u8], name: &[u8]) -> Result<()> {
        let mut result = renameat(fd, temporary, fd, name);
        if matches!(result, Err(Errno::PERM | Errno::ACCESS)) && self.unprotect(fd, name) {
            result = renameat(fd, temporary, fd, name);
        }
        if matches!(result, Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST)) {
            self.remove(dir, name)?;
            result = renameat(fd, temporary, fd, name);
        }
        result.map_err(|errno| LiveError::new("put it in its place", errno))
    }

    /// Takes the flags from a file that forbid to replace or remove it. Says whether there were any.
    fn unprotect(&self, fd: &DirFd, name: &[u8]) -> bool {
        let Ok(stat) = stat_child(fd, name) else { return false };
        if !stat.is_protected || !matches!(stat.kind, Kind::File | Kind::Directory) {
            return false;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat(fd, name, flags, Mode::empty())
            .and_then(|file| flags::set(&file, 0, flags::PROTECTION))
            .is_ok()
    }

    /// Removes what stands under a temporary name after a failure.
    fn discard(fd: &DirFd, temporary: &[u8]) {
        let _ = unlinkat(fd, temporary, AtFlags::empty());
    }

    /// Tells that something could not be set, the first time.
    fn refused(&self, path: &[u8], what: Refused, errno: Errno) {
        let key = (what, errno.raw_os_error());
        if !self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            return;
        }
        // An ordinary user cannot expect these; root can.
        let expected = !self.is_root && matches!(errno, Errno::PERM | Errno::ACCESS | Errno::NOTSUP);
        let severity = if expected { Severity::Note } else { Severity::Lost };
        let error = std::io::Error::from(errno);
        let text = format!("cannot set its {what}: {error} (said once; others after it may be like it)");
        self.monitor.problem(Problem::new(severity, path, text));
    }
}

/// Whether a file that is there has, by the looks of it, the contents that are wanted: it is a regular file of the
/// same size and time of modification. What only a comparison of the contents can tell is not asked here.
#[must_use]
pub fn looks_same(existing: &Stat, wanted: &Metadata) -> bool {
    existing.kind == Kind::File
        && wanted.kind == Kind::File
        && (existing.size, existing.mtime) == (wanted.size, wanted.mtime)
}
