//! Bytes of generation records and bag lists; `doc/format.md` describes the same in words.

use serde::{Deserialize, Serialize};

use crate::bag::BagKind;
use crate::base::codec::{self, CodecError};
use crate::base::id::{BagId, GenerationId};
use crate::base::time::Timestamp;
use crate::dir::format::{FormatError, Page, decode_page, encode_page};
use crate::dir::places::{BadPlaces, Places};
use crate::entry::{Entry, Reference};

pub use super::bucket::{decode as decode_bucket, encode as encode_bucket};

/// The largest generation record in bytes, opened.
pub const MAX_RECORD: usize = 32 << 20;

/// The largest bucket of a bag list in bytes.
pub const MAX_BUCKET: usize = 8 << 20;

/// Counts of what a generation holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, FIFOs, sockets and devices.
    pub others: u64,
    /// Bytes of contents of the regular files.
    pub bytes: u64,
    /// Entries that could not be saved.
    pub failed: u64,
    /// Bytes of chunks that this generation brought into the repository, before compression.
    pub new_bytes: u64,
    /// Bytes of bags that this generation brought into the repository.
    pub stored_bytes: u64,
}

impl Counts {
    /// Adds others.
    pub fn add(&mut self, more: &Self) {
        let Self { files, directories, others, bytes, failed, new_bytes, stored_bytes } = more;
        let add = |sum: &mut u64, more: &u64| *sum = sum.saturating_add(*more);
        add(&mut self.files, files);
        add(&mut self.directories, directories);
        add(&mut self.others, others);
        add(&mut self.bytes, bytes);
        add(&mut self.failed, failed);
        add(&mut self.new_bytes, new_bytes);
        add(&mut self.stored_bytes, stored_bytes);
    }
}

/// A tree that was named to be backed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its absolute path.
    pub path: Vec<u8>,
    /// What was there. Its name is of no meaning.
    pub entry: Entry,
}

/// One full snapshot of a client's live data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// Its id.
    pub id: GenerationId,
    /// The client's name.
    pub client: String,
    /// The host it was made on.
    pub host: String,
    /// When the backup began, by the client's clock.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Whether it is a checkpoint of a backup that did not end.
    pub partial: bool,
    /// The roots, ascending by path.
    pub roots: Vec<Root>,
    /// What it holds.
    pub counts: Counts,
    /// Options that shaped it, as words of a command line.
    pub options: Vec<String>,
    /// Labels that its owner gave it.
    pub tags: Vec<String>,
    /// Which bags it needs.
    pub bag_list: BagListRef,
}

/// Where a bag list's buckets lie. The bags that hold the buckets are needed too and not listed in them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BagListRef {
    /// The number of leading bits of a bag's id that choose its bucket.
    pub bits: u8,
    /// The buckets, 2^`bits` of them; none when no bag is needed.
    pub buckets: Vec<Reference>,
}

/// How much of a bag a generation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BagUse {
    /// The bag.
    pub bag: BagId,
    /// What it holds.
    pub kind: BagKind,
    /// References into it (an object that is referred to twice counts twice).
    pub objects: u64,
    /// Bytes of those objects, opened.
    pub bytes: u64,
}

/// Why bytes are not a record or a bucket.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not the CBOR of one.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A root's entry is wrong.
    #[error(transparent)]
    Entry(#[from] FormatError),
    /// A reference is wrong.
    #[error(transparent)]
    Places(#[from] BadPlaces),
    /// The CBOR is right, its meaning is not.
    #[error("{0}")]
    Meaning(&'static str),
}

#[derive(Serialize, Deserialize)]
struct WireRecord {
    id: GenerationId,
    client: String,
    host: String,
    started: Timestamp,
    ended: Timestamp,
    partial: bool,
    roots: Vec<WireRoot>,
    counts: Counts,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
    bits: u8,
    buckets: Places,
}

#[derive(Serialize, Deserialize)]
struct WireRoot {
    #[serde(with = "serde_bytes")]
    path: Vec<u8>,
    /// A leaf page with one entry.
    #[serde(with = "serde_bytes")]
    page: Vec<u8>,
}

/// The plaintext of a record.
#[must_use]
pub fn encode_record(generation: &Generation) -> Vec<u8> {
    let roots = generation
        .roots
        .iter()
        .map(|root| WireRoot {
            path: root.path.clone(),
            page: encode_page(&Page::Leaf(vec![Entry { name: (*b"root").into(), ..root.entry.clone() }])),
        })
        .collect();
    codec::encode(&WireRecord {
        id: generation.id,
        client: generation.client.clone(),
        host: generation.host.clone(),
        started: generation.started,
        ended: generation.ended,
        partial: generation.partial,
        roots,
        counts: generation.counts,
        options: generation.options.clone(),
        tags: generation.tags.clone(),
        bits: generation.bag_list.bits,
        buckets: Places::from_slice(&generation.bag_list.buckets),
    })
}

/// The record that these bytes hold.
///
/// # Errors
/// When the bytes are not a record.
pub fn decode_record(bytes: &[u8]) -> Result<Generation, RecordError> {
    let wire: WireRecord = codec::decode(bytes, "generation record", MAX_RECORD)?;
    let roots = wire
        .roots
        .into_iter()
        .map(|root| match decode_page(&root.page)? {
            Page::Leaf(mut entries) if entries.len() == 1 => {
                let entry = entries.pop().ok_or(RecordError::Meaning("a root is empty"))?;
                Ok(Root { path: root.path, entry })
            }
            _ => Err(RecordError::Meaning("a root is not one entry")),
        })
        .collect::<Result<_, _>>()?;
    let buckets = wire.buckets.to_vec()?;
    if wire.bits > 16 || (!buckets.is_empty() && buckets.len() != 1 << wire.bits) {
        return Err(RecordError::Meaning("the bag list has a wrong number of buckets"));
    }
    Ok(Generation {
        id: wire.id,
        client: wire.client,
        host: wire.host,
        started: wire.started,
        ended: wire.ended,
        partial: wire.partial,
        roots,
        counts: wire.counts,
        options: wire.options,
        tags: wire.tags,
        bag_list: BagListRef { bits: wire.bits, buckets },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = decode_record(&bytes);
        }
    }
}
