//! The union of many bag lists.
//!
//! Lists that mostly repeat each other share buckets, and a bucket that was seen is not looked at again, whoever else has it. Of buckets that differ in a few bags, only
//! these cost more than a comparison: each is compared with the one that was in its place before. What is kept is in proportion to the distinct bags.

use std::collections::{HashMap, HashSet};
use std::thread;

use crate::base::id::BagId;
use crate::base::uniform::Uniform;
use crate::entry::Reference;
use crate::generation::bucket::Kept;
use crate::generation::format::RecordError;
use crate::generation::{BagListRef, BagUse};

/// Bags, and how much is needed of each: bytes of objects, opened, that the generation refers to which refers to most. An object that is referred to twice counts twice.
type Needs = HashMap<BagId, u64, Uniform>;

/// Entries that are taken in together: many searches of a large map at once wait for memory together.
const TOGETHER: usize = 4096;

/// So many buckets at once are taken in by two threads.
const MANY: usize = 64;

/// The bags that some generations name.
#[derive(Debug, Default)]
pub struct Union {
    /// One for buckets of the first half of all ids, one for the others: they are taken in beside each other.
    halves: [Half; 2],
    /// Buckets that were taken in: the beginnings of their names.
    seen: HashSet<u64, Uniform>,
}

#[derive(Debug, Default)]
struct Half {
    bags: Needs,
    /// The bucket that was taken in last at each place: how many bits, and which.
    last: HashMap<(u8, usize), Kept>,
    decoded: u64,
}

/// A bucket that is none.
#[derive(Debug)]
pub struct Bad {
    /// Which of those that were to be taken in.
    pub at: usize,
    /// What is wrong.
    pub source: RecordError,
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
            let place = &reference.place;
            let [low, _] = &mut self.halves;
            need(&mut low.bags, place.bag, u64::from(place.len));
            let start = reference.id.0.first_chunk().map_or(0, |start| u64::from_le_bytes(*start));
            if self.seen.insert(start) {
                wanted.push(Bucket { reference: *reference, bits: list.bits, at });
            }
        }
        wanted
    }

    /// Takes in what buckets say. That is cheap for all that the bucket said which was taken in before at the same place, so those of generations that follow each other should come one after the
    /// other.
    ///
    /// # Errors
    /// When the bytes of one are no bucket.
    pub fn add(&mut self, all: &[(Bucket, &[u8])]) -> Result<(), Bad> {
        let [low, high] = &mut self.halves;
        let is_high = |bucket: &Bucket| {
            let top = u32::from(bucket.bits).checked_sub(1);
            top.and_then(|top| bucket.at.checked_shr(top)).is_some_and(|top| top > 0)
        };
        let is_low = |bucket: &Bucket| !is_high(bucket);
        if all.len() < MANY {
            return low.add(all, &is_low).and(high.add(all, &is_high));
        }
        thread::scope(|scope| {
            let beside = scope.spawn(|| low.add(all, &is_low));
            let here = high.add(all, &is_high);
            match beside.join() {
                Ok(there) => there.and(here),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// How many bytes are needed of a bag; `None` when nobody names it.
    #[must_use]
    pub fn need(&self, bag: BagId) -> Option<u64> {
        // Whoever wrote a list may have put a bag into another bucket than its own.
        self.halves.iter().filter_map(|half| half.bags.get(&bag)).max().copied()
    }

    /// Whether a bag is named.
    #[must_use]
    pub fn names(&self, bag: BagId) -> bool {
        self.need(bag).is_some()
    }

    /// How many bags are named.
    #[must_use]
    pub fn len(&self) -> usize {
        let [low, high] = &self.halves;
        let more = low.bags.keys().filter(|bag| !high.bags.contains_key(*bag)).count();
        high.bags.len().saturating_add(more)
    }

    /// Whether no bag is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.halves.iter().all(|half| half.bags.is_empty())
    }

    /// Entries of buckets that were decoded: what it all has cost.
    #[must_use]
    pub fn decoded(&self) -> u64 {
        self.halves.iter().map(|half| half.decoded).fold(0, u64::saturating_add)
    }
}

impl Half {
    /// Takes in those that are `mine`.
    fn add(&mut self, all: &[(Bucket, &[u8])], mine: &dyn Fn(&Bucket) -> bool) -> Result<(), Bad> {
        let Self { bags, last, decoded } = self;
        let mut fresh: Vec<BagUse> = Vec::new();
        let mut settle = |fresh: &mut Vec<BagUse>| {
            fresh.drain(..).for_each(|one| need(bags, one.bag, one.bytes));
        };
        for (at, (bucket, bytes)) in all.iter().enumerate().filter(|(_, (bucket, _))| mine(bucket)) {
            let kept = last.entry((bucket.bits, bucket.at)).or_default();
            let replaced = kept.replace(bytes, &mut |one| fresh.push(one));
            *decoded = decoded.saturating_add(replaced.map_err(|source| Bad { at, source })?);
            if fresh.len() >= TOGETHER {
                settle(&mut fresh);
            }
        }
        settle(&mut fresh);
        Ok(())
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
                union.add(&[(bucket, &encode_bucket(&some))]).unwrap();
            }
        }
        let needed = |bag| union.need(BagId([bag; 16]));
        assert_eq!([1, 2, 3, 4].map(needed), [Some(7), Some(9), Some(1), None]);
    }

    #[test]
    fn memory_is_that_of_distinct_bags() {
        // A hundred generations of two hundred bags, of which one is replaced each night.
        let mut union = Union::default();
        for night in 0..100u8 {
            let some: Vec<_> = (night..night + 100).map(|bag| uses(bag, 1)).collect();
            for bucket in union.wanted(&BagListRef { bits: 0, ..list(&[night]) }) {
                union.add(&[(bucket, &encode_bucket(&some))]).unwrap();
            }
        }
        assert_eq!(union.halves.iter().map(|half| half.last.len()).sum::<usize>(), 1);
        assert!(union.len() <= 200 + 100, "{}", union.len());
        // Of each bucket but the first only the one that is new.
        assert_eq!(union.decoded(), 100 + 99);
    }

    #[test]
    fn two_threads_find_what_one_finds() {
        let (mut together, mut alone) = (Union::default(), Union::default());
        for night in 0..3u8 {
            let ids: Vec<u8> = (0..128).collect();
            let place = Place { bag: BagId([99; 16]), offset: 32, stored: 9, start: 0, len: 5 };
            let name = |at: &u8| ObjectId([[*at, night]; 16].as_flattened().try_into().unwrap());
            let buckets = ids.iter().map(|at| Reference { id: name(at), place }).collect();
            let list = BagListRef { bits: 7, buckets };
            let bytes: Vec<_> = ids
                .iter()
                .map(|at| {
                    encode_bucket(&[uses(2 * at, u64::from(night)), uses(2 * at + 1, u64::from(at % 2))])
                })
                .collect();
            let all: Vec<_> = together.wanted(&list).into_iter().zip(&bytes).collect();
            assert_eq!((all.len(), alone.wanted(&list).len()), (128, 128));
            let all: Vec<_> = all.into_iter().map(|(bucket, bytes)| (bucket, &bytes[..])).collect();
            together.add(&all).unwrap();
            all.iter().for_each(|one| alone.add(std::slice::from_ref(one)).unwrap());
        }
        assert_eq!((together.len(), together.decoded()), (alone.len(), alone.decoded()));
        assert!((0..=255).all(|bag| together.need(BagId([bag; 16])) == alone.need(BagId([bag; 16]))));
        assert_eq!(together.len(), 256);
        // The one that is none is named.
        let bucket = Bucket {
            reference: Reference {
                id: ObjectId([0; 32]),
                place: Place { bag: BagId([99; 16]), offset: 32, stored: 9, start: 0, len: 5 },
            },
            bits: 7,
            at: 100,
        };
        let good = encode_bucket(&[]);
        let mut all = vec![(bucket, &good[..]); 100];
        all[70].1 = b"none";
        assert_eq!(together.add(&all).unwrap_err().at, 70);
    }
}
