//! Grouping objects into blocks, and references whose place is still open.

use std::sync::{Arc, OnceLock};

use super::roomy::Roomy;
use crate::base::id::{BagId, ObjectId};
use crate::entry::{Place, Reference};

/// Small objects are gathered until a block holds this many bytes.
pub const BLOCK_BYTES: usize = 512 << 10;

/// An object of at least this many bytes gets a block of its own.
pub const LARGE: usize = 256 << 10;

/// Where a block lies, once that is decided.
#[derive(Debug, Default)]
pub struct BlockSlot(OnceLock<(BagId, u64, u32)>);

impl BlockSlot {
    /// Decides the place. Only the first decision counts.
    pub fn set(&self, bag: BagId, offset: u64, stored: u32) {
        // A block is placed once, by the thread that seals it.
        let _ = self.0.set((bag, offset, stored));
    }

    /// Bag, offset and sealed length, once decided.
    #[must_use]
    pub fn get(&self) -> Option<(BagId, u64, u32)> {
        self.0.get().copied()
    }
}

/// A reference that is known, or will be when the block that holds the object is sealed.
#[derive(Debug, Clone)]
pub enum Placing {
    /// Known.
    Known(Reference),
    /// In a block that is not sealed yet.
    InBlock {
        /// The object.
        id: ObjectId,
        /// The block.
        block: Arc<BlockSlot>,
        /// Where the object begins in it.
        start: u32,
        /// The object's length.
        len: u32,
    },
    /// An object that is itself still to be made.
    Later(Arc<OnceLock<Placing>>),
    /// An object of which nobody can tell yet whether it is there already.
    Unsettled {
        /// The object.
        id: ObjectId,
        /// The object's length.
        len: u32,
        /// Where it is, or will be.
        placing: Arc<OnceLock<Placing>>,
    },
}

impl Placing {
    /// The reference, once it is known.
    #[must_use]
    pub fn get(&self) -> Option<Reference> {
        match self {
            Self::Known(reference) => Some(*reference),
            Self::InBlock { id, block, start, len } => {
                let (bag, offset, stored) = block.get()?;
                Some(Reference { id: *id, place: Place { bag, offset, stored, start: *start, len: *len } })
            }
            Self::Later(placing) | Self::Unsettled { placing, .. } => placing.get()?.get(),
        }
    }
}

impl Placing {
    /// The object's name, unless the object is itself still to be made.
    #[must_use]
    pub fn id(&self) -> Option<ObjectId> {
        match self {
            Self::Known(reference) => Some(reference.id),
            Self::InBlock { id, .. } | Self::Unsettled { id, .. } => Some(*id),
            Self::Later(placing) => placing.get()?.id(),
        }
    }

    /// The object's length in bytes, unless the object is itself still to be made.
    #[must_use]
    pub fn object_len(&self) -> Option<u32> {
        match self {
            Self::Known(reference) => Some(reference.place.len),
            Self::InBlock { len, .. } | Self::Unsettled { len, .. } => Some(*len),
            Self::Later(placing) => placing.get()?.object_len(),
        }
    }
}

/// Objects that will be sealed together.
#[derive(Debug, Default)]
pub struct Block {
    /// The bytes of the objects, one behind the other.
    pub bytes: Roomy,
    /// The objects: name, beginning, length.
    pub objects: Vec<(ObjectId, u32, u32)>,
    /// Where the block will lie.
    pub slot: Arc<BlockSlot>,
}

impl Block {
    /// Adds an object.
    pub fn push(&mut self, id: ObjectId, bytes: &[u8]) -> Placing {
        let start = length(self.bytes.contents().len());
        let len = length(bytes.len());
        self.bytes.push(bytes);
        self.objects.push((id, start, len));
        Placing::InBlock { id, block: Arc::clone(&self.slot), start, len }
    }
}

/// A length inside a block: objects are at most 16 MiB, so a block never reaches 4 GiB.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Gathers objects into blocks.
#[derive(Debug, Default)]
pub struct Grouping {
    open: Block,
}

impl Grouping {
    /// Adds an object; a block that is full now is handed out to be sealed.
    pub fn push(&mut self, id: ObjectId, bytes: &[u8]) -> (Placing, Option<Block>) {
        if bytes.len() >= LARGE {
            let mut own = Block::default();
            let placing = own.push(id, bytes);
            return (placing, Some(own));
        }
        let placing = self.open.push(id, bytes);
        let full = (self.open.bytes.contents().len() >= BLOCK_BYTES).then(|| std::mem::take(&mut self.open));
        (placing, full)
    }

    /// The block that is being filled, if there is anything in it.
    pub fn take(&mut self) -> Option<Block> {
        (!self.open.objects.is_empty()).then(|| std::mem::take(&mut self.open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_objects_share_a_block_and_large_ones_do_not() {
        let mut grouping = Grouping::default();
        let (small, full) = grouping.push(ObjectId([1; 32]), &[1; 100]);
        assert!(full.is_none());
        let (large, own) = grouping.push(ObjectId([2; 32]), &vec![2; LARGE]);
        assert_eq!(own.map(|block| block.objects.len()), Some(1));
        assert!(small.get().is_none() && large.get().is_none());
        let (second, _) = grouping.push(ObjectId([3; 32]), &[3; 50]);
        let block = grouping.take();
        if let Some(block) = &block {
            block.slot.set(BagId([9; 16]), 32, 200);
        }
        let place = second.get().map(|reference| reference.place);
        assert_eq!(place, Some(Place { bag: BagId([9; 16]), offset: 32, stored: 200, start: 100, len: 50 }));
        assert!(grouping.take().is_none());
    }
}
