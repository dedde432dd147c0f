//! Chunk lists of any length.

use crate::bag::Placing;
use crate::dir::paging::Cutter;
use crate::entry::{Content, ListPart, Piece};

use super::BackupError;
use super::tree::{Draft, Tree};

/// So many pieces, or parts, stand in the entry itself.
const DIRECT: usize = 32;

/// A hash that ends no list on any level.
const NO_CUT: u64 = u64::MAX;

/// Gathers the pieces of one file. More than a few become list objects, cut where the hash of a chunk says, and lists of lists above them, so that
/// a change in a long file rewrites one list on each level.
pub struct Lists<'a> {
    tree: &'a Tree,
    pieces: Vec<Piece<Placing>>,
    cutter: Option<Cutter>,
    upper: Vec<Upper>,
}

struct Upper {
    parts: Vec<ListPart<Placing>>,
    cutter: Cutter,
}

impl<'a> Lists<'a> {
    /// No pieces yet; lists will be made by `tree`.
    pub fn new(tree: &'a Tree) -> Self {
        Self { tree, pieces: Vec::new(), cutter: None, upper: Vec::new() }
    }

    /// Adds a piece. Neighbouring holes become one.
    pub fn push(&mut self, piece: Piece<Placing>) -> Result<(), BackupError> {
        if let (Piece::Hole(more), Some(Piece::Hole(len))) = (&piece, self.pieces.last_mut()) {
            *len = len.saturating_add(*more);
            return Ok(());
        }
        if self.cutter.is_none() && self.pieces.len() < DIRECT {
            self.pieces.push(piece);
            return Ok(());
        }
        if self.cutter.is_none() {
            self.cutter = Some(Cutter::new(0));
            for piece in std::mem::take(&mut self.pieces) {
                self.push_listed(piece)?;
            }
        }
        self.push_listed(piece)
    }

    fn push_listed(&mut self, piece: Piece<Placing>) -> Result<(), BackupError> {
        let hash = hash_of(&piece);
        self.pieces.push(piece);
        if self.cutter.as_mut().is_some_and(|cutter| cutter.push(hash, 40)) {
            let part = self.list()?;
            self.push_part(0, part, hash)?;
        }
        Ok(())
    }

    /// Makes a list of the pieces gathered.
    fn list(&mut self) -> Result<ListPart<Placing>, BackupError> {
        let pieces = std::mem::take(&mut self.pieces);
        let bytes = pieces.iter().map(len_of).fold(0, u64::saturating_add);
        let list = self.tree.submit(Draft::Pieces(pieces), [].into())?;
        Ok(ListPart { list, bytes })
    }

    fn push_part(&mut self, level: usize, part: ListPart<Placing>, hash: u64) -> Result<(), BackupError> {
        if self.upper.len() == level {
            let number = u32::try_from(level).unwrap_or(u32::MAX).saturating_add(1);
            self.upper.push(Upper { parts: Vec::new(), cutter: Cutter::new(number) });
        }
        let ends = self.upper.get_mut(level).is_some_and(|upper| {
            upper.parts.push(part);
            // A list of one part would gain nothing, and might do so for ever.
            upper.parts.len() > 1 && upper.cutter.push(hash, 45)
        });
        if ends { self.raise(level, hash) } else { Ok(()) }
    }

    /// Makes a list of a level's parts, as a part of the level above.
    fn raise(&mut self, level: usize, hash: u64) -> Result<(), BackupError> {
        let Some(upper) = self.upper.get_mut(level) else { return Ok(()) };
        let parts = std::mem::take(&mut upper.parts);
        if parts.is_empty() {
            return Ok(());
        }
        let bytes = parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add);
        let list = self.tree.submit(Draft::Parts(parts), [].into())?;
        self.push_part(level + 1, ListPart { list, bytes }, hash)
    }

    /// The contents that the pieces make.
    pub fn finish(mut self) -> Result<Content<Placing>, BackupError> {
        if self.cutter.is_none() {
            let empty = self.pieces.is_empty();
            return Ok(if empty { Content::Empty } else { Content::Pieces(self.pieces) });
        }
        if !self.pieces.is_empty() {
            let part = self.list()?;
            self.push_part(0, part, NO_CUT)?;
        }
        let mut level = 0;
        while let Some(upper) = self.upper.get_mut(level) {
            let few = upper.parts.len() <= DIRECT;
            let parts = if few { std::mem::take(&mut upper.parts) } else { Vec::new() };
            let is_top = self.upper.len() == level + 1;
            if few && is_top {
                let depth = u8::try_from(level).unwrap_or(u8::MAX).saturating_add(1);
                return Ok(Content::Lists { depth, parts });
            }
            if let Some(upper) = self.upper.get_mut(level).filter(|_| few) {
                upper.parts = parts;
            }
            self.raise(level, NO_CUT)?;
            level += 1;
        }
        Ok(Content::Empty)
    }
}

fn hash_of(piece: &Piece<Placing>) -> u64 {
    match piece {
        Piece::Chunk(placing) => {
            placing.id().and_then(|id| id.0.first_chunk().copied()).map_or(NO_CUT, u64::from_le_bytes)
        }
        Piece::Hole(_) => NO_CUT,
    }
}

fn len_of(piece: &Piece<Placing>) -> u64 {
    match piece {
        Piece::Chunk(placing) => placing.object_len().map_or(0, u64::from),
        Piece::Hole(len) => *len,
    }
}
