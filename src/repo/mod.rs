//! Opening a repository and handing out its parts.
//!
//! A repository exists when its `config` does: [`init`] writes that last. [`open()`] reads it and the key slots in two flights, finds the
//! slot that opens, and checks that whoever wrote the configuration had the key. Both end with a [`Repository`]: where it
//! is, which one it is, and its keys. It knows no operations; they ask it for its parts.

pub mod config;
pub mod init;
pub mod keys;
pub mod open;

use std::sync::Arc;

pub use config::{Config, ConfigError};
pub use init::{Encryption, InitError, InitOptions, init};
pub use open::{OpenError, Stored, open};

use crate::base::id::{KeySlotId, RepositoryId};
use crate::chunker::Cutter;
use crate::crypto::{Context, Keys, Kind};
use crate::store::SharedStore;

/// An open repository; clones share it.
#[derive(Clone)]
pub struct Repository(Arc<Parts>);

struct Parts {
    store: SharedStore,
    config: Config,
    keys: Keys,
    slot: KeySlotId,
    in_the_clear: bool,
}

impl Repository {
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
