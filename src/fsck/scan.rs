//! Reading bags whole, from the first byte to the last, and opening everything in them.
//!
//! Tables are asked for a few bags ahead, ranges of whole blocks behind them, so the link never waits; one thread hashes what comes for the
//! trailer's sake, others open blocks and check the names of objects. Memory: the window, and a job per thread.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::FsckError;
use super::bags::{BagNo, Bags, cancelled, table_wrong};
use super::check;
use super::flight::WINDOW;
use super::report::{Unreadable, given};
use crate::bag::Table;
use crate::bag::format::TableBlock;
use crate::bag::reader::BagReader;
use crate::base::cancel::Cancel;
use crate::entry::{Place, Reference};
use crate::index::BagEntry;
use crate::monitor::{Counter, Monitor};
use crate::store::Pending;

/// Bytes of blocks read by one request, but for blocks that are larger.
const RANGE: u64 = 2 << 20;

/// Tables asked for ahead.
const TABLES_AHEAD: usize = 32;

/// Threads that open blocks.
const WORKERS: usize = 3;

/// Hears of each object whose bytes have its name.
pub trait Visit: Sync {
    /// An object and its bytes.
    fn object(&self, reference: &Reference, bytes: &[u8]);
}

/// Reads bags.
pub struct Scan<'a> {
    /// Where they are read.
    pub reader: &'a BagReader,
    /// What is known of them.
    pub bags: &'a Bags,
    /// Who hears how much was checked.
    pub monitor: &'a dyn Monitor,
    /// Whether to go on.
    pub cancel: &'a Cancel,
    /// Tables that are here already.
    pub tables: &'a BTreeMap<BagNo, Table>,
    /// Whether enough was read, so many bytes being read or under way: no further bag is begun then.
    pub is_enough: &'a (dyn Fn(u64) -> bool + Sync),
    /// The bag whose end came last.
    pub last: &'a AtomicU32,
}

/// What was read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    /// Bytes of bags.
    pub bytes: u64,
    /// Bags: the first so many of those that were to be read.
    pub bags: usize,
}

/// A range of a bag, and the whole blocks in it.
struct Range {
    bag: BagNo,
    entry: BagEntry,
    start: u64,
    len: u64,
    blocks: Vec<TableBlock>,
}

impl Range {
    fn ends_bag(&self) -> bool {
        self.start.saturating_add(self.len) == self.entry.size
    }
}

/// A bag whose table is under way, or here already.
type Ahead = (BagNo, BagEntry, Option<Pending<Vec<u8>>>);

/// What a worker opens: a range and its bytes.
type Job = (Range, Vec<u8>);

impl Scan<'_> {
    /// Reads all sound bags of `which`, and shows their objects to `visit`; what is damaged is remembered by the bags. Gives the bytes read. A constant
    /// number of serial waits beside those that the link's speed makes.
    ///
    /// # Errors
    /// When the store is out of reach.
    pub fn run(&self, which: &[BagNo], visit: &dyn Visit) -> Result<Read, FsckError> {
        let bytes = AtomicU64::new(0);
        let bags = thread::scope(|scope| {
            let (jobs, take) = bounded::<Job>(WORKERS);
            for _ in 0..WORKERS {
                let take: Receiver<Job> = take.clone();
                scope.spawn(move || take.iter().for_each(|(range, bytes)| self.open(&range, bytes, visit)));
            }
            self.feed(which, &jobs, &bytes)
        })?;
        Ok(Read { bytes: bytes.into_inner(), bags })
    }

    /// Gives the number of bags that were read.
    fn feed(&self, which: &[BagNo], jobs: &Sender<Job>, read: &AtomicU64) -> Result<usize, FsckError> {
        let sound = |&number: &BagNo| Some((number, self.bags.get(number)?.sound.as_ref()?.entry));
        let mut rest = which.iter().filter_map(sound);
        let mut tables: VecDeque<Ahead> = VecDeque::new();
        let mut plan: VecDeque<Range> = VecDeque::new();
        let mut ranges: VecDeque<(Range, Pending<Vec<u8>>)> = VecDeque::new();
        let mut under_way = 0u64;
        let (mut begun, mut planned) = (0usize, 0u64);
        let mut hash = blake3::Hasher::new();
        loop {
            cancelled(self.cancel)?;
            while tables.len() < TABLES_AHEAD {
                let Some((number, entry)) = rest.next() else { break };
                let table = (!self.tables.contains_key(&number)).then(|| {
                    self.reader.fetch(entry.kind, entry.bag, entry.table_offset, u64::from(entry.table_len))
                });
                tables.push_back((number, entry, table));
            }
            while let Some(range) = plan.pop_front() {
                if under_way > 0 && under_way.saturating_add(range.len) > WINDOW {
                    plan.push_front(range);
                    break;
                }
                under_way = under_way.saturating_add(range.len);
                let pending = self.reader.fetch(range.entry.kind, range.entry.bag, range.start, range.len);
                ranges.push_back((range, pending));
            }
            // Another bag is planned while the window has room for it.
            if plan.is_empty()
                && !(self.is_enough)(planned)
                && let Some((number, entry, table)) = tables.pop_front()
            {
                (begun, planned) = (begun.saturating_add(1), planned.saturating_add(entry.size));
                plan.extend(self.plan(number, entry, table)?);
                continue;
            }
            let Some((range, pending)) = ranges.pop_front() else { return Ok(begun) };
            under_way = under_way.saturating_sub(range.len);
            let Some(bytes) = self.landed(&range, given(pending.wait())?, &mut hash) else { continue };
            read.fetch_add(range.len, Ordering::Relaxed);
            if range.ends_bag() {
                self.last.store(range.bag, Ordering::Relaxed);
            }
            if jobs.send((range, bytes)).is_err() {
                return Ok(begun);
            }
        }
    }

    /// Cuts a bag into ranges that cover all of it.
    fn plan(
        &self,
        bag: BagNo,
        entry: BagEntry,
        table: Option<Pending<Vec<u8>>>,
    ) -> Result<Vec<Range>, FsckError> {
        let opened = match (table, self.tables.get(&bag)) {
            (Some(pending), _) => {
                given(pending.wait())?.map_err(|error| error.to_string()).and_then(|mut sealed| {
                    let opened = self.reader.open_table(entry.bag, entry.table_offset, &mut sealed);
                    opened.map_err(|error| table_wrong(&error))
                })
            }
            (None, here) => Ok(here.cloned().unwrap_or_default()),
        };
        let Table { blocks } = match opened {
            Ok(table) => table,
            Err(wrong) => {
                self.bags.wrong(bag, wrong);
                return Ok(Vec::new());
            }
        };
        let mut ranges = Vec::new();
        let mut open = Range { bag, entry, start: 0, len: 0, blocks: Vec::new() };
        for block in blocks {
            let end = block.offset.saturating_add(u64::from(block.stored));
            if end.saturating_sub(open.start) > RANGE && !open.blocks.is_empty() {
                let next = Range { bag, entry, start: block.offset, len: 0, blocks: Vec::new() };
                open.len = block.offset.saturating_sub(open.start);
                ranges.push(std::mem::replace(&mut open, next));
            }
            open.blocks.push(block);
        }
        open.len = entry.size.saturating_sub(open.start);
        ranges.push(open);
        Ok(ranges)
    }

    /// Hashes what came; `None` when it did not.
    fn landed(
        &self,
        range: &Range,
        answer: Result<Vec<u8>, Unreadable>,
        hash: &mut blake3::Hasher,
    ) -> Option<Vec<u8>> {
        if range.start == 0 {
            hash.reset();
        }
        match answer {
            Ok(bytes) => {
                let hashed = if range.ends_bag() { bytes.len().saturating_sub(32) } else { bytes.len() };
                let (before, stored) = bytes.split_at(hashed);
                hash.update(before);
                if range.ends_bag() {
                    check::hash(&hash.finalize(), stored)
                        .unwrap_or_else(|wrong| self.bags.wrong(range.bag, wrong));
                }
                Some(bytes)
            }
            Err(error) => {
                self.bags.wrong(range.bag, error.to_string());
                range.blocks.iter().for_each(|block| self.spoil(range, block));
                None
            }
        }
    }

    fn open(&self, range: &Range, mut bytes: Vec<u8>, visit: &dyn Visit) {
        for block in &range.blocks {
            let start = usize::try_from(block.offset.saturating_sub(range.start)).unwrap_or(usize::MAX);
            let end = start.saturating_add(usize::try_from(block.stored).unwrap_or(usize::MAX));
            let sealed = bytes.get_mut(start..end).unwrap_or_default();
            let entry = range.entry;
            let Ok(opened) = self.reader.open_there(entry.kind, entry.bag, block.offset, sealed) else {
                self.bags.wrong(range.bag, "some of its blocks are damaged".to_owned());
                self.spoil(range, block);
                continue;
            };
            for reference in references(range, block) {
                match self.reader.object(&reference, &opened) {
                    Ok(bytes) => visit.object(&reference, bytes),
                    Err(_) => {
                        self.bags
                            .wrong(range.bag, "some of its objects are not what they are named".to_owned());
                        self.bags.spoil(range.bag, &reference);
                    }
                }
            }
            let objects = u64::try_from(block.objects.len()).unwrap_or(u64::MAX);
            self.monitor.count(Counter::ObjectsChecked, objects);
        }
    }

    fn spoil(&self, range: &Range, block: &TableBlock) {
        references(range, block).for_each(|reference| self.bags.spoil(range.bag, &reference));
    }
}

fn references<'a>(range: &Range, block: &'a TableBlock) -> impl Iterator<Item = Reference> + 'a {
    let bag = range.entry.bag;
    block.objects.iter().map(move |&(id, start, len)| Reference {
        id,
        place: Place { bag, offset: block.offset, stored: block.stored, start, len },
    })
}
