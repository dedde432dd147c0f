//! The file system without the kernel: names to inodes, inodes to what is known of them.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use lru::LruCache;

use super::dirs::{Dir, Dirs, FIRST};
use super::extents::Extents;
use super::node::{Attr, Held, Stored};
use super::opened::Opened;
use super::pages::{Pages, Spot};
use super::upper::{Item, Shown, Upper, What};
use crate::base::time::Timestamp;
use crate::cache::Cache;
use crate::dir::reader::TreeError;
use crate::entry::{Content, Entry, Kind, Metadata, Owner, Reference};
use crate::store::StoreError;

/// Long files whose blocks are remembered.
const MEASURED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// There is no such inode.
    #[error("there is no such inode")]
    Stale,
    /// It is no directory.
    #[error("it is no directory")]
    NotADirectory,
    /// It is no link.
    #[error("it is no link")]
    NotALink,
    /// A directory or list could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The store is out of reach.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Something that a number leads to.
#[derive(Clone)]
pub enum Node {
    /// Above the generations.
    Upper(u64, Item),
    /// In a generation.
    Stored(Stored),
}

/// Told the number of an entry, its name and what it is; says whether it has had enough.
pub type EachStored<'a> = dyn FnMut(u64, &[u8], &Stored) -> Result<bool, Fault> + 'a;

/// The file system.
pub struct Tree {
    /// Directories and lists.
    pub pages: Pages,
    cache: Cache,
    upper: RwLock<Upper>,
    dirs: Dirs,
    measured: Mutex<LruCache<u64, u64>>,
    /// To whom belongs what was not saved.
    owner: Arc<Owner>,
    /// When that last changed.
    began: Timestamp,
}

impl Tree {
    /// A file system that shows nothing yet.
    pub fn new(pages: Pages, cache: Cache, owner: Owner, began: Timestamp) -> Self {
        let measured = Mutex::new(LruCache::new(MEASURED));
        let upper = RwLock::new(Upper::new());
        Self { pages, cache, upper, dirs: Dirs::default(), measured, owner: Arc::new(owner), began }
    }

    /// Shows this from now on.
    pub fn show(&self, shown: Shown) {
        self.upper.write().unwrap_or_else(PoisonError::into_inner).show(shown);
    }

    /// What a number leads to.
    pub fn node(&self, inode: u64) -> Result<Node, Fault> {
        if inode < FIRST {
            let upper = self.upper.read().unwrap_or_else(PoisonError::into_inner);
            return Ok(Node::Upper(inode, upper.item(inode).cloned().ok_or(Fault::Stale)?));
        }
        let (dir, index) = self.dirs.around(inode).ok_or(Fault::Stale)?;
        Ok(Node::Stored(self.entry_at(&dir, index)?.ok_or(Fault::Stale)?))
    }

    /// What stands under a name in a directory.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Option<Node>, Fault> {
        if let Node::Upper(_, Item { what: What::Directory(below), .. }) = self.node(parent)? {
            return below.get(name).map(|inode| self.node(*inode)).transpose();
        }
        let dir = self.dir(parent)?;
        if let Some(number) = dir.names.iter().position(|led_on| **led_on == *name) {
            return Ok(self.led_on(&dir, number)?.map(Node::Stored));
        }
        let spot = self.pages.find(dir.top, name)?;
        Ok(spot.map(|spot| Node::Stored(self.stored(&dir, spot))))
    }

    /// The directory with this number, looked into.
    pub fn dir(&self, inode: u64) -> Result<Arc<Dir>, Fault> {
        if let Some(dir) = self.dirs.get(inode) {
            return Ok(dir);
        }
        let (parent, generation, top, roots) = match self.node(inode)? {
            Node::Upper(_, Item { parent, what: What::Generation(opened) }) => {
                opened.fetch_trees(self.pages.source(), &self.cache)?;
                let top = opened.roots.root.as_ref().map(|root| top_of(&root.content));
                let roots = Some(Arc::clone(&opened.roots));
                (parent, opened, top.transpose()?.flatten(), roots)
            }
            Node::Upper(..) => return Err(Fault::NotADirectory),
            Node::Stored(stored) => {
                let top = top_of(&stored.entry().ok_or(Fault::Stale)?.content)?;
                (stored.dir.inode, Arc::clone(&stored.dir.generation), top, stored.roots)
            }
        };
        let roots = roots.filter(|roots| !roots.below.is_empty());
        let names = roots.as_ref().map(|roots| roots.names()).unwrap_or_default();
        let stored = self.pages.count(top)?;
        Ok(self.dirs.add(Dir { inode, parent, generation, top, first: 0, stored, roots, names }))
    }

    /// The entries of a directory of a generation from number `from` on, in order, until `each` has had enough.
    pub fn list(&self, dir: &Arc<Dir>, from: u64, each: &mut EachStored<'_>) -> Result<(), Fault> {
        let mut index = from;
        while index < dir.stored {
            let Some(Spot { leaf, before, number }) = self.pages.at(dir.top, index)? else {
                return Err(Fault::Stale);
            };
            for (number, entry) in leaf.iter().enumerate().skip(number) {
                let has_root = dir.roots.as_ref().is_some_and(|roots| roots.below.contains_key(&entry.name));
                if !has_root {
                    let stored = self.stored(dir, Spot { leaf: Arc::clone(&leaf), before, number });
                    if each(index, &entry.name, &stored)? {
                        return Ok(());
                    }
                }
                index = index.saturating_add(1);
            }
        }
        for (number, name) in dir.names.iter().enumerate() {
            let at = dir.stored.saturating_add(u64::try_from(number).unwrap_or(u64::MAX));
            if at >= from
                && let Some(stored) = self.led_on(dir, number)?
                && each(at, name, &stored)?
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Where a link leads.
    pub fn target(&self, inode: u64) -> Result<Vec<u8>, Fault> {
        match self.node(inode)? {
            Node::Upper(_, Item { what: What::Link(target), .. }) => Ok(target),
            Node::Upper(..) => Err(Fault::NotALink),
            Node::Stored(stored) => match &stored.entry().ok_or(Fault::Stale)?.content {
                Content::Target(target) => Ok(target.to_vec()),
                _ => Err(Fault::NotALink),
            },
        }
    }

    /// What was saved of an inode; nothing of what was not saved.
    pub fn entry(&self, inode: u64) -> Result<Option<Entry>, Fault> {
        Ok(match self.node(inode)? {
            Node::Upper(_, Item { what: What::Generation(opened), .. }) => opened.roots.root.clone(),
            Node::Upper(..) => None,
            Node::Stored(stored) => stored.entry().cloned(),
        })
    }

    /// What `stat` shows.
    pub fn attr(&self, node: &Node) -> Result<Attr, Fault> {
        match node {
            Node::Stored(stored) => self.stored_attr(stored),
            Node::Upper(inode, Item { what: What::Generation(opened), .. }) => {
                let entry = match &opened.roots.root {
                    Some(root) => root.clone(),
                    None => self.plain(opened),
                };
                self.attr_of(&entry, *inode, opened)
            }
            Node::Upper(inode, Item { what, .. }) => {
                let size = match what {
                    What::Link(target) => length(target),
                    _ => 0,
                };
                let kind = if matches!(what, What::Link(_)) { Kind::Symlink } else { Kind::Directory };
                Ok(Attr {
                    inode: *inode,
                    kind,
                    mode: if kind == Kind::Symlink { 0o777 } else { 0o755 },
                    uid: self.owner.uid,
                    gid: self.owner.gid,
                    size,
                    blocks: 0,
                    nlink: 1,
                    mtime: self.began,
                    ctime: self.began,
                    rdev: (0, 0),
                })
            }
        }
    }

    /// What `stat` shows of an entry.
    pub fn stored_attr(&self, stored: &Stored) -> Result<Attr, Fault> {
        self.attr_of(stored.entry().ok_or(Fault::Stale)?, stored.inode, &stored.dir.generation)
    }

    fn attr_of(&self, entry: &Entry, inode: u64, generation: &Opened) -> Result<Attr, Fault> {
        let Metadata { kind, mode, owner, mtime, ctime, size, link_group, rdev, .. } = &entry.metadata;
        let nlink = match link_group {
            Some(group) if *kind != Kind::Directory => {
                generation.fetch_trees(self.pages.source(), &self.cache)?;
                generation.names_of(*group, self.pages.source())?
            }
            _ => 1,
        };
        let size = match &entry.content {
            Content::Target(target) => length(target),
            _ => *size,
        };
        Ok(Attr {
            inode,
            kind: *kind,
            mode: *mode,
            uid: owner.uid,
            gid: owner.gid,
            size,
            blocks: self.data_bytes(&entry.content, inode)?.div_ceil(512),
            nlink,
            mtime: *mtime,
            ctime: *ctime,
            rdev: *rdev,
        })
    }

    /// Bytes of contents that are no holes.
    fn data_bytes(&self, content: &Content, inode: u64) -> Result<u64, TreeError> {
        if let Content::Inline(bytes) = content {
            return Ok(length(bytes));
        }
        let Some(extents) = Extents::new(content) else { return Ok(0) };
        if matches!(content, Content::Pieces(_)) {
            return extents.data(&self.pages);
        }
        let measured = || self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = measured().get(&inode) {
            return Ok(*bytes);
        }
        let bytes = extents.data(&self.pages)?;
        measured().put(inode, bytes);
        Ok(bytes)
    }

    /// The entry with this place in a directory.
    fn entry_at(&self, dir: &Arc<Dir>, index: u64) -> Result<Option<Stored>, Fault> {
        match index.checked_sub(dir.stored) {
            None => Ok(self.pages.at(dir.top, index)?.map(|spot| self.stored(dir, spot))),
            Some(number) => self.led_on(dir, usize::try_from(number).unwrap_or(usize::MAX)),
        }
    }

    fn stored(&self, dir: &Arc<Dir>, spot: Spot) -> Stored {
        let Spot { leaf, before, number } = spot;
        let index = before.saturating_add(u64::try_from(number).unwrap_or(u64::MAX));
        let group = leaf.get(number).and_then(|entry| entry.metadata.link_group);
        let inode = inode_of(dir, index, group);
        Stored { dir: Arc::clone(dir), inode, held: Held::InPage(leaf, number), roots: None }
    }

    /// The directory (or root) that leads on under the name of this number.
    fn led_on(&self, dir: &Arc<Dir>, number: usize) -> Result<Option<Stored>, Fault> {
        let Some(name) = dir.names.get(number) else { return Ok(None) };
        let Some(roots) = dir.roots.as_ref().and_then(|roots| roots.below.get(name)) else {
            return Ok(None);
        };
        let held = match &roots.root {
            Some(root) => Held::Own(Arc::new(root.clone())),
            None => match self.pages.find(dir.top, name)? {
                // It is on the way to a root, and was saved with another root.
                Some(Spot { leaf, number, .. })
                    if leaf.get(number).is_some_and(|entry| entry.metadata.kind == Kind::Directory) =>
                {
                    Held::InPage(leaf, number)
                }
                _ => Held::Own(Arc::new(self.plain(&dir.generation))),
            },
        };
        let index = dir.stored.saturating_add(u64::try_from(number).unwrap_or(u64::MAX));
        let group = roots.root.as_ref().and_then(|root| root.metadata.link_group);
        let inode = inode_of(dir, index, group);
        let roots = Some(Arc::clone(roots));
        Ok(Some(Stored { dir: Arc::clone(dir), inode, held, roots }))
    }

    /// A directory that leads to roots and was not saved itself.
    fn plain(&self, generation: &Opened) -> Entry {
        let time = generation.record.started;
        Entry {
            name: Box::default(),
            metadata: Metadata {
                kind: Kind::Directory,
                mode: 0o755,
                owner: Arc::clone(&self.owner),
                mtime: time,
                ctime: time,
                inode: 0,
                size: 0,
                link_group: None,
                rdev: (0, 0),
                flags: 0,
            },
            xattrs: Vec::new(),
            content: Content::Directory(None),
        }
    }
}

fn inode_of(dir: &Dir, index: u64, group: Option<(u64, u64)>) -> u64 {
    let ours = dir.first.saturating_add(index);
    group.map_or(ours, |group| dir.generation.inode_of(group, ours))
}

fn top_of(content: &Content) -> Result<Option<Reference>, Fault> {
    match content {
        Content::Directory(top) => Ok(*top),
        _ => Err(Fault::NotADirectory),
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
