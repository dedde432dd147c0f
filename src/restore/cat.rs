//! One file's contents as a stream.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};

use super::OPENED;
use super::plan::{Read, Want, reads};
use crate::bag::BagKind;
use crate::bag::reader::{BagReader, ReadError};
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::id::BagId;
use crate::base::text::escape;
use crate::dir::reader::{TreeError, pieces};
use crate::entry::{Content, Kind, Piece};
use crate::generation::{Generation, locate};
use crate::repo::Repository;
use crate::store::Pending;

/// Bytes of contents whose reads are planned together.
const BATCH: u64 = 4 << 20;

/// Pieces whose reads are planned together.
const BATCH_PIECES: usize = 1024;

/// Batches that are under way.
const AHEAD: usize = 8;

/// Why a file's contents were not written, or not all of them.
#[derive(Debug, thiserror::Error)]
pub enum CatError {
    /// The path leads to nothing.
    #[error("there is no {path} in this generation", path = escape(.0))]
    NotFound(Vec<u8>),
    /// It leads to something that has no contents.
    #[error("{path} is no regular file", path = escape(.0))]
    NotAFile(Vec<u8>),
    /// A directory or chunk list could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A chunk could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be written.
    #[error("cannot write the contents: {0}")]
    Write(#[from] io::Error),
    /// It was asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Pieces that follow each other, and the reads that bring them.
struct Batch {
    pieces: Vec<Piece>,
    reads: Vec<(Read<()>, Pending<Vec<u8>>)>,
}

/// Writes the contents of the file at `path` to `out`, in order; holes as zeros. Reads run ahead of what is written, in bounded memory; what was written
/// was checked. Returns the number of bytes.
///
/// # Errors
/// See [`CatError`]. A part may be written by then.
pub fn cat(
    repository: &Repository,
    generation: &Generation,
    path: &[u8],
    out: &mut dyn Write,
    cancel: &Cancel,
) -> Result<u64, CatError> {
    let source = Source::new(repository.bags(), OPENED);
    let reader = source.reader();
    let Some((path, entry)) = locate::entry(&source, generation, path)? else {
        return Err(CatError::NotFound(path.to_vec()));
    };
    if entry.metadata.kind != Kind::File {
        return Err(CatError::NotAFile(path));
    }
    if let Content::Inline(bytes) = &entry.content {
        out.write_all(bytes)?;
        return Ok(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }
    let mut pieces = pieces(&source, &entry.content);
    let mut ahead = VecDeque::new();
    let mut written = 0u64;
    loop {
        while ahead.len() < AHEAD
            && let Some(batch) = next_batch(&mut pieces, reader)?
        {
            ahead.push_back(batch);
        }
        let Some(batch) = ahead.pop_front() else { return Ok(written) };
        if cancel.is_cancelled() {
            return Err(CatError::Interrupted);
        }
        written = written.saturating_add(write(batch, reader, out)?);
    }
}

fn next_batch(
    pieces: &mut impl Iterator<Item = Result<Piece, TreeError>>,
    reader: &BagReader,
) -> Result<Option<Batch>, CatError> {
    let (mut batch, mut wants, mut bytes) = (Vec::new(), Vec::new(), 0u64);
    while bytes < BATCH
        && batch.len() < BATCH_PIECES
        && let Some(piece) = pieces.next()
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
        let pending = reader.fetch(BagKind::Data, read.bag, read.offset, read.len);
        (read, pending)
    });
    Ok(Some(Batch { pieces: batch, reads: reads.collect() }))
}

fn write(batch: Batch, reader: &BagReader, out: &mut dyn Write) -> Result<u64, CatError> {
    let mut blocks: HashMap<(BagId, u64), Vec<u8>> = HashMap::new();
    for (read, pending) in batch.reads {
        let mut sealed = pending.wait().map_err(ReadError::from)?;
        for block in &read.blocks {
            let place = &block.place;
            let bytes = read.range(place).and_then(|range| sealed.get_mut(range)).unwrap_or_default();
            let opened = reader.open(BagKind::Data, place.bag, place.offset, bytes)?;
            blocks.insert((place.bag, place.offset), opened);
        }
    }
    let mut written = 0u64;
    for piece in batch.pieces {
        match &piece {
            Piece::Chunk(reference) => {
                let place = &reference.place;
                let block = blocks.get(&(place.bag, place.offset)).map(Vec::as_slice).unwrap_or_default();
                out.write_all(reader.object(reference, block)?)?;
            }
            Piece::Hole(len) => drop(io::copy(&mut io::Read::take(io::repeat(0), *len), &mut *out)?),
        }
        written = written.saturating_add(piece.len());
    }
    Ok(written)
}
