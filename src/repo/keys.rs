//! The key slots of a repository: finding the one that opens.

use crate::base::id::{KeySlotId, RepositoryId};
use crate::crypto::{KeySlot, KeySlotError, MasterKey, Secret};

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
    /// No key file was given, and nothing else opens.
    KeyFileNeeded,
    /// The passphrases given open none.
    WrongPassphrase,
    /// The key file given opens none.
    WrongKeyFile,
    /// No other slot opened, and this one might have.
    Unusable(KeySlotId, KeySlotError),
}

/// What a slot gave.
pub(super) struct Unlocked {
    pub master: MasterKey,
    pub slot: KeySlotId,
    pub in_the_clear: bool,
}

/// Tries the slots. Where any needs a secret, those without are left alone: else a server could add one of its own, and have
/// its own key used where a passphrase was expected.
///
/// `secret` is asked with the number of failed attempts so far, at first 0, until it gives one that opens, or none.
pub(super) fn unlock(
    repository: RepositoryId,
    stored: &[StoredSlot],
    secret: &mut dyn FnMut(u32) -> Option<Secret>,
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
    let (locked, clear): (Vec<_>, Vec<_>) = slots.into_iter().partition(KeySlot::is_locked);
    if locked.is_empty() {
        return open_any(&clear, None).map_err(|failure| unusable.or(failure).unwrap_or(Locked::NoSlot));
    }
    let has_passphrase = locked.iter().any(KeySlot::needs_passphrase);
    let needed = if has_passphrase { Locked::PassphraseNeeded } else { Locked::KeyFileNeeded };
    let mut refused = None;
    for failed in 0.. {
        let Some(secret) = secret(failed) else { break };
        refused = Some(match secret {
            Secret::Passphrase(_) if has_passphrase => Locked::WrongPassphrase,
            Secret::Passphrase(_) => Locked::KeyFileNeeded,
            Secret::Key(_) => Locked::WrongKeyFile,
        });
        match open_any(&locked, Some(&secret)) {
            Ok(unlocked) => return Ok(unlocked),
            Err(failure) => unusable = unusable.or(failure),
        }
    }
    // A slot that cannot be used might have been the one.
    Err(refused.map_or(needed, |refused| unusable.unwrap_or(refused)))
}

/// The first slot that opens; else a failure that is not just a wrong secret, if there was one.
fn open_any(slots: &[KeySlot], secret: Option<&Secret>) -> Result<Unlocked, Option<Locked>> {
    let mut failure = None;
    for slot in slots.iter().filter(|slot| secret.is_none_or(|secret| slot.takes(secret))) {
        match slot.open(secret) {
            Ok(master) => {
                return Ok(Unlocked { master, slot: slot.id(), in_the_clear: !slot.is_locked() });
            }
            Err(KeySlotError::WrongPassphrase | KeySlotError::WrongKey) => {}
            Err(error) => failure = Some(Locked::Unusable(slot.id(), error)),
        }
    }
    Err(failure)
}
