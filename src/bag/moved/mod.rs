//! Where objects have gone: what garbage collection has copied into other bags.
//!
//! References are places, and a place is kept for ever in the pages that have it. So when a bag is emptied into others, a record in `moved/` says from
//! where to where; whoever misses a bag looks there. Both copies are the same object under the same name, so a move that is heeded too early or too late
//! does no harm as long as the copy is there; garbage collection sees to that.
//!
//! Moves of moves are folded by garbage collection; a reader follows the few that are not (yet).

pub mod follow;
pub mod format;

use std::collections::{BTreeSet, HashMap};

use crate::base::id::BagId;
use crate::entry::Place;

pub use format::Move;

/// More moves one after another than garbage collection ever leaves.
const MOST_HOPS: usize = 32;

/// The moves of some records. Memory: some 50 bytes for each object moved.
#[derive(Debug, Clone, Default)]
pub struct Moves {
    /// For each bag that objects were moved from: where the block began, where the object began in it, and its new place; ascending.
    bags: HashMap<BagId, Vec<(u64, u32, Place)>>,
}

/// An object of a block that was moved: where it began in the opened block, and where it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where it began in the block that is gone.
    pub start: u32,
    /// Where it is.
    pub place: Place,
}

impl FromIterator<Move> for Moves {
    fn from_iter<I: IntoIterator<Item = Move>>(moves: I) -> Self {
        let mut all = Self::default();
        for Move { from, to } in moves {
            all.bags.entry(from.bag).or_default().push((from.offset, from.start, to));
        }
        for of_bag in all.bags.values_mut() {
            of_bag.sort_unstable_by_key(|(offset, start, to)| (*offset, *start, to.bag, to.offset, to.start));
            of_bag.dedup();
        }
        all
    }
}

impl Moves {
    /// Whether nothing was moved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bags.is_empty()
    }

    /// The bags that something was moved from.
    pub fn sources(&self) -> impl Iterator<Item = BagId> + '_ {
        self.bags.keys().copied()
    }

    /// Whether something was moved from this bag.
    #[must_use]
    pub fn is_source(&self, bag: BagId) -> bool {
        self.bags.contains_key(&bag)
    }

    /// The bags that now hold what was moved from this one, moves of moves included.
    #[must_use]
    pub fn targets(&self, bag: BagId) -> BTreeSet<BagId> {
        let (mut found, mut open) = (BTreeSet::new(), vec![bag]);
        while let Some(bag) = open.pop() {
            for (_, _, to) in self.bags.get(&bag).into_iter().flatten() {
                if found.insert(to.bag) {
                    open.push(to.bag);
                }
            }
        }
        found
    }

    /// Where an object is that was moved; `None` if it was not.
    #[must_use]
    pub fn resolve(&self, place: &Place) -> Option<Place> {
        let mut found = None;
        let mut here = *place;
        for _ in 0..MOST_HOPS {
            match self.next(&here) {
                Some(next) => {
                    here = next;
                    found = Some(next);
                }
                None => break,
            }
        }
        found
    }

    fn next(&self, place: &Place) -> Option<Place> {
        let of_bag = self.bags.get(&place.bag)?;
        let at = of_bag.partition_point(|(offset, start, _)| (*offset, *start) < (place.offset, place.start));
        let same = of_bag
            .get(at..)?
            .iter()
            .take_while(|(offset, start, _)| (*offset, *start) == (place.offset, place.start));
        same.map(|(_, _, to)| *to).find(|to| to.len == place.len)
    }

    /// What was moved of the block that began here: where each object is now.
    #[must_use]
    pub fn of_block(&self, bag: BagId, offset: u64) -> Vec<Piece> {
        let Some(of_bag) = self.bags.get(&bag) else { return Vec::new() };
        let at = of_bag.partition_point(|(block, _, _)| *block < offset);
        let of_block =
            of_bag.get(at..).unwrap_or_default().iter().take_while(|(block, _, _)| *block == offset);
        of_block.map(|&(_, start, to)| Piece { start, place: self.resolve(&to).unwrap_or(to) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(bag: u8, offset: u64, start: u32, len: u32) -> Place {
        Place { bag: BagId([bag; 16]), offset, stored: 100, start, len }
    }

    #[test]
    fn moves_are_followed_to_their_end() {
        let moves: Moves = [
            Move { from: place(1, 32, 0, 5), to: place(2, 32, 7, 5) },
            Move { from: place(1, 32, 5, 6), to: place(2, 132, 0, 6) },
            Move { from: place(2, 32, 7, 5), to: place(3, 500, 1, 5) },
        ]
        .into_iter()
        .collect();
        assert_eq!(moves.resolve(&place(1, 32, 0, 5)), Some(place(3, 500, 1, 5)));
        assert_eq!(moves.resolve(&place(1, 32, 5, 6)), Some(place(2, 132, 0, 6)));
        assert_eq!(moves.resolve(&place(1, 32, 0, 6)), None);
        assert_eq!(moves.resolve(&place(3, 500, 1, 5)), None);
        assert_eq!(moves.targets(BagId([1; 16])), [2, 3].map(|bag| BagId([bag; 16])).into());
        let pieces = moves.of_block(BagId([1; 16]), 32);
        let expected =
            [Piece { start: 0, place: place(3, 500, 1, 5) }, Piece { start: 5, place: place(2, 132, 0, 6) }];
        assert_eq!(pieces, expected);
        assert!(moves.of_block(BagId([1; 16]), 33).is_empty());
    }

    #[test]
    fn a_circle_ends() {
        let moves: Moves = [(1, 2), (2, 1)]
            .map(|(from, to)| Move { from: place(from, 32, 0, 5), to: place(to, 32, 0, 5) })
            .into_iter()
            .collect();
        assert!(moves.resolve(&place(1, 32, 0, 5)).is_some());
        assert_eq!(moves.targets(BagId([1; 16])).len(), 2);
    }
}
