//! What the kernel wants to be told, from what is known.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo};

use super::super::file::FileError;
use super::super::node::Attr;
use super::super::tree::Fault;
use crate::base::time::Timestamp;
use crate::entry::Kind;

/// The kernel's name for a kind.
pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// What `stat` shows. The time of the last access is not saved: that of the last change stands for it.
pub fn attr(attr: &Attr) -> FileAttr {
    let mtime = system_time(attr.mtime);
    FileAttr {
        ino: INodeNo(attr.inode),
        size: attr.size,
        blocks: attr.blocks,
        atime: mtime,
        mtime,
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device(attr.rdev),
        blksize: 4096,
        flags: 0,
    }
}

/// An entry that is not there: the kernel remembers that, too.
pub fn nothing() -> FileAttr {
    attr(&Attr {
        inode: 0,
        kind: Kind::File,
        mode: 0,
        uid: 0,
        gid: 0,
        size: 0,
        blocks: 0,
        nlink: 0,
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        rdev: (0, 0),
    })
}

/// Major and minor number as the kernel packs them into 32 bits.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0x000f_ff00) << 12)
}

/// A time that cannot be told becomes 1970.
fn system_time(time: Timestamp) -> SystemTime {
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    let whole = if time.secs < 0 { UNIX_EPOCH.checked_sub(secs) } else { UNIX_EPOCH.checked_add(secs) };
    whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
}

/// What a program is told.
pub fn errno(fault: &Fault) -> Errno {
    match fault {
        Fault::Stale => Errno::ESTALE,
        Fault::NotADirectory => Errno::ENOTDIR,
        Fault::NotALink => Errno::EINVAL,
        Fault::Tree(_) | Fault::Store(_) => Errno::EIO,
    }
}

/// What a program is told of a file that cannot be read.
pub fn file_errno(_: &FileError) -> Errno {
    Errno::EIO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after() {
        for (secs, nanos) in [(0, 1), (-1, 500_000_000), (-2_177_452_800, 1), (16_738_272_000, 999_999_999)] {
            let time = Timestamp { secs, nanos };
            assert_eq!(Timestamp::from_system(system_time(time)), time);
        }
        assert!(system_time(Timestamp { secs: i64::MIN, nanos: 0 }).elapsed().is_ok());
    }

    #[test]
    fn devices_of_any_size() {
        assert_eq!(device((1, 3)), 0x103);
        assert_eq!(device((300, 70000)), (70000 & 0xff) | (300 << 8) | ((70000 & 0xf_ff00) << 12));
    }
}
