//! Inode flags, as `chattr` sets them.

use rustix::fd::AsFd;
use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, openat};
use rustix::io::Errno;

use super::{LiveError, Result};

/// `FS_NOCOMP_FL`, for which rustix has no name.
const NOCOMP: u32 = 0x400;

/// The flags that are worth saving: those that a user sets and may set again. The others describe how the file
/// system keeps the file.
pub const SETTABLE: u32 = IFlags::APPEND.bits()
    | IFlags::IMMUTABLE.bits()
    | IFlags::COMPRESSED.bits()
    | NOCOMP
    | IFlags::NOCOW.bits()
    | IFlags::NODUMP.bits()
    | IFlags::NOATIME.bits()
    | IFlags::SYNC.bits()
    | IFlags::DIRSYNC.bits()
    | IFlags::JOURNALING.bits()
    | IFlags::NOTAIL.bits()
    | IFlags::SECURE_REMOVAL.bits()
    | IFlags::TOPDIR.bits()
    | IFlags::UNRM.bits();

/// Flags that a file system takes from an empty file only.
pub(super) const BEFORE_DATA: u32 = IFlags::COMPRESSED.bits() | NOCOMP | IFlags::NOCOW.bits();

/// Flags under which a file cannot be changed, linked, renamed or removed.
pub(super) const PROTECTION: u32 = IFlags::APPEND.bits() | IFlags::IMMUTABLE.bits();

/// The flags of an open regular file or directory that can be set again; 0 where the file system has none.
#[must_use]
pub fn flags_of_fd(fd: impl AsFd) -> u32 {
    ioctl_getflags(fd).map_or(0, |flags| flags.bits() & SETTABLE)
}

/// The flags of the regular file or directory `name`, for which it must be opened; nothing else may be asked this
/// way, since opening a FIFO or a device does things.
///
/// # Errors
/// As [`super::read::LiveFile::open`].
pub fn flags_of_child(dir: impl AsFd, name: &[u8]) -> Result<u32> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(dir, name, flags, Mode::empty()).map_err(|errno| LiveError::opening("open it", errno))?;
    Ok(flags_of_fd(fd))
}

/// Sets those flags of `mask` (a part of [`SETTABLE`]) that `wanted` has and clears those that it has not; does
/// nothing if they are so. Whether they are so is known only where the file system has flags.
pub(super) fn set(fd: impl AsFd, wanted: u32, mask: u32) -> rustix::io::Result<()> {
    let mask = mask & SETTABLE;
    let now = match ioctl_getflags(&fd) {
        Ok(flags) => flags.bits(),
        Err(errno) if wanted & mask == 0 && errno != Errno::IO => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let next = now & !mask | wanted & mask;
    if next == now { Ok(()) } else { ioctl_setflags(fd, IFlags::from_bits_retain(next)) }
}
