//! What is no regular file and no directory, and further names of what is there.

use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, linkat, makedev, mknodat, openat, symlinkat};
use rustix::io::Errno;

use super::Target;
use super::attributes::Inode;
use crate::entry::{Kind, Metadata};
use crate::live::stat::{stat_child, stat_fd};
use crate::live::{DirFd, LiveDir, LiveError, RawXattr, Result, flags};

/// How often a link is made whose temporary name goes away.
const ATTEMPTS: usize = 8;

impl Target {
    /// Makes a symbolic link, in place of whatever stands there.
    ///
    /// # Errors
    /// What the system said.
    pub fn make_symlink(
        &self,
        dir: &Arc<LiveDir>,
        name: &[u8],
        target: &[u8],
        wanted: &Metadata,
        xattrs: &[RawXattr],
    ) -> Result<()> {
        self.make(dir, name, wanted, xattrs, |fd, temporary| {
            symlinkat(target, fd, temporary).map_err(|errno| LiveError::new("make the link", errno))
        })
    }

    /// Makes a FIFO, a socket (that nobody listens to) or a device, in place of whatever stands there.
    ///
    /// # Errors
    /// What the system said: an ordinary user cannot make devices. [`LiveError::Replaced`] if `wanted` is none of
    /// these.
    pub fn make_special(
        &self,
        dir: &Arc<LiveDir>,
        name: &[u8],
        wanted: &Metadata,
        xattrs: &[RawXattr],
    ) -> Result<()> {
        let (kind, action) = match wanted.kind {
            Kind::Fifo => (FileType::Fifo, "make the FIFO"),
            Kind::Socket => (FileType::Socket, "make the socket"),
            Kind::CharDevice => (FileType::CharacterDevice, "make the device"),
            Kind::BlockDevice => (FileType::BlockDevice, "make the device"),
            Kind::File | Kind::Directory | Kind::Symlink => return Err(LiveError::Replaced),
        };
        let (major, minor) = wanted.rdev;
        self.make(dir, name, wanted, xattrs, |fd, temporary| {
            mknodat(fd, temporary, kind, Mode::from_raw_mode(0o600), makedev(major, minor))
                .map_err(|errno| LiveError::new(action, errno))
        })
    }

    fn make(
        &self,
        dir: &Arc<LiveDir>,
        name: &[u8],
        wanted: &Metadata,
        xattrs: &[RawXattr],
        make: impl FnOnce(&DirFd, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let fd = dir.fd()?;
        let temporary = self.temporary_name();
        make(&fd, &temporary)?;
        let result = open_path(&fd, &temporary).and_then(|made| {
            let mut refused = |what, errno| self.refused(&dir.path_of(name), what, errno);
            self.apply(&Inode::by_path(&made), wanted, xattrs, &mut refused)?;
            self.put_in_place(dir, &fd, &temporary, name)
        });
        if result.is_err() {
            Self::discard(&fd, &temporary);
        }
        result
    }

    /// Makes `name` in `dir` another name of the file `existing`, in place of whatever stands there; does nothing if
    /// it is so. The file keeps its metadata, protection by flags included.
    ///
    /// # Errors
    /// What the system said: the file may have too many links, or the file system may know none.
    pub fn make_link(&self, existing: (&Arc<LiveDir>, &[u8]), dir: &Arc<LiveDir>, name: &[u8]) -> Result<()> {
        let (from, fd) = (existing.0.fd()?, dir.fd()?);
        let stat = stat_child(&from, existing.1)?;
        if stat_child(&fd, name).is_ok_and(|there| there.is_same_inode(&stat)) {
            return Ok(());
        }
        let protected = if stat.is_protected { self.lift_protection(&from, existing.1)? } else { None };
        let link = || {
            let temporary = self.temporary_name();
            linkat(&from, existing.1, &fd, &temporary, AtFlags::empty())
                .map_err(|errno| LiveError::new("make the hard link", errno))?;
            let result = self.put_in_place(dir, &fd, &temporary, name);
            if result.is_err() {
                Self::discard(&fd, &temporary);
            }
            result
        };
        // No lock keeps a restore beside this one from taking the temporary name for one that was left behind.
        let mut result = link();
        for _ in 1..ATTEMPTS {
            if !matches!(result, Err(LiveError::Vanished)) {
                break;
            }
            result = link();
        }
        if let Some((file, flags)) = protected {
            let mut refused = |what, errno| self.refused(&dir.path_of(name), what, errno);
            self.apply_flags(&file, flags, flags::PROTECTION, &mut refused);
        }
        result
    }

    /// Opens a protected file and makes it changeable. Gives the flags that protected it.
    fn lift_protection(&self, dir: &DirFd, name: &[u8]) -> Result<Option<(OwnedFd, u32)>> {
        if !matches!(stat_child(dir, name)?.kind, Kind::File | Kind::Directory) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file =
            openat(dir, name, flags, Mode::empty()).map_err(|errno| LiveError::opening("open it", errno))?;
        let protection = flags::flags_of_fd(&file) & flags::PROTECTION;
        flags::set(&file, 0, flags::PROTECTION)
            .map_err(|errno| LiveError::new("make it changeable", errno))?;
        Ok(Some((file, protection)))
    }

    /// Gives the metadata to what is there already, of whatever kind but a directory that is still being filled.
    ///
    /// # Errors
    /// [`LiveError::Replaced`] if it is of another kind, else what the system said when it was looked for; what it
    /// refuses to set goes to the monitor.
    pub fn set_metadata(
        &self,
        dir: &Arc<LiveDir>,
        name: &[u8],
        wanted: &Metadata,
        xattrs: &[RawXattr],
    ) -> Result<()> {
        let fd = dir.fd()?;
        let inode = open_path(&fd, name)?;
        let stat = stat_fd(&inode)?;
        if stat.kind != wanted.kind {
            return Err(LiveError::Replaced);
        }
        let mut refused = |what, errno| self.refused(&dir.path_of(name), what, errno);
        if stat.is_protected {
            self.lift_protection(&fd, name)?;
        }
        self.apply(&Inode::by_path(&inode), wanted, xattrs, &mut refused)?;
        if matches!(stat.kind, Kind::File | Kind::Directory) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match openat(&fd, name, flags, Mode::empty()) {
                Ok(file) => {
                    let mask = flags::SETTABLE & !flags::BEFORE_DATA;
                    self.apply_flags(&file, wanted.flags, mask, &mut refused);
                }
                // A file that its own user cannot read: without flags there is nothing to be done.
                Err(Errno::ACCESS) if wanted.flags == 0 => {}
                Err(errno) => refused(super::Refused::Flags, errno),
            }
        }
        Ok(())
    }
}

/// A handle of a file of any kind that neither follows nor opens it.
fn open_path(dir: &DirFd, name: &[u8]) -> Result<OwnedFd> {
    openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| LiveError::opening("open it", errno))
}
