//! What is known of the generations: which there are, and which bags they name.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::GcError;
use crate::bag::BagKind;
use crate::bag::reader::{BagReader, ReadError};
use crate::base::id::{ClientId, GenerationId};
use crate::base::time::Timestamp;
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

/// Buckets of a generation that no other has named before.
struct Wanted {
    client: ClientId,
    started: Timestamp,
    id: GenerationId,
    buckets: Vec<Bucket>,
}

impl Wanted {
    fn unreadable(&self, reason: &dyn std::fmt::Display) -> GcError {
        unreadable(layout::generation(self.client, self.id).to_string(), reason)
    }
}

/// An opened block, and what is wanted of it.
type Landed<'a> = (Vec<u8>, Vec<(&'a Wanted, &'a Bucket)>);

/// As many buckets are taken in together, which pays for a second thread.
const TOGETHER: usize = 256;

/// Bytes of opened blocks that are held for that at most.
const HELD: usize = 16 << 20;

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
        let mut wanted = Vec::new();
        for some in new.chunks(AT_ONCE) {
            let asked = self.ask(some.iter().copied());
            for (key, answer) in asked {
                if let Some(generation) = self.record(key, answer)? {
                    let buckets = self.union.wanted(&generation.bag_list);
                    wanted.push(Wanted { client: key.0, started: generation.started, id: key.1, buckets });
                }
                self.generations.insert(key);
            }
        }
        // A client's lists resemble most those of the night before, and only what differs costs something. Ids, by which they are listed, say nothing of that.
        wanted.sort_unstable_by_key(|one| (one.client, one.started, one.id));
        self.buckets(&wanted)
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

    /// Reads buckets in this order, but those of one block together.
    fn buckets(&mut self, wanted: &[Wanted]) -> Result<(), GcError> {
        let mut places: HashMap<Place, usize> = HashMap::new();
        let mut blocks: Vec<(Place, Vec<(&Wanted, &Bucket)>)> = Vec::new();
        for (one, bucket) in wanted.iter().flat_map(|one| one.buckets.iter().map(move |bucket| (one, bucket)))
        {
            let place = Place { start: 0, len: 0, ..bucket.reference.place };
            let at = *places.entry(place).or_insert(blocks.len());
            match blocks.get_mut(at) {
                Some((_, buckets)) => buckets.push((one, bucket)),
                None => blocks.push((place, vec![(one, bucket)])),
            }
        }
        drop(places);
        let (repository, reader) = (self.repository, self.reader);
        let mut later = blocks.into_iter();
        let mut under_way = VecDeque::new();
        let mut landed: Vec<Landed<'_>> = Vec::new();
        loop {
            while under_way.len() < AT_ONCE
                && let Some((place, buckets)) = later.next()
            {
                // A whole tree bag of another client is not fetched for the sake of a bucket.
                let is_here = repository.cache().len_of(cache::Kind::Bag, &place.bag.to_string()).is_some();
                let kind = if is_here { BagKind::Tree } else { BagKind::Data };
                let name = layout::bag(place.bag);
                let asked = reader.store(kind).read(&name, place.offset, u64::from(place.stored));
                under_way.push_back((place, buckets, asked));
            }
            let next = under_way.pop_front();
            let count: usize = landed.iter().map(|(_, buckets)| buckets.len()).sum();
            let bytes: usize = landed.iter().map(|(block, _)| block.len()).sum();
            if next.is_none() || count >= TOGETHER || bytes >= HELD {
                self.take_in(&std::mem::take(&mut landed))?;
            }
            let Some((place, buckets, answer)) = next else { return Ok(()) };
            let opened = match (block(repository, reader, &place, answer), buckets.first()) {
                (Err(ReadError::Store(error)), _) if !is_damage(&error) => return Err(error.into()),
                (Err(error), Some((one, _))) => return Err(one.unreadable(&error)),
                (opened, _) => opened.unwrap_or_default(),
            };
            landed.push((opened, buckets));
        }
    }

    /// Takes in buckets that are here, in this order.
    fn take_in(&mut self, landed: &[Landed<'_>]) -> Result<(), GcError> {
        let mut all = Vec::new();
        let mut whose = Vec::new();
        for (block, buckets) in landed {
            for (one, bucket) in buckets {
                let bytes = self.reader.object(&bucket.reference, block);
                all.push((**bucket, bytes.map_err(|error| one.unreadable(&error))?));
                whose.push(*one);
            }
        }
        self.union.add(&all).map_err(|bad| match whose.get(bad.at) {
            Some(one) => one.unreadable(&bad.source),
            None => unreadable("a generation".to_owned(), &bad.source),
        })
    }
}

/// An opened block; in case of doubt read once more, from the store or from where it was moved to.
fn block(
    repository: &Repository,
    reader: &BagReader,
    place: &Place,
    answer: Pending<Vec<u8>>,
) -> Result<Vec<u8>, ReadError> {
    let first = answer
        .wait()
        .map_err(ReadError::from)
        .and_then(|mut sealed| reader.open(BagKind::Tree, place.bag, place.offset, &mut sealed));
    match first {
        Err(error) if error.is_damage() => {
            repository.cached().forget(&layout::bag(place.bag));
            reader.block(BagKind::Tree, place)
        }
        other => other,
    }
}

fn is_damage(error: &StoreError) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Truncated)
}

fn unreadable(name: String, reason: &dyn std::fmt::Display) -> GcError {
    GcError::Unreadable { name, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bag::{Packer, PackerEvents, PackerOptions, StoredBag};
    use crate::base::id::BagId;
    use crate::base::time::SystemClock;
    use crate::chunker::Limits;
    use crate::compress::Level;
    use crate::generation::format::encode_bucket;
    use crate::generation::{BagListRef, BagUse, Counts, Session};
    use crate::repo::{Encryption, InitOptions, init};
    use crate::store::testing::MemoryStore;

    struct Quiet;

    impl PackerEvents for Quiet {
        fn placed(&self) {}
        fn queued(&self, _bytes: u64) {}
        fn stored(&self, _bag: &StoredBag) {}
    }

    /// Publishes a generation that needs these bags, in a list of one bucket.
    fn publish(repository: &Repository, client: ClientId, night: i64, bags: &BTreeSet<BagId>) {
        let store = repository.store();
        let mut session = Session::begin(store, &repository.sealing(), client).session;
        let uses: Vec<_> = bags
            .iter()
            .map(|bag| BagUse { bag: *bag, kind: BagKind::Data, objects: 3, bytes: 900 })
            .collect();
        let bytes = encode_bucket(&uses);
        let options = PackerOptions { streams: 1, ..PackerOptions::new(Level::Off, 1) };
        let packer =
            Packer::new([store.clone(), store.clone()], repository.sealing(), options, Arc::new(Quiet));
        let placing = packer.put(BagKind::Tree, repository.bags().id_of(&bytes), &bytes).unwrap();
        packer.quiesce().unwrap();
        packer.finish().unwrap();
        let at = Timestamp { secs: night * 86400, nanos: 0 };
        let generation = Generation {
            id: session.id(),
            client: "laptop".into(),
            host: "host".into(),
            started: at,
            ended: at,
            partial: false,
            roots: Vec::new(),
            counts: Counts::default(),
            options: Vec::new(),
            tags: Vec::new(),
            bag_list: BagListRef { bits: 0, buckets: vec![placing.get().unwrap()] },
        };
        session.fill(&generation).unwrap();
        session.publish().unwrap();
    }

    #[test]
    fn of_each_night_only_what_is_new_is_decoded_whatever_the_ids_are() {
        let memory = MemoryStore::new();
        let limits = Limits { min: 512, avg: 1024, max: 4096 };
        let options = InitOptions { encryption: Encryption::None, label: String::new(), limits };
        let repository = init(Arc::new(memory), options, &SystemClock::new()).unwrap();
        let client = ClientId([7; 16]);
        let mut bags: BTreeSet<BagId> = (0..300).map(|_| BagId::random()).collect();
        for night in 0..60 {
            publish(&repository, client, night, &bags);
            bags.pop_first();
            bags.insert(BagId::random());
        }
        let listed = repository.catalog().list(client).wait().unwrap();
        let keys = crate::generation::Catalog::ids(&listed).into_iter().map(|id| (client, id)).collect();
        let reader = repository.bags();
        let mut known = Known::new(&repository, &reader);
        known.learn(&keys).unwrap();
        assert_eq!(known.generations.len(), 60);
        assert_eq!(known.union.len(), 300 + 59 + 60, "with the bags that hold the lists");
        assert_eq!(known.union.decoded(), 300 + 59);
    }
}
