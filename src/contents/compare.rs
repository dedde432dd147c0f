//! Whether a live file has the contents that were saved. Chunks have names that tell their contents, so nothing is fetched.

use std::cmp::min;

use crate::bag::source::Source;
use crate::dir::reader::{TreeError, pieces};
use crate::entry::{Content, Piece};
use crate::live::{LiveError, LiveFile};

/// Why that cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The chunk list could not be had.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The live file could not be read.
    #[error(transparent)]
    Live(#[from] LiveError),
}

/// Bytes of holes that are looked at together.
const STEP: u64 = 1 << 20;

/// Whether `file` has these contents, of `size` bytes; where its holes are does not matter. `buffer` is for reading it.
///
/// # Errors
/// See [`CompareError`].
pub fn has_contents(
    source: &Source,
    content: &Content,
    size: u64,
    file: &LiveFile,
    buffer: &mut Vec<u8>,
) -> Result<bool, CompareError> {
    if file.stat().size != size {
        return Ok(false);
    }
    if let Content::Inline(bytes) = content {
        return Ok(read(file, 0, length(bytes), buffer)? && *buffer == **bytes);
    }
    let mut at = 0u64;
    for piece in pieces(source, content) {
        let piece = piece?;
        let end = at.saturating_add(piece.len());
        match &piece {
            Piece::Chunk(chunk) => {
                if !read(file, at, piece.len(), buffer)? || source.reader().id_of(buffer) != chunk.id {
                    return Ok(false);
                }
            }
            Piece::Hole(len) if file.has_hole(at, *len) => {}
            Piece::Hole(_) => {
                let mut from = at;
                while from < end {
                    let len = min(STEP, end.saturating_sub(from));
                    if !read(file, from, len, buffer)? || buffer.iter().any(|byte| *byte != 0) {
                        return Ok(false);
                    }
                    from = from.saturating_add(len);
                }
            }
        }
        at = end;
    }
    Ok(at == size)
}

/// Reads so many bytes; whether they were there.
fn read(file: &LiveFile, offset: u64, len: u64, buffer: &mut Vec<u8>) -> Result<bool, LiveError> {
    buffer.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
    Ok(file.read_range(offset, buffer)? == buffer.len())
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
