//! In which order wanted chunks are fetched: by bag and place, neighbours together. Pure.

use crate::base::id::BagId;
use crate::entry::{Place, Reference};

/// Bytes between two wanted blocks that are rather read along than skipped by another request.
const GAP: u64 = 64 << 10;

/// The longest read, unless a single block is longer. Several are under way at once, on different channels.
const LONGEST: u64 = 4 << 20;

/// Something wanted from a bag.
#[derive(Debug)]
pub struct Want<T> {
    /// The object.
    pub reference: Reference,
    /// What it is wanted for.
    pub goal: T,
}

/// A range of a bag to be read.
#[derive(Debug)]
pub struct Read<T> {
    /// The bag.
    pub bag: BagId,
    /// Where the range begins.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
    /// The wanted blocks in it, in order.
    pub blocks: Vec<Block<T>>,
}

/// A block with what is wanted from it.
#[derive(Debug)]
pub struct Block<T> {
    /// Where it lies; start and length are those of one of the objects.
    pub place: Place,
    /// What is wanted, ordered by place, so that equal references follow each other.
    pub wants: Vec<Want<T>>,
}

/// The reads that fetch all that is wanted, each block once, ordered by bag and offset.
#[must_use]
pub fn reads<T>(mut wants: Vec<Want<T>>) -> Vec<Read<T>> {
    // Equal references keep their order.
    wants.sort_by_key(|want| want.reference.place);
    let mut reads: Vec<Read<T>> = Vec::new();
    for want in wants {
        let place = want.reference.place;
        let end = place.offset.saturating_add(place.stored.into());
        if let Some(read) = reads.last_mut().filter(|read| read.bag == place.bag) {
            let reached = read.offset.saturating_add(read.len);
            let is_same = |block: &&mut Block<T>| {
                (block.place.offset, block.place.stored) == (place.offset, place.stored)
            };
            if let Some(block) = read.blocks.last_mut().filter(is_same) {
                block.wants.push(want);
                continue;
            }
            let is_near = place.offset <= reached.saturating_add(GAP);
            if is_near && end.saturating_sub(read.offset) <= LONGEST {
                read.len = read.len.max(end.saturating_sub(read.offset));
                read.blocks.push(Block { place, wants: vec![want] });
                continue;
            }
        }
        let blocks = vec![Block { place, wants: vec![want] }];
        reads.push(Read { bag: place.bag, offset: place.offset, len: place.stored.into(), blocks });
    }
    reads
}

impl<T> Read<T> {
    /// Where a block's bytes lie in those of the read.
    #[must_use]
    pub fn range(&self, place: &Place) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(place.offset.checked_sub(self.offset)?).ok()?;
        Some(start..start.checked_add(usize::try_from(place.stored).ok()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ObjectId;

    fn want(bag: u8, offset: u64, stored: u32, start: u32) -> Want<u32> {
        let place = Place { bag: BagId([bag; 16]), offset, stored, start, len: 10 };
        Want { reference: Reference { id: ObjectId([0; 32]), place }, goal: start }
    }

    fn shape(wants: Vec<Want<u32>>) -> Vec<(u8, u64, u64, Vec<usize>)> {
        reads(wants)
            .into_iter()
            .map(|read| {
                let wants = read.blocks.iter().map(|block| block.wants.len()).collect();
                (read.bag.0[0], read.offset, read.len, wants)
            })
            .collect()
    }

    #[test]
    fn neighbours_are_read_together_and_blocks_once() {
        let wants = vec![
            want(2, 32, 100, 0),
            want(1, 5000, 100, 0),
            want(1, 32, 1000, 50),
            want(1, 32, 1000, 0),
            want(1, 1032, 1000, 0),
            want(1, 32, 1000, 50),
        ];
        assert_eq!(shape(wants), [(1, 32, 5068, vec![3, 1, 1]), (2, 32, 100, vec![1])]);
    }

    #[test]
    fn far_ones_and_many_are_not() {
        let far = vec![want(1, 32, 100, 0), want(1, 132 + GAP, 100, 0), want(1, 300 + 2 * GAP, 50, 0)];
        assert_eq!(shape(far), [(1, 32, 200 + GAP, vec![1, 1]), (1, 300 + 2 * GAP, 50, vec![1])]);
        let many = (0..10).map(|number| want(1, 32 + number * (1 << 20), 1 << 20, 0)).collect();
        let lens: Vec<_> = shape(many).iter().map(|(_, _, len, _)| len >> 20).collect();
        assert_eq!(lens, [4, 4, 2]);
        let huge = vec![want(1, 32, 16 << 20, 0), want(1, 32 + (16 << 20), 10, 0)];
        assert_eq!(shape(huge).len(), 2);
    }
}
