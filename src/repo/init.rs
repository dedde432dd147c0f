//! Making a repository where there is none.
//!
//! Three flights: look at what is there; make the directories and write the first key slot and the configuration under temporary names;
//! rename them, the configuration last, since it makes the repository exist. Whoever is interrupted can begin again: what an unfinished
//! attempt has left is recognised and taken over.

use super::config::Config;
use super::{Repository, Stored, StoredSlot};
use crate::base::id::{KeySlotId, RepositoryId};
use crate::base::secret::{Key32, Passphrase};
use crate::base::text;
use crate::base::time::Clock;
use crate::chunker::{BadLimits, Limits};
use crate::crypto::{Cost, KeySlot, KeySlotError, Keys, MasterKey, Protection, Secret};
use crate::store::{Class, ErrorKind, Listed, Name, Pending, SharedStore, Store, StoreError, layout};

/// Who can read the repository.
#[derive(Debug)]
pub enum Encryption {
    /// Whoever has the passphrase.
    Passphrase(Passphrase, Cost),
    /// Whoever has the key file with this secret.
    KeyFile(Key32),
    /// Whoever can read its files: sealed and checked like all others, with a key that lies beside it.
    None,
}

/// What a new repository shall be.
#[derive(Debug)]
pub struct InitOptions {
    /// Who can read it.
    pub encryption: Encryption,
    /// What to call the first key slot, for people.
    pub label: String,
    /// Sizes of chunks.
    pub limits: Limits,
}

/// Why there is no new repository.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// There is one already.
    #[error("there is a repository at {at} already")]
    Exists {
        /// Where it is.
        at: String,
    },
    /// There is something else.
    #[error("{at} is not empty: it holds {found}; choose a new directory")]
    NotEmpty {
        /// Where the repository was to be.
        at: String,
        /// One of the things found.
        found: String,
    },
    /// The chunk sizes cannot be used.
    #[error(transparent)]
    Limits(#[from] BadLimits),
    /// No key slot could be made.
    #[error(transparent)]
    KeySlot(#[from] KeySlotError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes a repository in `store` and opens it. The directory itself is made when it is missing; it may hold hidden files and the remains of
/// an unfinished attempt, nothing else.
///
/// # Errors
/// See [`InitError`]. After a failure of the store, trying again is safe.
pub fn init(store: SharedStore, options: InitOptions, clock: &dyn Clock) -> Result<Repository, InitError> {
    make(store, options, clock).map(|(repository, _)| repository)
}

/// As [`init`], with the files that opening it takes, to be kept.
///
/// # Errors
/// As [`init`].
pub fn make(
    store: SharedStore,
    options: InitOptions,
    clock: &dyn Clock,
) -> Result<(Repository, Stored), InitError> {
    let InitOptions { encryption, label, limits } = options;
    let limits = limits.checked()?;
    let look = Look::start(&*store);

    // Making the first key takes a tenth of a second: it passes while the server answers.
    let created = clock.now();
    let master = MasterKey::random();
    let keys = Keys::derive(&master);
    let repository = RepositoryId::random();
    let (protection, secret) = match encryption {
        Encryption::Passphrase(passphrase, cost) => (Protection::argon2id(cost), Some(passphrase.into())),
        Encryption::KeyFile(key) => (Protection::KeyFile, Some(Secret::Key(key))),
        Encryption::None => (Protection::None, None),
    };
    let slot = KeySlot::wrap(&master, repository, protection, secret.as_ref(), &label, created)?;
    let config = Config { repository, limits, required: Vec::new(), optional: Vec::new(), created };

    let remains = look.finish(&*store)?;
    if remains.config {
        store.remove(&layout::config()).wait()?;
    }
    let stored = Stored {
        config: config.encode(keys.config()),
        slots: vec![StoredSlot { id: slot.id(), bytes: slot.encode() }],
    };
    write(&*store, slot.id(), stored.clone())?;
    let removed: Vec<_> = remains.files.iter().map(|name| store.remove(name)).collect();
    for removed in removed {
        // They may stay.
        let _ = removed.wait();
    }
    let in_the_clear = !slot.is_locked();
    Ok((Repository::new(store, config, keys, slot.id(), in_the_clear), stored))
}

/// What is there already.
struct Look {
    made: Pending<()>,
    top: Pending<Vec<Listed>>,
    below: Vec<(&'static str, Pending<Vec<Listed>>)>,
}

impl Look {
    fn start(store: &dyn Store) -> Self {
        let made = store.make_dir(&Name::top());
        let top = store.list(&Name::top());
        let below = layout::DIRECTORIES.map(|dir| (dir, store.list(&layout::directory(dir))));
        Self { made, top, below: below.into() }
    }

    /// What an unfinished attempt has left, if there is nothing else.
    fn finish(self, store: &dyn Store) -> Result<Remains, InitError> {
        let at = store.describe();
        self.made.wait()?;
        let mut remains = Remains::default();
        let mut stranger = None;
        for entry in self.top.wait()? {
            let name = entry.name.as_str();
            let temporary = name.strip_prefix("config.").and_then(|rest| rest.strip_suffix(".part"));
            if name == "config" {
                remains.config = true;
            } else if temporary.is_some_and(|id| id.parse::<KeySlotId>().is_ok()) {
                remains.files.extend(Name::new(name));
            } else if !name.starts_with('.')
                && name != "lost+found"
                && !(entry.is_dir && layout::DIRECTORIES.contains(&name))
            {
                stranger = Some(text::escape(name.as_bytes()));
            }
        }
        let mut has_slot = false;
        for (dir, listed) in self.below {
            for entry in listed.wait()? {
                let id = entry.name.strip_suffix(".part").unwrap_or(&entry.name);
                if dir == "keys" && id.parse::<KeySlotId>().is_ok() {
                    has_slot |= id.len() == entry.name.len();
                    remains.files.push(Name::join(&[dir, &entry.name]));
                } else {
                    stranger = Some(format!("{dir}/{}", text::escape(entry.name.as_bytes())));
                }
            }
        }
        match stranger {
            // Without a key slot a configuration opens nothing, and there is nothing to be opened.
            None if !(remains.config && has_slot) => Ok(remains),
            Some(found) if !remains.config => Err(InitError::NotEmpty { at, found }),
            _ => Err(InitError::Exists { at }),
        }
    }
}

/// What an unfinished attempt has left.
#[derive(Debug, Default)]
struct Remains {
    /// A configuration whose key slot never came.
    config: bool,
    /// Temporary files, and key slots whose configuration never came: in nobody's way.
    files: Vec<Name>,
}

/// Makes the directories and writes the two files.
///
/// Their renames are sent one after the other and not waited for in between: the control channel keeps their order, so that the
/// configuration never appears without a key slot, unless the slot's rename fails. Then the configuration is taken back.
fn write(store: &dyn Store, slot: KeySlotId, stored: Stored) -> Result<(), InitError> {
    let made: Vec<_> =
        layout::DIRECTORIES.iter().map(|dir| store.make_dir(&layout::directory(dir))).collect();
    let slot_name = layout::key_slot(slot);
    let mut slot_file = store.create(&slot_name.with_suffix(".part"), Class::Control);
    let suffix = format!(".{slot}.part");
    let mut config_file = store.create(&layout::config().with_suffix(&suffix), Class::Control);
    for made in made {
        made.wait()?;
    }
    for StoredSlot { bytes, .. } in stored.slots {
        slot_file.append(bytes)?;
    }
    config_file.append(stored.config)?;
    // Both are there: what can fail now is the disk.
    let slot_stored = slot_file.commit(&slot_name);
    let config_stored = config_file.commit(&layout::config());
    let slot_stored = slot_stored.wait();
    let config_stored = config_stored.wait();
    match (slot_stored, config_stored) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(error), config_stored) => {
            if config_stored.is_ok() {
                let _ = store.remove(&layout::config()).wait();
            }
            Err(error.into())
        }
        (Ok(()), Err(error)) => {
            let _ = store.remove(&slot_name).wait();
            if error.kind == ErrorKind::Exists {
                // Somebody else was faster.
                return Err(InitError::Exists { at: store.describe() });
            }
            Err(error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::time::SystemClock;
    use crate::repo::{OpenError, open};
    use crate::store::testing::{CallLog, Fault, FaultyStore, MemoryStore, Op};

    fn shared(store: &MemoryStore) -> SharedStore {
        Arc::new(store.clone())
    }

    fn clear() -> InitOptions {
        InitOptions { encryption: Encryption::None, label: "first".into(), limits: Limits::default() }
    }

    fn locked(text: &str) -> InitOptions {
        let passphrase = Passphrase::new(text.into());
        InitOptions { encryption: Encryption::Passphrase(passphrase, Cost::TRIFLE), ..clear() }
    }

    fn make(store: SharedStore, options: InitOptions) -> Result<Repository, InitError> {
        init(store, options, &SystemClock::new())
    }

    fn opened(store: &MemoryStore, text: &str) -> Result<Repository, OpenError> {
        open(shared(store), &mut |failed| (failed == 0).then(|| Passphrase::new(text.into()).into()))
    }

    #[test]
    fn what_was_made_opens() {
        for (options, text) in [(clear(), ""), (locked("x"), "x")] {
            let store = MemoryStore::new();
            let made = make(shared(&store), options).unwrap();
            let read = opened(&store, text).unwrap();
            assert_eq!((read.id(), read.config(), read.slot()), (made.id(), made.config(), made.slot()));
            assert_eq!(read.is_in_the_clear(), text.is_empty());
            let object = |repository: &Repository| repository.keys().hash().object_id(b"contents");
            assert_eq!(object(&read), object(&made));
            let listed = store.list(&Name::top()).wait().unwrap();
            assert_eq!(listed.len(), 1 + layout::DIRECTORIES.len());
        }
    }

    #[test]
    fn what_is_kept_of_the_new_one_is_what_lies_there() {
        let store = MemoryStore::new();
        let (made, stored) = super::make(shared(&store), locked("x"), &SystemClock::new()).unwrap();
        assert_eq!(stored, Stored::read(&store).unwrap());
        assert_eq!(stored.unlock(shared(&store), &mut |_| None).map(|_| ()).unwrap_err().to_string(), {
            OpenError::PassphraseNeeded { at: store.describe() }.to_string()
        });
        let again = stored.unlock(shared(&store), &mut |_| Some(Passphrase::new("x".into()).into())).unwrap();
        assert_eq!(again.id(), made.id());
    }

    #[test]
    fn an_existing_repository_is_refused_and_unharmed() {
        let store = MemoryStore::new();
        make(shared(&store), locked("x")).unwrap();
        let before = store.names();
        assert!(matches!(make(shared(&store), locked("y")), Err(InitError::Exists { .. })));
        assert_eq!(store.names(), before);
        opened(&store, "x").unwrap();
    }

    #[test]
    fn a_directory_with_something_else_is_refused_and_unharmed() {
        for found in ["thesis.txt", "photos/cat", "bags/00/x", "keys/thesis", "index/0011", "config.bak"] {
            let store = MemoryStore::new();
            store.put(&Name::join(&[found]), vec![]);
            let refused = make(shared(&store), clear());
            assert!(matches!(refused, Err(InitError::NotEmpty { .. })), "{found}: {refused:?}");
            assert_eq!(store.names().len(), 1);
        }
    }

    #[test]
    fn a_lost_key_slot_is_no_reason_to_begin_again() {
        let store = MemoryStore::new();
        let made = make(shared(&store), clear()).unwrap();
        store.put(&Name::join(&["bags/00/x"]), vec![]);
        store.delete(&layout::key_slot(made.slot()));
        assert!(matches!(make(shared(&store), clear()), Err(InitError::Exists { .. })));
        assert!(matches!(opened(&store, ""), Err(OpenError::NoKeySlot { .. })));
    }

    #[test]
    fn killed_anywhere_it_can_be_run_again() {
        let whole = FaultyStore::new(shared(&MemoryStore::new()), Vec::new());
        make(Arc::new(whole.clone()), clear()).unwrap();
        let calls = whole.mutating_calls();
        assert!(calls > 10);
        for k in 0..calls {
            let store = MemoryStore::new();
            let stopped = FaultyStore::stop_after(shared(&store), k);
            assert!(make(Arc::new(stopped), locked("lost")).is_err());
            make(shared(&store), clear()).unwrap_or_else(|error| panic!("after {k}: {error}"));
            opened(&store, "").unwrap_or_else(|error| panic!("after {k}: {error}"));
            assert_eq!(store.names().len(), 2, "after {k}: {:?}", store.names());
        }
    }

    #[test]
    fn a_failure_leaves_no_repository_without_a_key() {
        for nth in 1..=2 {
            let store = MemoryStore::new();
            let faulty =
                FaultyStore::new(shared(&store), vec![Fault::fail(Op::Commit, ErrorKind::NoSpace).nth(nth)]);
            let failed = make(Arc::new(faulty), clear());
            assert!(matches!(failed, Err(InitError::Store(StoreError { kind: ErrorKind::NoSpace, .. }))));
            assert!(matches!(opened(&store, ""), Err(OpenError::NoRepository { .. })));
            make(shared(&store), clear()).unwrap();
        }
    }

    #[test]
    fn slots_of_another_repository_are_ignored() {
        let (one, two) = (MemoryStore::new(), MemoryStore::new());
        let name = layout::key_slot(make(shared(&one), locked("x")).unwrap().slot());
        make(shared(&two), clear()).unwrap();
        two.put(&name, one.contents(&name).unwrap());
        assert!(opened(&two, "x").unwrap().is_in_the_clear());
    }

    #[test]
    fn few_waits() {
        let log = CallLog::new(shared(&MemoryStore::new()));
        make(Arc::new(log.clone()), clear()).unwrap();
        // Look; make and create; write and rename.
        assert!(log.serial_round_trips() <= 4, "{} in {:#?}", log.serial_round_trips(), log.lines());
        log.clear();
        open(Arc::new(log.clone()), &mut |_| None).unwrap();
        assert_eq!(log.serial_round_trips(), 2);
        assert_eq!(log.calls().len(), 3);
    }
}
