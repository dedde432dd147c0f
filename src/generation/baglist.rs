//! Which bags a generation needs.
//!
//! The list is split into buckets by bag id, each an object in a tree bag; a bucket that did not change is shared with the generation before. Collecting
//! unions these lists, skipping buckets already seen, instead of walking trees.

use std::collections::BTreeMap;

use super::format::{BagListRef, BagUse, RecordError, decode_bucket};
use crate::bag::BagKind;
use crate::bag::reader::ReadError;
use crate::bag::source::Source;
use crate::base::id::BagId;
use crate::entry::Reference;

/// About how many bags share a bucket.
const PER_BUCKET: usize = 512;

/// Counts references per bag.
#[derive(Debug, Clone, Default)]
pub struct BagCounter(BTreeMap<BagId, BagUse>);

impl BagCounter {
    /// Counts a reference.
    pub fn add(&mut self, kind: BagKind, reference: &Reference) {
        let place = &reference.place;
        let one = self.0.entry(place.bag).or_insert(BagUse { bag: place.bag, kind, objects: 0, bytes: 0 });
        one.objects = one.objects.saturating_add(1);
        one.bytes = one.bytes.saturating_add(u64::from(place.len));
    }

    /// Adds what a generation needs of a bag.
    pub fn add_uses(&mut self, uses: &BagUse) {
        let one = self.0.entry(uses.bag).or_insert(BagUse { objects: 0, bytes: 0, ..*uses });
        one.objects = one.objects.saturating_add(uses.objects);
        one.bytes = one.bytes.saturating_add(uses.bytes);
    }

    /// Adds what another counted.
    pub fn merge(&mut self, other: &Self) {
        other.0.values().for_each(|uses| self.add_uses(uses));
    }

    /// The buckets: how many bits of a bag's id choose one, and each one's bags in order.
    #[must_use]
    pub fn buckets(&self) -> (u8, Vec<Vec<BagUse>>) {
        if self.0.is_empty() {
            return (0, Vec::new());
        }
        let mut bits = 0u8;
        while bits < 16 && (self.0.len() >> bits) > PER_BUCKET {
            bits += 1;
        }
        let mut buckets = vec![Vec::new(); 1 << bits];
        for (bag, uses) in &self.0 {
            if let Some(bucket) = buckets.get_mut(bucket_of(*bag, bits)) {
                bucket.push(*uses);
            }
        }
        (bits, buckets)
    }
}

/// Which bucket a bag is in, where this many leading bits of its id choose one.
#[must_use]
pub fn bucket_of(bag: BagId, bits: u8) -> usize {
    let [first, second, ..] = bag.0;
    usize::from(u16::from_be_bytes([first, second])).checked_shr(16 - u32::from(bits.min(16))).unwrap_or(0)
}

/// A bag list that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BagListError {
    /// A bucket could not be had.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It is none.
    #[error("bag {bag} holds something else than a bag list at byte {offset}: {source}")]
    Format {
        /// The bag.
        bag: BagId,
        /// Where the block begins.
        offset: u64,
        /// What is wrong.
        source: RecordError,
    },
}

/// All bags of a list but those that hold its buckets. Buckets that are not at hand cost a serial round trip each.
///
/// # Errors
/// When a bucket cannot be read.
pub fn read(source: &Source, list: &BagListRef) -> Result<Vec<BagUse>, BagListError> {
    let mut all = Vec::new();
    for bucket in &list.buckets {
        let uses = source.with(BagKind::Tree, bucket, decode_bucket)?;
        let place = bucket.place;
        all.extend(uses.map_err(|source| BagListError::Format {
            bag: place.bag,
            offset: place.offset,
            source,
        })?);
    }
    Ok(all)
}

impl BagListRef {
    /// The bags that hold the buckets: needed, and not listed in them.
    pub fn own_bags(&self) -> impl Iterator<Item = BagId> + '_ {
        self.buckets.iter().map(|bucket| bucket.place.bag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ObjectId;
    use crate::entry::Place;
    use crate::generation::format::encode_bucket;

    #[test]
    fn every_bag_is_in_its_bucket_once() {
        let mut counter = BagCounter::default();
        for _ in 0..3000 {
            let place = Place { bag: BagId::random(), offset: 32, stored: 10, start: 0, len: 7 };
            let reference = Reference { id: ObjectId([0; 32]), place };
            counter.add(BagKind::Data, &reference);
            counter.add(BagKind::Data, &reference);
        }
        let (bits, buckets) = counter.buckets();
        assert_eq!((bits, buckets.len()), (3, 8));
        assert_eq!(buckets.iter().map(Vec::len).sum::<usize>(), 3000);
        for bucket in buckets {
            assert!(bucket.iter().all(|uses| uses.objects == 2 && uses.bytes == 14));
            assert_eq!(decode_bucket(&encode_bucket(&bucket)).unwrap(), bucket);
        }
    }

    #[test]
    fn no_bags_no_buckets() {
        assert_eq!(BagCounter::default().buckets(), (0, Vec::new()));
        assert_eq!(bucket_of(BagId([0xff; 16]), 0), 0);
        assert_eq!(bucket_of(BagId([0xff; 16]), 16), 65535);
    }
}
