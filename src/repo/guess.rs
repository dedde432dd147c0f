//! Opening a repository with what was kept of it, before the server has answered.
//!
//! Configuration and key slots never change in place, so copies open the repository as well as the originals, and two flights are saved. But
//! another repository may stand there by now, or none. Whoever is about to rely on the repository being there calls [`Repository::confirm`].
//! Whoever has asked before ([`Repository::ask`]), with the first requests that are sent at all, finds the answers
//! there when other answers have come, and waits for nothing. Whoever finds something there that only this repository can have need not ask.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::open::{OpenError, Stored};
use super::{Repository, config};
use crate::base::id::KeySlotId;
use crate::crypto::{Secret, keyslot};
use crate::store::{ErrorKind, Listed, Pending, SharedStore, Store, layout};

/// What was taken for granted, and what was asked to make sure.
pub(super) struct Guess {
    stored: Stored,
    state: Mutex<State>,
}

enum State {
    Unasked,
    Asked(Asked),
    Confirmed,
}

struct Asked {
    config: Pending<Vec<u8>>,
    slots: Pending<Vec<Listed>>,
}

impl Stored {
    /// Opens the repository with what was kept; the store is not asked what it has: see [`Repository::confirm`].
    ///
    /// # Errors
    /// As [`Stored::unlock`]; since what was kept may be out of date, such a failure is no reason to give up.
    pub fn unlock_unconfirmed(
        self,
        store: SharedStore,
        secret: &mut dyn FnMut(u32) -> Option<Secret>,
    ) -> Result<Repository, OpenError> {
        let repository = self.unlock(store, secret)?;
        Ok(repository.with_guess(Guess { stored: self, state: Mutex::new(State::Unasked) }))
    }
}

impl Asked {
    fn ask(store: &dyn Store) -> Self {
        let limit = u64::try_from(config::MAX_LEN).unwrap_or(u64::MAX);
        Self {
            config: store.read_all(&layout::config(), limit),
            slots: store.list(&layout::directory("keys")),
        }
    }
}

impl Guess {
    /// Asks, unless that was done.
    pub(super) fn ask(&self, store: &dyn Store) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Unasked) {
            *state = State::Asked(Asked::ask(store));
        }
    }

    /// Whether nothing in the listing of `condemned` says that the key slots are others than those that were kept.
    pub(super) fn fits(&self, condemned: &[Listed]) -> bool {
        let ours = keyslot::mark(&self.stored.slots.iter().map(|slot| slot.id).collect()).to_string();
        let mut marks = condemned.iter().filter_map(|file| file.name.strip_suffix(layout::KEY_MARK));
        marks.all(|mark| mark == ours)
    }

    /// Whether it was right. Told once; later calls find nothing to tell.
    pub(super) fn confirm(&self, store: &dyn Store) -> Result<(), OpenError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = match std::mem::replace(&mut *state, State::Confirmed) {
            State::Unasked => Asked::ask(store),
            State::Asked(asked) => asked,
            State::Confirmed => return Ok(()),
        };
        let at = || store.describe();
        let config = asked.config.wait().map_err(|error| match error.kind {
            ErrorKind::NotFound => super::open::missing(store),
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
        assert_eq!(log.calls().len(), 0);
        repository.ask();
        repository.ask();
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
