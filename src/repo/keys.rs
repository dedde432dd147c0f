//! The key slots of a repository: finding the one that opens.

use crate::base::id::{KeySlotId, RepositoryId};
use crate::base::secret::Passphrase;
use crate::crypto::{KeySlot, KeySlotError, MasterKey};

/// A key slot's file, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSlot {
    /// The slot's id: its file's name.
    pub id: KeySlotId,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Why no slot opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Locked {
    /// There are no slots at all.
    NoSlot,
    /// No passphrase was given, and nothing opens without.
    PassphraseNeeded,
    /// The passphrases given open none.
    WrongPassphrase,
    /// No other slot opened, and this one might have.
    Unusable(KeySlotId, KeySlotError),
}

/// What a slot gave.
pub(super) struct Unlocked {
    pub master: MasterKey,
    pub slot: KeySlotId,
    pub in_the_clear: bool,
}

/// Tries the slots. Where any needs a passphrase, those without are left alone: else a server could add one of its own, and have
/// its own key used where a passphrase was expected.
///
/// `passphrase` is asked with the number of failed attempts so far, at first 0, until it gives one that opens, or none.
pub(super) fn unlock(
    repository: RepositoryId,
    stored: &[StoredSlot],
    passphrase: &mut dyn FnMut(u32) -> Option<Passphrase>,
) -> Result<Unlocked, Locked> {
    let mut slots = Vec::new();
    let mut unusable = None;
    for StoredSlot { id, bytes } in stored {
        match KeySlot::decode(*id, bytes) {
            Ok(slot) if slot.repository() == repository => slots.push(slot),
            Ok(_) => {}
            Err(error) => unusable = Some(Locked::Unusable(*id, error)),
        }
    }
    slots.sort_by_key(|slot| (slot.created(), slot.id()));
    let (locked, clear): (Vec<_>, Vec<_>) = slots.into_iter().partition(KeySlot::needs_passphrase);
    if locked.is_empty() {
        return open_any(&clear, None).map_err(|failure| unusable.or(failure).unwrap_or(Locked::NoSlot));
    }
    for failed in 0.. {
        let Some(passphrase) = passphrase(failed) else {
            let refused = if failed == 0 { Locked::PassphraseNeeded } else { Locked::WrongPassphrase };
            return Err(match unusable {
                Some(unusable) if failed > 0 => unusable,
                _ => refused,
            });
        };
        match open_any(&locked, Some(&passphrase)) {
            Ok(unlocked) => return Ok(unlocked),
            Err(failure) => unusable = unusable.or(failure),
        }
    }
    Err(Locked::WrongPassphrase)
}

/// The first slot that opens; else a failure that is not just a wrong passphrase, if there was one.
fn open_any(slots: &[KeySlot], passphrase: Option<&Passphrase>) -> Result<Unlocked, Option<Locked>> {
    let mut failure = None;
    for slot in slots {
        match slot.open(passphrase) {
            Ok(master) => {
                return Ok(Unlocked { master, slot: slot.id(), in_the_clear: !slot.needs_passphrase() });
            }
            Err(KeySlotError::WrongPassphrase) => {}
            Err(error) => failure = Some(Locked::Unusable(slot.id(), error)),
        }
    }
    Err(failure)
}
