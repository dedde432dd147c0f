//! The union of many bag lists.
//!
//! Lists that mostly repeat each other share buckets, and a bucket that was seen is not looked at again, whoever else has it. Of buckets that differ in a few bags, only
//! these cost more than a comparison: each is compared with the one that was in its place before. What is kept is in proportion to the distinct bags.

use std::collections::{HashMap, HashSet};

use crate::base::id::BagId;
use crate::base::uniform::Uniform;
use crate::entry::Reference;
use crate::generation::bucket::Kept;
use crate::generation::format::RecordError;
use crate::generation::{BagListRef, BagUse};

/// Bags, and how much is needed of each: bytes of objects, opened, that the generation refers to which refers to most. An object that is referred to twice counts twice.
pub type Needs = HashMap<BagId, u64, Uniform>;

/// Entries that are taken in together: many searches of a large map at once wait for memory together.
const TOGETHER: usize = 4096;

/// The bags that some generations name.
#[derive(Debug, Default)]
pub struct Union {
    bags: Needs,
    /// Buckets that were taken in: the beginnings of their names.
    seen: HashSet<u64, Uniform>,
    /// The bucket that was taken in last at each place: how many bits, and which.
    last: HashMap<(u8, usize), Kept>,
    decoded: u64,
}

/// A bucket that must be read, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Where it lies.
    pub reference: Reference,
    /// How many bits of a bag's id choose it.
    pub bits: u8,
    /// Which of the buckets it is.
    pub at: usize,
}

impl Union {
    /// The buckets of a list that were not asked for before, and takes in the bags that hold them. Each must be [added](Self::adding).
    pub fn wanted(&mut self, list: &BagListRef) -> Vec<Bucket> {
        let mut wanted = Vec::new();
        for (at, reference) in list.buckets.iter().enumerate() {
            let place = &reference.place;
            need(&mut self.bags, place.bag, u64::from(place.len));
            let start = reference.id.0.first_chunk().map_or(0, |start| u64::from_le_bytes(*start));
            if self.seen.insert(start) {
                wanted.push(Bucket { reference: *reference, bits: list.bits, at });
            }
        }
        wanted
    }

    /// Begins to take in buckets.
    pub fn adding(&mut self) -> Adding<'_> {
        Adding { union: self, fresh: Vec::new() }
    }

    /// The bags, and how much is needed of each.
    #[must_use]
    pub fn bags(&self) -> &Needs {
        &self.bags
    }

    /// Whether a bag is named.
    #[must_use]
    pub fn names(&self, bag: BagId) -> bool {
        self.bags.contains_key(&bag)
    }

    /// Entries of buckets that were decoded: what it all has cost.
    #[must_use]
    pub fn decoded(&self) -> u64 {
        self.decoded
    }
}

/// Takes in buckets. That is cheap for all that the bucket said which was taken in before at the same place, so those of generations that follow each other should come one after the other.
pub struct Adding<'a> {
    union: &'a mut Union,
    fresh: Vec<BagUse>,
}

impl Adding<'_> {
    /// Takes in what a bucket says.
    ///
    /// # Errors
    /// When the bytes are no bucket.
    pub fn add(&mut self, bucket: &Bucket, bytes: &[u8]) -> Result<(), RecordError> {
        let Self { union, fresh } = self;
        let kept = union.last.entry((bucket.bits, bucket.at)).or_default();
        let decoded = kept.replace(bytes, &mut |one| fresh.push(one))?;
        union.decoded = union.decoded.saturating_add(decoded);
        if fresh.len() >= TOGETHER {
            self.settle();
        }
        Ok(())
    }

    fn settle(&mut self) {
        for one in self.fresh.drain(..) {
            need(&mut self.union.bags, one.bag, one.bytes);
        }
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

fn need(bags: &mut Needs, bag: BagId, bytes: u64) {
    let needed = bags.entry(bag).or_insert(0);
    *needed = bytes.max(*needed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bag::BagKind;
    use crate::base::id::ObjectId;
    use crate::entry::Place;
    use crate::generation::format::encode_bucket;

    fn uses(bag: u8, bytes: u64) -> BagUse {
        BagUse { bag: BagId([bag; 16]), kind: BagKind::Data, objects: 1, bytes }
    }

    fn list(ids: &[u8]) -> BagListRef {
        let place = |id: &u8| Place { bag: BagId([100 + id; 16]), offset: 32, stored: 9, start: 0, len: 5 };
        let buckets = ids.iter().map(|id| Reference { id: ObjectId([*id; 32]), place: place(id) }).collect();
        BagListRef { bits: 1, buckets }
    }

    #[test]
    fn a_bucket_is_read_once_whoever_has_it() {
        let mut union = Union::default();
        let wanted = union.wanted(&list(&[1, 2]));
        assert_eq!(wanted.iter().map(|bucket| bucket.at).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(
            union.wanted(&list(&[1, 3])).iter().map(|bucket| bucket.reference.id.0[0]).collect::<Vec<_>>(),
            [3]
        );
        assert_eq!(union.wanted(&list(&[1, 3])), []);
        // The bags that hold them are needed, too.
        assert!([101, 102, 103].iter().all(|bag| union.names(BagId([*bag; 16]))));
    }

    #[test]
    fn what_is_needed_most_of_counts() {
        let mut union = Union::default();
        for (id, some) in
            [(1, vec![uses(1, 5), uses(2, 9)]), (2, vec![uses(1, 7), uses(3, 1)]), (3, vec![uses(2, 8)])]
        {
            for bucket in union.wanted(&list(&[id])) {
                union.adding().add(&bucket, &encode_bucket(&some)).unwrap();
            }
        }
        let needed = |bag| union.bags().get(&BagId([bag; 16])).copied();
        assert_eq!([1, 2, 3, 4].map(needed), [Some(7), Some(9), Some(1), None]);
    }

    #[test]
    fn memory_is_that_of_distinct_bags() {
        // A hundred generations of two hundred bags, of which one is replaced each night.
        let mut union = Union::default();
        for night in 0..100u8 {
            let some: Vec<_> = (night..night + 100).map(|bag| uses(bag, 1)).collect();
            for bucket in union.wanted(&BagListRef { bits: 0, ..list(&[night]) }) {
                union.adding().add(&bucket, &encode_bucket(&some)).unwrap();
            }
        }
        assert_eq!(union.last.len(), 1);
        assert!(union.bags().len() <= 200 + 100, "{}", union.bags().len());
        // Of each bucket but the first only the one that is new.
        assert_eq!(union.decoded(), 100 + 99);
    }
}
