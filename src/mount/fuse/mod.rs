//! Answers the kernel's requests.
//!
//! Threads that take requests answer what is known: names, attributes, bytes of blocks that are open. What has to wait for bytes is answered by other threads, so
//! that a slow line does not keep those who only look from looking.

mod convert;
pub mod session;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use super::dirs::Dir;
use super::file::{File, Part};
use super::node::Stored;
use super::readers::Readers;
use super::refresh::Refresh;
use super::tree::{Fault, Node, Tree};
use super::trouble::Trouble;
use super::upper::{Item, What};
use crate::bag::reader::ReadError;
use crate::contents::Blocks;
use crate::entry::{Kind, Reference, XattrValue};

/// What never changes may be remembered for so long.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Requests that the kernel may have under way without anybody waiting for them: read-ahead.
const BACKGROUND: u16 = 64;

/// The generation of inode numbers, in the kernel's sense: none is used twice.
const FIRST_USE: Generation = Generation(0);

/// What all threads share.
pub struct Core {
    pub tree: Arc<Tree>,
    pub blocks: Arc<Blocks>,
    pub readers: Readers,
    pub refresh: Arc<Refresh>,
    pub trouble: Arc<Trouble>,
    pub handles: Handles,
    /// How long the kernel may remember what stands above the generations.
    pub upper_ttl: Duration,
    /// Whether permissions are checked by the kernel.
    pub has_permissions: bool,
}

/// Files and directories that are open.
#[derive(Default)]
pub struct Handles(Mutex<Open>);

#[derive(Default)]
struct Open {
    next: u64,
    files: HashMap<u64, Arc<File>>,
    dirs: HashMap<u64, Arc<Listing>>,
}

/// An open directory.
enum Listing {
    /// Above the generations: names, numbers and kinds as they were when it was opened.
    Upper { inode: u64, parent: u64, entries: Vec<(Vec<u8>, u64, Kind)> },
    /// In a generation.
    Stored(Arc<Dir>),
}

impl Handles {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_file(&self, file: File) -> FileHandle {
        let mut open = self.lock();
        open.next = open.next.saturating_add(1);
        let handle = open.next;
        open.files.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    fn add_dir(&self, listing: Listing) -> FileHandle {
        let mut open = self.lock();
        open.next = open.next.saturating_add(1);
        let handle = open.next;
        open.dirs.insert(handle, Arc::new(listing));
        FileHandle(handle)
    }

    /// An open file, and how many there are.
    fn file(&self, handle: FileHandle) -> Option<(Arc<File>, usize)> {
        let open = self.lock();
        Some((Arc::clone(open.files.get(&handle.0)?), open.files.len()))
    }

    fn dir(&self, handle: FileHandle) -> Option<Arc<Listing>> {
        self.lock().dirs.get(&handle.0).cloned()
    }
}

impl Core {
    fn failed(&self, fault: &Fault) -> Errno {
        self.trouble.fault(fault);
        convert::errno(fault)
    }

    fn ttl(&self, node: &Node) -> Duration {
        if matches!(node, Node::Stored(_)) { FOR_EVER } else { self.upper_ttl }
    }

    /// What stands above the generations may be old; a name in it that is not there may have appeared.
    fn freshen(&self, inode: u64) {
        if matches!(self.tree.node(inode), Ok(Node::Upper(_, item)) if !matches!(item.what, What::Generation(_)))
        {
            self.refresh.see_to_it();
        }
    }

    fn open_dir(&self, inode: u64) -> Result<Listing, Fault> {
        match self.tree.node(inode)? {
            Node::Upper(_, Item { parent, what: What::Directory(below) }) => {
                let kind = |inode: u64| match self.tree.node(inode) {
                    Ok(Node::Upper(_, Item { what: What::Link(_), .. })) => Kind::Symlink,
                    _ => Kind::Directory,
                };
                let entries = below.iter().map(|(name, inode)| (name.clone(), *inode, kind(*inode)));
                Ok(Listing::Upper { inode, parent, entries: entries.collect() })
            }
            _ => Ok(Listing::Stored(self.tree.dir(inode)?)),
        }
    }

    /// Lists from `offset` on: 0 is the directory itself, 1 the one above, then what is in it. `each` is told what the next offset is, and says whether it
    /// has had enough.
    fn list(&self, listing: &Listing, offset: u64, each: &mut EachListed<'_>) -> Result<(), Fault> {
        let (inode, parent) = match listing {
            Listing::Upper { inode, parent, .. } => (*inode, *parent),
            Listing::Stored(dir) => (dir.inode, dir.parent),
        };
        for (number, name, inode) in [(0, &b"."[..], inode), (1, b"..", parent)] {
            if offset <= number && each(number + 1, name, Listed::Dot(inode))? {
                return Ok(());
            }
        }
        let from = offset.saturating_sub(2);
        match listing {
            Listing::Upper { entries, .. } => {
                let skipped = usize::try_from(from).unwrap_or(usize::MAX);
                for (next, (name, inode, kind)) in (3u64..).zip(entries).skip(skipped) {
                    if each(next, name, Listed::Upper(*inode, *kind))? {
                        return Ok(());
                    }
                }
                Ok(())
            }
            Listing::Stored(dir) => self.tree.list(dir, from, &mut |index, name, stored| {
                each(index.saturating_add(3), name, Listed::Stored(stored))
            }),
        }
    }

    fn stored(&self, inode: u64) -> Result<Option<Stored>, Fault> {
        match self.tree.node(inode)? {
            Node::Stored(stored) => Ok(Some(stored)),
            Node::Upper(..) => Ok(None),
        }
    }

    /// The bytes of an xattr that lies in a bag.
    fn xattr(&self, reference: &Reference) -> Result<Vec<u8>, Arc<ReadError>> {
        let slot = self.blocks.slot(reference);
        let range = self.blocks.find(&slot, reference)?;
        Ok(slot.bytes().get(range).unwrap_or_default().to_vec())
    }

    /// Waits for what is not there, and answers.
    fn answer(&self, part: &Part, reply: ReplyData) {
        match File::read(&self.blocks, part) {
            Ok(bytes) => reply.data(bytes.get()),
            Err(error) => {
                self.trouble.file(&error);
                reply.error(convert::file_errno(&error));
            }
        }
    }
}

/// Told the offset behind an entry, its name and what it is; says whether it has had enough.
type EachListed<'a> = dyn FnMut(u64, &[u8], Listed<'_>) -> Result<bool, Fault> + 'a;

/// Something that a listing names.
#[derive(Clone, Copy)]
enum Listed<'a> {
    /// The directory itself, or the one above.
    Dot(u64),
    /// Above the generations.
    Upper(u64, Kind),
    /// In a generation.
    Stored(&'a Stored),
}

/// The file system, as `fuser` wants it.
pub struct Fuse(pub Arc<Core>);

impl Filesystem for Fuse {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_ASYNC_DIO;
        if self.0.has_permissions {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        // An older kernel does with less.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let core = &self.0;
        core.freshen(parent.0);
        let found = core.tree.lookup(parent.0, name.as_bytes()).and_then(|node| match node {
            Some(node) => Ok(Some((core.tree.attr(&node)?, core.ttl(&node)))),
            None => Ok(None),
        });
        match found {
            Ok(Some((attr, ttl))) => reply.entry(&ttl, &convert::attr(&attr), FIRST_USE),
            Ok(None) if matches!(core.tree.node(parent.0), Ok(Node::Stored(_))) => {
                reply.entry(&FOR_EVER, &convert::nothing(), FIRST_USE);
            }
            Ok(None) => reply.error(Errno::ENOENT),
            Err(fault) => reply.error(core.failed(&fault)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let core = &self.0;
        let attr = core.tree.node(inode.0).and_then(|node| Ok((core.tree.attr(&node)?, core.ttl(&node))));
        match attr {
            Ok((attr, ttl)) => reply.attr(&ttl, &convert::attr(&attr)),
            Err(fault) => reply.error(core.failed(&fault)),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.0.tree.target(inode.0) {
            Ok(target) => reply.data(&target),
            Err(fault) => reply.error(self.0.failed(&fault)),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.stored(inode.0) {
            Ok(Some(stored)) => {
                let handle = self.0.handles.add_file(File::new(stored));
                reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
            }
            Ok(None) => reply.error(Errno::EISDIR),
            Err(fault) => reply.error(self.0.failed(&fault)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let core = &self.0;
        let Some((file, readers)) = core.handles.file(handle) else { return reply.error(Errno::EBADF) };
        if let Some(bytes) = file.inline(offset, size) {
            return reply.data(bytes);
        }
        let part = match file.find(&core.tree.pages, &core.blocks, offset, size) {
            Ok(Some(part)) => part,
            Ok(None) => return reply.data(&[]),
            Err(error) => {
                core.trouble.file(&error);
                return reply.error(convert::file_errno(&error));
            }
        };
        // What will be read next is asked for before anybody waits.
        match file.ahead(&core.tree.pages, &core.blocks, &part, readers) {
            Ok(slots) => core.readers.open_soon(slots),
            Err(error) => core.trouble.file(&error),
        }
        if part.is_ready() {
            return core.answer(&part, reply);
        }
        let core_there = Arc::clone(core);
        core.readers.wait_for(Box::new(move || core_there.answer(&part, reply)));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let file = self.0.handles.lock().files.remove(&handle.0);
        drop(file);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.0.freshen(inode.0);
        match self.0.open_dir(inode.0) {
            Ok(listing) => {
                let flags = match listing {
                    Listing::Stored(_) => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR,
                    Listing::Upper { .. } => FopenFlags::empty(),
                };
                reply.opened(self.0.handles.add_dir(listing), flags);
            }
            Err(fault) => reply.error(self.0.failed(&fault)),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let core = &self.0;
        let Some(listing) = core.handles.dir(handle) else { return reply.error(Errno::EBADF) };
        let mut added = false;
        let listed = core.list(&listing, offset, &mut |next, name, listed| {
            let (inode, kind) = match listed {
                Listed::Dot(inode) => (inode, Kind::Directory),
                Listed::Upper(inode, kind) => (inode, kind),
                Listed::Stored(stored) => (stored.inode, stored.entry().ok_or(Fault::Stale)?.metadata.kind),
            };
            let kind = convert::file_type(kind);
            let is_full = reply.add(INodeNo(inode), next, kind, OsStr::from_bytes(name));
            added |= !is_full;
            Ok(is_full)
        });
        match listed {
            Err(fault) if !added => reply.error(core.failed(&fault)),
            // What comes behind is told when the kernel asks for it.
            _ => reply.ok(),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let core = &self.0;
        let Some(listing) = core.handles.dir(handle) else { return reply.error(Errno::EBADF) };
        let mut added = false;
        let listed = core.list(&listing, offset, &mut |next, name, listed| {
            let (attr, ttl) = match listed {
                Listed::Dot(inode) => {
                    let mut attr = convert::nothing();
                    (attr.ino, attr.kind) = (INodeNo(inode), convert::file_type(Kind::Directory));
                    (attr, Duration::ZERO)
                }
                Listed::Upper(inode, _) => {
                    (convert::attr(&core.tree.attr(&core.tree.node(inode)?)?), core.upper_ttl)
                }
                Listed::Stored(stored) => (convert::attr(&core.tree.stored_attr(stored)?), FOR_EVER),
            };
            let is_full = reply.add(attr.ino, next, OsStr::from_bytes(name), &ttl, &attr, FIRST_USE);
            added |= !is_full;
            Ok(is_full)
        });
        match listed {
            Err(fault) if !added => reply.error(core.failed(&fault)),
            _ => reply.ok(),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let listing = self.0.handles.lock().dirs.remove(&handle.0);
        drop(listing);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let core = &self.0;
        let entry = match core.tree.entry(inode.0) {
            Ok(entry) => entry,
            Err(fault) => return reply.error(core.failed(&fault)),
        };
        let xattrs = entry.iter().flat_map(|entry| &entry.xattrs);
        match xattrs.into_iter().find(|xattr| *xattr.name == *name.as_bytes()).map(|xattr| &xattr.value) {
            None => reply.error(Errno::ENODATA),
            Some(XattrValue::Inline(value)) => give(reply, size, value),
            Some(XattrValue::Chunk(reference)) => {
                let (core, reference) = (Arc::clone(core), *reference);
                self.0.readers.wait_for(Box::new(move || match core.xattr(&reference) {
                    Ok(value) => give(reply, size, &value),
                    Err(error) => {
                        core.trouble.file(&error.into());
                        reply.error(Errno::EIO);
                    }
                }));
            }
        }
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        match self.0.tree.entry(inode.0) {
            Ok(entry) => {
                let mut names = Vec::new();
                for xattr in entry.iter().flat_map(|entry| &entry.xattrs) {
                    names.extend_from_slice(&xattr.name);
                    names.push(0);
                }
                give(reply, size, &names);
            }
            Err(fault) => reply.error(self.0.failed(&fault)),
        }
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        /// `SEEK_DATA` of Linux; the kernel asks for this one and for `SEEK_HOLE`.
        const DATA: i32 = 3;
        /// The other one.
        const HOLE: i32 = 4;
        let core = &self.0;
        let Some((file, _)) = core.handles.file(handle) else { return reply.error(Errno::EBADF) };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        if whence != DATA && whence != HOLE {
            return reply.error(Errno::EINVAL);
        }
        match file.seek(&core.tree.pages, offset, whence == DATA) {
            Ok(found) => match found.and_then(|offset| i64::try_from(offset).ok()) {
                Some(offset) => reply.offset(offset),
                None => reply.error(Errno::ENXIO),
            },
            Err(error) => {
                core.trouble.file(&error);
                reply.error(convert::file_errno(&error));
            }
        }
    }
}

/// An xattr's value or the list of their names, to who has room for `size` bytes; who has none is told how much it takes.
fn give(reply: ReplyXattr, size: u32, bytes: &[u8]) {
    match u32::try_from(bytes.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(bytes),
        _ => reply.error(Errno::ERANGE),
    }
}
