//! Immutable local files whose damage is noticed where it is met.
//!
//! A file is its contents, then eight bytes of BLAKE3 for each block of 16 KiB of them. The state file knows the length and a
//! digest over those sums, which is checked when the file is opened; a block is checked when it is first touched, and that
//! it was is remembered in one bit. So opening costs nothing that grows with the contents (a 2048th of them is read), and a
//! lookup in a warm block costs one more test of a bit.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::map::Bytes;

const BLOCK_BITS: u32 = 14;
const BLOCK: usize = 1 << BLOCK_BITS;
const SUM: usize = 8;

/// What the state file remembers of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seal {
    /// Bytes of contents.
    len: u64,
    /// BLAKE3 of the sums, its first 16 bytes.
    #[serde(with = "serde_bytes")]
    digest: [u8; 16],
}

/// Where a file is written to.
#[derive(Debug)]
pub(super) enum Sink {
    /// A file of the local index, opened for reading too.
    File(File),
    /// Memory.
    Memory(Vec<u8>),
}

impl Sink {
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all(bytes),
            Self::Memory(held) => {
                held.extend(bytes);
                Ok(())
            }
        }
    }

    fn into_bytes(self) -> io::Result<Bytes> {
        match self {
            Self::File(file) => Bytes::map(&file),
            Self::Memory(held) => Ok(Bytes::Held(held)),
        }
    }
}

/// Writes such a file.
#[derive(Debug)]
pub(super) struct SummedWriter {
    sink: Sink,
    block: Vec<u8>,
    sums: Vec<u8>,
    len: u64,
}

impl SummedWriter {
    pub(super) fn new(sink: Sink) -> Self {
        Self { sink, block: Vec::with_capacity(BLOCK), sums: Vec::new(), len: 0 }
    }

    /// Appends to the contents.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = BLOCK.saturating_sub(self.block.len());
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        self.sums.extend(sum(&self.block));
        self.sink.write(&self.block)?;
        self.len = self.len.saturating_add(len(&self.block));
        self.block.clear();
        Ok(())
    }

    /// Writes what is left and opens the file.
    pub(super) fn finish(mut self, damaged: &Arc<AtomicBool>) -> io::Result<(Summed, Seal)> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        self.sink.write(&self.sums)?;
        let seal = Seal { len: self.len, digest: digest(&self.sums) };
        let file = Summed::open(self.sink.into_bytes()?, seal, damaged)?;
        Ok((file, seal))
    }
}

/// Such a file, opened.
#[derive(Debug)]
pub(super) struct Summed {
    bytes: Bytes,
    len: usize,
    /// A bit for each block that was found whole.
    checked: Box<[AtomicU64]>,
    /// Set when a block is not what was written.
    damaged: Arc<AtomicBool>,
}

impl Summed {
    /// Opens a file; it must have the length and the sums that `seal` says.
    pub(super) fn open(bytes: Bytes, seal: Seal, damaged: &Arc<AtomicBool>) -> io::Result<Self> {
        let not_it =
            || io::Error::new(io::ErrorKind::InvalidData, "the file is not the one that was written");
        let len = usize::try_from(seal.len).ok().ok_or_else(not_it)?;
        let sums = bytes.get(len..).ok_or_else(not_it)?;
        let blocks = len.div_ceil(BLOCK);
        if sums.len() != blocks.saturating_mul(SUM) || digest(sums) != seal.digest {
            return Err(not_it());
        }
        let checked = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { bytes, len, checked, damaged: Arc::clone(damaged) })
    }

    /// Bytes of contents.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The `N` bytes at `at`; `None` beyond the contents, and in a damaged block.
    #[inline]
    pub(super) fn array<const N: usize>(&self, at: usize) -> Option<&[u8; N]> {
        self.get(at, N)?.first_chunk()
    }

    /// The `len` bytes at `at`; `None` beyond the contents, and in a damaged block.
    #[inline]
    pub(super) fn get(&self, at: usize, len: usize) -> Option<&[u8]> {
        let end = at.checked_add(len)?;
        if end > self.len || len == 0 {
            return None;
        }
        for block in at >> BLOCK_BITS..=(end - 1) >> BLOCK_BITS {
            let word = self.checked.get(block / 64)?;
            if word.load(Ordering::Relaxed) & (1 << (block % 64)) == 0 && !self.check(block, word) {
                return None;
            }
        }
        self.bytes.get(at..end)
    }

    #[cold]
    fn check(&self, block: usize, word: &AtomicU64) -> bool {
        let whole = (|| {
            let from = block.checked_mul(BLOCK)?;
            let contents = self.bytes.get(from..self.len.min(from.checked_add(BLOCK)?))?;
            let at = self.len.checked_add(block.checked_mul(SUM)?)?;
            Some(self.bytes.get(at..at.checked_add(SUM)?)? == sum(contents))
        })()
        .unwrap_or(false);
        if whole {
            word.fetch_or(1 << (block % 64), Ordering::Relaxed);
        } else {
            self.damaged.store(true, Ordering::Relaxed);
        }
        whole
    }

    /// Says that all of it will be read from front to back, or no longer.
    pub(super) fn expect_sequential(&self, sequential: bool) {
        self.bytes.expect_sequential(sequential);
    }
}

fn sum(block: &[u8]) -> [u8; SUM] {
    let mut sum = [0; SUM];
    sum.copy_from_slice(&blake3::hash(block).as_bytes()[..SUM]);
    sum
}

fn digest(sums: &[u8]) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(sums).as_bytes()[..16]);
    digest
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(contents: &[u8]) -> (Vec<u8>, Seal) {
        let mut writer = SummedWriter::new(Sink::Memory(vec![]));
        for part in contents.chunks(1000) {
            writer.write(part).unwrap();
        }
        let (file, seal) = writer.finish(&Arc::default()).unwrap();
        (file.bytes.to_vec(), seal)
    }

    #[test]
    fn contents_and_back_across_blocks() {
        let contents: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let (bytes, seal) = written(&contents);
        let file = Summed::open(Bytes::Held(bytes), seal, &Arc::default()).unwrap();
        assert_eq!(file.len(), contents.len());
        for at in (0..contents.len() - 30).step_by(97) {
            assert_eq!(file.get(at, 30), Some(&contents[at..at + 30]));
        }
        assert_eq!(file.get(contents.len() - 1, 2), None);
        assert_eq!(file.get(usize::MAX, 2), None);
        assert_eq!(written(&[]).0.len(), 0);
    }

    #[test]
    fn every_flip_is_noticed_at_the_latest_when_it_is_touched() {
        let (bytes, seal) = written(&[7; 3 * BLOCK + 5]);
        for at in (0..bytes.len()).step_by(911).chain([bytes.len() - 1]) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            let damaged = Arc::default();
            let Ok(file) = Summed::open(Bytes::Held(bytes), seal, &damaged) else { continue };
            assert_eq!(file.get(at, 1), None, "{at}");
            assert!(damaged.load(Ordering::Relaxed));
            let elsewhere = if at < BLOCK { 2 * BLOCK } else { 0 };
            assert_eq!(file.get(elsewhere, 1), Some(&[7][..]));
        }
        for len in [0, 1, bytes.len() - 1] {
            assert!(Summed::open(Bytes::Held(bytes[..len].to_vec()), seal, &Arc::default()).is_err());
        }
    }
}
