//! An open file.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::ahead::Ahead;
use super::extents::{Extent, Extents};
use super::node::Stored;
use super::pages::Pages;
use crate::bag::reader::ReadError;
use crate::contents::blocks::{Blocks, Slot};
use crate::dir::reader::TreeError;
use crate::entry::{Content, Piece, Reference};

/// Why bytes cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A chunk list could not be had.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A chunk could not be had.
    #[error(transparent)]
    Read(#[from] Arc<ReadError>),
    /// The contents end before the size says.
    #[error("the contents end at byte {0}")]
    Short(u64),
}

/// A file that somebody reads.
pub struct File {
    stored: Stored,
    size: u64,
    /// Where its contents lie, unless they stand in the entry.
    extents: Option<Extents>,
    ahead: Mutex<Ahead>,
}

/// Bytes of a file, as far as they are known where they lie.
pub struct Part {
    extents: Vec<(Extent, Option<Arc<Slot>>)>,
    offset: u64,
    end: u64,
}

impl Part {
    /// Whether nobody needs to wait for any of it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.extents.iter().all(|(_, slot)| slot.as_ref().is_none_or(|slot| slot.is_ready()))
    }
}

impl File {
    /// The file that this entry is.
    #[must_use]
    pub fn new(stored: Stored) -> Self {
        let (size, extents) = match stored.entry() {
            Some(entry) => (entry.metadata.size, Extents::new(&entry.content)),
            None => (0, None),
        };
        Self { stored, size, extents, ahead: Mutex::default() }
    }

    /// Its bytes, if they stand in the entry: from `offset` on, `len` at most.
    #[must_use]
    pub fn inline(&self, offset: u64, len: u32) -> Option<&[u8]> {
        match &self.stored.entry()?.content {
            Content::Inline(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                bytes.get(start..bytes.len().min(start.saturating_add(len)))
            }
            _ => None,
        }
    }

    /// Finds where `len` bytes from `offset` on lie, as far as the file reaches, and asks for those that are not there; `None` if it ends before.
    ///
    /// # Errors
    /// When a chunk list cannot be had.
    pub fn find(
        &self,
        pages: &Pages,
        blocks: &Blocks,
        offset: u64,
        len: u32,
    ) -> Result<Option<Part>, FileError> {
        let end = offset.saturating_add(len.into()).min(self.size);
        if offset >= end {
            return Ok(None);
        }
        let Some(extents) = &self.extents else { return Err(FileError::Short(0)) };
        let mut found = Vec::new();
        for extent in extents.over(pages, offset, end) {
            let extent = extent?;
            let slot = match &extent.piece {
                Piece::Chunk(reference) => Some(blocks.slot(reference)),
                Piece::Hole(_) => None,
            };
            found.push((extent, slot));
        }
        Ok(Some(Part { extents: found, offset, end }))
    }

    /// What the reader of `part` will want next: asked for, and to be opened by somebody. `readers` share the budget.
    ///
    /// # Errors
    /// When a chunk list cannot be had.
    pub fn ahead(
        &self,
        pages: &Pages,
        blocks: &Blocks,
        part: &Part,
        readers: usize,
    ) -> Result<Vec<Arc<Slot>>, FileError> {
        let share = blocks.budget() / 3 / readers.max(1);
        let limit = u64::try_from(share).unwrap_or(u64::MAX);
        let window =
            self.ahead.lock().unwrap_or_else(PoisonError::into_inner).read(part.offset, part.end, limit);
        let (Some((from, to)), Some(extents)) = (window, &self.extents) else { return Ok(Vec::new()) };
        let mut wanted: Vec<Reference> = Vec::new();
        for extent in extents.over(pages, from, to.min(self.size)) {
            if let Piece::Chunk(reference) = extent?.piece {
                wanted.push(reference);
            }
        }
        Ok(blocks.ask(wanted.into_iter()))
    }

    /// The bytes of `part`: where they lie if they lie in one chunk, else put together. Waits for what is not there.
    ///
    /// # Errors
    /// When a chunk cannot be had.
    pub fn read(blocks: &Blocks, part: &Part) -> Result<Bytes, FileError> {
        if let [(extent, Some(slot))] = &part.extents[..] {
            let range = inside(blocks, extent, slot, part)?;
            return Ok(Bytes::There(Arc::clone(slot), range));
        }
        let len = usize::try_from(part.end.saturating_sub(part.offset)).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(len);
        for (extent, slot) in &part.extents {
            match slot {
                Some(slot) => {
                    let range = inside(blocks, extent, slot, part)?;
                    bytes.extend_from_slice(slot.bytes().get(range).unwrap_or_default());
                }
                None => {
                    let len = extent.end().min(part.end).saturating_sub(extent.start.max(part.offset));
                    let end = bytes.len().saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
                    bytes.resize(end, 0);
                }
            }
        }
        match bytes.len() == len {
            true => Ok(Bytes::Copied(bytes)),
            false => Err(FileError::Short(part.end)),
        }
    }

    /// Where the first data, or else the first hole, at `offset` or behind it begin, as `lseek` tells it; `None` when there is nothing of the kind.
    ///
    /// # Errors
    /// When a chunk list cannot be had.
    pub fn seek(&self, pages: &Pages, offset: u64, data: bool) -> Result<Option<u64>, FileError> {
        if offset >= self.size {
            return Ok(None);
        }
        match &self.extents {
            Some(extents) => Ok(extents.seek(pages, offset, self.size, data)?),
            None => Ok(Some(if data { offset } else { self.size })),
        }
    }
}

/// Where the bytes of `extent` that belong to `part` lie in its opened block.
fn inside(
    blocks: &Blocks,
    extent: &Extent,
    slot: &Arc<Slot>,
    part: &Part,
) -> Result<Range<usize>, FileError> {
    let Piece::Chunk(reference) = &extent.piece else { return Ok(0..0) };
    let object = blocks.find(slot, reference)?;
    let at = |offset: u64| {
        let inside = offset.clamp(extent.start, extent.end()).saturating_sub(extent.start);
        object.start.saturating_add(usize::try_from(inside).unwrap_or(usize::MAX))
    };
    Ok(at(part.offset)..at(part.end))
}

/// Bytes that were read.
pub enum Bytes {
    /// Where they lie.
    There(Arc<Slot>, Range<usize>),
    /// Put together.
    Copied(Vec<u8>),
}

impl Bytes {
    /// The bytes.
    #[must_use]
    pub fn get(&self) -> &[u8] {
        match self {
            Self::There(slot, range) => slot.bytes().get(range.clone()).unwrap_or_default(),
            Self::Copied(bytes) => bytes,
        }
    }
}
