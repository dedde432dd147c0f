//! Bags for the tests of this folder.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::format::{self, Segment, SegmentBag};
use super::{BagEntry, BagKind, Files, Fingerprint, Index, IndexError, ListedSegment};
use crate::base::id::{BagId, ObjectId, SegmentId};

/// The id of a bag, uniform like those of real ones.
pub(super) fn bag_id(number: u64) -> BagId {
    BagId::from_slice(&blake3::hash(&number.to_le_bytes()).as_bytes()[16..]).unwrap()
}

/// The id of an object.
pub(super) fn object(number: u64) -> ObjectId {
    ObjectId(*blake3::hash(&number.to_be_bytes()).as_bytes())
}

/// The fingerprints of objects.
pub(super) fn numbered(numbers: Range<u64>) -> Vec<Fingerprint> {
    numbers.map(|number| Fingerprint::of(&object(number))).collect()
}

/// A data bag with these objects.
pub(super) fn bag(number: u64, fingerprints: Vec<Fingerprint>) -> SegmentBag {
    let entry = BagEntry {
        bag: bag_id(number),
        kind: if number.is_multiple_of(2) { BagKind::Data } else { BagKind::Tree },
        size: number + 1000,
        table_offset: number + 500,
        table_len: 400,
    };
    SegmentBag::new(entry, fingerprints)
}

/// The directory `index/` of a repository.
#[derive(Default)]
pub(super) struct Remote {
    pub(super) segments: BTreeMap<SegmentId, Vec<u8>>,
    /// Segments fetched, in this order.
    pub(super) fetched: Vec<SegmentId>,
}

impl Remote {
    pub(super) fn put(&mut self, bags: &[SegmentBag]) -> SegmentId {
        self.put_bytes(Segment { bags: bags.to_vec() }.encode())
    }

    pub(super) fn put_bytes(&mut self, bytes: Vec<u8>) -> SegmentId {
        let id = SegmentId::random();
        self.segments.insert(id, bytes);
        id
    }

    pub(super) fn remove(&mut self, id: SegmentId) {
        assert!(self.segments.remove(&id).is_some());
    }

    /// Merges all segments into one, without the bags that `keep` refuses.
    pub(super) fn merge(&mut self, keep: impl Fn(&BagId) -> bool) {
        let merged = format::merge(self.segments.values().map(Vec::as_slice), keep).unwrap();
        self.segments.clear();
        self.put_bytes(merged);
    }

    pub(super) fn listed(&self) -> Vec<ListedSegment> {
        let listed = |(id, bytes): (&SegmentId, &Vec<u8>)| ListedSegment {
            id: *id,
            size: u64::try_from(bytes.len()).unwrap(),
        };
        self.segments.iter().map(listed).collect()
    }

    /// Opens an index of what is listed.
    pub(super) fn open(&mut self, dir: Option<&Path>) -> Result<Index, IndexError> {
        let listed = self.listed();
        self.open_as(dir, &listed)
    }

    /// Opens an index of what was listed some time ago.
    pub(super) fn open_as(
        &mut self,
        dir: Option<&Path>,
        listed: &[ListedSegment],
    ) -> Result<Index, IndexError> {
        let (segments, fetched) = (&self.segments, &mut self.fetched);
        Index::open(dir.map_or(Files::Held, Files::Kept), listed, &mut |id| {
            fetched.push(id);
            let bytes = segments.get(&id).cloned();
            Box::new(move || Ok(bytes))
        })
    }
}

/// Whether the index proposes exactly this bag for each of these objects.
pub(super) fn knows(index: &Index, bag: &SegmentBag, objects: Range<u64>) -> bool {
    objects.into_iter().all(|number| index.candidates(&object(number)) == [*bag.entry()])
}

/// Whether the index proposes nothing for these objects.
pub(super) fn knows_none(index: &Index, objects: Range<u64>) -> bool {
    objects.into_iter().all(|number| index.candidates(&object(number)).is_empty())
}
