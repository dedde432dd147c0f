//! Answers "never seen" with one look at one cache line.
//!
//! A blocked Bloom filter: the high bits of a fingerprint choose a block of 64 bytes, its low 45 bits five of that block's 512
//! bits. Fingerprints are uniform already, so nothing is hashed. About 51 fingerprints share a block (10 bits each), and
//! about one unknown fingerprint in eighty passes, to be refused by the shard.
//!
//! Because blocks follow the fingerprints' order, the filter of a sorted list is written front to back beside it, a block
//! at a time. That is why it is this one and not a binary fuse filter, which is a fifth smaller but must have all keys in
//! memory to be built; and nothing here has to grow, because tables never change.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::summed::{Seal, Summed, SummedWriter};

const BLOCK: usize = 64;
const WORDS: usize = 8;
const PROBES: u32 = 5;
/// Fingerprints to a block.
const LOAD: u64 = 51;

/// Which block, of so many.
#[inline]
fn block_of(fingerprint: u64, blocks: u64) -> u64 {
    u64::try_from((u128::from(fingerprint) * u128::from(blocks)) >> 64).unwrap_or(0)
}

/// The bits within the block, each as (word, mask).
#[inline]
fn probes(fingerprint: u64) -> impl Iterator<Item = (usize, u64)> {
    (0..PROBES).map(move |probe| {
        let bit = (fingerprint >> (9 * probe)) & 0x1ff;
        (usize::try_from(bit >> 6).unwrap_or(0), 1 << (bit & 63))
    })
}

/// Writes the filter of a sorted list.
#[derive(Debug)]
pub(super) struct FilterWriter {
    to: SummedWriter,
    blocks: u64,
    at: u64,
    block: [u64; WORDS],
}

impl FilterWriter {
    /// A filter for at most `entries` fingerprints.
    pub(super) fn new(to: SummedWriter, entries: u64) -> Self {
        Self { to, blocks: entries.div_ceil(LOAD), at: 0, block: [0; WORDS] }
    }

    /// Adds a fingerprint, not smaller than the one before.
    pub(super) fn add(&mut self, fingerprint: u64) -> io::Result<()> {
        let block = block_of(fingerprint, self.blocks);
        while self.at < block {
            self.end_block()?;
        }
        for (word, mask) in probes(fingerprint) {
            self.block[word] |= mask;
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        for word in self.block {
            self.to.write(&word.to_le_bytes())?;
        }
        self.block = [0; WORDS];
        self.at += 1;
        Ok(())
    }

    /// Writes the rest.
    pub(super) fn finish(mut self, damaged: &Arc<AtomicBool>) -> io::Result<(Filter, Seal)> {
        while self.at < self.blocks {
            self.end_block()?;
        }
        let (file, seal) = self.to.finish(damaged)?;
        Ok((Filter::new(file), seal))
    }
}

/// A filter, mapped.
#[derive(Debug)]
pub(super) struct Filter {
    file: Summed,
    blocks: u64,
}

impl Filter {
    pub(super) fn new(file: Summed) -> Self {
        let blocks = u64::try_from(file.len() / BLOCK).unwrap_or(0);
        Self { file, blocks }
    }

    /// Whether the fingerprint may be in the list. `false` is certain, but for a damaged block.
    #[inline]
    pub(super) fn may_hold(&self, fingerprint: u64) -> bool {
        let at = usize::try_from(block_of(fingerprint, self.blocks)).unwrap_or(0) * BLOCK;
        let Some(block) = self.file.array::<BLOCK>(at) else { return false };
        let (words, _) = block.as_chunks::<8>();
        probes(fingerprint).all(|(word, mask)| u64::from_le_bytes(words[word]) & mask != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::summed::Sink;
    use super::super::testing::numbered;
    use super::*;

    #[test]
    fn knows_all_it_was_given_and_few_others() {
        let mut known: Vec<u64> = numbered(0..100_000).iter().map(|fingerprint| fingerprint.0).collect();
        known.sort_unstable();
        let mut writer = FilterWriter::new(SummedWriter::new(Sink::Memory(vec![])), 100_000);
        for &fingerprint in &known {
            writer.add(fingerprint).unwrap();
        }
        let (filter, _) = writer.finish(&Arc::default()).unwrap();
        assert!(known.iter().all(|&fingerprint| filter.may_hold(fingerprint)));
        let passed =
            numbered(100_000..200_000).iter().filter(|fingerprint| filter.may_hold(fingerprint.0)).count();
        assert!(passed < 1500, "{passed} of 100,000 unknown ones pass");
        assert!(filter.file.len() < 126_000, "{} bytes", filter.file.len());
    }

    #[test]
    fn an_empty_one_holds_nothing() {
        let writer = FilterWriter::new(SummedWriter::new(Sink::Memory(vec![])), 0);
        let (filter, _) = writer.finish(&Arc::default()).unwrap();
        assert!(!filter.may_hold(0) && !filter.may_hold(u64::MAX));
    }
}
