//! An entry of a generation, in words and in JSON.

use std::fmt;

use serde::Serialize;

use super::human::{local_time, rfc3339};
use crate::base::text::escape;
use crate::entry::{Content, Entry, Kind, XattrValue};

/// An entry, as `--json` writes it.
#[derive(Debug, Serialize)]
pub struct EntryReport {
    path: String,
    kind: &'static str,
    mode: String,
    uid: u32,
    gid: u32,
    user: String,
    group: String,
    size: u64,
    mtime: String,
    ctime: String,
    /// Major and minor number of a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<(u32, u32)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl EntryReport {
    /// Of what stands at this path.
    #[must_use]
    pub fn new(path: &[u8], entry: &Entry) -> Self {
        let metadata = &entry.metadata;
        Self {
            path: escape(path),
            kind: kind_name(metadata.kind),
            mode: format!("{:04o}", metadata.mode),
            uid: metadata.owner.uid,
            gid: metadata.owner.gid,
            user: escape(&metadata.owner.user),
            group: escape(&metadata.owner.group),
            size: metadata.size,
            mtime: rfc3339(metadata.mtime),
            ctime: rfc3339(metadata.ctime),
            rdev: is_device(metadata.kind).then_some(metadata.rdev),
            xattrs: entry.xattrs.iter().map(|xattr| escape(&xattr.name)).collect(),
            target: target(entry).map(escape),
        }
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "char",
        Kind::BlockDevice => "block",
    }
}

fn is_device(kind: Kind) -> bool {
    matches!(kind, Kind::CharDevice | Kind::BlockDevice)
}

fn target(entry: &Entry) -> Option<&[u8]> {
    match &entry.content {
        Content::Target(target) => Some(target),
        _ => None,
    }
}

/// An entry as a line like those of `ls -l`.
pub struct EntryLine<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// What stands there.
    pub entry: &'a Entry,
    /// Whether to tell all: owners as numbers too, times to the nanosecond, xattrs on lines of their own.
    pub is_long: bool,
}

impl fmt::Display for EntryLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, entry, is_long } = self;
        let metadata = &entry.metadata;
        let owner = &metadata.owner;
        let named = |name: &[u8], number: u32| match (name.is_empty(), is_long) {
            (true, _) => number.to_string(),
            (false, false) => escape(name),
            (false, true) => format!("{}({number})", escape(name)),
        };
        let (user, group) = (named(&owner.user, owner.uid), named(&owner.group, owner.gid));
        let size = match metadata.kind {
            kind if is_device(kind) => format!("{},{}", metadata.rdev.0, metadata.rdev.1),
            _ => metadata.size.to_string(),
        };
        let mode = mode(metadata.kind, metadata.mode);
        let time = if *is_long { rfc3339(metadata.mtime) } else { local_time(metadata.mtime) };
        write!(f, "{mode} {user:8} {group:8} {size:>12} {time} {}", escape(path))?;
        if let Some(target) = target(entry) {
            write!(f, " -> {}", escape(target))?;
        }
        if *is_long {
            write!(f, "\n    changed {}, inode {}", rfc3339(metadata.ctime), metadata.inode)?;
            if metadata.link_group.is_some() {
                f.write_str(", several names")?;
            }
            for xattr in &entry.xattrs {
                let len = match &xattr.value {
                    XattrValue::Inline(value) => value.len(),
                    XattrValue::Chunk(chunk) => usize::try_from(chunk.place.len).unwrap_or(usize::MAX),
                };
                write!(f, "\n    {}: {len} bytes", escape(&xattr.name))?;
            }
        }
        Ok(())
    }
}

/// `drwxr-sr-t` and its like.
fn mode(kind: Kind, mode: u16) -> String {
    let kind = match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special == 0, bits & 1 == 0) {
            (true, true) => '-',
            (true, false) => 'x',
            (false, true) => letter.to_ascii_uppercase(),
            (false, false) => letter,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_as_ls_shows_them() {
        assert_eq!(mode(Kind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(Kind::File, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode(Kind::File, 0o6644), "-rwSr-Sr--");
        assert_eq!(mode(Kind::Symlink, 0o777), "lrwxrwxrwx");
    }
}
