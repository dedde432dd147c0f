//! The sorted list of fingerprints, and who has them.
//!
//! The list is cut into shards by the first 0, 1 or 2 bytes of the fingerprint (so that a shard of a list of up to some ten
//! million has a few hundred entries); those bytes need not be stored. The file is
//!
//! ```text
//! entries    for each: the rest of the fingerprint (8 to 6 bytes, big-endian), number of the bag (4, little-endian)
//! directory  for each shard, and the end: number of its first entry (4, little-endian)
//! ```
//!
//! A lookup reads two numbers of the directory, guesses where in the shard the fingerprint must be, which misses by about half the
//! root of the shard's length, and reads the entries around that place: four cache lines that lie together.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::summed::{Seal, Summed, SummedWriter};

/// Entries looked at on either side of where one must be: twice the usual miss in shards of some hundred and fifty.
const AROUND: u32 = 12;
/// Entries beyond these among which it is then: three times the usual miss in shards of fifteen thousand, those of a list of a billion.
const NEAR: u32 = 180;

/// A fingerprint and the number of a bag that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) fingerprint: u64,
    pub(super) bag: u32,
}

/// How many bytes of the fingerprint choose the shard.
#[derive(Debug, Clone, Copy)]
struct Cut {
    prefix: u32,
}

impl Cut {
    /// The cut for a list of at most so many entries.
    fn of(entries: u64) -> Self {
        Self {
            prefix: match entries {
                0..0x1000 => 0,
                0x1000..0x10_0000 => 1,
                _ => 2,
            },
        }
    }

    fn shards(self) -> usize {
        1 << (8 * self.prefix)
    }

    #[inline]
    fn shard(self, fingerprint: u64) -> usize {
        let prefix = fingerprint.checked_shr(64 - 8 * self.prefix).unwrap_or(0);
        usize::try_from(prefix).unwrap_or(0)
    }

    /// Bits of the fingerprint that are stored.
    #[inline]
    fn stored(self) -> u32 {
        64 - 8 * self.prefix
    }

    /// Bytes of a stored fingerprint.
    #[inline]
    fn width(self) -> usize {
        8 - usize::try_from(self.prefix).unwrap_or(0)
    }

    /// The fingerprint without what chose the shard.
    #[inline]
    fn rest(self, fingerprint: u64) -> u64 {
        fingerprint & (u64::MAX >> (8 * self.prefix))
    }
}

/// Writes a sorted list.
#[derive(Debug)]
pub(super) struct ShardWriter {
    to: SummedWriter,
    most: u64,
    cut: Cut,
    /// First entries of the shards begun.
    directory: Vec<u32>,
    entries: u32,
}

impl ShardWriter {
    /// A list of at most `most` entries.
    pub(super) fn new(to: SummedWriter, most: u64) -> Self {
        Self { to, most, cut: Cut::of(most), directory: vec![], entries: 0 }
    }

    /// Appends an entry, not smaller than the one before.
    pub(super) fn add(&mut self, entry: Entry) -> io::Result<()> {
        let shard = self.cut.shard(entry.fingerprint);
        while self.directory.len() <= shard {
            self.directory.push(self.entries);
        }
        self.entries =
            self.entries.checked_add(1).filter(|_| u64::from(self.entries) < self.most).ok_or_else(|| {
                io::Error::new(io::ErrorKind::FileTooLarge, "more entries than the local index can have")
            })?;
        let rest = self.cut.rest(entry.fingerprint).to_be_bytes();
        let from = rest.len() - self.cut.width();
        self.to.write(&rest[from..])?;
        self.to.write(&entry.bag.to_le_bytes())
    }

    /// Writes the directory.
    pub(super) fn finish(mut self, damaged: &Arc<AtomicBool>) -> io::Result<(Shards, Seal)> {
        self.directory.resize(self.cut.shards() + 1, self.entries);
        for first in &self.directory {
            self.to.write(&first.to_le_bytes())?;
        }
        let entries = self.entries;
        let (file, seal) = self.to.finish(damaged)?;
        Ok((Shards { file, cut: self.cut, entries }, seal))
    }
}

/// A sorted list, mapped.
#[derive(Debug)]
pub(super) struct Shards {
    file: Summed,
    cut: Cut,
    entries: u32,
}

impl Shards {
    /// The list in this file, which was written as one of at most `most` entries; `None` when it cannot be.
    pub(super) fn new(file: Summed, most: u64, entries: u32) -> Option<Self> {
        let cut = Cut::of(most);
        let list = usize::try_from(entries).ok()?.checked_mul(cut.width() + 4)?;
        let directory = (cut.shards() + 1) * 4;
        (list.checked_add(directory)? == file.len()).then_some(Self { file, cut, entries })
    }

    /// How many entries there are.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Gives the bags that have a fingerprint. Nothing from a damaged block.
    #[inline]
    pub(super) fn find(&self, fingerprint: u64, mut found: impl FnMut(u32)) {
        let rest = self.cut.rest(fingerprint);
        let Some((from, end)) = self.bounds(self.cut.shard(fingerprint)) else { return };
        let Some(mut at) = self.lower_bound(rest, from, end) else { return };
        while at < end {
            match self.entry(at) {
                Some((stored, bag)) if stored == rest => found(bag),
                _ => return,
            }
            at += 1;
        }
    }

    /// All entries, in order; ends with an error at a damaged block.
    pub(super) fn iter(&self) -> impl Iterator<Item = io::Result<Entry>> + '_ {
        self.file.expect_sequential(true);
        let mut at = 0;
        let mut shard = 0;
        let mut end = 0;
        std::iter::from_fn(move || {
            if at == self.entries {
                self.file.expect_sequential(false);
                return None;
            }
            let next = (|| {
                while at >= end {
                    end = self.bounds(shard)?.1;
                    shard += 1;
                }
                let (rest, bag) = self.entry(at)?;
                let prefix = u64::try_from(shard - 1).ok()?.checked_shl(self.cut.stored()).unwrap_or(0);
                Some(Entry { fingerprint: prefix | rest, bag })
            })();
            match next {
                Some(entry) => {
                    at += 1;
                    Some(Ok(entry))
                }
                None => {
                    at = self.entries;
                    Some(Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a file of the local index is damaged",
                    )))
                }
            }
        })
    }

    /// First entry of a shard and of the next one.
    #[inline]
    fn bounds(&self, shard: usize) -> Option<(u32, u32)> {
        let directory = usize::try_from(self.entries).ok()? * (self.cut.width() + 4);
        let pair = self.file.array::<8>(directory + shard * 4)?;
        let (numbers, _) = pair.as_chunks::<4>();
        let (from, end) = (u32::from_le_bytes(numbers[0]), u32::from_le_bytes(numbers[1]));
        (from <= end && end <= self.entries).then_some((from, end))
    }

    #[inline]
    fn entry(&self, at: u32) -> Option<(u64, u32)> {
        let width = self.cut.width();
        let bytes = self.file.get(usize::try_from(at).ok()? * (width + 4), width + 4)?;
        // The eight bytes from there on hold the stored fingerprint and a part of the bag's number: shifted out again.
        let rest = u64::from_be_bytes(*bytes.first_chunk()?) >> (64 - self.cut.stored());
        Some((rest, u32::from_le_bytes(*bytes.last_chunk()?)))
    }

    /// The first entry in `from..end` that is not smaller than `rest`.
    #[inline]
    fn lower_bound(&self, rest: u64, from: u32, end: u32) -> Option<u32> {
        let guess = (u128::from(rest) * u128::from(end - from)) >> self.cut.stored();
        let guess = from + u32::try_from(guess).ok()?;
        // All entries around the guess at once: these reads do not wait for each other, as those of a search would.
        let low = guess.saturating_sub(AROUND).max(from);
        let high = guess.saturating_add(AROUND).min(end);
        let smaller = self.smaller(rest, low, high)?;
        match smaller {
            0 if low > from => {
                let near = low.saturating_sub(NEAR).max(from);
                let before = near > from && self.entry(near)?.0 >= rest;
                if before { self.search(rest, from, near) } else { self.search(rest, near, low) }
            }
            _ if smaller == high - low && high < end => {
                let near = high.saturating_add(NEAR).min(end);
                let behind = near < end && self.entry(near)?.0 < rest;
                if behind { self.search(rest, near, end) } else { self.search(rest, high, near) }
            }
            _ => Some(low + smaller),
        }
    }

    /// How many of the entries in `from..end` are smaller than `rest`.
    #[inline]
    fn smaller(&self, rest: u64, from: u32, end: u32) -> Option<u32> {
        if from == end {
            return Some(0);
        }
        let width = self.cut.width() + 4;
        let (at, len) = (usize::try_from(from).ok()? * width, usize::try_from(end - from).ok()? * width);
        let entries = self.file.get(at, len)?.chunks_exact(width);
        let shift = 64 - self.cut.stored();
        let is_smaller = |entry: &[u8]| {
            entry.first_chunk().is_some_and(|bytes| u64::from_be_bytes(*bytes) >> shift < rest)
        };
        Some(entries.map(|entry| u32::from(is_smaller(entry))).sum())
    }

    /// The same by halving, for shards that are long, or not as even as they should be.
    fn search(&self, rest: u64, mut low: u32, mut high: u32) -> Option<u32> {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.0 < rest { low = middle + 1 } else { high = middle }
        }
        Some(low)
    }
}

#[cfg(test)]
mod tests {
    use super::super::summed::Sink;
    use super::super::testing::numbered;
    use super::*;
    use proptest::prelude::*;

    fn written(entries: &[Entry], most: u64) -> Shards {
        let mut writer = ShardWriter::new(SummedWriter::new(Sink::Memory(vec![])), most);
        for &entry in entries {
            writer.add(entry).unwrap();
        }
        writer.finish(&Arc::default()).unwrap().0
    }

    fn found(shards: &Shards, fingerprint: u64) -> Vec<u32> {
        let mut bags = vec![];
        shards.find(fingerprint, |bag| bags.push(bag));
        bags
    }

    #[test]
    fn every_cut_finds_what_is_there_and_nothing_else() {
        let mut entries: Vec<Entry> = (0..)
            .zip(numbered(0..5000))
            .map(|(bag, fingerprint)| Entry { fingerprint: fingerprint.0, bag })
            .collect();
        entries.sort_unstable();
        for most in [5000_u64, 0x10_0000] {
            let shards = written(&entries, most);
            for entry in &entries {
                assert_eq!(found(&shards, entry.fingerprint), [entry.bag]);
                assert!(found(&shards, entry.fingerprint ^ 1).is_empty());
            }
            let all: Vec<Entry> = shards.iter().collect::<io::Result<_>>().unwrap();
            assert_eq!(all, entries);
        }
    }

    #[test]
    fn more_than_announced_is_refused() {
        let mut writer = ShardWriter::new(SummedWriter::new(Sink::Memory(vec![])), 1);
        let entry = Entry { fingerprint: 1, bag: 1 };
        assert!(writer.add(entry).is_ok());
        assert!(writer.add(entry).is_err());
    }

    proptest! {
        /// However unevenly they lie.
        #[test]
        fn agrees_with_a_plain_list(
            mut numbers in proptest::collection::vec(prop_oneof![0_u64..50, any::<u64>(), u64::MAX - 50..=u64::MAX], 0..200),
            asked: Vec<u64>,
            cut in 0_usize..3,
        ) {
            numbers.sort_unstable();
            let entries: Vec<Entry> =
                (0..).zip(&numbers).map(|(bag, &fingerprint)| Entry { fingerprint, bag }).collect();
            let shards = written(&entries, [1000, 0x1000, 0x10_0000][cut]);
            for fingerprint in asked.into_iter().chain(numbers.iter().copied()).chain([0, 49, u64::MAX]) {
                let expected: Vec<u32> =
                    entries.iter().filter(|entry| entry.fingerprint == fingerprint).map(|entry| entry.bag).collect();
                prop_assert_eq!(found(&shards, fingerprint), expected);
            }
        }
    }
}
