//! What a directory entry is: its metadata, and where its contents lie.
//!
//! An [`Entry`] is the same whether it was read from the live data or from a DIR page. Everything that a Linux
//! file system can say of a file is here, except its access time. References are *places*: an entry alone is
//! enough to fetch the contents, no index is asked. While a generation is being made, the places of its newest
//! objects are not known yet; the types that hold references are therefore generic in them (`R`).

use std::sync::Arc;

use crate::base::id::{BagId, ObjectId};
use crate::base::time::Timestamp;

/// What kind of file an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// A user and a group, by number and (where known) by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Owner {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// The user's name; empty when unknown.
    pub user: Box<[u8]>,
    /// The group's name; empty when unknown.
    pub group: Box<[u8]>,
}

/// An extended attribute. POSIX ACLs and capabilities are such.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr<R = Reference> {
    /// Its full name (`user.x`, `security.capability`, `system.posix_acl_access`).
    pub name: Box<[u8]>,
    /// Its value.
    pub value: XattrValue<R>,
}

/// The value of an extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XattrValue<R = Reference> {
    /// A small value, here.
    Inline(Box<[u8]>),
    /// A large value, stored as a chunk.
    Chunk(R),
}

/// All that is known of a file besides its name and contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// What kind of file it is.
    pub kind: Kind,
    /// The permission bits with setuid, setgid and sticky: the low twelve bits of `st_mode`.
    pub mode: u16,
    /// To whom it belongs.
    pub owner: Arc<Owner>,
    /// When the contents last changed.
    pub mtime: Timestamp,
    /// When the inode last changed. Cannot be restored; serves to detect changes.
    pub ctime: Timestamp,
    /// The inode number. Serves to detect changes and to recognise moved files.
    pub inode: u64,
    /// Length of a regular file's contents in bytes; 0 for all others.
    pub size: u64,
    /// For a non-directory with more than one link: the device and inode number that its links share.
    pub link_group: Option<(u64, u64)>,
    /// Major and minor number of a device, else zeros.
    pub rdev: (u32, u32),
    /// Inode flags as `FS_IOC_GETFLAGS` gives them, those that can be set again; 0 when unknown.
    pub flags: u32,
}

/// Where an object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The bag.
    pub bag: BagId,
    /// Where its block begins in the bag, in bytes.
    pub offset: u64,
    /// The sealed length of the block, in bytes.
    pub stored: u32,
    /// Where the object begins in the opened block, in bytes.
    pub start: u32,
    /// The object's length in bytes.
    pub len: u32,
}

/// An object: its name and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// The keyed hash of its contents.
    pub id: ObjectId,
    /// Where it lies.
    pub place: Place,
}

/// A piece of a file's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<R = Reference> {
    /// Bytes stored as a chunk.
    Chunk(R),
    /// A hole of this many bytes.
    Hole(u64),
}

impl Piece {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Chunk(reference) => u64::from(reference.place.len),
            Self::Hole(len) => *len,
        }
    }

    /// Whether it is of no length.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A part of a long chunk list, stored as an object of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListPart<R = Reference> {
    /// The list object.
    pub list: R,
    /// Bytes of contents that its pieces cover.
    pub bytes: u64,
}

/// What an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content<R = Reference> {
    /// Nothing: FIFOs, sockets, devices, empty files, and files that could not be read.
    Empty,
    /// A small file's bytes, here.
    Inline(Box<[u8]>),
    /// A file's pieces, in order.
    Pieces(Vec<Piece<R>>),
    /// A long file's list objects, in order; `depth` 1 means that they hold pieces, more that they hold parts again.
    Lists {
        /// Levels of list objects.
        depth: u8,
        /// The list objects.
        parts: Vec<ListPart<R>>,
    },
    /// A symbolic link's target.
    Target(Box<[u8]>),
    /// A directory's top page; `None` when it has no entries.
    Directory(Option<R>),
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<R = Reference> {
    /// Its name in the directory, as bytes, without `/` and NUL; never empty, `.` or `..`.
    pub name: Box<[u8]>,
    /// Its metadata.
    pub metadata: Metadata,
    /// Its extended attributes, by name.
    pub xattrs: Vec<Xattr<R>>,
    /// Its contents.
    pub content: Content<R>,
}

/// Whether `name` may stand in a directory: not empty, no `/`, no NUL, not `.` or `..`.
#[must_use]
pub fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}
