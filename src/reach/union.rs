//! The union of many bag lists.
//!
//! Lists that mostly repeat each other share buckets, and a bucket that was seen is not looked at again, whoever else has it. Of buckets that differ in a few bags, only
//! these cost more than a comparison: each is compared with the one that was in its place before. What is kept is in proportion to the distinct bags.

use std::collections::{HashMap, HashSet};

use crate::bag::BagKind;
use crate::base::id::BagId;
use crate::entry::Reference;
use crate::generation::format::{BagUse, RecordError, decode_bucket};
use crate::generation::{BagListRef, Generation};

/// How much of a bag is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// What it holds.
    pub kind: BagKind,
    /// Bytes of objects, opened, that the generation refers to which refers to most. An object that is referred to twice counts twice.
    pub bytes: u64,
}

/// The bags that some generations name.
#[derive(Debug, Default)]
pub struct Union {
    bags: HashMap<BagId, Need>,
    /// Buckets that were taken in: the beginnings of their names.
    seen: HashSet<u64>,
    /// The bucket that was taken in last at each place: how many bits, and which.
    last: HashMap<(u8, usize), Vec<BagUse>>,
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
    /// The buckets of a list that were not asked for before, and takes in the bags that hold them. Each must be [added](Self::add).
    pub fn wanted(&mut self, list: &BagListRef) -> Vec<Bucket> {
        let mut wanted = Vec::new();
        for (at, reference) in list.buckets.iter().enumerate() {
            self.need(&BagUse {
                bag: reference.place.bag,
                kind: BagKind::Tree,
                objects: 1,
                bytes: u64::from(reference.place.len),
            });
            let start = reference.id.0.first_chunk().map_or(0, |start| u64::from_le_bytes(*start));
            if self.seen.insert(start) {
                wanted.push(Bucket { reference: *reference, bits: list.bits, at });
            }
        }
        wanted
    }

    /// Takes in what a bucket says.
    ///
    /// # Errors
    /// When the bytes are no bucket.
    pub fn add(&mut self, bucket: &Bucket, bytes: &[u8]) -> Result<(), RecordError> {
        let uses = decode_bucket(bytes)?;
        let last = self.last.remove(&(bucket.bits, bucket.at)).unwrap_or_default();
        let mut before = last.iter().peekable();
        for one in &uses {
            while before.next_if(|other| other.bag < one.bag).is_some() {}
            let known = before.next_if(|other| other.bag == one.bag);
            if known.is_none_or(|known| known.bytes < one.bytes) {
                self.need(one);
            }
        }
        self.last.insert((bucket.bits, bucket.at), uses);
        Ok(())
    }

    fn need(&mut self, uses: &BagUse) {
        let need = self.bags.entry(uses.bag).or_insert(Need { kind: uses.kind, bytes: 0 });
        need.bytes = need.bytes.max(uses.bytes);
    }

    /// The bags, and how much is needed of each.
    #[must_use]
    pub fn bags(&self) -> &HashMap<BagId, Need> {
        &self.bags
    }

    /// Whether a bag is named.
    #[must_use]
    pub fn names(&self, bag: BagId) -> bool {
        self.bags.contains_key(&bag)
    }
}

/// The buckets of all these generations that are not known yet, each once.
pub fn wanted(union: &mut Union, generations: &[Generation]) -> Vec<Bucket> {
    generations.iter().flat_map(|generation| union.wanted(&generation.bag_list)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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
                union.add(&bucket, &encode_bucket(&some)).unwrap();
            }
        }
        let needed = |bag| union.bags().get(&BagId([bag; 16])).map(|need| need.bytes);
        assert_eq!([1, 2, 3, 4].map(needed), [Some(7), Some(9), Some(1), None]);
    }

    #[test]
    fn memory_is_that_of_distinct_bags() {
        // A hundred generations of two hundred bags, of which one is replaced each night.
        let mut union = Union::default();
        for night in 0..100u8 {
            let some: Vec<_> = (night..night + 100).map(|bag| uses(bag, 1)).collect();
            for bucket in union.wanted(&BagListRef { bits: 0, ..list(&[night]) }) {
                union.add(&bucket, &encode_bucket(&some)).unwrap();
            }
        }
        assert_eq!(union.last.len(), 1);
        assert!(union.bags().len() <= 200 + 100, "{}", union.bags().len());
    }
}
