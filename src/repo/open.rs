//! Opening a repository that is there.

use super::Repository;
use super::config::{self, Config, ConfigError};
use super::keys::{self, Locked, StoredSlot, Unlocked};
use crate::base::id::{ClientId, KeySlotId};
use crate::crypto::{KeySlotError, Keys, Secret, keyslot};
use crate::store::{ErrorKind, SharedStore, Store, StoreError, layout};

/// Why a repository could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none.
    #[error("there is no repository at {at}")]
    NoRepository {
        /// Where it was looked for.
        at: String,
    },
    /// There was one, whose configuration is gone.
    #[error("the file config of the repository at {at} is missing")]
    MissingConfig {
        /// Where it is.
        at: String,
    },
    /// Written by a later kitbag.
    #[error("the repository at {at} has format version {version}, which needs a newer kitbag")]
    NewerFormat {
        /// Where it is.
        at: String,
        /// Its version.
        version: u8,
    },
    /// It requires something that this version does not know.
    #[error("the repository at {at} requires the feature {feature}, which needs a newer kitbag")]
    UnknownFeature {
        /// Where it is.
        at: String,
        /// The feature's name.
        feature: String,
    },
    /// The configuration is not what was written, or was not written by who had the key.
    #[error("the file config of the repository at {at} is damaged")]
    DamagedConfig {
        /// Where it is.
        at: String,
    },
    /// No key slot is left: nothing in the repository can be read.
    #[error("the repository at {at} has no key slot: put the files of its directory keys back from a copy")]
    NoKeySlot {
        /// Where it is.
        at: String,
    },
    /// A key slot cannot be used, and no other opened.
    #[error("the key slot {name} of the repository at {at} cannot be used, and no other opened")]
    DamagedKeySlot {
        /// Where the repository is.
        at: String,
        /// The slot's file.
        name: String,
        /// What is wrong with it.
        source: KeySlotError,
    },
    /// The passphrases given open no slot.
    #[error("the passphrase does not open the repository at {at}")]
    WrongPassphrase {
        /// Where it is.
        at: String,
    },
    /// A passphrase is needed and none was given.
    #[error("the repository at {at} needs a passphrase")]
    PassphraseNeeded {
        /// Where it is.
        at: String,
    },
    /// The key file given opens no slot.
    #[error(
        "the key file does not open the repository at {at}: it is not of this repository, or was taken away from it"
    )]
    WrongKeyFile {
        /// Where it is.
        at: String,
    },
    /// Only a key file opens it, and none was given.
    #[error("the repository at {at} is opened by a key file only")]
    KeyFileNeeded {
        /// Where it is.
        at: String,
    },
    /// It was opened with what was kept of it, and another stands there now, or its key slots have changed.
    #[error("the repository at {at} is not the one that was opened there before, or its keys have changed")]
    Replaced {
        /// Where it is.
        at: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The files that opening needs, as read: they can be kept and used again, since none of them ever changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The configuration.
    pub config: Vec<u8>,
    /// The key slots.
    pub slots: Vec<StoredSlot>,
}

impl Stored {
    /// Reads them, in two flights: the configuration and the list of slots, then the slots. A slot removed in between is none.
    ///
    /// # Errors
    /// `NoRepository` and what the store says.
    pub fn read(store: &dyn Store) -> Result<Self, OpenError> {
        let limit = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        let config = store.read_all(&layout::config(), limit(config::MAX_LEN));
        let listed = store.list(&layout::directory("keys"));
        let at = || store.describe();
        let config = config.wait().map_err(|error| match error.kind {
            ErrorKind::NotFound => missing(store),
            ErrorKind::TooLong => OpenError::DamagedConfig { at: at() },
            _ => OpenError::Store(error),
        })?;
        let ids = listed.wait()?.into_iter().filter_map(|file| file.name.parse::<KeySlotId>().ok());
        let reads: Vec<_> =
            ids.map(|id| (id, store.read_all(&layout::key_slot(id), limit(keyslot::MAX_LEN)))).collect();
        let mut slots = Vec::new();
        for (id, read) in reads {
            match read.wait() {
                Ok(bytes) => slots.push(StoredSlot { id, bytes }),
                Err(error) if error.kind == ErrorKind::NotFound => {}
                // No slot is that long: it will be found damaged.
                Err(error) if error.kind == ErrorKind::TooLong => {
                    slots.push(StoredSlot { id, bytes: Vec::new() });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { config, slots })
    }

    /// Opens the repository with what was read; asks the store for nothing.
    ///
    /// `secret` is asked only when one is needed, with the number of failed attempts so far, until it gives one that opens, or none.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn unlock(
        &self,
        store: SharedStore,
        secret: &mut dyn FnMut(u32) -> Option<Secret>,
    ) -> Result<Repository, OpenError> {
        let (config, unlocked) = self.open_any(&store.describe(), secret)?;
        let Unlocked { master, slot, in_the_clear } = unlocked;
        Ok(Repository::new(store, config, Keys::derive(&master), slot, in_the_clear))
    }

    /// Finds the slot that opens, and makes sure that whoever wrote the configuration had the key.
    pub(super) fn open_any(
        &self,
        at: &str,
        secret: &mut dyn FnMut(u32) -> Option<Secret>,
    ) -> Result<(Config, Unlocked), OpenError> {
        let at = || at.to_owned();
        let config_error = |error| match error {
            ConfigError::Foreign => OpenError::NoRepository { at: at() },
            ConfigError::NewerFormat(version) => OpenError::NewerFormat { at: at(), version },
            ConfigError::UnknownFeature(feature) => OpenError::UnknownFeature { at: at(), feature },
            ConfigError::Damaged => OpenError::DamagedConfig { at: at() },
        };
        let unverified = Config::decode(&self.config).map_err(config_error)?;
        let unlocked =
            keys::unlock(unverified.repository(), &self.slots, secret).map_err(|locked| match locked {
                Locked::NoSlot => OpenError::NoKeySlot { at: at() },
                Locked::PassphraseNeeded => OpenError::PassphraseNeeded { at: at() },
                Locked::KeyFileNeeded => OpenError::KeyFileNeeded { at: at() },
                Locked::WrongPassphrase => OpenError::WrongPassphrase { at: at() },
                Locked::WrongKeyFile => OpenError::WrongKeyFile { at: at() },
                Locked::Unusable(id, source) => {
                    OpenError::DamagedKeySlot { at: at(), name: layout::key_slot(id).to_string(), source }
                }
            })?;
        let keys = Keys::derive(&unlocked.master);
        let config = unverified.verify(keys.config()).map_err(config_error)?;
        Ok((config, unlocked))
    }
}

/// What it means that there is no configuration: an interrupted `init` has left key slots at most, so where a client has generations, or an index lists bags, there was one.
pub(super) fn missing(store: &dyn Store) -> OpenError {
    let at = store.describe();
    let asked = ["generations", "index"].map(|name| store.list(&layout::directory(name)));
    let mut is_filled = false;
    for files in asked {
        match files.wait() {
            Ok(files) => is_filled |= files.iter().any(|file| file.name.parse::<ClientId>().is_ok()),
            // Where not even that can be listed, there is none.
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return error.into(),
        }
    }
    if is_filled { OpenError::MissingConfig { at } } else { OpenError::NoRepository { at } }
}

/// Opens the repository in `store`: two flights, and the time that trying passphrases takes.
///
/// `secret` is asked only when one is needed, with the number of failed attempts so far, until it gives one that opens, or none.
///
/// # Errors
/// See [`OpenError`].
pub fn open(
    store: SharedStore,
    secret: &mut dyn FnMut(u32) -> Option<Secret>,
) -> Result<Repository, OpenError> {
    Stored::read(&*store)?.unlock(store, secret)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::secret::Passphrase;
    use crate::base::time::SystemClock;
    use crate::chunker::Limits;
    use crate::crypto::Cost;
    use crate::repo::{Encryption, InitOptions, init};
    use crate::store::testing::MemoryStore;

    fn passphrase(text: &str) -> Passphrase {
        Passphrase::new(text.into())
    }

    fn repository() -> (MemoryStore, Repository) {
        let store = MemoryStore::new();
        let encryption = Encryption::Passphrase(passphrase("right"), Cost::TRIFLE);
        let options = InitOptions { encryption, label: String::new(), limits: Limits::default() };
        let made = init(Arc::new(store.clone()), options, &SystemClock::new()).unwrap();
        (store, made)
    }

    fn try_all(store: &MemoryStore, texts: &[&str]) -> Result<Repository, OpenError> {
        let mut texts = texts.iter();
        open(Arc::new(store.clone()), &mut |_| texts.next().map(|text| passphrase(text).into()))
    }

    #[test]
    fn it_asks_until_the_passphrase_is_right() {
        let (store, _) = repository();
        let mut asked = Vec::new();
        let opened = open(Arc::new(store), &mut |failed| {
            asked.push(failed);
            Some(passphrase(if failed == 2 { "right" } else { "wrong" }).into())
        });
        assert!(!opened.unwrap().is_in_the_clear());
        assert_eq!(asked, [0, 1, 2]);
    }

    #[test]
    fn what_is_missing_is_told() {
        let (store, made) = repository();
        assert!(matches!(try_all(&store, &[]), Err(OpenError::PassphraseNeeded { .. })));
        assert!(matches!(try_all(&store, &["wrong"]), Err(OpenError::WrongPassphrase { .. })));
        assert!(matches!(try_all(&MemoryStore::new(), &[]), Err(OpenError::NoRepository { .. })));
        store.delete(&layout::key_slot(made.slot()));
        assert!(matches!(try_all(&store, &["right"]), Err(OpenError::NoKeySlot { .. })));
    }

    #[test]
    fn a_damaged_slot_is_named_unless_another_opens() {
        let (store, made) = repository();
        let name = layout::key_slot(made.slot());
        let copy = store.contents(&name).unwrap();
        store.put(&layout::key_slot(KeySlotId([7; 8])), copy[..50].to_vec());
        try_all(&store, &["right"]).unwrap();
        let wrong = try_all(&store, &["wrong"]);
        assert!(
            matches!(wrong, Err(OpenError::DamagedKeySlot { name, .. }) if name == "keys/0707070707070707")
        );
        store.damage(&name, |bytes| bytes.resize(1 << 20, 0));
        assert!(matches!(try_all(&store, &["right"]), Err(OpenError::DamagedKeySlot { .. })));
    }

    #[test]
    fn a_slot_in_the_clear_does_not_replace_a_passphrase() {
        let (store, made) = repository();
        let attackers = MemoryStore::new();
        let options =
            InitOptions { encryption: Encryption::None, label: String::new(), limits: Limits::default() };
        let theirs = init(Arc::new(attackers.clone()), options, &SystemClock::new()).unwrap();
        let slot = layout::key_slot(theirs.slot());
        store.put(&slot, attackers.contents(&slot).unwrap());
        assert_eq!(try_all(&store, &["right"]).unwrap().id(), made.id());
        // Nor does another configuration with the right slot.
        store.put(&layout::config(), attackers.contents(&layout::config()).unwrap());
        store.delete(&slot);
        assert!(matches!(try_all(&store, &["right"]), Err(OpenError::NoKeySlot { .. })));
    }

    #[test]
    fn a_damaged_configuration_is_told() {
        let (store, _) = repository();
        store.flip(&layout::config(), 20);
        assert!(matches!(try_all(&store, &["right"]), Err(OpenError::DamagedConfig { .. })));
        store.damage(&layout::config(), |bytes| bytes.resize(1 << 20, 0));
        assert!(matches!(try_all(&store, &["right"]), Err(OpenError::DamagedConfig { .. })));
        store.put(&layout::config(), b"[core]".to_vec());
        assert!(matches!(try_all(&store, &["right"]), Err(OpenError::NoRepository { .. })));
    }

    #[test]
    fn what_was_read_opens_without_the_store() {
        let (store, made) = repository();
        let stored = Stored::read(&store).unwrap();
        let elsewhere = Arc::new(MemoryStore::new());
        let opened = stored.unlock(elsewhere, &mut |_| Some(passphrase("right").into())).unwrap();
        assert_eq!(opened.id(), made.id());
    }
}
