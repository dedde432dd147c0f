//! What is said of one entry.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags, Statx};

use super::contents::Contents;

/// One entry.
pub struct Entry {
    kind: FileType,
    mode: u16,
    owner: (u32, u32),
    mtime: (i64, u32),
    device: (u32, u32),
    flags: Option<u32>,
    target: Option<Vec<u8>>,
    contents: Option<Contents>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// Reads all about `name` in the directory `parent`.
    pub fn read(parent: BorrowedFd<'_>, name: &OsStr, stat: &Statx) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let open = |flags| rustix::fs::openat(parent, name, flags | OFlags::NOFOLLOW, Mode::empty());
        let file = match kind {
            FileType::RegularFile => Some(open(OFlags::RDONLY)?),
            _ => None,
        };
        let flags = match (&file, kind) {
            (Some(file), _) => rustix::fs::ioctl_getflags(file).ok(),
            (None, FileType::Directory) => rustix::fs::ioctl_getflags(open(OFlags::RDONLY)?).ok(),
            _ => None,
        };
        Ok(Self {
            kind,
            mode: stat.stx_mode & 0o7777,
            owner: (stat.stx_uid, stat.stx_gid),
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            device: (stat.stx_rdev_major, stat.stx_rdev_minor),
            flags: flags.map(|flags| flags.bits() & KEPT_FLAGS),
            target: match kind {
                FileType::Symlink => Some(rustix::fs::readlinkat(parent, name, Vec::new())?.into_bytes()),
                _ => None,
            },
            contents: file.map(|file| Contents::read(&file.into(), stat.stx_size)).transpose()?,
            xattrs: xattrs(parent, name)?,
        })
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// Append-only, immutable, no-atime, no-dump, no-copy-on-write, synchronous: what people set. The others say how a file system stores the file.
const KEPT_FLAGS: u32 = 0x0080_00f8;

/// By the path of the open parent, since an entry that cannot be opened (a FIFO, a symbolic link) has attributes, too.
fn xattrs(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", parent.as_raw_fd())).join(name);
    let mut buffer = vec![0; 1 << 16];
    let length = match rustix::fs::llistxattr(&path, &mut buffer[..]) {
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for name in buffer[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 1 << 16];
        let length = rustix::fs::lgetxattr(&path, OsStr::from_bytes(name), &mut value[..])?;
        value.truncate(length);
        found.push((name.to_vec(), value));
    }
    found.sort();
    Ok(found)
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FileType::RegularFile => "file",
            FileType::Directory => "dir",
            FileType::Symlink => "symlink",
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
            FileType::CharacterDevice => "char",
            FileType::BlockDevice => "block",
            FileType::Unknown => "unknown",
        };
        let Self { mode, owner: (uid, gid), mtime: (secs, nanos), .. } = self;
        write!(f, "{kind} {mode:04o} {uid}:{gid} {secs}.{nanos:09}")?;
        if matches!(self.kind, FileType::CharacterDevice | FileType::BlockDevice) {
            write!(f, " device:{}:{}", self.device.0, self.device.1)?;
        }
        if let Some(contents) = &self.contents {
            write!(f, " {contents}")?;
        }
        if let Some(target) = &self.target {
            write!(f, " target:{}", target.escape_ascii())?;
        }
        if let Some(flags) = self.flags.filter(|flags| *flags != 0) {
            write!(f, " flags:{flags:x}")?;
        }
        for (name, value) in &self.xattrs {
            write!(f, " {}={}", name.escape_ascii(), value.escape_ascii())?;
        }
        Ok(())
    }
}
