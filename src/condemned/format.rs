//! The bytes of the lists of garbage collection; `doc/format.md` describes the same in words.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::base::codec::{self, CodecError};
use crate::base::id::{BagId, GenerationId};

/// The largest list in bytes, opened.
pub const MAX_LIST: usize = 64 << 20;

/// The largest sealed list in bytes.
pub const MAX_SEALED: u64 = 65 << 20;

/// Bags that one list names at most, so that it stays below [`MAX_LIST`].
pub const MOST_BAGS: usize = 1 << 20;

/// `condemned/<id>`: what is to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List {
    /// Bags that no generation needed. Also bags that are gone, of which moves tell: those that no generation named any more.
    pub dead: BTreeSet<BagId>,
    /// Bags that were copied elsewhere, all of their objects.
    pub emptied: BTreeSet<BagId>,
    /// Bags of which was copied elsewhere what the generations seen referred to.
    pub thinned: BTreeSet<BagId>,
    /// The generations that were seen.
    pub seen: BTreeSet<GenerationId>,
}

/// `condemned/<id>.waits`: who may still refer to what is on the list: the sessions that were there after the list was published, and the generations that were published between
/// seeing the others and that. A session and what it publishes have one id.
///
/// Of each id there is a hash. Who reads this could meddle with the lease of a session whose id he knew, though he may only add.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waits {
    marks: BTreeSet<[u8; MARK]>,
}

/// The length of a hash of an id.
const MARK: usize = 16;

/// What the hashes are for.
const WAITS: &str = "kitbag 2026-11 v1 waits";

/// `condemned/<id>.doomed`: what is removed of the list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Doomed {
    /// The bags.
    pub bags: BTreeSet<BagId>,
}

/// Why bytes are no such list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Not the CBOR of one.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Its ids are not ascending, or not whole.
    #[error("the ids in it are not in order")]
    Order,
}

#[derive(Serialize, Deserialize)]
struct WireList {
    #[serde(with = "serde_bytes")]
    dead: Vec<u8>,
    #[serde(with = "serde_bytes")]
    emptied: Vec<u8>,
    #[serde(with = "serde_bytes")]
    thinned: Vec<u8>,
    #[serde(with = "serde_bytes")]
    seen: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct WireIds {
    #[serde(with = "serde_bytes")]
    ids: Vec<u8>,
}

fn bags(ids: &BTreeSet<BagId>) -> Vec<u8> {
    ids.iter().flat_map(|id| id.0).collect()
}

fn generations(ids: &BTreeSet<GenerationId>) -> Vec<u8> {
    ids.iter().flat_map(|id| id.0).collect()
}

fn split<T: Ord>(
    bytes: &[u8],
    len: usize,
    id: impl Fn(&[u8]) -> Option<T>,
) -> Result<BTreeSet<T>, ListError> {
    let ids: Option<Vec<T>> = bytes.chunks(len).map(id).collect();
    let ids = ids.filter(|ids| ids.is_sorted_by(|one, next| one < next)).ok_or(ListError::Order)?;
    Ok(ids.into_iter().collect())
}

fn split_bags(bytes: &[u8]) -> Result<BTreeSet<BagId>, ListError> {
    split(bytes, BagId::LEN, BagId::from_slice)
}

fn split_generations(bytes: &[u8]) -> Result<BTreeSet<GenerationId>, ListError> {
    split(bytes, GenerationId::LEN, GenerationId::from_slice)
}

impl List {
    /// The plaintext.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { dead, emptied, thinned, seen } = self;
        let wire = WireList {
            dead: bags(dead),
            emptied: bags(emptied),
            thinned: bags(thinned),
            seen: generations(seen),
        };
        codec::encode(&wire)
    }

    /// The list that these bytes are.
    ///
    /// # Errors
    /// When they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, ListError> {
        let wire: WireList = codec::decode(bytes, "list of condemned bags", MAX_LIST)?;
        Ok(Self {
            dead: split_bags(&wire.dead)?,
            emptied: split_bags(&wire.emptied)?,
            thinned: split_bags(&wire.thinned)?,
            seen: split_generations(&wire.seen)?,
        })
    }

    /// All bags on it.
    pub fn bags(&self) -> impl Iterator<Item = BagId> + '_ {
        self.dead.iter().chain(&self.emptied).chain(&self.thinned).copied()
    }

    /// Whether a bag is on it.
    #[must_use]
    pub fn names(&self, bag: BagId) -> bool {
        [&self.dead, &self.emptied, &self.thinned].into_iter().any(|some| some.contains(&bag))
    }
}

impl Waits {
    /// Whether this is one of those that are waited for.
    #[must_use]
    pub fn names(&self, id: GenerationId) -> bool {
        self.marks.contains(&mark(id))
    }

    /// The plaintext.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(&WireIds { ids: self.marks.iter().flatten().copied().collect() })
    }

    /// The list that these bytes are.
    ///
    /// # Errors
    /// When they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, ListError> {
        let wire: WireIds = codec::decode(bytes, "list of sessions", MAX_LIST)?;
        Ok(Self { marks: split(&wire.ids, MARK, |mark| mark.try_into().ok())? })
    }
}

impl FromIterator<GenerationId> for Waits {
    fn from_iter<I: IntoIterator<Item = GenerationId>>(ids: I) -> Self {
        Self { marks: ids.into_iter().map(mark).collect() }
    }
}

fn mark(id: GenerationId) -> [u8; MARK] {
    let mut mark = [0; MARK];
    blake3::Hasher::new_derive_key(WAITS).update(id.as_bytes()).finalize_xof().fill(&mut mark);
    mark
}

impl Doomed {
    /// The plaintext.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(&WireIds { ids: bags(&self.bags) })
    }

    /// The list that these bytes are.
    ///
    /// # Errors
    /// When they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, ListError> {
        let wire: WireIds = codec::decode(bytes, "list of doomed bags", MAX_LIST)?;
        Ok(Self { bags: split_bags(&wire.ids)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn there_and_back(dead: BTreeSet<[u8; 16]>, emptied: BTreeSet<[u8; 16]>, seen: BTreeSet<[u8; 8]>) {
            let list = List {
                dead: dead.iter().copied().map(BagId).collect(),
                emptied: emptied.into_iter().map(BagId).collect(),
                thinned: BTreeSet::new(),
                seen: seen.iter().copied().map(GenerationId).collect(),
            };
            prop_assert_eq!(&List::decode(&list.encode()).unwrap(), &list);
            let waits: Waits = list.seen.iter().copied().collect();
            let encoded = waits.encode();
            prop_assert_eq!(Waits::decode(&encoded).unwrap(), waits.clone());
            // They are recognised, but cannot be read off.
            for id in &list.seen {
                prop_assert!(waits.names(*id) && !encoded.windows(8).any(|some| some == id.as_bytes()));
            }
            prop_assert!(list.seen.contains(&GenerationId([7; 8])) || !waits.names(GenerationId([7; 8])));
            let doomed = Doomed { bags: dead.into_iter().map(BagId).collect() };
            prop_assert_eq!(Doomed::decode(&doomed.encode()).unwrap(), doomed);
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, ids: Vec<u8>) {
            let _ = List::decode(&bytes);
            let _ = Waits::decode(&bytes);
            let wire = codec::encode(&WireIds { ids });
            let _ = Doomed::decode(&wire);
            let _ = Waits::decode(&wire);
        }
    }

    #[test]
    fn disorder_is_refused() {
        let wire = codec::encode(&WireIds { ids: [[2; 16], [1; 16]].concat() });
        assert!(matches!(Doomed::decode(&wire), Err(ListError::Order)));
        let wire = codec::encode(&WireIds { ids: vec![1; 15] });
        assert!(matches!(Doomed::decode(&wire), Err(ListError::Order)));
    }
}
