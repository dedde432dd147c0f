//! What is known of the generations: which there are, and which bags they name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::GcError;
use crate::bag::BagKind;
use crate::bag::reader::{BagReader, ReadError};
use crate::base::id::{ClientId, GenerationId};
use crate::cache;
use crate::entry::Place;
use crate::generation::{CatalogError, Generation};
use crate::reach::Union;
use crate::reach::union::Bucket;
use crate::repo::Repository;
use crate::store::{ErrorKind, Pending, StoreError, layout};

/// The largest sealed record in bytes.
const MAX_RECORD: u64 = 64 << 20;

/// Blocks of bag lists, and records, that are asked for at once at most.
const AT_ONCE: usize = 256;

/// Generations that were read, and the union of their bag lists. One that is forgotten meanwhile still counts: what it needed stays for this time.
pub struct Known<'a> {
    repository: &'a Repository,
    reader: &'a BagReader,
    /// What generations name.
    pub union: Union,
    /// The generations whose bag lists were read.
    pub generations: BTreeSet<(ClientId, GenerationId)>,
}

/// Records asked for.
type Records = Vec<((ClientId, GenerationId), Pending<Vec<u8>>)>;

impl<'a> Known<'a> {
    /// Nothing yet.
    pub fn new(repository: &'a Repository, reader: &'a BagReader) -> Self {
        Self { repository, reader, union: Union::default(), generations: BTreeSet::new() }
    }

    /// Reads the records and bag lists of those generations that are not known. Two serial round trips; none for what the local cache has.
    ///
    /// # Errors
    /// When one cannot be read. One that is gone is none.
    pub fn learn(&mut self, listed: &BTreeSet<(ClientId, GenerationId)>) -> Result<(), GcError> {
        let new: Vec<_> = listed.difference(&self.generations).copied().collect();
        for some in new.chunks(AT_ONCE) {
            let asked = self.ask(some.iter().copied());
            let mut buckets = Vec::new();
            for (key, answer) in asked {
                if let Some(generation) = self.record(key, answer)? {
                    let name = layout::generation(key.0, key.1).to_string();
                    let wanted = self.union.wanted(&generation.bag_list);
                    buckets.extend(wanted.into_iter().map(|bucket| (name.clone(), bucket)));
                }
                self.generations.insert(key);
            }
            self.buckets(buckets)?;
        }
        Ok(())
    }

    fn ask(&self, keys: impl Iterator<Item = (ClientId, GenerationId)>) -> Records {
        let store = self.repository.cached();
        keys.map(|key| (key, store.read_all(&layout::generation(key.0, key.1), MAX_RECORD))).collect()
    }

    fn record(
        &self,
        key: (ClientId, GenerationId),
        answer: Pending<Vec<u8>>,
    ) -> Result<Option<Generation>, GcError> {
        let (client, id) = key;
        let catalog = self.repository.catalog();
        let open = |answer: Pending<Vec<u8>>| {
            answer.wait().map_err(CatalogError::from).and_then(|bytes| catalog.open(client, id, bytes))
        };
        let opened = open(answer).or_else(|error| {
            if !error.is_damage() {
                return Err(error);
            }
            // Should a copy in the local cache be what is damaged, the store has a better one.
            let name = layout::generation(client, id);
            self.repository.cached().forget(&name);
            open(self.repository.cached().read_all(&name, MAX_RECORD))
        });
        match opened {
            Ok(generation) => Ok(Some(generation)),
            Err(error) if error.is_gone() => Ok(None),
            Err(CatalogError::Store(error)) => Err(error.into()),
            Err(error) => Err(unreadable(layout::generation(client, id).to_string(), &error)),
        }
    }

    /// One of the generations that were learnt; `None` when it is gone.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn generation(&self, id: GenerationId) -> Result<Vec<Generation>, GcError> {
        let keys = self.generations.iter().filter(|(_, one)| *one == id).copied();
        let records = self.ask(keys).into_iter().map(|(key, answer)| self.record(key, answer));
        records.filter_map(Result::transpose).collect()
    }

    /// Reads buckets: those of one block together.
    fn buckets(&mut self, buckets: Vec<(String, Bucket)>) -> Result<(), GcError> {
        let mut blocks: BTreeMap<_, Vec<(String, Bucket)>> = BTreeMap::new();
        for (name, bucket) in buckets {
            let Place { bag, offset, stored, .. } = bucket.reference.place;
            blocks.entry((bag, offset, stored)).or_default().push((name, bucket));
        }
        let mut later = blocks.into_iter();
        let mut under_way = VecDeque::new();
        loop {
            while under_way.len() < AT_ONCE
                && let Some(((bag, offset, stored), buckets)) = later.next()
            {
                // A whole tree bag of another client is not fetched for the sake of a bucket.
                let is_here = self.repository.cache().len_of(cache::Kind::Bag, &bag.to_string()).is_some();
                let kind = if is_here { BagKind::Tree } else { BagKind::Data };
                let asked = self.reader.store(kind).read(&layout::bag(bag), offset, u64::from(stored));
                under_way.push_back((Place { bag, offset, stored, start: 0, len: 0 }, buckets, asked));
            }
            let Some((place, buckets, answer)) = under_way.pop_front() else { return Ok(()) };
            let opened = self.block(&place, answer);
            for (name, bucket) in buckets {
                let reason = |error: &dyn std::fmt::Display| unreadable(name.clone(), error);
                let block = match &opened {
                    Ok(block) => block,
                    Err(ReadError::Store(error)) if !is_damage(error) => {
                        return Err(error.duplicate().into());
                    }
                    Err(error) => return Err(reason(error)),
                };
                let bytes = self.reader.object(&bucket.reference, block).map_err(|error| reason(&error))?;
                self.union.add(&bucket, bytes).map_err(|error| reason(&error))?;
            }
        }
    }

    /// An opened block; in case of doubt read once more, from the store or from where it was moved to.
    fn block(&self, place: &Place, answer: Pending<Vec<u8>>) -> Result<Vec<u8>, ReadError> {
        let first = answer
            .wait()
            .map_err(ReadError::from)
            .and_then(|mut sealed| self.reader.open(BagKind::Tree, place.bag, place.offset, &mut sealed));
        match first {
            Err(error) if error.is_damage() => {
                self.repository.cached().forget(&layout::bag(place.bag));
                self.reader.block(BagKind::Tree, place)
            }
            other => other,
        }
    }
}

fn is_damage(error: &StoreError) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Truncated)
}

fn unreadable(name: String, reason: &dyn std::fmt::Display) -> GcError {
    GcError::Unreadable { name, reason: reason.to_string() }
}
