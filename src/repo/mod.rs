//! Opening a repository and handing out its parts.
//!
//! A repository exists when its `config` does: [`init()`] writes that last. [`open()`] reads it and the key slots in two flights, finds the
//! slot that opens, and checks that whoever wrote the configuration had the key. Both end with a [`Repository`]: where it
//! is, which one it is, and its keys. It knows no operations; they ask it for its parts.

pub mod config;
mod guess;
pub mod init;
pub mod keyring;
pub mod keys;
pub mod open;

use std::path::PathBuf;
use std::sync::Arc;

pub use config::{Config, ConfigError};
pub use init::{Encryption, InitError, InitOptions, init, make};
pub use keys::StoredSlot;
pub use open::{OpenError, Stored, open};

use guess::Guess;

use crate::bag::Sealing;
use crate::bag::reader::BagReader;
use crate::base::id::{KeySlotId, RepositoryId};
use crate::cache::{CHUNK_INDEX, Cache};
use crate::chunker::Cutter;
use crate::crypto::{Context, Keys, Kind};
use crate::generation::Catalog;
use crate::store::cached::CachedStore;
use crate::store::{Listed, SharedStore};

/// An open repository; clones share it.
#[derive(Clone)]
pub struct Repository(Arc<Parts>);

#[derive(Clone)]
struct Parts {
    store: SharedStore,
    cached: SharedStore,
    cache: Cache,
    config: Config,
    keys: Keys,
    slot: KeySlotId,
    in_the_clear: bool,
    guess: Option<Arc<Guess>>,
}

impl Repository {
    /// A repository without a local cache.
    fn new(store: SharedStore, config: Config, keys: Keys, slot: KeySlotId, in_the_clear: bool) -> Self {
        let (cached, cache) = (store.clone(), Cache::disabled());
        Self(Arc::new(Parts { store, cached, cache, config, keys, slot, in_the_clear, guess: None }))
    }

    fn with_guess(&self, guess: Guess) -> Self {
        Self(Arc::new(Parts { guess: Some(Arc::new(guess)), ..Parts::clone(&self.0) }))
    }

    /// Asks for what [`confirm`](Self::confirm) will need, where it will need something.
    pub fn ask(&self) {
        if let Some(guess) = &self.0.guess {
            guess.ask(&**self.store());
        }
    }

    /// Makes sure that the repository opened is the one that is there, where it was opened with what was kept of it
    /// ([`Stored::unlock_unconfirmed`]); costs nothing elsewhere, and nothing the second time.
    ///
    /// # Errors
    /// `Replaced`, `NoRepository`, and what the store says.
    pub fn confirm(&self) -> Result<(), OpenError> {
        match &self.0.guess {
            Some(guess) => guess.confirm(&**self.store()),
            None => Ok(()),
        }
    }

    /// Whether, as far as a listing of `condemned` tells, its key slots are those that it was opened with. Where it was opened with what was kept of
    /// it, a key may have been taken away since: [`confirm`](Self::confirm) finds out.
    #[must_use]
    pub fn has_its_keys(&self, condemned: &[Listed]) -> bool {
        self.0.guess.as_ref().is_none_or(|guess| guess.fits(condemned))
    }

    /// Whether it was opened with what was kept of it: this machine has opened or made it before.
    #[must_use]
    pub fn is_known_here(&self) -> bool {
        self.0.guess.is_some()
    }

    /// Where its files are.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.0.store
    }

    /// Which repository it is.
    #[must_use]
    pub fn id(&self) -> RepositoryId {
        self.0.config.repository
    }

    /// The same repository, whose tree bags, segments and records are read through a local cache (and kept there when written).
    #[must_use]
    pub fn with_cache(&self, cache: Cache) -> Self {
        let parts = &self.0;
        let cached: SharedStore = Arc::new(CachedStore::new(parts.store.clone(), cache.clone()));
        Self(Arc::new(Parts { cached, cache, ..Parts::clone(parts) }))
    }

    /// Its files, with the local cache before those that it keeps; not for data bags.
    #[must_use]
    pub fn cached(&self) -> &SharedStore {
        &self.0.cached
    }

    /// The local cache; disabled unless there is one.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.0.cache
    }

    /// Where the local chunk index is kept: in the cache, if there is one. It has checks of its own and counts against no budget.
    #[must_use]
    pub fn index_dir(&self) -> Option<PathBuf> {
        self.0.cache.directory(CHUNK_INDEX)
    }

    /// What sealing and opening bags takes.
    #[must_use]
    pub fn sealing(&self) -> Sealing {
        Sealing { keys: self.0.keys.clone(), repository: self.id() }
    }

    /// Reads its bags.
    #[must_use]
    pub fn bags(&self) -> BagReader {
        let cache = self.cache().clone();
        BagReader::new(self.0.store.clone(), self.sealing())
            .with_tree_store(self.0.cached.clone())
            .with_damage_told(Arc::new(move |bag| cache.note_damaged([bag], |_| false)))
    }

    /// Its generations.
    #[must_use]
    pub fn catalog(&self) -> Catalog {
        Catalog::new(self.0.cached.clone(), self.sealing())
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Its keys.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.0.keys
    }

    /// What cuts files into chunks here.
    #[must_use]
    pub fn cutter(&self) -> Cutter {
        Cutter::new(self.0.config.limits, self.0.keys.gear_table())
    }

    /// The key slot that opened it.
    #[must_use]
    pub fn slot(&self) -> KeySlotId {
        self.0.slot
    }

    /// Whether it was opened without a passphrase. Who gave one should hear of it: a server that has put another
    /// repository in the place of theirs cannot know their passphrase, but can do without.
    #[must_use]
    pub fn is_in_the_clear(&self) -> bool {
        self.0.in_the_clear
    }

    /// The context of something sealed here.
    #[must_use]
    pub fn context<'a>(&self, kind: Kind, file: &'a [u8], offset: u64) -> Context<'a> {
        Context { repository: self.id(), kind, file, offset }
    }
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repository")
            .field("store", &self.0.store.describe())
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
