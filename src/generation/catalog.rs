//! The generations that a repository holds.

use std::collections::{BTreeMap, BTreeSet};

use super::format::{self, Generation, RecordError};
use super::tags;
use crate::bag::Sealing;
use crate::base::id::{ClientId, GenerationId, TagsId};
use crate::crypto::Kind;
use crate::sealed::{self, SealedError};
use crate::store::{ErrorKind, Listed, Name, Pending, SharedStore, StoreError, layout};

/// A generation record that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The store could not give it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its seal is broken.
    #[error(transparent)]
    Sealed(#[from] SealedError),
    /// It is not a record, or not one of tags.
    #[error("generation record {name} is damaged: {source}")]
    Record {
        /// Its file.
        name: String,
        /// What is wrong.
        source: RecordError,
    },
}

impl CatalogError {
    /// Whether the record is not there (any more).
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Store(StoreError { kind: ErrorKind::NotFound, .. }))
    }

    /// Whether the record is damaged, as opposed to out of reach.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        !matches!(self, Self::Store(_))
    }
}

/// Reads generation records of a store.
#[derive(Clone)]
pub struct Catalog {
    store: SharedStore,
    sealing: Sealing,
}

impl Catalog {
    /// A catalogue of `store`.
    #[must_use]
    pub fn new(store: SharedStore, sealing: Sealing) -> Self {
        Self { store, sealing }
    }

    /// The clients that have generations. One flight, two waits.
    ///
    /// # Errors
    /// What the store says.
    pub fn clients(&self) -> Result<Vec<ClientId>, StoreError> {
        let listed = self.store.list(&layout::directory("generations")).wait()?;
        let mut clients: Vec<_> = listed.iter().filter_map(|file| file.name.parse().ok()).collect();
        clients.sort_unstable();
        Ok(clients)
    }

    /// Asks for the names of a client's generations.
    pub fn list(&self, client: ClientId) -> Pending<Vec<Listed>> {
        self.store.list(&layout::generations(client))
    }

    /// The ids among listed names; other names are none of ours.
    #[must_use]
    pub fn ids(listed: &[Listed]) -> Vec<GenerationId> {
        listed.iter().filter_map(|file| file.name.parse().ok()).collect()
    }

    /// Reads records of one client, all at once. Those that cannot be read are told beside the others.
    #[must_use]
    pub fn read(
        &self,
        client: ClientId,
        ids: &[GenerationId],
    ) -> Vec<(GenerationId, Result<Generation, CatalogError>)> {
        let records = self.read_of_all(ids.iter().map(|id| (client, *id)));
        records.into_iter().map(|(_, id, record)| (id, record)).collect()
    }

    /// The same of several clients, all at once.
    #[must_use]
    pub fn read_of_all(
        &self,
        ids: impl Iterator<Item = (ClientId, GenerationId)>,
    ) -> Vec<(ClientId, GenerationId, Result<Generation, CatalogError>)> {
        self.ask(ids).wait()
    }

    /// Asks for records, all at once.
    pub fn ask(&self, ids: impl Iterator<Item = (ClientId, GenerationId)>) -> AskedRecords {
        let read_one =
            |(client, id)| (client, id, self.store.read_all(&layout::generation(client, id), MAX_SEALED));
        AskedRecords { catalog: self.clone(), pending: ids.map(read_one).collect() }
    }

    /// Reads all that listings of clients' directories show, all at once: the records, and the files of tags beside them. Tags in such files take the place
    /// of those in the record. Ascending by client and id.
    #[must_use]
    pub fn find(&self, listed: &[(ClientId, Vec<Listed>)]) -> Vec<Found> {
        let mut files: BTreeMap<(ClientId, GenerationId), Vec<TagsId>> = BTreeMap::new();
        for (client, names) in listed {
            files.extend(Self::ids(names).into_iter().map(|id| ((*client, id), Vec::new())));
        }
        for (client, names) in listed {
            for (id, tags) in names.iter().filter_map(|file| tags::parse(&file.name)) {
                files.entry((*client, id)).and_modify(|of_one| of_one.push(tags));
            }
        }
        let ask = |name: &Name| self.store.read_all(name, MAX_SEALED);
        let asked: Vec<_> = files
            .into_iter()
            .map(|((client, id), tags)| {
                let record = ask(&layout::generation(client, id));
                let tags: Vec<_> =
                    tags.into_iter().map(|one| (one, ask(&layout::tags(client, id, one)))).collect();
                (client, id, record, tags)
            })
            .collect();
        let found = asked.into_iter().map(|(client, id, record, tags)| {
            let read = record.wait().map_err(CatalogError::from);
            let opened = read.and_then(|bytes| self.open(client, id, bytes));
            let mut record = opened.or_else(|error| self.read_again(client, id, error));
            let tag_files: Vec<_> = tags
                .into_iter()
                .map(|(one, answer)| TagFile { id: one, tags: self.tags(client, id, one, answer) })
                .collect();
            if let (Ok(generation), Some(tags)) = (&mut record, tags::union(&tag_files)) {
                generation.tags = tags;
            }
            Found { client, id, record, tag_files }
        });
        found.collect()
    }

    fn tags(
        &self,
        client: ClientId,
        id: GenerationId,
        tags: TagsId,
        answer: Pending<Vec<u8>>,
    ) -> Result<BTreeSet<String>, CatalogError> {
        let name = layout::tags(client, id, tags);
        match answer
            .wait()
            .map_err(CatalogError::from)
            .and_then(|bytes| tags::open(&self.sealing, &name, bytes))
        {
            // As with a record.
            Err(error) if error.is_damage() => {
                self.store.forget(&name);
                tags::open(&self.sealing, &name, self.store.read_all(&name, MAX_SEALED).wait()?)
            }
            outcome => outcome,
        }
    }

    /// Should a copy in the local cache be what is damaged, the store has a better one.
    fn read_again(
        &self,
        client: ClientId,
        id: GenerationId,
        error: CatalogError,
    ) -> Result<Generation, CatalogError> {
        if !error.is_damage() {
            return Err(error);
        }
        let name = layout::generation(client, id);
        self.store.forget(&name);
        self.open(client, id, self.store.read_all(&name, MAX_SEALED).wait()?)
    }

    /// Opens a record.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn open(
        &self,
        client: ClientId,
        id: GenerationId,
        bytes: Vec<u8>,
    ) -> Result<Generation, CatalogError> {
        let name = layout::generation(client, id);
        let damaged = || name.to_string();
        let limit = format::MAX_RECORD;
        let plaintext = sealed::decode(
            &self.sealing.keys,
            self.sealing.repository,
            Kind::Generation,
            &name,
            bytes,
            limit,
        )?;
        let generation = format::decode_record(&plaintext)
            .map_err(|source| CatalogError::Record { name: damaged(), source })?;
        if generation.id != id {
            let source = RecordError::Meaning("it names another generation");
            return Err(CatalogError::Record { name: damaged(), source });
        }
        Ok(generation)
    }
}

/// What listings show of a generation.
#[derive(Debug)]
pub struct Found {
    /// Whose it is.
    pub client: ClientId,
    /// Its id.
    pub id: GenerationId,
    /// Its record, if that can be read, with the tags that it has by now.
    pub record: Result<Generation, CatalogError>,
    /// The files of tags beside it.
    pub tag_files: Vec<TagFile>,
}

/// A file of tags.
#[derive(Debug)]
pub struct TagFile {
    /// Its id.
    pub id: TagsId,
    /// The tags, if it can be read.
    pub tags: Result<BTreeSet<String>, CatalogError>,
}

/// Records that were asked for.
#[must_use = "nobody has read them yet"]
pub struct AskedRecords {
    catalog: Catalog,
    pending: Vec<(ClientId, GenerationId, Pending<Vec<u8>>)>,
}

impl AskedRecords {
    /// Waits for them. Those that cannot be read are told beside the others.
    #[must_use]
    pub fn wait(self) -> Vec<(ClientId, GenerationId, Result<Generation, CatalogError>)> {
        let Self { catalog, pending } = self;
        pending
            .into_iter()
            .map(|(client, id, answer)| {
                let read = answer.wait().map_err(CatalogError::from);
                let opened = read.and_then(|bytes| catalog.open(client, id, bytes));
                (client, id, opened.or_else(|error| catalog.read_again(client, id, error)))
            })
            .collect()
    }
}

/// The largest sealed record in bytes.
const MAX_SEALED: u64 = 64 << 20;
