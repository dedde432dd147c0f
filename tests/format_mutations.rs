//! Decoders under fire: the golden files of `doc/format.md`, cut, flipped, lengthened and mixed at random. Whatever comes of
//! that, a decoder gives a value or an error; and a value that it gives can be encoded and decoded again.
//!
//! `KITBAG_TEST_LONG=1` tries a hundred times as many.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

use std::fs;
use std::path::Path;

use kitbag::bag::format::{decode_header, decode_table, decode_trailer};
use kitbag::bag::moved;
use kitbag::base::codec;
use kitbag::base::id::{BagId, KeySlotId};
use kitbag::condemned::{self, Doomed, Waits};
use kitbag::crypto::keyslot::KeySlot;
use kitbag::dir::format::{decode_list, decode_page, encode_list, encode_page};
use kitbag::dir::places::Places;
use kitbag::generation::format::{decode_bucket, decode_record, encode_bucket, encode_record};
use kitbag::generation::tags;
use kitbag::index::format::Segment;
use kitbag::repo::config::Config;

/// Numbers that look random and are the same each time: the generator `SplitMix64`.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        // Those that begin something long or without end in CBOR, and any.
        const HEADS: [u8; 12] = [0x00, 0x1b, 0x3b, 0x5b, 0x5f, 0x7b, 0x9b, 0x9f, 0xbb, 0xbf, 0xdb, 0xff];
        match self.below(3) {
            0 => HEADS[self.below(HEADS.len())],
            _ => self.next().to_le_bytes()[0],
        }
    }

    /// Does a few things to `bytes`, of which `other` are others.
    fn spoil(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let len = self.below(bytes.len() - at).min(64);
            match self.below(7) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = self.byte(),
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..at + len)),
                4 => {
                    let again = bytes[at..at + len].to_vec();
                    bytes.splice(at..at, again);
                }
                5 => {
                    let byte = self.byte();
                    bytes.splice(at..at, std::iter::repeat_n(byte, len));
                }
                _ => {
                    let from = self.below(other.len());
                    let end = other.len().min(from + 32);
                    bytes.splice(at..at + len, other[from..end].iter().copied());
                }
            }
        }
    }
}

/// Decodes, and encodes again what came of it.
type Decoder = fn(&[u8]) -> Option<Vec<u8>>;

const DECODERS: &[(&str, Decoder)] = &[
    ("page-leaf", |bytes| decode_page(bytes).ok().map(|page| encode_page(&page))),
    ("page-index", |bytes| decode_page(bytes).ok().map(|page| encode_page(&page))),
    ("list-pieces", |bytes| decode_list(bytes).ok().map(|list| encode_list(&list))),
    ("list-parts", |bytes| decode_list(bytes).ok().map(|list| encode_list(&list))),
    ("places", |bytes| {
        let places: Places = codec::decode(bytes, "places", 1 << 16).ok()?;
        places.to_vec().map(|all| codec::encode(&Places::from_slice(&all))).ok()
    }),
    ("generation", |bytes| decode_record(bytes).ok().map(|record| encode_record(&record))),
    ("bucket", |bytes| decode_bucket(bytes).ok().map(|uses| encode_bucket(&uses))),
    ("tags", |bytes| tags::decode(bytes).ok().map(|_| Vec::new())),
    ("condemned", |bytes| condemned::List::decode(bytes).ok().map(|_| Vec::new())),
    ("condemned-waits", |bytes| Waits::decode(bytes).ok().map(|_| Vec::new())),
    ("condemned-doomed", |bytes| Doomed::decode(bytes).ok().map(|_| Vec::new())),
    ("moved", |bytes| moved::format::decode(bytes).ok().map(|_| Vec::new())),
    ("segment.bin", |bytes| Segment::decode(bytes).ok().map(|_| Vec::new())),
    ("config", |bytes| Config::decode(bytes).ok().map(|_| Vec::new())),
    ("key-slot-none", |bytes| KeySlot::decode(KeySlotId([0; 8]), bytes).ok().map(|_| Vec::new())),
    ("key-slot-argon2id", |bytes| KeySlot::decode(KeySlotId([0; 8]), bytes).ok().map(|_| Vec::new())),
    ("bag", |bytes| {
        let bag = BagId([0xb1; 16]);
        drop(decode_header(bytes, bag));
        drop(decode_table(bytes));
        let size = u64::try_from(bytes.len()).unwrap();
        for tail in 0..bytes.len().min(120) {
            drop(decode_trailer(&bytes[bytes.len() - tail..], size));
        }
        None
    }),
];

#[test]
fn no_bytes_harm_a_decoder() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/format/v1");
    let all: Vec<Vec<u8>> = DECODERS.iter().map(|(name, _)| fs::read(dir.join(name)).unwrap()).collect();
    let is_long = std::env::vars_os().any(|(name, _)| name == "KITBAG_TEST_LONG");
    let rounds = if is_long { 200_000 } else { 2_000 };
    let mut numbers = Numbers(1);
    let mut good = 0;
    for (at, (name, decode)) in DECODERS.iter().enumerate() {
        for round in 0..rounds {
            let mut bytes = all[at].clone();
            let other = numbers.below(all.len());
            numbers.spoil(&mut bytes, &all[other]);
            let encoded = decode(&bytes);
            if let Some(encoded) = encoded.filter(|encoded| !encoded.is_empty()) {
                good += 1;
                assert_eq!(decode(&encoded), Some(encoded), "{name}, round {round}: {bytes:02x?}");
            }
        }
    }
    assert!(
        good > 100,
        "only {good} of the spoilt files could still be decoded: the others may all fail too early"
    );
}
