//! Sorts more entries than memory should hold.
//!
//! Entries collect in a buffer; a full one is sorted and written out as a run, and runs are merged, sixty-four at a time. The
//! memory taken is the buffer and a page or two for each run, however many entries there are; each entry is written once
//! for every power of sixty-four buffers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek as _};

use super::home::Home;
use super::shard::Entry;
use super::summed::Sink;

/// Entries held in memory: 8 MiB.
const BUFFER: usize = 1 << 19;
/// Runs merged at a time.
const FAN: usize = 64;
/// Bytes of an entry in a run: fingerprint and bag, little-endian.
const RECORD: usize = 12;

/// A sorted source of entries.
pub(super) type Source<'a> = Box<dyn Iterator<Item = io::Result<Entry>> + 'a>;

/// Takes entries in any order and gives them back sorted.
#[derive(Debug)]
pub(super) struct Sorter {
    home: Home,
    capacity: usize,
    buffer: Vec<Entry>,
    /// Runs by how often their entries were merged.
    levels: Vec<Vec<Sink>>,
    entries: u64,
}

impl Sorter {
    /// Keeps its runs in `home`.
    pub(super) fn new(home: Home) -> Self {
        Self::with_capacity(home, BUFFER)
    }

    fn with_capacity(home: Home, capacity: usize) -> Self {
        Self { home, capacity, buffer: vec![], levels: vec![], entries: 0 }
    }

    /// How many entries were taken.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Takes an entry.
    pub(super) fn push(&mut self, entry: Entry) -> io::Result<()> {
        if self.buffer.len() == self.capacity {
            self.spill()?;
        }
        if self.buffer.is_empty() {
            // Once and whole: growing would copy, and hold twice as much meanwhile.
            self.buffer.reserve_exact(if self.entries == 0 {
                1024.min(self.capacity)
            } else {
                self.capacity
            });
        }
        self.buffer.push(entry);
        self.entries += 1;
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        self.buffer.sort_unstable();
        let run = write_run(&self.home, self.buffer.drain(..).map(Ok))?;
        let mut level = 0;
        self.put(level, run);
        while self.levels[level].len() >= FAN {
            let runs = std::mem::take(&mut self.levels[level]);
            let run = write_run(&self.home, Union::of(read_runs(runs)?)?)?;
            level += 1;
            self.put(level, run);
        }
        Ok(())
    }

    fn put(&mut self, level: usize, run: Sink) {
        if self.levels.len() == level {
            self.levels.push(vec![]);
        }
        self.levels[level].push(run);
    }

    /// All entries, ascending.
    pub(super) fn finish(mut self) -> io::Result<Source<'static>> {
        self.buffer.sort_unstable();
        let mut sources = read_runs(self.levels.into_iter().flatten().collect())?;
        if sources.is_empty() {
            return Ok(Box::new(self.buffer.into_iter().map(Ok)));
        }
        sources.push(Box::new(self.buffer.into_iter().map(Ok)));
        Ok(Box::new(Union::of(sources)?))
    }
}

fn write_run(home: &Home, entries: impl Iterator<Item = io::Result<Entry>>) -> io::Result<Sink> {
    let mut sink = home.scratch()?;
    let mut page = Vec::with_capacity(1 << 16);
    for entry in entries {
        let entry = entry?;
        page.extend(entry.fingerprint.to_le_bytes());
        page.extend(entry.bag.to_le_bytes());
        if page.len() > (1 << 16) - RECORD {
            sink.write(&page)?;
            page.clear();
        }
    }
    sink.write(&page)?;
    Ok(sink)
}

fn read_runs(runs: Vec<Sink>) -> io::Result<Vec<Source<'static>>> {
    runs.into_iter()
        .map(|run| {
            Ok(match run {
                Sink::File(mut file) => {
                    file.rewind()?;
                    Box::new(read_run(BufReader::<File>::with_capacity(1 << 15, file))) as Source<'static>
                }
                Sink::Memory(bytes) => Box::new(read_run(Cursor::new(bytes))),
            })
        })
        .collect()
}

fn read_run(mut from: impl Read) -> impl Iterator<Item = io::Result<Entry>> {
    std::iter::from_fn(move || {
        let mut record = [0; RECORD];
        match from.read_exact(&mut record) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
            Err(error) => return Some(Err(error)),
        }
        let (fingerprint, bag) = record.split_first_chunk::<8>()?;
        let bag = u32::from_le_bytes(*bag.first_chunk()?);
        Some(Ok(Entry { fingerprint: u64::from_le_bytes(*fingerprint), bag }))
    })
}

/// Merges sorted sources into one.
pub(super) struct Union<'a> {
    sources: Vec<Source<'a>>,
    next: BinaryHeap<Reverse<(Entry, usize)>>,
}

impl<'a> Union<'a> {
    /// The union of these.
    pub(super) fn of(mut sources: Vec<Source<'a>>) -> io::Result<Self> {
        let mut next = BinaryHeap::with_capacity(sources.len());
        for (number, source) in sources.iter_mut().enumerate() {
            if let Some(entry) = source.next() {
                next.push(Reverse((entry?, number)));
            }
        }
        Ok(Self { sources, next })
    }
}

impl Iterator for Union<'_> {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut top = self.next.peek_mut()?;
        let Reverse((entry, number)) = *top;
        match self.sources.get_mut(number).and_then(Iterator::next) {
            Some(Ok(following)) => *top = Reverse((following, number)),
            Some(Err(error)) => return Some(Err(error)),
            None => drop(PeekMut::pop(top)),
        }
        Some(Ok(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::numbered;
    use super::*;

    #[test]
    fn sorts_through_every_level() {
        let dir = tempfile::tempdir().unwrap();
        for home in [Home::Memory, Home::directory(dir.path()).unwrap()] {
            // 64 runs of 64 buffers of 2, and some more.
            let mut sorter = Sorter::with_capacity(home, 2);
            let mut expected: Vec<Entry> = (0..)
                .zip(numbered(0..2 * 64 * 64 + 131))
                .map(|(bag, fingerprint)| Entry { fingerprint: fingerprint.0, bag })
                .collect();
            for &entry in &expected {
                sorter.push(entry).unwrap();
            }
            assert_eq!(sorter.levels.len(), 3);
            assert_eq!(sorter.entries(), 8323);
            expected.sort_unstable();
            let sorted: Vec<Entry> = sorter.finish().unwrap().collect::<io::Result<_>>().unwrap();
            assert_eq!(sorted, expected);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(Sorter::new(Home::Memory).finish().unwrap().count(), 0);
    }
}
