//! Several generations walked as one tree.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

use crate::bag::source::Source;
use crate::dir::reader::{Leaves, TreeError, leaves};
use crate::dir::walk::WalkError;
use crate::entry::{Content, Entry, Reference};

/// Numbers of generations, ascending.
pub type Set = Arc<[usize]>;

/// Where a walk begins: a path, and what stood there in which generations.
#[derive(Debug)]
pub struct Start {
    /// The path.
    pub path: Vec<u8>,
    /// What stood there.
    pub entries: Vec<(Set, Entry)>,
}

/// What stands under a path: each of its different states, and in which generations it is. Generations that are in none do not have it.
#[derive(Debug)]
pub struct Met {
    /// The path.
    pub path: Vec<u8>,
    /// The states.
    pub entries: Vec<(Set, Entry)>,
}

/// The trees of several generations, as one: each directory before what stands in it, names ascending by their bytes. A directory that is the same in several
/// generations is read once for all of them. In memory is a page for each different state of each directory on the way.
pub struct Versions<'a> {
    source: &'a Source,
    starts: std::vec::IntoIter<Start>,
    /// What stands in what was met last.
    inside: Vec<(Set, Reference)>,
    levels: Vec<Level<'a>>,
    path: Vec<u8>,
}

struct Level<'a> {
    states: Vec<State<'a>>,
    path_len: usize,
}

/// A state of a directory.
struct State<'a> {
    set: Set,
    entries: Peekable<Stream<'a>>,
}

/// Its entries.
struct Stream<'a> {
    leaves: Leaves<'a>,
    entries: std::vec::IntoIter<Entry>,
}

impl Iterator for Stream<'_> {
    type Item = Result<Entry, TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(Ok(entry));
            }
            match self.leaves.next()? {
                Ok(leaf) => self.entries = leaf.entries.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl<'a> Versions<'a> {
    /// Walks what stands at and below these paths.
    #[must_use]
    pub fn new(source: &'a Source, starts: Vec<Start>) -> Self {
        let starts = starts.into_iter();
        Self { source, starts, inside: Vec::new(), levels: Vec::new(), path: Vec::new() }
    }

    /// Passes by what stands in what was met last.
    pub fn pass_by(&mut self) {
        self.inside.clear();
    }

    fn meet(&mut self, entries: Vec<(Set, Entry)>) -> Met {
        let mut tops: BTreeMap<Reference, Vec<usize>> = BTreeMap::new();
        for (set, entry) in &entries {
            if let Content::Directory(Some(top)) = &entry.content {
                tops.entry(*top).or_default().extend(set.iter());
            }
        }
        self.inside = tops
            .into_iter()
            .map(|(top, mut set)| {
                set.sort_unstable();
                (set.into(), top)
            })
            .collect();
        Met { path: self.path.clone(), entries }
    }

    fn enter(&mut self) {
        let inside = std::mem::take(&mut self.inside);
        if inside.is_empty() {
            return;
        }
        let state = |(set, top)| {
            let (leaves, entries) = (leaves(self.source, Some(top)), Vec::new().into_iter());
            State { set, entries: Stream { leaves, entries }.peekable() }
        };
        let states = inside.into_iter().map(state).collect();
        self.levels.push(Level { states, path_len: self.path.len() });
    }
}

impl Iterator for Versions<'_> {
    type Item = Result<Met, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.enter();
        loop {
            let Some(level) = self.levels.last_mut() else {
                let Start { path, entries } = self.starts.next()?;
                self.path = path;
                return Some(Ok(self.meet(entries)));
            };
            self.path.truncate(level.path_len);
            match level.next() {
                None => drop(self.levels.pop()),
                // There is nothing behind it in this state of the directory.
                Some(Err(source)) => return Some(Err(WalkError { path: self.path.clone(), source })),
                Some(Ok((name, entries))) => {
                    if self.path.last() != Some(&b'/') {
                        self.path.push(b'/');
                    }
                    self.path.extend_from_slice(&name);
                    return Some(Ok(self.meet(entries)));
                }
            }
        }
    }
}

/// A name and what stands under it.
type Named = (Box<[u8]>, Vec<(Set, Entry)>);

impl Level<'_> {
    fn next(&mut self) -> Option<Result<Named, TreeError>> {
        for state in &mut self.states {
            if let Some(Err(error)) = state.entries.next_if(Result::is_err) {
                return Some(Err(error));
            }
        }
        let names = self.states.iter_mut().filter_map(|state| match state.entries.peek() {
            Some(Ok(entry)) => Some(&entry.name),
            _ => None,
        });
        let name = names.min()?.clone();
        let mut met: Vec<(Set, Entry)> = Vec::new();
        for State { set, entries } in &mut self.states {
            let is_it = |next: &Result<Entry, TreeError>| matches!(next, Ok(entry) if entry.name == name);
            if let Some(Ok(entry)) = entries.next_if(is_it) {
                match met.iter_mut().find(|(_, known)| *known == entry) {
                    Some((known, _)) => *known = union(known, set),
                    None => met.push((Arc::clone(set), entry)),
                }
            }
        }
        Some(Ok((name, met)))
    }
}

/// Both sets.
#[must_use]
pub fn union(one: &Set, other: &Set) -> Set {
    let mut all: Vec<usize> = one.iter().chain(other.iter()).copied().collect();
    all.sort_unstable();
    all.dedup();
    all.into()
}
