//! What the system says of a file without opening it.

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags, makedev, statx};

use super::names::kind_of;
use super::{LiveError, Owners, Result};
use crate::base::time::Timestamp;
use crate::entry::{Kind, Metadata};

/// What `statx` says: plain numbers, cheap to get and to compare. Everything but xattrs and inode flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What kind of file it is.
    pub kind: Kind,
    /// The low twelve bits of `st_mode`.
    pub mode: u16,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// When the contents last changed.
    pub mtime: Timestamp,
    /// When the inode last changed.
    pub ctime: Timestamp,
    /// The inode number.
    pub inode: u64,
    /// The device that it lies on. Differs between a mount point and the directory around it.
    pub dev: u64,
    /// As the system gives it: length of a file or link target in bytes; for others without meaning.
    pub size: u64,
    /// Blocks of 512 bytes that are allocated.
    pub blocks: u64,
    /// Number of hard links.
    pub nlink: u32,
    /// Major and minor number of a device, else zeros.
    pub rdev: (u32, u32),
    /// Whether it is marked immutable or append-only, where the file system tells that here.
    pub is_protected: bool,
}

impl Stat {
    /// Whether both are the same inode of the same kind, whatever else has changed.
    #[must_use]
    pub fn is_same_inode(&self, other: &Self) -> bool {
        (self.inode, self.dev, self.kind) == (other.inode, other.dev, other.kind)
    }

    /// Whether it may have holes: fewer blocks than its size needs.
    #[must_use]
    pub fn may_have_holes(&self) -> bool {
        self.kind == Kind::File && self.blocks.saturating_mul(512) < self.size
    }

    /// For a non-directory with more than one link: the device and inode number that its links share.
    #[must_use]
    pub fn link_group(&self) -> Option<(u64, u64)> {
        (self.kind != Kind::Directory && self.nlink > 1).then_some((self.dev, self.inode))
    }

    /// As the metadata of an entry, with the owner's names, without xattrs and inode flags.
    #[must_use]
    pub fn metadata(&self, owners: &Owners) -> Metadata {
        Metadata {
            kind: self.kind,
            mode: self.mode,
            owner: owners.get(self.uid, self.gid),
            mtime: self.mtime,
            ctime: self.ctime,
            inode: self.inode,
            size: if self.kind == Kind::File { self.size } else { 0 },
            link_group: self.link_group(),
            rdev: self.rdev,
            flags: 0,
        }
    }

    /// `None` if it is of a kind that has no name here.
    fn from_statx(statx: &Statx) -> Option<Self> {
        let kind = kind_of(FileType::from_raw_mode(statx.stx_mode.into()))?;
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let protected = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
        Some(Self {
            kind,
            mode: statx.stx_mode & 0o7777,
            uid: statx.stx_uid,
            gid: statx.stx_gid,
            mtime: Timestamp { secs: statx.stx_mtime.tv_sec, nanos: statx.stx_mtime.tv_nsec },
            ctime: Timestamp { secs: statx.stx_ctime.tv_sec, nanos: statx.stx_ctime.tv_nsec },
            inode: statx.stx_ino,
            dev: makedev(statx.stx_dev_major, statx.stx_dev_minor),
            size: statx.stx_size,
            blocks: statx.stx_blocks,
            nlink: statx.stx_nlink,
            rdev: if is_device { (statx.stx_rdev_major, statx.stx_rdev_minor) } else { (0, 0) },
            is_protected: statx.stx_attributes.intersects(protected),
        })
    }
}

/// Looks at `name` in the directory `dir`, following no link and mounting nothing. One system call.
///
/// # Errors
/// [`LiveError::Vanished`] if it is gone, else what the system said.
pub fn stat_child(dir: impl AsFd, name: &[u8]) -> Result<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let statx = statx(dir, name, flags, StatxFlags::BASIC_STATS)
        .map_err(|errno| LiveError::opening("look at it", errno))?;
    Stat::from_statx(&statx).ok_or(LiveError::Replaced)
}

/// When the inode `name` came to be, where the file system tells. Unlike the other times, nobody can set it.
///
/// # Errors
/// As [`stat_child`].
pub fn born_child(dir: impl AsFd, name: &[u8]) -> Result<Option<Timestamp>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let statx = statx(dir, name, flags, StatxFlags::BTIME)
        .map_err(|errno| LiveError::opening("look at it", errno))?;
    let is_told = StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::BTIME);
    let born = Timestamp { secs: statx.stx_btime.tv_sec, nanos: statx.stx_btime.tv_nsec };
    Ok((is_told && born != Timestamp::default()).then_some(born))
}

/// Looks at an open file.
///
/// # Errors
/// What the system said.
pub fn stat_fd(fd: impl AsFd) -> Result<Stat> {
    let statx = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .map_err(|errno| LiveError::new("look at it", errno))?;
    Stat::from_statx(&statx).ok_or(LiveError::Replaced)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::super::testing::{Scratch, is_root, run};
    use super::*;

    #[test]
    fn every_kind() {
        let scratch = Scratch::new();
        std::fs::write(scratch.join("file"), "12345").unwrap();
        std::fs::hard_link(scratch.join("file"), scratch.join("link")).unwrap();
        symlink("to nowhere", scratch.join("symlink")).unwrap();
        run("mkfifo", &["-m", "600", "fifo"], scratch.path());
        drop(std::os::unix::net::UnixListener::bind(scratch.join("socket")).unwrap());
        let odd = std::ffi::OsStr::from_bytes(&[0xff; 255]);
        std::fs::create_dir(scratch.path().join(odd)).unwrap();
        let fd = scratch.open().fd().unwrap();
        let look = |name: &[u8]| stat_child(&fd, name).unwrap();

        let file = look(b"file");
        let meta = std::fs::metadata(scratch.join("file")).unwrap();
        assert_eq!((file.kind, file.size, file.nlink), (Kind::File, 5, 2));
        assert_eq!((file.inode, file.dev, file.uid), (meta.ino(), meta.dev(), meta.uid()));
        assert_eq!((file.mtime.secs, i64::from(file.mtime.nanos)), (meta.mtime(), meta.mtime_nsec()));
        assert_eq!((file.ctime.secs, i64::from(file.ctime.nanos)), (meta.ctime(), meta.ctime_nsec()));
        assert_eq!(file.metadata(&Owners::new()).link_group, Some((meta.dev(), meta.ino())));
        assert_eq!(look(b"symlink").kind, Kind::Symlink);
        assert_eq!(look(b"symlink").metadata(&Owners::new()).size, 0);
        assert_eq!((look(b"fifo").kind, look(b"fifo").mode), (Kind::Fifo, 0o600));
        assert_eq!(look(b"socket").kind, Kind::Socket);
        let dir = look(&[0xff; 255]);
        assert_eq!((dir.kind, dir.link_group()), (Kind::Directory, None));
        assert!(matches!(stat_child(&fd, b"gone"), Err(LiveError::Vanished)));
        if is_root() {
            run("mknod", &["device", "c", "300", "70000"], scratch.path());
            let device = look(b"device");
            assert_eq!((device.kind, device.rdev), (Kind::CharDevice, (300, 70000)));
        }
    }

    #[test]
    fn times_of_any_year() {
        let scratch = Scratch::in_memory();
        for (name, date, secs, nanos) in [
            ("old", "1901-01-01T00:00:00.000000001Z", -2_177_452_800, 1),
            ("late", "2500-06-01T00:00:00.999999999Z", 16_738_272_000, 999_999_999),
        ] {
            run("touch", &["-d", date, name], scratch.path());
            let stat = stat_child(scratch.open().fd().unwrap(), name.as_bytes()).unwrap();
            assert_eq!(stat.mtime, Timestamp { secs, nanos });
        }
    }
}
