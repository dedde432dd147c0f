//! The one thread that walks the tree: makes directories, and says what is to be fetched for the rest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender};

use super::existing::{Existing, has_chunk, look};
use super::fetch::Window;
use super::item::{Item, raw_xattr};
use super::links::Claim;
use super::node::Node;
use super::select::Selected;
use super::site::{Site, Trouble};
use crate::bag::BagKind;
use crate::base::budget::Budget;
use crate::dir::{reader, walk};
use crate::entry::{Content, Entry, Kind, Metadata, Piece, Xattr, XattrValue};
use crate::live::{LiveDir, LiveError, LiveFile, RawXattr};
use crate::monitor::Counter;

/// Files of several chunks that may be open at once.
const OPEN: u64 = 256;

/// Files of several chunks for which nothing has been sent on its way yet. Less than [`OPEN`]: those that are waited for do come.
const GATHERED: usize = 128;

/// Something for the workers to make.
pub enum Job {
    /// All that the planner has to say of it is said.
    Item(Arc<Item>),
    /// It is another name of a file that is there.
    Link(Arc<Item>, Claim),
}

/// Makes what comes, until nobody can send any more.
pub fn make_all(site: &Site<'_>, jobs: &Receiver<Job>) {
    for job in jobs {
        match job {
            Job::Item(item) => item.arrived(site),
            Job::Link(item, claim) => item.claimed(site, claim),
        }
    }
}

/// Where the planner is.
pub struct Planner<'a> {
    site: &'a Site<'a>,
    window: Window,
    jobs: Sender<Job>,
    /// From the directory that is restored into down to where it is, by name.
    stack: Vec<(Vec<u8>, Arc<Node>)>,
    open: Budget,
    gathered: usize,
    buffer: Vec<u8>,
}

impl<'a> Planner<'a> {
    /// A planner that begins in `dir`.
    pub fn new(site: &'a Site<'a>, window: Window, jobs: Sender<Job>, dir: Arc<LiveDir>) -> Self {
        let stack = vec![(Vec::new(), Node::new(dir, None, None))];
        Self { site, window, jobs, stack, open: Budget::new(OPEN), gathered: 0, buffer: Vec::new() }
    }

    /// Restores what was selected, in order.
    pub fn run(mut self, selected: Vec<Selected>) {
        for one in selected {
            if self.site.is_stopped() {
                break;
            }
            self.select(one);
        }
        self.window.flush(self.site, true);
        self.up_to(0);
    }

    fn select(&mut self, selected: Selected) {
        let Selected { names, mut way, .. } = selected;
        let Some((last, above)) = names.split_last() else { return };
        let Some(entry) = way.pop() else { return };
        let here = self.stack.iter().skip(1).map(|(name, _)| name);
        let common = here.zip(above).take_while(|(here, name)| here == name).count();
        self.up_to(common.saturating_add(1));
        let unknown = above.len().saturating_sub(way.len());
        let entries = way.into_iter().map(Some);
        let on_the_way = std::iter::repeat_n((), unknown).map(|()| None).chain(entries);
        for (name, entry) in above.iter().zip(on_the_way).skip(common) {
            let entered = match entry {
                Some(entry) => self.directory(name, &entry),
                None => self.way(name),
            };
            if !entered {
                return;
            }
        }
        let base = self.stack.len();
        let source = &self.site.source;
        let mut path = Vec::new();
        for name in &names {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        let mut walk = walk::walk(source, path, Entry { name: last[..].into(), ..entry });
        while let Some(step) = walk.next() {
            if self.site.is_stopped() {
                return;
            }
            match step {
                Ok(visit) => {
                    self.up_to(base.saturating_add(visit.depth));
                    if !self.visit(&visit.path, visit.entry) {
                        walk.pass_by();
                    }
                }
                Err(error) => {
                    let (path, trouble) = (error.path, error.source.into());
                    self.site.lost(&path, trouble);
                }
            }
        }
    }

    /// Leaves directories until so many are left.
    fn up_to(&mut self, depth: usize) {
        while self.stack.len() > depth {
            let Some((_, node)) = self.stack.pop() else { return };
            node.leave(self.site);
        }
    }

    fn here(&self) -> Option<Arc<Node>> {
        self.stack.last().map(|(_, node)| Arc::clone(node))
    }

    /// Restores one entry; whether to go on with what stands in it.
    fn visit(&mut self, path: &[u8], entry: Entry) -> bool {
        self.site.monitor.path(path);
        self.site.monitor.count(Counter::Entries, 1);
        let count = || self.site.tally.entries.fetch_add(1, Ordering::Relaxed);
        if entry.metadata.kind == Kind::Directory {
            let is_entered = self.directory(&entry.name.clone(), &entry);
            if is_entered {
                count();
            }
            return is_entered;
        }
        // Taken back, should it fail.
        count();
        self.item(entry);
        false
    }

    /// Enters a directory of which nothing is known.
    fn way(&mut self, name: &[u8]) -> bool {
        let Some(node) = self.here() else { return false };
        let made = self.site.target.ensure_way(&node.dir, name);
        self.enter(&node, name, made, None)
    }

    /// Makes and enters a directory. One without a name is the one where the planner is.
    fn directory(&mut self, name: &[u8], entry: &Entry) -> bool {
        let Some(node) = self.here() else { return false };
        let made = match name {
            b"" => Ok(Arc::clone(&node.dir)),
            name => self.site.target.ensure_dir(&node.dir, name),
        };
        let xattrs = match self.all_xattrs(&entry.xattrs) {
            Ok(xattrs) => xattrs,
            Err(trouble) => {
                self.site.lost(&node.dir.path_of(name), trouble);
                entry.xattrs.iter().filter(|xattr| is_inline(xattr)).map(raw_xattr).collect()
            }
        };
        self.enter(&node, name, made, Some((entry.metadata.clone(), xattrs)))
    }

    fn enter(
        &mut self,
        parent: &Arc<Node>,
        name: &[u8],
        made: Result<Arc<LiveDir>, LiveError>,
        finish: Option<(Metadata, Vec<RawXattr>)>,
    ) -> bool {
        match made {
            Ok(dir) => {
                self.stack.push((name.to_vec(), Node::new(dir, Some(Arc::clone(parent)), finish)));
                true
            }
            Err(error) => {
                self.site.lost(&parent.dir.path_of(name), error.into());
                false
            }
        }
    }

    /// A directory's xattrs. Values so large that they lie in bags are rare here, and fetched one by one.
    fn all_xattrs(&self, xattrs: &[Xattr]) -> Result<Vec<RawXattr>, Trouble> {
        let value = |xattr: &Xattr| match &xattr.value {
            XattrValue::Inline(_) => Ok(raw_xattr(xattr)),
            XattrValue::Chunk(chunk) => {
                let block = self.site.reader().block(BagKind::Data, &chunk.place)?;
                let value = self.site.reader().object(chunk, &block)?.into();
                Ok(RawXattr { name: xattr.name.clone(), value })
            }
        };
        xattrs.iter().map(value).collect()
    }

    /// Begins what is no directory.
    fn item(&mut self, entry: Entry) {
        let Some(node) = self.here() else { return };
        let has_many = match &entry.content {
            Content::Pieces(pieces) => pieces.len() > 1,
            Content::Lists { .. } => true,
            _ => false,
        };
        let group = entry.metadata.link_group;
        let permit = has_many.then(|| {
            self.gathered = self.gathered.saturating_add(1);
            if self.gathered >= GATHERED {
                self.window.flush(self.site, true);
                self.gathered = 0;
            }
            self.open.take(1)
        });
        let item = Item::new(&node, entry, permit);
        if let Some(group) = group {
            match self.site.links.claim(group, &item) {
                Claim::First => {}
                Claim::Apart => self.site.apart(&item.path()),
                Claim::Waits => return,
                claim => return self.send(Job::Link(item, claim)),
            }
        }
        for (at, xattr) in item.entry().xattrs.iter().enumerate() {
            if let XattrValue::Chunk(reference) = &xattr.value {
                self.window.want_xattr(self.site, &item, at, *reference);
            }
        }
        match look(self.site, &item, &mut self.buffer) {
            Existing::Same => item.set_kept(),
            Existing::Similar(file) => self.contents(&item, Some(&file)),
            Existing::Nothing => self.contents(&item, None),
        }
        if item.is_expecting() {
            item.arrived(self.site);
        } else {
            self.send(Job::Item(item));
        }
    }

    fn send(&self, job: Job) {
        // Whoever receives lives as long as this sender.
        let _ = self.jobs.send(job);
    }

    /// Says what is to be fetched for a file, but for what `former` has already.
    fn contents(&mut self, item: &Arc<Item>, former: Option<&LiveFile>) {
        let site = self.site;
        let entry = item.entry();
        let mut at = 0u64;
        match &entry.content {
            // It is written when the file is made.
            Content::Inline(bytes) => at = u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            content => {
                for piece in reader::pieces(&site.source, content) {
                    if item.has_failed() || site.is_stopped() {
                        return;
                    }
                    let piece = match piece {
                        Ok(piece) => piece,
                        Err(error) => return item.fail(site, error.into()),
                    };
                    match &piece {
                        Piece::Hole(len) => site.bytes_done(*len),
                        Piece::Chunk(chunk) => match former {
                            Some(file) if has_chunk(site, file, at, chunk, &mut self.buffer) => {
                                item.write(site, at, &self.buffer);
                            }
                            _ => self.window.want_contents(site, item, at, *chunk),
                        },
                    }
                    at = at.saturating_add(piece.len());
                }
            }
        }
        if entry.metadata.kind == Kind::File && at != entry.metadata.size {
            let text = format!("its contents have {at} bytes instead of {}", entry.metadata.size);
            item.fail(site, Trouble::Damage(text));
        }
    }
}

fn is_inline(xattr: &Xattr) -> bool {
    matches!(xattr.value, XattrValue::Inline(_))
}
