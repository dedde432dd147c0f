//! Which objects lie in which bags: de-duplication without memory.
//!
//! **Remote** are immutable segments ([`format`](mod@format)): each lists some bags, and of each object in them the first eight bytes
//! of its id, a [`Fingerprint`]. One is written by each run; [`merge`] says which to merge when there are many. Ids are keyed
//! hashes, so fingerprints are uniform, which everything here builds on: gaps code well ([`gaps`]), places can be guessed, nothing
//! needs hashing.
//!
//! **Local** is an [`Index`], derived from the segments: a few immutable, mapped tables, each at least ten times
//! as large as all that came later, and a small map in memory of what the run has added. A table is a filter
//! that answers "never seen" with one cache line, a sorted list that is searched by guessing, and its bags. A background thread
//! folds the map into tables as it grows; nobody waits for it. Files carry checksums; whatever is missing or damaged is
//! noticed, and made again from the segments by streaming them through an external sort.
//!
//! **An index only proposes.** That an object exists is decided by the table of the bag itself, which [`BagTables`] keeps for
//! a while, because what was written together is looked up together: a tree that is read again costs one lookup
//! here for each bag, not each chunk. So a lost, stale or damaged index costs a chunk stored twice, never a chunk not stored.

mod delta;
mod filter;
mod fold;
pub mod format;
pub mod gaps;
mod growth;
mod home;
mod lookup;
mod map;
pub mod merge;
mod numbers;
mod recent;
mod shard;
mod sorter;
mod state;
mod summed;
mod sync;
mod table;
#[cfg(test)]
mod testing;

use std::error::Error;
use std::path::{Path, PathBuf};

use crate::bag::BagKind;
use crate::base::id::{BagId, ObjectId, SegmentId};

pub use format::{Segment, SegmentBag, SegmentError};
pub use lookup::Index;
pub use recent::BagTables;
pub use sync::{FetchSegment, Synced};

/// The first eight bytes of an object's id, as a big-endian number. It proposes an object; it does not prove one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// That of an object.
    #[must_use]
    pub fn of(id: &ObjectId) -> Self {
        Self::of_bytes(id.as_bytes())
    }

    /// That under which a bag is found by its own id. Bag ids are random, so they mix with those of objects.
    fn of_bag(id: &BagId) -> Self {
        Self::of_bytes(id.as_bytes())
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.first_chunk().map_or(0, |first| u64::from_be_bytes(*first)))
    }
}

/// A bag, and where in it its table of objects lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BagEntry {
    /// The bag.
    pub bag: BagId,
    /// What it holds.
    pub kind: BagKind,
    /// Length of the bag's file in bytes.
    pub size: u64,
    /// Where its sealed table begins, in bytes.
    pub table_offset: u64,
    /// Length of the sealed table in bytes.
    pub table_len: u32,
}

/// Stands for a bag in the answers of one [`Index`], for as long as that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BagNumber(u32);

/// Where the files of an index go.
#[derive(Debug, Clone, Copy)]
pub enum Files<'a> {
    /// Into a directory (made if it is missing) that keeps them for the next run.
    Kept(&'a Path),
    /// Into a directory for temporary files, where they have no names and go with the index, however it ends.
    Passing(&'a Path),
    /// Into memory, of which they take as much as they would of the disk.
    Held,
}

/// A segment as the listing of `index/` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListedSegment {
    /// The segment.
    pub id: SegmentId,
    /// Length of its file in bytes.
    pub size: u64,
}

/// A failure of whoever fetches segments or tables.
pub type FetchError = Box<dyn Error + Send + Sync>;

/// An answer under way: calling it waits. `None` when the file is not there (any more).
pub type Waiting<T> = Box<dyn FnOnce() -> Result<Option<T>, FetchError>>;

/// Why an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The files of the local index cannot be read or written. They are not needed: an index without a directory does the same.
    #[error("cannot use the local index{}: {source}", dir.as_ref().map(|dir| format!(" in {}", dir.display())).unwrap_or_default())]
    Local {
        /// Where they are.
        dir: Option<PathBuf>,
        /// What the system says.
        source: std::io::Error,
    },
    /// A segment could not be fetched.
    #[error("cannot fetch the index segment {segment}: {source}")]
    Fetch {
        /// Which.
        segment: SegmentId,
        /// Why.
        source: FetchError,
    },
}
