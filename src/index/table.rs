//! An immutable table of the local index: which bags have an object.
//!
//! Three files of one random name: `.filter`, `.shards` and `.bags`. The last holds a record of fixed size for each bag; bags
//! are numbered through all tables, so a table has the numbers `first..end` and its entries name none but these. The id of
//! a bag is entered like an object's, so that a bag can be found by its id as well.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::filter::{Filter, FilterWriter};
use super::home::Home;
use super::shard::{Entry, ShardWriter, Shards};
use super::summed::{Seal, Summed, SummedWriter};
use super::{BagEntry, BagKind};
use crate::base::id::BagId;

/// Bytes of a bag's record: id, kind, size, place and length of the table.
const RECORD: usize = 16 + 1 + 8 + 8 + 4;

/// What the state file remembers of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableState {
    name: u64,
    first_bag: u32,
    end_bag: u32,
    entries: u32,
    /// For how many entries it was made, which decides how the list is cut.
    most: u64,
    shards: Seal,
    filter: Seal,
    bags: Seal,
}

impl TableState {
    /// The names of its files.
    pub(super) fn files(&self) -> [String; 3] {
        files(self.name)
    }
}

fn files(name: u64) -> [String; 3] {
    ["shards", "filter", "bags"].map(|part| format!("{name:016x}.{part}"))
}

/// Writes a table: its bags first, then all of its entries.
#[derive(Debug)]
pub(super) struct TableWriter {
    home: Home,
    damaged: Arc<AtomicBool>,
    name: u64,
    first_bag: u32,
    end_bag: u32,
    bags: SummedWriter,
}

impl TableWriter {
    /// A table whose first bag has this number.
    pub(super) fn new(home: &Home, damaged: &Arc<AtomicBool>, first_bag: u32) -> io::Result<Self> {
        let name = u64::from_ne_bytes(crate::base::random_bytes());
        let [_, _, bags] = files(name);
        Ok(Self {
            home: home.clone(),
            damaged: Arc::clone(damaged),
            name,
            first_bag,
            end_bag: first_bag,
            bags: SummedWriter::new(home.create(&bags)?),
        })
    }

    /// The number that the next bag gets.
    pub(super) fn end_bag(&self) -> u32 {
        self.end_bag
    }

    /// Appends a bag; gives its number.
    pub(super) fn add_bag(&mut self, entry: &BagEntry) -> io::Result<u32> {
        let number = self.end_bag;
        self.end_bag = number.checked_add(1).ok_or_else(too_many)?;
        self.bags.write(&encode(entry))?;
        Ok(number)
    }

    /// Writes the entries (ascending, at most `most`) and opens the table. Leaves no files behind when that fails.
    pub(super) fn finish(
        self,
        most: u64,
        entries: impl Iterator<Item = io::Result<Entry>>,
    ) -> io::Result<Table> {
        let (home, name) = (self.home.clone(), self.name);
        self.write(most, entries).inspect_err(|_| {
            for file in files(name) {
                // What stays is removed when the index is opened next.
                let _ = home.remove(&file);
            }
        })
    }

    fn write(self, most: u64, entries: impl Iterator<Item = io::Result<Entry>>) -> io::Result<Table> {
        let [shards, filter, _] = files(self.name);
        let mut shards = ShardWriter::new(SummedWriter::new(self.home.create(&shards)?), most);
        let mut filter = FilterWriter::new(SummedWriter::new(self.home.create(&filter)?), most);
        for entry in entries {
            let entry = entry?;
            shards.add(entry)?;
            filter.add(entry.fingerprint)?;
        }
        let (shards, shards_seal) = shards.finish(&self.damaged)?;
        let (filter, filter_seal) = filter.finish(&self.damaged)?;
        let (bags, bags_seal) = self.bags.finish(&self.damaged)?;
        let state = TableState {
            name: self.name,
            first_bag: self.first_bag,
            end_bag: self.end_bag,
            entries: shards.entries(),
            most,
            shards: shards_seal,
            filter: filter_seal,
            bags: bags_seal,
        };
        Ok(Table { home: self.home, state, shards, filter, bags })
    }
}

/// A table, mapped.
#[derive(Debug)]
pub(super) struct Table {
    home: Home,
    state: TableState,
    shards: Shards,
    filter: Filter,
    bags: Summed,
}

impl Table {
    /// Opens the table that this state describes.
    pub(super) fn open(home: &Home, state: TableState, damaged: &Arc<AtomicBool>) -> io::Result<Self> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the file is not the one that was written");
        let [shards, filter, bags] = state.files();
        let open = |name: &str, seal| Summed::open(home.open(name)?, seal, damaged);
        let bags = open(&bags, state.bags)?;
        let count = state.end_bag.checked_sub(state.first_bag).and_then(|count| usize::try_from(count).ok());
        if count.and_then(|count| count.checked_mul(RECORD)) != Some(bags.len()) {
            return Err(wrong());
        }
        Ok(Self {
            home: home.clone(),
            shards: Shards::new(open(&shards, state.shards)?, state.most, state.entries).ok_or_else(wrong)?,
            filter: Filter::new(open(&filter, state.filter)?),
            bags,
            state,
        })
    }

    /// What to remember of it.
    pub(super) fn state(&self) -> &TableState {
        &self.state
    }

    /// How many entries it has.
    pub(super) fn entries(&self) -> u64 {
        u64::from(self.shards.entries())
    }

    /// The numbers of its bags.
    pub(super) fn numbers(&self) -> Range<u32> {
        self.state.first_bag..self.state.end_bag
    }

    /// Gives the numbers of the bags that have a fingerprint; for an unknown one nearly always without touching a shard.
    #[inline]
    pub(super) fn find(&self, fingerprint: u64, found: impl FnMut(u32)) {
        if self.filter.may_hold(fingerprint) {
            self.shards.find(fingerprint, found);
        }
    }

    /// A bag of this table; `None` for the number of another, and where the file is damaged.
    pub(super) fn bag(&self, number: u32) -> Option<BagEntry> {
        let at = number.checked_sub(self.state.first_bag)?;
        decode(self.bags.array(usize::try_from(at).ok()?.checked_mul(RECORD)?)?)
    }

    /// All entries, in order; ends with an error at a damaged block.
    pub(super) fn iter(&self) -> impl Iterator<Item = io::Result<Entry>> + '_ {
        self.shards.iter()
    }

    /// Makes its files durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.state.files().iter().try_for_each(|name| self.home.sync(name))
    }
}

fn encode(entry: &BagEntry) -> Vec<u8> {
    let mut record = Vec::with_capacity(RECORD);
    record.extend(entry.bag.as_bytes());
    record.push(entry.kind.into());
    record.extend(entry.size.to_le_bytes());
    record.extend(entry.table_offset.to_le_bytes());
    record.extend(entry.table_len.to_le_bytes());
    record
}

fn decode(record: &[u8; RECORD]) -> Option<BagEntry> {
    let (bag, rest) = record.split_first_chunk::<16>()?;
    let (kind, rest) = rest.split_first()?;
    let (size, rest) = rest.split_first_chunk::<8>()?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    Some(BagEntry {
        bag: BagId(*bag),
        kind: BagKind::try_from(*kind).ok()?,
        size: u64::from_le_bytes(*size),
        table_offset: u64::from_le_bytes(*offset),
        table_len: u32::from_le_bytes(*rest.first_chunk()?),
    })
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "more bags than the local index can have")
}
