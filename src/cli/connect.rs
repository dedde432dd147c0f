//! From what was typed to a store, and to an open repository in it.

use std::sync::Arc;

use super::Context;
use super::error::Failure;
use super::passphrase;
use crate::bag::source::Source;
use crate::base::time::SystemClock;
use crate::cache::known::CacheHome;
use crate::chunker::Limits;
use crate::crypto::Cost;
use crate::repo::{self, Encryption, InitOptions, Repository};
use crate::store::SharedStore;
use crate::store::local::LocalStore;
use crate::store::open::Location;

/// How often a person may mistype the passphrase.
const ATTEMPTS: u32 = 3;

impl Context {
    /// The store that the command line names. A server is connected to in the background: that it cannot be reached is told by the first request.
    ///
    /// # Errors
    /// Usage, or settings of SSH that cannot be used.
    pub fn store(&self) -> Result<SharedStore, Failure> {
        match Location::parse(self.settings.repository()?)
            .map_err(|error| Failure::usage(error.to_string()))?
        {
            Location::Local(path) => Ok(Arc::new(LocalStore::new(path)?)),
            Location::Sftp(location) => Ok(Arc::new(self.sftp(location)?)),
        }
    }

    /// The repository, opened, with the local cache before it.
    ///
    /// # Errors
    /// As [`Self::open_bare`].
    pub fn open(&self, store: SharedStore) -> Result<Repository, Failure> {
        Ok(self.with_cache(self.open_bare(store)?))
    }

    /// The repository, opened, without a cache. A person is asked for the passphrase again when it was wrong.
    ///
    /// # Errors
    /// See [`repo::OpenError`]; that no passphrase could be had.
    pub fn open_bare(&self, store: SharedStore) -> Result<Repository, Failure> {
        let source = &self.settings.passphrase;
        let mut unheard = None;
        let opened = repo::open(store, &mut |failed| {
            if failed >= ATTEMPTS || (failed > 0 && !matches!(source, passphrase::Source::Prompt)) {
                return None;
            }
            source.existing(&self.screen, failed > 0).map_err(|failure| unheard = Some(failure)).ok()
        });
        let repository = opened.map_err(|error| unheard.take().unwrap_or_else(|| error.into()))?;
        if repository.is_in_the_clear() && !matches!(source, passphrase::Source::Prompt) {
            let at = repository.store().describe();
            self.screen.say(&format!(
                "kitbag: the repository at {at} opened without the passphrase: it is not encrypted, or it is not yours"
            ));
        }
        Ok(repository)
    }

    /// The repository with the local cache before it. A cache that cannot be used is told, and done without.
    #[must_use]
    pub fn with_cache(&self, repository: Repository) -> Repository {
        let Some(settings) = &self.settings.cache else { return repository };
        let cache =
            CacheHome::open(&settings.dir).and_then(|home| home.repository(repository.id(), settings.limit));
        match cache {
            Ok(cache) => repository.with_cache(cache),
            Err(error) => {
                self.screen
                    .say(&format!("kitbag: {error}; say --cache-dir DIR, or --no-cache if that is meant"));
                repository
            }
        }
    }

    /// Makes a repository.
    ///
    /// # Errors
    /// See [`repo::InitError`]; that no passphrase could be had.
    pub fn init(&self, store: SharedStore, encrypted: bool) -> Result<Repository, Failure> {
        let encryption = match encrypted {
            true => Encryption::Passphrase(self.settings.passphrase.new_one(&self.screen)?, Cost::default()),
            false => Encryption::None,
        };
        let options = InitOptions { encryption, label: String::new(), limits: Limits::default() };
        Ok(repo::init(store, options, &SystemClock::new())?)
    }
}

/// Bytes of opened blocks that are kept while reading.
const OPENED: usize = 32 << 20;

/// The objects of this repository.
#[must_use]
pub fn source(repository: &Repository) -> Source {
    Source::new(repository.bags(), OPENED)
}
