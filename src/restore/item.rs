//! One thing on its way: a file, link, FIFO, socket or device.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::links::Claim;
use super::node::Node;
use super::site::{Site, Trouble};
use crate::base::budget::Permit;
use crate::entry::{Content, Entry, Kind, Xattr, XattrValue};
use crate::live::stat::stat_child;
use crate::live::{LiveDir, LiveError, LiveFile, NewFile, RawXattr, Segment};
use crate::monitor::{Problem, Severity};

/// One thing that is no directory, until it stands in its place or has failed. Its contents come in any order, from any thread.
pub struct Item {
    node: Arc<Node>,
    entry: Entry,
    xattrs: Mutex<Vec<RawXattr>>,
    file: Mutex<File>,
    /// Whether what stands there already is right but for its metadata.
    kept: AtomicBool,
    /// What has not come yet, and one for the planner until it has said all.
    missing: AtomicUsize,
    /// Held while it may be open for long.
    _open: Option<Permit>,
}

enum File {
    /// Not begun.
    No,
    Begun(Arc<NewFile>),
    Failed,
}

impl Item {
    /// Something to be made in `node`, which is entered for it.
    pub fn new(node: &Arc<Node>, entry: Entry, open: Option<Permit>) -> Arc<Self> {
        node.enter();
        let xattrs = Mutex::new(entry.xattrs.iter().map(raw_xattr).collect());
        Arc::new(Self {
            node: Arc::clone(node),
            entry,
            xattrs,
            file: Mutex::new(File::No),
            kept: AtomicBool::new(false),
            missing: AtomicUsize::new(1),
            _open: open,
        })
    }

    /// What it is.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Where it belongs.
    pub fn dir(&self) -> &Arc<LiveDir> {
        &self.node.dir
    }

    /// Its whole path, for messages.
    pub fn path(&self) -> Vec<u8> {
        self.node.dir.path_of(&self.entry.name)
    }

    /// One thing more will come.
    pub fn expect(&self) {
        self.missing.fetch_add(1, Ordering::Relaxed);
    }

    /// One thing has come (or failed). After the last, it is put in its place.
    pub fn arrived(self: &Arc<Self>, site: &Site<'_>) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete(site);
        }
    }

    /// Whether there is more to come than the planner's word.
    pub fn is_expecting(&self) -> bool {
        self.missing.load(Ordering::Relaxed) > 1
    }

    /// Whether it has failed: nothing more need be fetched for it.
    pub fn has_failed(&self) -> bool {
        matches!(*self.lock(), File::Failed)
    }

    /// Writes a part of its contents.
    pub fn write(&self, site: &Site<'_>, offset: u64, bytes: &[u8]) {
        let Some(file) = self.begun(site) else { return };
        match file.write_at(offset, bytes) {
            Ok(()) => {
                let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                site.tally.bytes.fetch_add(len, Ordering::Relaxed);
                site.bytes_done(len);
            }
            Err(error) => self.fail(site, error.into()),
        }
    }

    /// Sets the value of the xattr at this place.
    pub fn set_xattr(&self, at: usize, value: &[u8]) {
        let mut xattrs = self.xattrs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(xattr) = xattrs.get_mut(at) {
            xattr.value = value.into();
        }
    }

    /// Gives it up, and says why, once. What stands under its name stays as it is.
    pub fn fail(&self, site: &Site<'_>, trouble: Trouble) {
        let before = std::mem::replace(&mut *self.lock(), File::Failed);
        if !matches!(before, File::Failed) {
            site.tally.entries.fetch_sub(1, Ordering::Relaxed);
            site.lost(&self.path(), trouble);
        }
    }

    /// The file, begun if it has not been.
    fn begun(&self, site: &Site<'_>) -> Option<Arc<NewFile>> {
        let mut file = self.lock();
        match &*file {
            File::Failed => return None,
            File::Begun(begun) => return Some(Arc::clone(begun)),
            File::No => {}
        }
        let error = match site.target.begin_file(self.dir(), &self.entry.name, &self.entry.metadata) {
            Ok(begun) => {
                let begun = Arc::new(begun);
                *file = File::Begun(Arc::clone(&begun));
                return Some(begun);
            }
            Err(error) => error,
        };
        drop(file);
        self.fail(site, error.into());
        None
    }

    /// All has come.
    fn complete(self: &Arc<Self>, site: &Site<'_>) {
        if !site.is_stopped() && !self.has_failed() {
            let is_kept = self.kept.load(Ordering::Acquire);
            match if is_kept { self.keep(site) } else { self.make(site) } {
                Ok(()) if is_kept => self.count_whole(site),
                Ok(()) if self.entry.metadata.kind == Kind::File && !self.has_failed() => site.file_done(),
                Ok(()) => {}
                Err(error) => self.fail(site, error.into()),
            }
        }
        self.settle(site);
    }

    /// It is there, or has failed: the other names of the same file have their turn.
    fn settle(self: &Arc<Self>, site: &Site<'_>) {
        if let Some(group) = self.entry.metadata.link_group {
            let place = (!self.has_failed()).then(|| (Arc::clone(self.dir()), self.entry.name.clone()));
            for waiting in site.links.settle(group, place.clone()) {
                match &place {
                    Some((dir, name)) => waiting.link(site, (dir, name)),
                    None => waiting.unlinked(site),
                }
            }
        }
        self.node.leave(site);
    }

    fn make(&self, site: &Site<'_>) -> Result<(), LiveError> {
        let (dir, name, metadata) = (self.dir(), &*self.entry.name, &self.entry.metadata);
        let xattrs = std::mem::take(&mut *self.xattrs.lock().unwrap_or_else(PoisonError::into_inner));
        match &self.entry.content {
            Content::Target(link) => site.target.make_symlink(dir, name, link, metadata, &xattrs),
            _ if metadata.kind != Kind::File => site.target.make_special(dir, name, metadata, &xattrs),
            content => {
                match content {
                    Content::Inline(bytes) => self.write(site, 0, bytes),
                    _ => drop(self.begun(site)),
                }
                let file = std::mem::replace(&mut *self.lock(), File::No);
                match file {
                    File::Begun(file) => match Arc::into_inner(file) {
                        Some(file) => site.target.finish_file(file, metadata, &xattrs),
                        None => Err(LiveError::Replaced),
                    },
                    other => {
                        *self.lock() = other;
                        Ok(())
                    }
                }
            }
        }
    }

    /// It is to become another name of a file that is there, or will be.
    pub fn claimed(self: &Arc<Self>, site: &Site<'_>, claim: Claim) {
        match claim {
            Claim::First | Claim::Apart | Claim::Waits => {}
            Claim::Link(dir, name) => self.link(site, (&dir, &name)),
            Claim::Failed => self.unlinked(site),
        }
    }

    fn link(&self, site: &Site<'_>, existing: (&Arc<LiveDir>, &[u8])) {
        if !site.is_stopped() {
            match site.target.make_link(existing, self.dir(), &self.entry.name) {
                Ok(()) => {
                    site.tally.links.fetch_add(1, Ordering::Relaxed);
                    self.count_whole(site);
                }
                Err(refusal) => self.copy(site, existing, &refusal),
            }
        }
        self.node.leave(site);
    }

    /// The system refuses a hard link: the next best is a file with the same contents.
    fn copy(&self, site: &Site<'_>, existing: (&Arc<LiveDir>, &[u8]), refusal: &LiveError) {
        let copied = match self.entry.metadata.kind {
            Kind::File => self.copy_contents(site, existing),
            _ => Ok(()),
        };
        match copied.and_then(|()| self.make(site)) {
            Ok(()) => {
                let text = format!("restored as a copy instead of a hard link: {refusal}");
                site.monitor.problem(Problem::new(Severity::Lost, &self.path(), text));
                self.count_whole(site);
            }
            Err(error) => self.fail(site, error.into()),
        }
    }

    fn copy_contents(&self, site: &Site<'_>, (dir, name): (&Arc<LiveDir>, &[u8])) -> Result<(), LiveError> {
        let fd = dir.fd()?;
        let seen = stat_child(&fd, name)?;
        let mut from = LiveFile::open(&fd, name, &seen)?;
        let Some(file) = self.begun(site) else { return Err(LiveError::Replaced) };
        let (mut buffer, mut at) = (vec![0; 256 << 10], 0u64);
        loop {
            let len = match from.next(&mut buffer)? {
                Segment::Data(len) => {
                    file.write_at(at, buffer.get(..len).unwrap_or_default())?;
                    u64::try_from(len).unwrap_or(u64::MAX)
                }
                Segment::Hole(len) => len,
                Segment::End => return Ok(()),
            };
            at = at.saturating_add(len);
        }
    }

    fn unlinked(&self, site: &Site<'_>) {
        self.fail(site, Trouble::Dependent("it is a hard link of a file that could not be restored"));
        self.node.leave(site);
    }

    /// Counts a file that did not have to be fetched.
    fn count_whole(&self, site: &Site<'_>) {
        if self.entry.metadata.kind == Kind::File {
            site.bytes_done(self.entry.metadata.size);
            site.file_done();
        }
    }

    /// What stands there already is the file that is wanted, and needs its metadata only. To be said by the planner.
    pub fn set_kept(&self) {
        self.kept.store(true, Ordering::Release);
    }

    fn keep(&self, site: &Site<'_>) -> Result<(), LiveError> {
        let xattrs = std::mem::take(&mut *self.xattrs.lock().unwrap_or_else(PoisonError::into_inner));
        site.target.set_metadata(self.dir(), &self.entry.name, &self.entry.metadata, &xattrs)?;
        site.tally.kept.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An xattr whose value is still empty if it lies elsewhere.
pub fn raw_xattr(xattr: &Xattr) -> RawXattr {
    let value = match &xattr.value {
        XattrValue::Inline(value) => value.clone(),
        XattrValue::Chunk(_) => Box::default(),
    };
    RawXattr { name: xattr.name.clone(), value }
}
