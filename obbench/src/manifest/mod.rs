//! Everything that can be said of a tree, as text: two trees are the same when their manifests are.
//!
//! One line for each entry, in the order of the names' bytes, with its kind, mode, owner and group (numbers), modification time to the
//! nanosecond, size, device numbers, hard links, inode flags, extended attributes, and, for a regular file, which parts
//! hold data and a checksum of the contents, for a symbolic link its target. Names are escaped, so that any name makes
//! one line. Access and change times are left out, since no restore can bring them back, and so are inode numbers, but which
//! names share an inode is told.
//!
//! The walk opens each directory relative to the one above, so that paths may be longer than the system's limit.

mod contents;
mod entry;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};

/// The manifest of the tree whose top is `root` (which is followed when it is a symbolic link).
///
/// # Errors
/// What the operating system says, with the path in the tree.
pub fn of(root: &Path) -> io::Result<String> {
    let top = open(CWD, root.as_os_str(), OFlags::empty()).map_err(|error| at(b".", &error))?;
    let mut walk = Walk { text: String::new(), links: HashMap::new() };
    walk.entry(top.as_fd(), OsStr::new("."), b".")?;
    walk.directory(&top, b".")?;
    Ok(walk.text)
}

struct Walk {
    text: String,
    /// Device and inode number of a file with several links, and its first name.
    links: HashMap<(u64, u64), String>,
}

impl Walk {
    fn directory(&mut self, directory: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory).map_err(|error| at(path, &error.into()))? {
            let name = entry.map_err(|error| at(path, &error.into()))?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort();
        for name in names {
            let below = [path, b"/", &name].concat();
            let name = OsStr::from_bytes(&name);
            if self.entry(directory.as_fd(), name, &below)? {
                let inner = open(directory, name, OFlags::NOFOLLOW).map_err(|error| at(&below, &error))?;
                self.directory(&inner, &below)?;
            }
        }
        Ok(())
    }

    /// Writes an entry's line; whether it is a directory.
    fn entry(&mut self, parent: BorrowedFd<'_>, name: &OsStr, path: &[u8]) -> io::Result<bool> {
        let stat = rustix::fs::statx(parent, name, AtFlags::SYMLINK_NOFOLLOW, rustix::fs::StatxFlags::ALL)
            .map_err(|error| at(path, &error.into()))?;
        let shown = path.escape_ascii().to_string();
        let entry = entry::Entry::read(parent, name, &stat).map_err(|error| at(path, &error))?;
        let _ = write!(self.text, "{shown}\t{entry}");
        if !entry.is_directory() && stat.stx_nlink > 1 {
            let device = (u64::from(stat.stx_dev_major) << 32) | u64::from(stat.stx_dev_minor);
            let first = self.links.entry((device, stat.stx_ino)).or_insert_with(|| shown.clone());
            let _ = write!(self.text, " link:{first}");
        }
        self.text.push('\n');
        Ok(entry.is_directory())
    }
}

fn open(parent: impl std::os::fd::AsFd, name: &OsStr, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn at(path: &[u8], error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.escape_ascii()))
}

#[cfg(test)]
mod tests;
