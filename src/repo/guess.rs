//! Opening a repository with what was kept of it, before the server has answered.
//!
//! Configuration and key slots never change in place, so copies open the repository as well as the originals, and two flights are saved. But
//! another repository may stand there by now, or none. So both are asked for at once, with the first requests that are sent at all; whoever is about to
//! rely on the repository being there calls [`Repository::confirm`] when other answers have come. On the channel that keeps order
//! the answers are there by then, and nothing is waited for.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::open::{OpenError, Stored};
use super::{Repository, config};
use crate::base::id::KeySlotId;
use crate::base::secret::Passphrase;
use crate::store::{ErrorKind, Listed, Pending, SharedStore, layout};

/// What was taken for granted, and what was asked to make sure.
pub(super) struct Guess {
    stored: Stored,
    asked: Mutex<Option<Asked>>,
}

struct Asked {
    config: Pending<Vec<u8>>,
    slots: Pending<Vec<Listed>>,
}

impl Stored {
    /// Opens the repository with what was kept; what the store has is asked for and not waited for: see [`Repository::confirm`].
    ///
    /// # Errors
    /// As [`Stored::unlock`]; since what was kept may be out of date, such a failure is no reason to give up.
    pub fn unlock_unconfirmed(
        self,
        store: SharedStore,
        passphrase: &mut dyn FnMut(u32) -> Option<Passphrase>,
    ) -> Result<Repository, OpenError> {
        let limit = u64::try_from(config::MAX_LEN).unwrap_or(u64::MAX);
        let asked = Asked {
            config: store.read_all(&layout::config(), limit),
            slots: store.list(&layout::directory("keys")),
        };
        let repository = self.unlock(store, passphrase)?;
        Ok(repository.with_guess(Guess { stored: self, asked: Mutex::new(Some(asked)) }))
    }
}

impl Guess {
    /// Whether it was right. Told once; later calls find nothing to tell.
    pub(super) fn confirm(&self, at: &str) -> Result<(), OpenError> {
        let Some(asked) = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        let at = || at.to_owned();
        let config = asked.config.wait().map_err(|error| match error.kind {
            ErrorKind::NotFound => OpenError::NoRepository { at: at() },
            _ => OpenError::Store(error),
        })?;
        let there: BTreeSet<KeySlotId> =
            asked.slots.wait()?.iter().filter_map(|file| file.name.parse().ok()).collect();
        let kept: BTreeSet<KeySlotId> = self.stored.slots.iter().map(|slot| slot.id).collect();
        if config == self.stored.config && there == kept {
            Ok(())
        } else {
            Err(OpenError::Replaced { at: at() })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::time::SystemClock;
    use crate::chunker::Limits;
    use crate::repo::{Encryption, InitOptions, init};
    use crate::store::testing::{CallLog, MemoryStore};

    fn made() -> (MemoryStore, Stored) {
        let store = MemoryStore::new();
        let options =
            InitOptions { encryption: Encryption::None, label: String::new(), limits: Limits::default() };
        init(Arc::new(store.clone()), options, &SystemClock::new()).unwrap();
        let stored = Stored::read(&store).unwrap();
        (store, stored)
    }

    fn guessed(store: &MemoryStore, stored: &Stored) -> Result<Repository, OpenError> {
        stored.clone().unlock_unconfirmed(Arc::new(store.clone()), &mut |_| None)
    }

    #[test]
    fn what_is_still_there_is_confirmed() {
        let (store, stored) = made();
        let repository = guessed(&store, &stored).unwrap();
        repository.confirm().unwrap();
        repository.confirm().unwrap();
    }

    #[test]
    fn nothing_is_waited_for_before_it_must_be() {
        let (store, stored) = made();
        let log = CallLog::new(Arc::new(store));
        let repository = stored.unlock_unconfirmed(Arc::new(log.clone()), &mut |_| None).unwrap();
        assert_eq!((log.calls().len(), log.serial_round_trips()), (2, 0));
        repository.confirm().unwrap();
        assert_eq!((log.calls().len(), log.serial_round_trips()), (2, 1));
    }

    #[test]
    fn what_was_removed_or_replaced_is_noticed() {
        let (store, stored) = made();
        let (other, _) = made();
        let repository = guessed(&other, &stored).unwrap();
        assert!(matches!(repository.confirm(), Err(OpenError::Replaced { .. })));
        store.delete(&layout::key_slot(stored.slots[0].id));
        let repository = guessed(&store, &stored).unwrap();
        assert!(matches!(repository.confirm(), Err(OpenError::Replaced { .. })));
        store.delete(&layout::config());
        let repository = guessed(&store, &stored).unwrap();
        assert!(matches!(repository.confirm(), Err(OpenError::NoRepository { .. })));
    }
}
