//! Bytes of a bag: header, blocks, table, trailer. `doc/format.md` describes the same in words.
//!
//! ```text
//! header (32)   magic "kitbagB1" | kind | 7 zeros | bag id (16)
//! blocks        each sealed: nonce (24) | ciphertext | tag (16)
//! table         sealed: which objects lie where
//! trailer (64)  table offset (8, LE) | table length (4, LE) | 12 zeros | magic "kitbagE1" | BLAKE3 of all before (32)
//! ```

use serde::{Deserialize, Serialize};

use crate::base::codec;
use crate::base::id::{BagId, ObjectId};
use crate::base::varint;
use crate::entry::{Place, Reference};

/// Length of the header in bytes.
pub const HEADER: usize = 32;

/// Length of the trailer in bytes.
pub const TRAILER: usize = 64;

/// The largest table in bytes.
pub const MAX_TABLE: usize = 64 << 20;

const HEADER_MAGIC: &[u8; 8] = b"kitbagB1";
const TRAILER_MAGIC: &[u8; 8] = b"kitbagE1";

/// What a bag holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum BagKind {
    /// Chunks.
    Data,
    /// DIR pages, chunk lists and bag lists.
    Tree,
}

impl From<BagKind> for u8 {
    fn from(kind: BagKind) -> Self {
        match kind {
            BagKind::Data => 1,
            BagKind::Tree => 2,
        }
    }
}

impl TryFrom<u8> for BagKind {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        match number {
            1 => Ok(Self::Data),
            2 => Ok(Self::Tree),
            _ => Err("unknown kind of bag"),
        }
    }
}

/// A block and the objects in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableBlock {
    /// Where it begins in the bag.
    pub offset: u64,
    /// Its sealed length.
    pub stored: u32,
    /// Its objects: name, beginning in the opened block, length.
    pub objects: Vec<(ObjectId, u32, u32)>,
}

/// What lies in a bag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Its blocks, ascending by offset.
    pub blocks: Vec<TableBlock>,
}

impl Table {
    /// All objects as references.
    pub fn references(&self, bag: BagId) -> impl Iterator<Item = Reference> + '_ {
        self.blocks.iter().flat_map(move |block| {
            block.objects.iter().map(move |&(id, start, len)| Reference {
                id,
                place: Place { bag, offset: block.offset, stored: block.stored, start, len },
            })
        })
    }

    /// How many objects there are.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.blocks.iter().map(|block| block.objects.len()).sum()
    }
}

/// Why bytes are not (part of) a bag.
#[derive(Debug, thiserror::Error)]
pub enum BagFormatError {
    /// The header is not one.
    #[error("its beginning is not that of a bag")]
    Header,
    /// It is another bag's header.
    #[error("it holds bag {0}")]
    OtherBag(BagId),
    /// The trailer is not one.
    #[error("its end is not that of a bag: it is cut off or damaged")]
    Trailer,
    /// The table is not one.
    #[error("its table is not valid")]
    Table,
    /// The table is not the CBOR of one.
    #[error(transparent)]
    Codec(#[from] codec::CodecError),
}

/// The header of a bag.
#[must_use]
pub fn encode_header(bag: BagId, kind: BagKind) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let fields = HEADER_MAGIC.iter().copied().chain([kind.into()]).chain([0; 7]).chain(bag.0);
    header.iter_mut().zip(fields).for_each(|(place, byte)| *place = byte);
    header
}

/// Checks a header and says what kind of bag it begins.
///
/// # Errors
/// When it is no header or another bag's.
pub fn decode_header(bytes: &[u8], bag: BagId) -> Result<BagKind, BagFormatError> {
    let header: &[u8; HEADER] = bytes.first_chunk().ok_or(BagFormatError::Header)?;
    let (magic, rest) = header.split_first_chunk::<8>().ok_or(BagFormatError::Header)?;
    let (kind, rest) = rest.split_first_chunk::<8>().ok_or(BagFormatError::Header)?;
    let kind = BagKind::try_from(kind[0]).ok().filter(|_| kind[1..] == [0; 7]);
    if magic != HEADER_MAGIC {
        return Err(BagFormatError::Header);
    }
    match BagId::from_slice(rest) {
        Some(id) if id == bag => kind.ok_or(BagFormatError::Header),
        Some(id) => Err(BagFormatError::OtherBag(id)),
        None => Err(BagFormatError::Header),
    }
}

/// The trailer up to its hash: what the hash covers of it.
#[must_use]
pub fn encode_trailer_head(table_offset: u64, table_len: u32) -> [u8; TRAILER - 32] {
    let mut head = [0; TRAILER - 32];
    let fields = table_offset
        .to_le_bytes()
        .into_iter()
        .chain(table_len.to_le_bytes())
        .chain([0; 12])
        .chain(*TRAILER_MAGIC);
    head.iter_mut().zip(fields).for_each(|(place, byte)| *place = byte);
    head
}

/// Where the table lies, by the last [`TRAILER`] bytes of a bag of `size` bytes.
///
/// # Errors
/// When the trailer is not one, or points outside the bag.
pub fn decode_trailer(bytes: &[u8], size: u64) -> Result<(u64, u32), BagFormatError> {
    let wrong = || BagFormatError::Trailer;
    let trailer: &[u8; TRAILER] = bytes.first_chunk().filter(|_| bytes.len() == TRAILER).ok_or_else(wrong)?;
    let (offset, rest) = trailer.split_first_chunk::<8>().ok_or_else(wrong)?;
    let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
    let (zeros, rest) = rest.split_first_chunk::<12>().ok_or_else(wrong)?;
    let (offset, len) = (u64::from_le_bytes(*offset), u32::from_le_bytes(*len));
    let end = offset.checked_add(u64::from(len)).and_then(|end| end.checked_add(TRAILER as u64));
    let header = u64::try_from(HEADER).unwrap_or(u64::MAX);
    if end != Some(size) || offset < header || *zeros != [0; 12] || !rest.starts_with(TRAILER_MAGIC) {
        return Err(wrong());
    }
    Ok((offset, len))
}

#[derive(Serialize, Deserialize)]
struct WireTable {
    /// Per block: gap to the end of the block before, sealed length, number of objects, their lengths. Objects lie one behind the other.
    #[serde(with = "serde_bytes")]
    blocks: Vec<u8>,
    #[serde(with = "serde_bytes")]
    ids: Vec<u8>,
}

/// The plaintext of a table. Objects of a block lie one behind the other from 0.
#[must_use]
pub fn encode_table(table: &Table) -> Vec<u8> {
    let mut wire = WireTable { blocks: Vec::new(), ids: Vec::new() };
    let mut end = u64::try_from(HEADER).unwrap_or(u64::MAX);
    for block in &table.blocks {
        varint::put(&mut wire.blocks, block.offset.saturating_sub(end));
        varint::put(&mut wire.blocks, u64::from(block.stored));
        varint::put(&mut wire.blocks, u64::try_from(block.objects.len()).unwrap_or(u64::MAX));
        for (id, _, len) in &block.objects {
            varint::put(&mut wire.blocks, u64::from(*len));
            wire.ids.extend_from_slice(id.as_bytes());
        }
        end = block.offset.saturating_add(u64::from(block.stored));
    }
    codec::encode(&wire)
}

/// The table that these bytes hold.
///
/// # Errors
/// When the bytes are not such a table.
pub fn decode_table(bytes: &[u8]) -> Result<Table, BagFormatError> {
    let wire: WireTable = codec::decode(bytes, "bag table", MAX_TABLE)?;
    let mut blocks = Vec::new();
    let (mut rest, mut ids) = (&wire.blocks[..], &wire.ids[..]);
    let mut end = u64::try_from(HEADER).unwrap_or(u64::MAX);
    while !rest.is_empty() {
        let block = take_block(&mut rest, &mut ids, end).ok_or(BagFormatError::Table)?;
        end = block.offset.saturating_add(u64::from(block.stored));
        blocks.push(block);
    }
    if ids.is_empty() { Ok(Table { blocks }) } else { Err(BagFormatError::Table) }
}

fn take_block(rest: &mut &[u8], ids: &mut &[u8], end: u64) -> Option<TableBlock> {
    let offset = end.checked_add(varint::take(rest)?)?;
    let stored = varint::take_u32(rest)?;
    offset.checked_add(u64::from(stored))?;
    let count = varint::take(rest)?;
    let mut objects = Vec::new();
    let mut start = 0u32;
    for _ in 0..count {
        let len = varint::take_u32(rest)?;
        let (id, left) = ids.split_at_checked(ObjectId::LEN)?;
        *ids = left;
        objects.push((ObjectId::from_slice(id)?, start, len));
        start = start.checked_add(len)?;
    }
    Some(TableBlock { offset, stored, objects })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_and_trailer() {
        let bag = BagId([5; 16]);
        let header = encode_header(bag, BagKind::Tree);
        assert_eq!(decode_header(&header, bag).ok(), Some(BagKind::Tree));
        assert!(
            matches!(decode_header(&header, BagId([6; 16])), Err(BagFormatError::OtherBag(id)) if id == bag)
        );
        let mut trailer = encode_trailer_head(100, 50).to_vec();
        trailer.extend([0; 32]);
        assert_eq!(decode_trailer(&trailer, 214).ok(), Some((100, 50)));
        assert!(decode_trailer(&trailer, 215).is_err());
        assert!(decode_trailer(&trailer[1..], 214).is_err());
    }

    proptest! {
        #[test]
        fn tables_there_and_back(lens in prop::collection::vec(prop::collection::vec(0u32..9999, 0..5), 0..5)) {
            let mut table = Table::default();
            let mut offset = 32;
            for lens in lens {
                let mut start = 0;
                let objects = lens.iter().map(|&len| {
                    let object = (ObjectId([len.to_le_bytes()[0]; 32]), start, len);
                    start += len;
                    object
                }).collect();
                table.blocks.push(TableBlock { offset, stored: start + 45, objects });
                offset += u64::from(start) + 45;
            }
            prop_assert_eq!(decode_table(&encode_table(&table)).ok(), Some(table));
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, blocks: Vec<u8>, ids: Vec<u8>) {
            let _ = decode_table(&bytes);
            let _ = decode_table(&codec::encode(&WireTable { blocks, ids }));
            let _ = decode_header(&bytes, BagId([0; 16]));
            let _ = decode_trailer(&bytes, 999);
        }
    }
}
