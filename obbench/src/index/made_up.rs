//! Bags that nobody has filled: each object is a number, and its id the number mixed.

use kitbag::bag::BagKind;
use kitbag::base::id::{BagId, ObjectId, SegmentId};
use kitbag::index::{BagEntry, Fingerprint, ListedSegment, Segment, SegmentBag};

/// Chunks of a bag. Bags of 16 MiB have 16 chunks of a MiB when files are large, and thousands when they are small.
const PER_BAG: u64 = 64;
/// Bags of a segment: a million objects, 8 MB.
const PER_SEGMENT: u64 = 1 << 14;
const BAG_SIZE: u64 = 16 << 20;
const TABLE_LEN: u32 = 4900;

/// So many chunks in bags, and these in segments.
pub(super) struct MadeUp {
    bags: u64,
}

impl MadeUp {
    pub(super) fn new(chunks: u64) -> Self {
        Self { bags: chunks.div_ceil(PER_BAG) }
    }

    /// The listing of the segments.
    pub(super) fn listed(&self) -> Vec<ListedSegment> {
        let size = PER_SEGMENT * (PER_BAG * 8 + 50);
        (0..self.segments()).map(|number| ListedSegment { id: segment_id(number), size }).collect()
    }

    /// The id of the segment behind these.
    pub(super) fn next_segment(&self) -> SegmentId {
        segment_id(self.segments())
    }

    /// The contents of a segment.
    pub(super) fn segment(&self, id: SegmentId) -> Vec<u8> {
        let number = id.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let bags = number * PER_SEGMENT..self.bags.min((number + 1) * PER_SEGMENT);
        Segment { bags: bags.map(bag).collect() }.encode()
    }

    /// Bags with so many chunks more.
    pub(super) fn more(&self, chunks: u64) -> impl Iterator<Item = SegmentBag> + use<> {
        (self.bags..self.bags + chunks.div_ceil(PER_BAG)).map(bag)
    }

    /// Chunks of these, in no order.
    pub(super) fn known(&self, count: u32) -> impl Iterator<Item = ObjectId> + use<> {
        let chunks = self.bags * PER_BAG;
        (0..u64::from(count)).map(move |number| object(mix(number) % chunks))
    }

    /// Chunks that are in no bag, not even in [more](Self::more).
    pub(super) fn unknown(&self, count: u32) -> impl Iterator<Item = ObjectId> + use<> {
        let beyond = u64::MAX / 2;
        (0..u64::from(count)).map(move |number| object(beyond + number))
    }

    fn segments(&self) -> u64 {
        self.bags.div_ceil(PER_SEGMENT)
    }
}

fn segment_id(number: u64) -> SegmentId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    SegmentId(id)
}

fn bag(number: u64) -> SegmentBag {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&mix(!number).to_le_bytes());
    id[8..].copy_from_slice(&number.to_le_bytes());
    let table_offset = BAG_SIZE - u64::from(TABLE_LEN) - 100;
    let entry =
        BagEntry { bag: BagId(id), kind: BagKind::Data, size: BAG_SIZE, table_offset, table_len: TABLE_LEN };
    let first = number * PER_BAG;
    SegmentBag::new(entry, (first..first + PER_BAG).map(|object| Fingerprint(mix(object))).collect())
}

fn object(number: u64) -> ObjectId {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&mix(number).to_be_bytes());
    ObjectId(id)
}

/// Uniform numbers, each another (the finalizer of `SplitMix64`, a permutation).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
