//! The bytes of an index segment: what [`crate::sealed`] seals under `index/<segment id>`.
//!
//! ```text
//! segment = frame(header) frame(bag)*
//! frame   = length of the record (4, little-endian), the record (CBOR)
//! header  = { 0: format version (1), 1: number of bags }
//! bag     = { 0: bag id (16 bytes), 1: kind (1 data, 2 tree), 2: size of the bag file, 3: where its table begins,
//!             4: sealed length of the table, 5: number of objects, 6: their fingerprints, coded by `gaps` }
//! ```
//!
//! A bag's record stands alone, so a reader needs memory for one bag at a time, and segments are merged by copying
//! frames. `doc/format.md` describes the same for those who do not read Rust.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{BagEntry, BagKind, Fingerprint, gaps};
use crate::bag::StoredBag;
use crate::base::codec::{self, CodecError};
use crate::base::id::BagId;

/// The format version written.
pub const VERSION: u32 = 1;

/// Bytes of contents that a segment may have; what a reader gives [`crate::sealed`] as its limit.
pub const MAX_SEGMENT: usize = 64 << 20;

/// Objects that one bag may have.
pub const MAX_OBJECTS: u32 = 1 << 22;

/// Why bytes are no index segment.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// A record is no CBOR of what belongs there.
    #[error("the index segment holds a record that is {0}")]
    Codec(#[from] CodecError),
    /// Written by a later version.
    #[error("the index segment has version {0}, which needs a newer kitbag")]
    NewerFormat(u32),
    /// It ends within a record, or before all bags that it announces.
    #[error("the index segment ends too early")]
    Short,
    /// Something follows the last bag.
    #[error("the index segment goes on after its last bag")]
    Long,
    /// Its fingerprints are not as many as it says, or not coded as they must be.
    #[error("the index segment lists the objects of bag {0} wrongly")]
    Fingerprints(BagId),
}

/// What a segment says of one bag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentBag {
    entry: BagEntry,
    fingerprints: Vec<Fingerprint>,
}

impl SegmentBag {
    /// A bag and the fingerprints of its objects, in any order.
    #[must_use]
    pub fn new(entry: BagEntry, mut fingerprints: Vec<Fingerprint>) -> Self {
        fingerprints.sort_unstable();
        Self { entry, fingerprints }
    }

    /// The bag.
    #[must_use]
    pub fn entry(&self) -> &BagEntry {
        &self.entry
    }

    /// The fingerprints of its objects, ascending.
    #[must_use]
    pub fn fingerprints(&self) -> &[Fingerprint] {
        &self.fingerprints
    }
}

impl From<&StoredBag> for SegmentBag {
    /// What is to be said of a bag that was uploaded.
    fn from(stored: &StoredBag) -> Self {
        let &StoredBag { id: bag, kind, size, table_offset, table_len, ref table, .. } = stored;
        let fingerprints = table.references(bag).map(|object| Fingerprint::of(&object.id)).collect();
        Self::new(BagEntry { bag, kind, size, table_offset, table_len }, fingerprints)
    }
}

/// A whole segment in memory. Readers that need one bag at a time use [`bags`] instead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Segment {
    /// Its bags.
    pub bags: Vec<SegmentBag>,
}

impl Segment {
    /// The bytes to be sealed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = frame(&Header::new(self.bags.len()));
        for bag in &self.bags {
            bytes.extend(frame(&BagRecord::new(bag)));
        }
        bytes
    }

    /// The segment that these bytes are.
    ///
    /// # Errors
    /// When they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        Ok(Self { bags: bags(bytes)?.collect::<Result<_, _>>()? })
    }
}

/// The bags of a segment, one after the other; ends after the first error.
///
/// # Errors
/// When the bytes do not begin as a segment.
pub fn bags(
    bytes: &[u8],
) -> Result<impl Iterator<Item = Result<SegmentBag, SegmentError>> + '_, SegmentError> {
    Ok(Frames::new(bytes)?.map(|frame| frame.and_then(decode_bag)))
}

/// Merges segments into one that names each of their bags once, without those that `keep` refuses. Nothing but the bags'
/// ids is held in memory beside the bytes.
///
/// # Errors
/// When one of `segments` is none.
pub fn merge<'a>(
    segments: impl IntoIterator<Item = &'a [u8]>,
    mut keep: impl FnMut(&BagId) -> bool,
) -> Result<Vec<u8>, SegmentError> {
    let mut body = Vec::new();
    let mut named = HashSet::new();
    for segment in segments {
        for frame in Frames::new(segment)? {
            let frame = frame?;
            // Decoded whole, so that damage is not handed on.
            let bag = decode_bag(frame)?.entry.bag;
            if keep(&bag) && named.insert(bag) {
                append_frame(frame, &mut body);
            }
        }
    }
    let mut bytes = frame(&Header::new(named.len()));
    bytes.append(&mut body);
    Ok(bytes)
}

#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    #[serde(default)]
    bags: u32,
}

impl Header {
    fn new(bags: usize) -> Self {
        Self { version: VERSION, bags: u32::try_from(bags).unwrap_or(u32::MAX) }
    }
}

#[derive(Serialize, Deserialize)]
struct BagRecord<'a> {
    bag: BagId,
    kind: BagKind,
    size: u64,
    table_offset: u64,
    table_len: u32,
    objects: u32,
    #[serde(with = "serde_bytes", borrow)]
    fingerprints: std::borrow::Cow<'a, [u8]>,
}

impl BagRecord<'_> {
    fn new(bag: &SegmentBag) -> Self {
        let entry = &bag.entry;
        let numbers: Vec<u64> = bag.fingerprints.iter().map(|fingerprint| fingerprint.0).collect();
        Self {
            bag: entry.bag,
            kind: entry.kind,
            size: entry.size,
            table_offset: entry.table_offset,
            table_len: entry.table_len,
            objects: u32::try_from(numbers.len()).unwrap_or(u32::MAX),
            fingerprints: gaps::encode(&numbers).into(),
        }
    }
}

fn decode_bag(frame: &[u8]) -> Result<SegmentBag, SegmentError> {
    let record: BagRecord<'_> = codec::decode(frame, "bag of an index segment", MAX_SEGMENT)?;
    let wrong = || SegmentError::Fingerprints(record.bag);
    if record.objects > MAX_OBJECTS {
        return Err(wrong());
    }
    let numbers = gaps::decode(&record.fingerprints, record.objects).ok_or_else(wrong)?;
    let entry = BagEntry {
        bag: record.bag,
        kind: record.kind,
        size: record.size,
        table_offset: record.table_offset,
        table_len: record.table_len,
    };
    Ok(SegmentBag { entry, fingerprints: numbers.into_iter().map(Fingerprint).collect() })
}

fn frame<T: Serialize>(record: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_frame(&codec::encode(record), &mut bytes);
    bytes
}

fn append_frame(record: &[u8], to: &mut Vec<u8>) {
    to.extend(u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes());
    to.extend(record);
}

/// The records of the bags, still coded.
struct Frames<'a> {
    rest: &'a [u8],
    left: u32,
    failed: bool,
}

impl<'a> Frames<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, SegmentError> {
        let (first, rest) = split_frame(bytes).ok_or(SegmentError::Short)?;
        let header: Header = codec::decode(first, "header of an index segment", 1024)?;
        if header.version != VERSION {
            return Err(SegmentError::NewerFormat(header.version));
        }
        Ok(Self { rest, left: header.bags, failed: false })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<&'a [u8], SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.failed = !self.rest.is_empty();
            return self.failed.then_some(Err(SegmentError::Long));
        };
        match split_frame(self.rest) {
            Some((frame, rest)) => {
                (self.rest, self.left) = (rest, left);
                Some(Ok(frame))
            }
            None => {
                self.failed = true;
                Some(Err(SegmentError::Short))
            }
        }
    }
}

fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::testing::{bag, numbered};
    use proptest::prelude::*;

    fn golden() -> Segment {
        let entry = |number: u8, kind| BagEntry {
            bag: BagId([number; 16]),
            kind,
            size: 0x0012_3456,
            table_offset: 0x0012_0000,
            table_len: 0x3400,
        };
        let fingerprints = |numbers: &[u64]| numbers.iter().copied().map(Fingerprint).collect();
        Segment {
            bags: vec![
                SegmentBag::new(entry(1, BagKind::Data), fingerprints(&[u64::MAX, 1, 0x8000_0000_0000_0000])),
                SegmentBag::new(entry(2, BagKind::Tree), fingerprints(&[0x0123_4567_89ab_cdef])),
                SegmentBag::new(entry(3, BagKind::Data), vec![]),
            ],
        }
    }

    #[test]
    fn golden_file() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/format/v1/segment.bin");
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(golden().encode(), bytes);
        assert_eq!(Segment::decode(&bytes).unwrap(), golden());
    }

    #[test]
    fn every_cut_and_every_addition_is_noticed() {
        let bytes = golden().encode();
        for cut in 0..bytes.len() {
            assert!(Segment::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(matches!(Segment::decode(&[&bytes[..], &[0]].concat()), Err(SegmentError::Long)));
        let later = frame(&Header { version: 2, bags: 0 });
        assert!(matches!(Segment::decode(&later), Err(SegmentError::NewerFormat(2))));
    }

    #[test]
    fn merging_names_each_bag_once_and_leaves_out_what_is_condemned() {
        let one = Segment { bags: vec![bag(1, numbered(0..10)), bag(2, numbered(10..20))] };
        let two = Segment { bags: vec![bag(2, numbered(10..20)), bag(3, numbered(20..30))] };
        let condemned = one.bags[0].entry.bag;
        let merged = merge([&one.encode()[..], &two.encode()], |bag| *bag != condemned).unwrap();
        let expected = Segment { bags: vec![one.bags[1].clone(), two.bags[1].clone()] };
        assert_eq!(Segment::decode(&merged).unwrap(), expected);
        assert!(merge([&merged[1..]], |_| true).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes: Vec<u8>, flips: Vec<(usize, u8)>) {
            let _ = Segment::decode(&bytes);
            bytes = golden().encode();
            let len = bytes.len();
            for (at, by) in flips {
                *at.checked_rem(len).and_then(|at| bytes.get_mut(at)).unwrap() ^= by;
            }
            let _ = Segment::decode(&bytes);
        }
    }
}
