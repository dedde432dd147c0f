//! Walking a tree of a repository in order, with bounded memory.

use super::reader::{Leaves, TreeError, leaves};
use crate::bag::source::Source;
use crate::entry::{Content, Entry, Reference};

/// An entry that a walk has come to.
#[derive(Debug)]
pub struct Visit {
    /// Its path: that of the first entry, and the names below.
    pub path: Vec<u8>,
    /// 0 for the first entry, 1 for what stands in it.
    pub depth: usize,
    /// The entry.
    pub entry: Entry,
}

/// A directory that could not be read (on): what stands in it is missing from the walk, which goes on behind it.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct WalkError {
    /// The directory's path.
    pub path: Vec<u8>,
    /// Why.
    pub source: TreeError,
}

/// The entries of a tree: each directory before what stands in it, names ascending by their bytes. In memory is one page per level.
pub struct Walk<'a> {
    source: &'a Source,
    first: Option<Entry>,
    /// What stands in the entry visited last.
    inside: Option<Reference>,
    levels: Vec<Level<'a>>,
    path: Vec<u8>,
}

struct Level<'a> {
    leaves: Leaves<'a>,
    entries: std::vec::IntoIter<Entry>,
    path_len: usize,
}

/// Walks what stands under `path`: `entry` itself, and all that is below.
#[must_use]
pub fn walk(source: &Source, path: Vec<u8>, entry: Entry) -> Walk<'_> {
    Walk { source, first: Some(entry), inside: None, levels: Vec::new(), path }
}

impl Walk<'_> {
    /// Passes by what stands in the directory visited last.
    pub fn pass_by(&mut self) {
        self.inside = None;
    }

    fn visit(&mut self, entry: Entry) -> Visit {
        if let Content::Directory(top) = &entry.content {
            self.inside = *top;
        }
        Visit { path: self.path.clone(), depth: self.levels.len(), entry }
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Visit, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.first.take() {
            return Some(Ok(self.visit(entry)));
        }
        if let Some(top) = self.inside.take() {
            let (leaves, entries) = (leaves(self.source, Some(top)), Vec::new().into_iter());
            self.levels.push(Level { leaves, entries, path_len: self.path.len() });
        }
        loop {
            let level = self.levels.last_mut()?;
            self.path.truncate(level.path_len);
            if let Some(entry) = level.entries.next() {
                if self.path.last() != Some(&b'/') {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(&entry.name);
                return Some(Ok(self.visit(entry)));
            }
            match level.leaves.next() {
                Some(Ok(leaf)) => level.entries = leaf.entries.into_iter(),
                // There is nothing behind it in this directory, as the next turn will see.
                Some(Err(source)) => return Some(Err(WalkError { path: self.path.clone(), source })),
                None => drop(self.levels.pop()),
            }
        }
    }
}
