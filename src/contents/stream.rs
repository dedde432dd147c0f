//! A file's contents from its beginning to its end.

use std::collections::{HashMap, VecDeque};
use std::io;

use super::open_block;
use super::plan::{Read, Want, reads};
use crate::bag::BagKind;
use crate::bag::reader::{BagReader, ReadError};
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::id::BagId;
use crate::dir::reader::{Pieces, TreeError, pieces};
use crate::entry::{Content, Piece};
use crate::store::Pending;

/// Bytes of contents whose reads are planned together.
const BATCH: u64 = 4 << 20;

/// Pieces whose reads are planned together.
const BATCH_PIECES: usize = 1024;

/// Batches that are under way.
const AHEAD: usize = 8;

/// Why contents could not be given, or not all of them.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// A chunk list could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A chunk could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Whoever took them failed.
    #[error(transparent)]
    Taken(#[from] io::Error),
    /// It was asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What comes next in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section<'a> {
    /// These bytes; they were checked.
    Data(&'a [u8]),
    /// A hole of so many bytes.
    Hole(u64),
}

/// Pieces that follow each other, and the reads that bring them.
struct Batch {
    pieces: Vec<Piece>,
    reads: Vec<(Read<()>, Pending<Vec<u8>>)>,
}

/// The contents of one file. Reads of up to eight batches of 4 MiB run ahead of what is taken, the first of them as soon as the stream is made: several
/// streams made before the first is taken do not wait for each other.
pub struct Stream<'a> {
    reader: &'a BagReader,
    inline: Option<Box<[u8]>>,
    pieces: Pieces<'a>,
    ahead: VecDeque<Batch>,
}

impl<'a> Stream<'a> {
    /// The contents of a file; nothing for what has none. Starts the first reads, at most `batches` of them, and waits for none.
    ///
    /// # Errors
    /// When a chunk list cannot be read.
    pub fn start(source: &'a Source, content: &Content, batches: usize) -> Result<Self, StreamError> {
        let inline = match content {
            Content::Inline(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let (reader, pieces) = (source.reader(), pieces(source, content));
        let mut stream = Self { reader, inline, pieces, ahead: VecDeque::new() };
        stream.fill(batches)?;
        Ok(stream)
    }

    /// Gives all of it to `take`, in order. Returns the number of bytes, holes included.
    ///
    /// # Errors
    /// See [`StreamError`]. A part may have been taken by then.
    pub fn take(
        mut self,
        cancel: &Cancel,
        take: &mut dyn FnMut(Section<'_>) -> io::Result<()>,
    ) -> Result<u64, StreamError> {
        if let Some(bytes) = &self.inline {
            take(Section::Data(bytes))?;
            return Ok(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        }
        let mut taken = 0u64;
        loop {
            self.fill(AHEAD)?;
            let Some(batch) = self.ahead.pop_front() else { return Ok(taken) };
            if cancel.is_cancelled() {
                return Err(StreamError::Interrupted);
            }
            taken = taken.saturating_add(land(batch, self.reader, take)?);
        }
    }

    fn fill(&mut self, batches: usize) -> Result<(), StreamError> {
        while self.ahead.len() < batches
            && let Some(batch) = self.next_batch()?
        {
            self.ahead.push_back(batch);
        }
        Ok(())
    }

    fn next_batch(&mut self) -> Result<Option<Batch>, StreamError> {
        let (mut batch, mut wants, mut bytes) = (Vec::new(), Vec::new(), 0u64);
        while bytes < BATCH
            && batch.len() < BATCH_PIECES
            && let Some(piece) = self.pieces.next()
        {
            let piece = piece?;
            if let Piece::Chunk(reference) = piece {
                bytes = bytes.saturating_add(reference.place.len.into());
                wants.push(Want { reference, goal: () });
            }
            batch.push(piece);
        }
        if batch.is_empty() {
            return Ok(None);
        }
        let reads = reads(wants).into_iter().map(|read| {
            let pending = self.reader.fetch(BagKind::Data, read.bag, read.offset, read.len);
            (read, pending)
        });
        Ok(Some(Batch { pieces: batch, reads: reads.collect() }))
    }
}

fn land(
    batch: Batch,
    reader: &BagReader,
    take: &mut dyn FnMut(Section<'_>) -> io::Result<()>,
) -> Result<u64, StreamError> {
    let mut blocks: HashMap<(BagId, u64), Vec<u8>> = HashMap::new();
    for (read, pending) in batch.reads {
        let mut sealed = pending.wait();
        for block in &read.blocks {
            let place = &block.place;
            let bytes = sealed
                .as_mut()
                .map_err(|error| &*error)
                .map(|sealed| read.range(place).and_then(|range| sealed.get_mut(range)).unwrap_or_default());
            let opened = open_block(reader, place, bytes)?;
            blocks.insert((place.bag, place.offset), opened);
        }
    }
    let mut taken = 0u64;
    for piece in batch.pieces {
        match &piece {
            Piece::Chunk(reference) => {
                let place = &reference.place;
                let block = blocks.get(&(place.bag, place.offset)).map(Vec::as_slice).unwrap_or_default();
                take(Section::Data(reader.object(reference, block)?))?;
            }
            Piece::Hole(len) => take(Section::Hole(*len))?,
        }
        taken = taken.saturating_add(piece.len());
    }
    Ok(taken)
}
