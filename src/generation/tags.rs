//! Tags that a generation is given after it was made.
//!
//! A record is never changed, and holds the tags that it was made with. Others stand in a file beside it, `generations/<client>/<generation>.<id>`, which takes the place of
//! those in the record; where several such files are there, the tags of all of them count. Changing tags means to publish a new file and then to remove the older ones: whoever
//! is killed in between leaves a generation with both, so that no tag that pins is ever lost by it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::catalog::{CatalogError, TagFile};
use super::format::RecordError;
use crate::bag::Sealing;
use crate::base::codec;
use crate::base::id::{ClientId, GenerationId, TagsId};
use crate::crypto::Kind;
use crate::sealed;
use crate::store::{Class, ErrorKind, Name, Store, StoreError, layout};

/// The largest file of tags in bytes, opened.
pub const MAX_TAGS: usize = 1 << 20;

/// The longest tag in bytes.
pub const MAX_TAG: usize = 200;

/// A text that is no tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no tag: a tag has 1 to {MAX_TAG} bytes, no comma, no white space at its ends, and no control characters"
)]
pub struct BadTag(String);

/// The tag, if it is one.
///
/// # Errors
/// When it is empty, too long, or cannot be shown in a list.
pub fn check(tag: &str) -> Result<(), BadTag> {
    let is_shown = !tag.chars().any(|one| one.is_control() || one == ',') && tag.trim() == tag;
    if is_shown && (1..=MAX_TAG).contains(&tag.len()) { Ok(()) } else { Err(BadTag(tag.to_owned())) }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    tags: BTreeSet<String>,
}

/// The plaintext of a file of tags.
#[must_use]
pub fn encode(tags: &BTreeSet<String>) -> Vec<u8> {
    codec::encode(&Wire { tags: tags.clone() })
}

/// The tags that these bytes hold.
///
/// # Errors
/// When they are something else.
pub fn decode(bytes: &[u8]) -> Result<BTreeSet<String>, RecordError> {
    let wire: Wire = codec::decode(bytes, "tags", MAX_TAGS)?;
    Ok(wire.tags)
}

/// The tags in a sealed file.
///
/// # Errors
/// When it is damaged.
pub fn open(sealing: &Sealing, name: &Name, bytes: Vec<u8>) -> Result<BTreeSet<String>, CatalogError> {
    let plaintext = sealed::decode(&sealing.keys, sealing.repository, Kind::Tags, name, bytes, MAX_TAGS)?;
    decode(&plaintext).map_err(|source| CatalogError::Record { name: name.to_string(), source })
}

/// The name of such a file taken apart: whose tags they are, and the file's own id.
#[must_use]
pub fn parse(name: &str) -> Option<(GenerationId, TagsId)> {
    let (generation, tags) = name.split_once('.')?;
    Some((generation.parse().ok()?, tags.parse().ok()?))
}

/// The tags of all files that can be read, in order; `None` when there is none.
#[must_use]
pub fn union(files: &[TagFile]) -> Option<Vec<String>> {
    let mut readable = files.iter().filter_map(|file| file.tags.as_ref().ok()).peekable();
    readable.peek()?;
    let all: BTreeSet<&String> = readable.flatten().collect();
    Some(all.into_iter().cloned().collect())
}

/// What became of a change of tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Done.
    Done,
    /// The generation was forgotten meanwhile.
    Gone,
}

/// Gives a generation these tags, instead of those in its record and in the files `old`. Three round trips.
///
/// # Errors
/// What the store says. The generation then has the new tags, or the old ones, or both.
pub fn replace(
    store: &dyn Store,
    sealing: &Sealing,
    (client, id): (ClientId, GenerationId),
    tags: &BTreeSet<String>,
    old: &[TagsId],
) -> Result<Change, StoreError> {
    let name = layout::tags(client, id, TagsId::random());
    let mut file = store.create(&name.with_suffix(".part"), Class::Control);
    file.append(sealed::encode(&sealing.keys, sealing.repository, Kind::Tags, &name, &encode(tags)))?;
    file.commit(&name).wait()?;
    // Whoever forgets it now has either seen the new tags or removed the record by now.
    let listed = store.list(&layout::generations(client));
    let removals: Vec<_> = old.iter().map(|one| store.remove(&layout::tags(client, id, *one))).collect();
    let is_there = listed.wait()?.iter().any(|file| file.name.parse() == Ok(id));
    for removal in removals {
        removed(removal.wait())?;
    }
    if is_there {
        return Ok(Change::Done);
    }
    removed(store.remove(&name).wait())?;
    Ok(Change::Gone)
}

fn removed(outcome: Result<(), StoreError>) -> Result<(), StoreError> {
    outcome.or_else(|error| if error.kind == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::RepositoryId;
    use crate::base::secret::Key32;
    use crate::crypto::{Keys, MasterKey};
    use crate::store::testing::{FaultyStore, MemoryStore};
    use std::sync::Arc;

    const WHOSE: (ClientId, GenerationId) = (ClientId([7; 16]), GenerationId([6; 8]));

    fn sealing() -> Sealing {
        let keys = Keys::derive(&MasterKey::new(Key32::new([1; 32])));
        Sealing { keys, repository: RepositoryId([5; 16]) }
    }

    fn set(tags: &[&str]) -> BTreeSet<String> {
        tags.iter().map(|tag| (*tag).to_owned()).collect()
    }

    fn files(store: &MemoryStore) -> Vec<TagFile> {
        let names = store.names_below("generations").into_iter();
        let of_tags = names.filter_map(|name| Some((parse(name.last())?.1, name)));
        let read = |(id, name): (TagsId, Name)| {
            let bytes = store.contents(&name)?;
            Some(TagFile { id, tags: open(&sealing(), &name, bytes) })
        };
        of_tags.filter_map(read).collect()
    }

    #[test]
    fn what_is_no_tag() {
        for tag in ["", " x", "x ", "a,b", "a\nb", &"x".repeat(201)] {
            assert!(check(tag).is_err(), "{tag:?}");
        }
        check("before the move").unwrap();
    }

    #[test]
    fn new_tags_take_the_place_of_old_ones() {
        let store = MemoryStore::new();
        store.put(&layout::generation(WHOSE.0, WHOSE.1), Vec::new());
        assert_eq!(union(&files(&store)), None);
        for tags in [&["b", "a"][..], &["c"], &[]] {
            let old: Vec<_> = files(&store).iter().map(|file| file.id).collect();
            assert_eq!(replace(&store, &sealing(), WHOSE, &set(tags), &old).unwrap(), Change::Done);
            let expected: Vec<String> = set(tags).into_iter().collect();
            assert_eq!((union(&files(&store)), files(&store).len()), (Some(expected), 1));
        }
    }

    #[test]
    fn killed_anywhere_no_tag_is_lost() {
        let filled = || {
            let store = MemoryStore::new();
            store.put(&layout::generation(WHOSE.0, WHOSE.1), Vec::new());
            replace(&store, &sealing(), WHOSE, &set(&["old"]), &[]).unwrap();
            store
        };
        let mut seen = 0;
        for k in 0..20 {
            let store = filled();
            let old: Vec<_> = files(&store).iter().map(|file| file.id).collect();
            let stopped = FaultyStore::stop_after(Arc::new(store.clone()), k);
            let outcome = replace(&stopped, &sealing(), WHOSE, &set(&["new", "old"]), &old);
            if outcome.is_ok() {
                seen = k;
                // It never came so far.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stopped.finish()));
                break;
            }
            assert!(union(&files(&store)).unwrap().contains(&"old".to_owned()), "after {k}");
        }
        assert!(seen >= 3);
    }

    #[test]
    fn a_generation_that_is_gone_gets_no_tags() {
        let store = MemoryStore::new();
        assert_eq!(replace(&store, &sealing(), WHOSE, &set(&["a"]), &[]).unwrap(), Change::Gone);
        assert_eq!(store.names(), []);
    }
}
