//! What lies where in a file: pieces by their offset, lists of long files read as they are needed.

use std::sync::Arc;

use super::pages::{ListRow, Pages, Row};
use crate::dir::reader::TreeError;
use crate::entry::{Content, ListPart, Piece};

/// More levels of lists than any file needs.
const MAX_LEVELS: usize = 16;

/// A piece and where it begins in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins, in bytes.
    pub start: u64,
    /// The piece.
    pub piece: Piece,
}

impl Extent {
    /// Where it ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.piece.len())
    }
}

/// The pieces of a file.
#[derive(Debug, Clone)]
pub struct Extents {
    top: ListRow,
}

impl Extents {
    /// Of contents that lie in bags; `None` for others.
    #[must_use]
    pub fn new(content: &Content) -> Option<Self> {
        let top = match content {
            Content::Pieces(pieces) => ListRow::Pieces(Arc::new(Row::new(pieces.clone(), Piece::len))),
            Content::Lists { parts, .. } => {
                ListRow::Parts(Arc::new(Row::new(parts.clone(), |part: &ListPart| part.bytes)))
            }
            _ => return None,
        };
        Some(Self { top })
    }

    /// The piece that holds the byte at `offset`; `None` behind the end. Reads one list of each level.
    ///
    /// # Errors
    /// When a list cannot be had.
    pub fn at(&self, pages: &Pages, offset: u64) -> Result<Option<Extent>, TreeError> {
        let mut row = self.top.clone();
        let mut base = 0u64;
        for _ in 0..MAX_LEVELS {
            let inside = offset.saturating_sub(base);
            row = match row {
                ListRow::Pieces(pieces) => {
                    return Ok(pieces
                        .at(inside)
                        .map(|(piece, start)| Extent { start: base.saturating_add(start), piece: *piece }));
                }
                ListRow::Parts(parts) => match parts.at(inside) {
                    Some((part, start)) => {
                        base = base.saturating_add(start);
                        pages.list(&part.list)?
                    }
                    None => return Ok(None),
                },
            };
        }
        Err(TreeError::Depth)
    }

    /// The pieces that have bytes of this range, in order. Each is looked up by itself: neighbours lie in the list that was used last.
    pub fn over(
        &self,
        pages: &Pages,
        offset: u64,
        end: u64,
    ) -> impl Iterator<Item = Result<Extent, TreeError>> {
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let found = self.at(pages, at).transpose()?;
            // Behind a list that cannot be had nothing is looked for.
            at = found.as_ref().map_or(end, Extent::end).max(at.saturating_add(1));
            Some(found)
        })
    }

    /// Where the first data (or, if not `data`, the first hole) at `offset` or behind it begin; `None` when there are none before `size`, where a hole is.
    ///
    /// # Errors
    /// When a list cannot be had.
    pub fn seek(&self, pages: &Pages, offset: u64, size: u64, data: bool) -> Result<Option<u64>, TreeError> {
        for extent in self.over(pages, offset, size) {
            let extent = extent?;
            if matches!(extent.piece, Piece::Chunk(_)) == data {
                return Ok(Some(extent.start.max(offset)));
            }
        }
        Ok((!data).then_some(size))
    }

    /// Bytes that are no holes. Reads all lists.
    ///
    /// # Errors
    /// When a list cannot be had.
    pub fn data(&self, pages: &Pages) -> Result<u64, TreeError> {
        fn sum(pages: &Pages, row: &ListRow, levels: usize) -> Result<u64, TreeError> {
            match row {
                _ if levels == 0 => Err(TreeError::Depth),
                ListRow::Pieces(pieces) => Ok(pieces
                    .items()
                    .iter()
                    .filter(|piece| matches!(piece, Piece::Chunk(_)))
                    .map(Piece::len)
                    .fold(0, u64::saturating_add)),
                ListRow::Parts(parts) => parts.items().iter().try_fold(0u64, |bytes, part| {
                    Ok(bytes.saturating_add(sum(pages, &pages.list(&part.list)?, levels - 1)?))
                }),
            }
        }
        sum(pages, &self.top, MAX_LEVELS)
    }
}
