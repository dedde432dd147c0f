//! Files with their contents, one after another, with reads running ahead across files.

use std::collections::{HashMap, VecDeque};

use crate::bag::source::Source;
use crate::base::id::BagId;
use crate::contents::Blocks;
use crate::dir::reader::{Pieces, TreeError, pieces};
use crate::dir::walk::{Visit, Walk, WalkError, walk};
use crate::entry::{Entry, Kind, Piece, Reference};

/// Sealed bytes of blocks that are asked for ahead of need.
const WINDOW: u64 = 24 << 20;

/// Pieces and files that are looked at ahead of need.
const ITEMS: usize = 20_000;

/// Sealed bytes whose reads are planned together.
const BATCH: u64 = 4 << 20;

/// What comes next.
#[derive(Debug)]
pub enum Item {
    /// A file of any kind; if it is a regular one, the pieces of its contents follow, unless they stand in the entry.
    Entry(Vec<u8>, Box<Entry>),
    /// Another name of the file at this path.
    Link(Vec<u8>, Box<Entry>, Vec<u8>),
    /// A piece of the file before.
    Piece(Piece),
    /// A directory that cannot be read (on).
    Lost(WalkError),
    /// The rest of the file's pieces cannot be found.
    Broken(TreeError),
}

/// The files below some paths.
pub struct Feed<'a> {
    source: &'a Source,
    blocks: &'a Blocks,
    starts: std::vec::IntoIter<(Vec<u8>, Entry)>,
    walk: Option<Walk<'a>>,
    pieces: Option<Pieces<'a>>,
    /// What was asked for, and what it costs.
    ahead: VecDeque<(Item, u64)>,
    cost: u64,
    batch: Vec<Reference>,
    batch_cost: u64,
    last: Option<(BagId, u64)>,
    /// The first names of files with several.
    names: HashMap<(u64, u64), Vec<u8>>,
}

impl<'a> Feed<'a> {
    /// What stands at and below these paths. Contents are asked for by `blocks`.
    #[must_use]
    pub fn new(source: &'a Source, blocks: &'a Blocks, starts: Vec<(Vec<u8>, Entry)>) -> Self {
        Self {
            source,
            blocks,
            starts: starts.into_iter(),
            walk: None,
            pieces: None,
            ahead: VecDeque::new(),
            cost: 0,
            batch: Vec::new(),
            batch_cost: 0,
            last: None,
            names: HashMap::new(),
        }
    }

    fn fill(&mut self) {
        while self.cost < WINDOW
            && self.ahead.len() < ITEMS
            && let Some(item) = self.look_on()
        {
            let cost = self.want(&item);
            self.cost = self.cost.saturating_add(cost);
            self.ahead.push_back((item, cost));
            if self.batch_cost >= BATCH {
                self.ask();
            }
        }
        self.ask();
    }

    fn ask(&mut self) {
        self.batch_cost = 0;
        // Whoever needs them opens them.
        drop(self.blocks.ask(std::mem::take(&mut self.batch).into_iter()));
    }

    /// Notes what an item needs; gives what that costs. Neighbours mostly lie in the same block.
    fn want(&mut self, item: &Item) -> u64 {
        let Item::Piece(Piece::Chunk(reference)) = item else { return 0 };
        self.batch.push(*reference);
        let place = &reference.place;
        let is_same = self.last.replace((place.bag, place.offset)) == Some((place.bag, place.offset));
        let cost = if is_same { 0 } else { u64::from(place.stored) };
        self.batch_cost = self.batch_cost.saturating_add(cost);
        cost
    }

    fn look_on(&mut self) -> Option<Item> {
        if let Some(pieces) = &mut self.pieces {
            match pieces.next() {
                Some(Ok(piece)) => return Some(Item::Piece(piece)),
                Some(Err(error)) => {
                    self.pieces = None;
                    return Some(Item::Broken(error));
                }
                None => self.pieces = None,
            }
        }
        loop {
            match self.walk.as_mut().and_then(Iterator::next) {
                Some(Ok(visit)) => return Some(self.begin(visit)),
                Some(Err(error)) => return Some(Item::Lost(error)),
                None => {
                    let (path, entry) = self.starts.next()?;
                    self.walk = Some(walk(self.source, path, entry));
                }
            }
        }
    }

    fn begin(&mut self, visit: Visit) -> Item {
        let Visit { path, entry, .. } = visit;
        let entry = Box::new(entry);
        if entry.metadata.kind != Kind::Directory
            && let Some(group) = entry.metadata.link_group
        {
            if let Some(first) = self.names.get(&group) {
                return Item::Link(path, entry, first.clone());
            }
            self.names.insert(group, path.clone());
        }
        if entry.metadata.kind == Kind::File {
            self.pieces = Some(pieces(self.source, &entry.content));
        }
        Item::Entry(path, entry)
    }
}

impl Iterator for Feed<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        // Topped up when half of it is used, so that reads are put together.
        if self.ahead.is_empty() || self.cost < WINDOW / 2 {
            self.fill();
        }
        let (item, cost) = self.ahead.pop_front()?;
        self.cost = self.cost.saturating_sub(cost);
        Some(item)
    }
}
