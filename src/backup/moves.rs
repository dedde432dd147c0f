//! Files and directories that stand under another name now.

use std::sync::{Arc, OnceLock};

use crate::bag::source::Source;
use crate::base::time::Timestamp;
use crate::dir::Page;
use crate::dir::reader::{self, TreeError};
use crate::entry::{Content, Entry, Kind, Reference};
use crate::live::Stat;

/// Finds entries of the generation before by what a rename leaves alone: inode, size, time of modification.
///
/// The list is made when it is first asked for, by reading all pages of that generation. That is rarely so: who asks has found a new name for something that
/// was last modified before that generation. It takes 16 bytes of memory for each file and directory.
pub struct Moves {
    source: Arc<Source>,
    roots: Vec<Entry>,
    began: Timestamp,
    list: OnceLock<Option<List>>,
}

#[derive(Default)]
struct List {
    /// What identifies an entry, hashed, and the number of its page; sorted.
    entries: Vec<(u64, u32)>,
    pages: Vec<Reference>,
}

impl Moves {
    /// Moves away from what stood below these roots, in generations of which the first `began` then.
    pub fn new(source: Arc<Source>, roots: Vec<Entry>, began: Timestamp) -> Self {
        Self { source, roots, began, list: OnceLock::new() }
    }

    /// When the first of the generations began in which is looked.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// The entry that this file or directory was, if it can be found.
    pub fn find(&self, stat: &Stat) -> Option<Entry> {
        if self.roots.is_empty() {
            return None;
        }
        // Pages that cannot be read are reported where they are compared; nothing is found in them.
        let list = self.list.get_or_init(|| self.list().ok()).as_ref()?;
        let key = key(stat.kind, stat.inode, stat.size, stat.mtime);
        let from = list.entries.partition_point(|(other, _)| *other < key);
        let same = list.entries.get(from..)?.iter().take_while(|(other, _)| *other == key);
        same.filter_map(|(_, page)| list.pages.get(usize::try_from(*page).ok()?)).find_map(|page| {
            match reader::page(&self.source, page).ok()? {
                Page::Leaf(entries) => entries.into_iter().find(|entry| fits(entry, stat)),
                Page::Index(_) => None,
            }
        })
    }

    fn list(&self) -> Result<List, TreeError> {
        let mut list = List::default();
        let mut open: Vec<Option<Reference>> = Vec::new();
        let directory = |entry: &Entry| match &entry.content {
            Content::Directory(page) => Some(*page),
            _ => None,
        };
        open.extend(self.roots.iter().filter_map(directory));
        while let Some(top) = open.pop() {
            for leaf in reader::leaves(&self.source, top) {
                let leaf = leaf?;
                let number = u32::try_from(list.pages.len()).unwrap_or(u32::MAX);
                list.pages.push(leaf.reference);
                for entry in &leaf.entries {
                    let was = &entry.metadata;
                    if matches!(was.kind, Kind::File | Kind::Directory) {
                        list.entries.push((key(was.kind, was.inode, was.size, was.mtime), number));
                    }
                    open.extend(directory(entry));
                }
            }
        }
        list.entries.sort_unstable();
        Ok(list)
    }
}

fn fits(entry: &Entry, stat: &Stat) -> bool {
    let was = &entry.metadata;
    let same = (was.kind, was.inode, was.mtime) == (stat.kind, stat.inode, stat.mtime);
    same && (was.kind == Kind::Directory || was.size == stat.size)
}

/// Hashes what identifies an entry; collisions cost a look into a page.
fn key(kind: Kind, inode: u64, size: u64, mtime: Timestamp) -> u64 {
    let size = if kind == Kind::Directory { u64::MAX } else { size };
    let mix = |sum: u64, more: u64| (sum.rotate_left(23) ^ more).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [inode, size, mtime.secs.cast_unsigned(), u64::from(mtime.nanos)].into_iter().fold(0, mix)
}
