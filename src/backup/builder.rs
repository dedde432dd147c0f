//! A directory's entries, in order of their names, become pages.

use std::sync::Arc;

use crate::bag::Placing;
use crate::crypto::NameKey;
use crate::dir::paging::Cutter;
use crate::entry::{Content, Entry, Reference, XattrValue};

use super::BackupError;
use super::node::Node;
use super::pause::Snapshot;
use super::tree::{Draft, DraftChild, Tree};

/// Builds the pages of one directory.
pub struct DirBuilder<'a> {
    tree: &'a Tree,
    names: &'a NameKey,
    entries: Vec<Entry<Placing>>,
    cutter: Cutter,
    leaves: Vec<DraftChild>,
    reused: usize,
}

impl<'a> DirBuilder<'a> {
    /// No entries yet; pages will be made by `tree`.
    pub fn new(tree: &'a Tree, names: &'a NameKey) -> Self {
        Self { tree, names, entries: Vec::new(), cutter: Cutter::new(0), leaves: Vec::new(), reused: 0 }
    }

    /// Goes on from what was done of a directory.
    pub fn resume(tree: &'a Tree, names: &'a NameKey, snapshot: Snapshot) -> Self {
        let Snapshot { leaves, entries, .. } = snapshot;
        Self { leaves, entries, ..Self::new(tree, names) }
    }

    /// What is done so far of the directory; `next` is the place of the first name that is not.
    pub fn snapshot(&self, node: &Arc<Node>, next: usize) -> Snapshot {
        let (leaves, entries) = (self.leaves.clone(), self.entries.clone());
        Snapshot { node: Arc::clone(node), next, leaves, entries }
    }

    /// Whether a page begins here.
    pub fn at_start(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry; names must ascend.
    pub fn push(&mut self, entry: Entry<Placing>) -> Result<(), BackupError> {
        let ends = self.cutter.push(self.names.boundary(&entry.name), weight(&entry));
        self.entries.push(entry);
        if ends { self.end_page() } else { Ok(()) }
    }

    /// Takes a page of the generation before as it is, if it would become the same again: its entries, all unchanged, begin here and end where a page ends
    /// (`is_last`: nothing follows). Tells whether that is so; if not, nothing was added.
    pub fn reuse(&mut self, page: Reference, entries: &[Entry], is_last: bool) -> bool {
        let Some((last, before)) = entries.split_last() else { return false };
        if !self.at_start() {
            return false;
        }
        let mut cutter = Cutter::new(0);
        let mut ends = |entry: &Entry| cutter.push(self.names.boundary(&entry.name), weight(entry));
        if before.iter().any(&mut ends) || !(ends(last) || is_last) {
            return false;
        }
        let count = u64::try_from(entries.len()).unwrap_or(u64::MAX);
        self.leaves.push(DraftChild { last: last.name.clone(), entries: count, page: Placing::Known(page) });
        self.reused += 1;
        true
    }

    fn end_page(&mut self) -> Result<(), BackupError> {
        let entries = std::mem::take(&mut self.entries);
        let Some(last) = entries.last().map(|entry| entry.name.clone()) else { return Ok(()) };
        let count = u64::try_from(entries.len()).unwrap_or(u64::MAX);
        let page = self.tree.submit(Draft::Leaf(entries), [].into())?;
        self.leaves.push(DraftChild { last, entries: count, page });
        self.cutter.restart();
        Ok(())
    }

    /// How many pages there are, if all of them are the generation before's.
    pub fn all_reused(&self) -> Option<usize> {
        (self.at_start() && self.reused == self.leaves.len()).then_some(self.reused)
    }

    /// The top page; `None` for a directory without entries. `former`: index pages of the generation before, some of which may be made again.
    pub fn finish(mut self, former: &[Reference]) -> Result<Option<Placing>, BackupError> {
        self.end_page()?;
        let former: Arc<[Reference]> = former.into();
        let mut children = self.leaves;
        let mut level = 1;
        while children.len() > 1 {
            let mut cutter = Cutter::new(level);
            let mut above = Vec::new();
            let mut page: Vec<DraftChild> = Vec::new();
            let mut submit = |page: &mut Vec<DraftChild>| -> Result<(), BackupError> {
                let Some(last) = page.last().map(|child| child.last.clone()) else { return Ok(()) };
                let entries = page.iter().map(|child| child.entries).fold(0, u64::saturating_add);
                let draft = Draft::Index(std::mem::take(page));
                let page = self.tree.submit(draft, Arc::clone(&former))?;
                above.push(DraftChild { last, entries, page });
                Ok(())
            };
            for child in children {
                let hash = self.names.boundary(&child.last);
                page.push(child);
                // A page of one child would gain nothing, and might do so for ever.
                if page.len() > 1 && cutter.push(hash, 60) {
                    submit(&mut page)?;
                }
            }
            submit(&mut page)?;
            children = above;
            level += 1;
        }
        Ok(children.pop().map(|top| top.page))
    }
}

/// About how many bytes an entry takes in a page. Part of the format's idea of equal pages: the same entry must weigh the same in every run.
fn weight<R>(entry: &Entry<R>) -> usize {
    let content = match &entry.content {
        Content::Inline(bytes) | Content::Target(bytes) => bytes.len(),
        Content::Pieces(pieces) => pieces.len().saturating_mul(40),
        Content::Lists { parts, .. } => parts.len().saturating_mul(45),
        Content::Empty | Content::Directory(_) => 0,
    };
    let xattr = |value: &XattrValue<R>| match value {
        XattrValue::Inline(bytes) => bytes.len(),
        XattrValue::Chunk(_) => 40,
    };
    let xattrs: usize = entry.xattrs.iter().map(|one| one.name.len() + xattr(&one.value)).sum();
    entry.name.len().saturating_add(content).saturating_add(xattrs).saturating_add(64)
}
