//! What a file system says of a file, without the kernel's types.

use std::sync::Arc;

use super::dirs::Dir;
use super::pages::Leaf;
use super::roots::Roots;
use crate::base::time::Timestamp;
use crate::entry::{Entry, Kind};

/// What `stat` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub inode: u64,
    /// What kind of file it is.
    pub kind: Kind,
    /// The low twelve bits of the mode.
    pub mode: u16,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// Bytes of contents, or of a link's target.
    pub size: u64,
    /// Blocks of 512 bytes that are no holes.
    pub blocks: u64,
    /// Number of names; 1 of a directory, which says that it is not told.
    pub nlink: u32,
    /// When the contents last changed.
    pub mtime: Timestamp,
    /// When the inode last changed.
    pub ctime: Timestamp,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
}

/// An entry that is kept alive by whoever looks at it.
#[derive(Clone)]
pub enum Held {
    /// In its page.
    InPage(Leaf, usize),
    /// By itself.
    Own(Arc<Entry>),
}

/// An entry of a generation, and where it stands.
#[derive(Clone)]
pub struct Stored {
    /// The directory that it stands in; of a generation's top directory, itself.
    pub dir: Arc<Dir>,
    /// The inode number.
    pub inode: u64,
    /// The entry. Its name is not that under which it stands, if it is a root.
    pub held: Held,
    /// The roots that stand below it.
    pub roots: Option<Arc<Roots>>,
}

impl Stored {
    /// The entry; `None` never.
    #[must_use]
    pub fn entry(&self) -> Option<&Entry> {
        match &self.held {
            Held::InPage(leaf, number) => leaf.get(*number),
            Held::Own(entry) => Some(entry),
        }
    }
}
