//! The key slots of a repository: listed, added, removed. None of it touches data: every slot holds the same master key.
//!
//! A slot is a file that is written once like all others. Changing a passphrase is adding a slot and removing the one that was opened, in this order, so that whoever is killed in
//! between has both. A mark in a directory that every backup lists says which slots there are, so that a machine which opens the repository with what
//! it has kept of it hears of a slot that was taken away, at no cost. The last slot that can be used is not removed unless that is asked for in words: without any, nothing in the repository can ever be read again.

use std::collections::BTreeSet;

use super::keys::{self, StoredSlot};
use super::open::{OpenError, Stored};
use crate::base::id::{KeySlotId, RepositoryId};
use crate::base::time::Clock;
use crate::crypto::{KeySlot, KeySlotError, MasterKey, Protection, Secret, keyslot};
use crate::store::{Class, ErrorKind, Listed, Name, Pending, Store, StoreError, layout};

/// Seconds after which the mark of a change that was not completed stands for nobody who is still at it.
const CUT_OFF: i64 = 600;

/// Why a slot was not added or removed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no such slot.
    #[error("there is no key slot {0}")]
    None(String),
    /// There are several.
    #[error("{0} is the beginning of several key slots ({1})")]
    Ambiguous(String, String),
    /// No other could be used.
    #[error(
        "no other key slot than {0} can be used, and without any nothing in the repository can ever be read again"
    )]
    Last(KeySlotId),
    /// Others were at it.
    #[error("somebody else is changing the key slots, or was cut off while doing so: nothing was removed")]
    Contested,
    /// No slot could be made.
    #[error(transparent)]
    Slot(#[from] KeySlotError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A slot as it lies in the repository.
#[derive(Debug)]
pub struct ListedSlot {
    /// Its id.
    pub id: KeySlotId,
    /// What it is, if it can be read.
    pub slot: Result<KeySlot, KeySlotError>,
}

impl Stored {
    /// The slots, oldest first, damaged ones last. Opens none of them.
    #[must_use]
    pub fn slots(&self) -> Vec<ListedSlot> {
        let list = |stored: &StoredSlot| ListedSlot {
            id: stored.id,
            slot: KeySlot::decode(stored.id, &stored.bytes),
        };
        let mut slots: Vec<_> = self.slots.iter().map(list).collect();
        slots.sort_by_key(|one| (one.slot.is_err(), one.slot.as_ref().ok().map(KeySlot::created), one.id));
        slots
    }

    /// Whether a passphrase can open some slot.
    #[must_use]
    pub fn has_passphrase(&self) -> bool {
        self.slots().iter().any(|one| one.slot.as_ref().is_ok_and(KeySlot::needs_passphrase))
    }

    /// Opens the slots for changing them; see [`Stored::unlock`].
    ///
    /// # Errors
    /// As there.
    pub fn keyring(
        &self,
        at: &str,
        secret: &mut dyn FnMut(u32) -> Option<Secret>,
    ) -> Result<Keyring, OpenError> {
        let (config, keys::Unlocked { master, slot, .. }) = self.open_any(at, secret)?;
        Ok(Keyring { repository: config.repository, slots: self.slots(), master, opened: slot })
    }
}

/// Open key slots.
pub struct Keyring {
    repository: RepositoryId,
    slots: Vec<ListedSlot>,
    master: MasterKey,
    opened: KeySlotId,
}

impl Keyring {
    /// The repository that they belong to.
    #[must_use]
    pub fn repository(&self) -> RepositoryId {
        self.repository
    }

    /// The slot that was opened.
    #[must_use]
    pub fn opened(&self) -> KeySlotId {
        self.opened
    }

    /// The label of the slot that was opened.
    #[must_use]
    pub fn label(&self) -> &str {
        let opened = self.slots.iter().find(|one| one.id == self.opened);
        opened.and_then(|one| one.slot.as_ref().ok()).map_or("", KeySlot::label)
    }

    /// Whether some slot needs nothing to be opened.
    #[must_use]
    pub fn has_clear(&self) -> bool {
        self.usable().any(|slot| !slot.is_locked())
    }

    fn usable(&self) -> impl Iterator<Item = &KeySlot> {
        self.slots
            .iter()
            .filter_map(|one| one.slot.as_ref().ok())
            .filter(|slot| slot.repository() == self.repository)
    }

    /// The slot that an id, or the beginning of one, means.
    ///
    /// # Errors
    /// `None`, `Ambiguous`.
    pub fn find(&self, beginning: &str) -> Result<KeySlotId, KeyError> {
        let ids = self.slots.iter().map(|one| one.id);
        // Nothing is what a variable that was not set leaves: no id begins with that.
        let is_one = |id: &KeySlotId| !beginning.is_empty() && id.to_string().starts_with(beginning);
        let fitting: Vec<_> = ids.filter(is_one).collect();
        match fitting[..] {
            [one] => Ok(one),
            [] => Err(KeyError::None(crate::base::text::escape(beginning.as_bytes()))),
            _ => {
                let ids: Vec<_> = fitting.iter().map(ToString::to_string).collect();
                Err(KeyError::Ambiguous(beginning.to_owned(), ids.join(", ")))
            }
        }
    }

    /// Adds a slot that this secret opens; the protection is one for secrets of its kind. Four round trips.
    ///
    /// # Errors
    /// When it cannot be made or stored.
    pub fn add(
        &self,
        store: &dyn Store,
        protection: Protection,
        secret: &Secret,
        label: &str,
        clock: &dyn Clock,
    ) -> Result<KeySlotId, KeyError> {
        let slot =
            KeySlot::wrap(&self.master, self.repository, protection, Some(secret), label, clock.now())?;
        let name = layout::key_slot(slot.id());
        let mut file = store.create(&name.with_suffix(".part"), Class::Control);
        file.append(slot.encode())?;
        file.commit(&name).wait()?;
        // Without the mark, those who know of the new slot ask for the others each time.
        let _ = self.mark(store, slot.id());
        Ok(slot.id())
    }

    /// Marks which slots there are after one was added, in place of the marks that were there before.
    ///
    /// Others may be adding, too, or have done so since these were read. Each looks for slots and marks after it has made both, so that whoever looks last sees all of them,
    /// and leaves the one mark that is right.
    fn mark(&self, store: &dyn Store, added: KeySlotId) -> Result<(), StoreError> {
        let expected = self.changed(|slots| slots.extend([added]));
        let (mut own, _) = announce(store, &expected)?;
        let listed = ["condemned", "keys"].map(|name| store.list(&layout::directory(name)));
        let [marks, slots] = listed.map(Pending::wait);
        let (marks, slots) = (marks?, slots?);
        let slots: BTreeSet<_> = slots.iter().filter_map(|file| file.name.parse().ok()).collect();
        if slots != expected {
            (own, _) = announce(store, &slots)?;
        }
        supersede(store, &marks, &own);
        Ok(())
    }

    /// The ids of the slots after a change.
    fn changed(&self, change: impl FnOnce(&mut BTreeSet<KeySlotId>)) -> BTreeSet<KeySlotId> {
        let mut slots = self.slots.iter().map(|one| one.id).collect();
        change(&mut slots);
        slots
    }

    /// Removes a slot; the last one that can be used only if `even_last`. `added` is one that came since these were read.
    ///
    /// Two who each remove the other's slot would leave none. There are no locks: each says by a mark what there will be, and only then looks for the
    /// marks of others, so at least one of the two finds the other's and leaves everything as it was.
    ///
    /// # Errors
    /// `Last`; `Contested`; what the store says.
    pub fn remove(
        &self,
        store: &dyn Store,
        id: KeySlotId,
        added: Option<KeySlotId>,
        even_last: bool,
    ) -> Result<(), KeyError> {
        let is_usable = self.usable().any(|slot| slot.id() == id);
        let others: BTreeSet<_> =
            self.usable().map(KeySlot::id).filter(|slot| *slot != id).chain(added).collect();
        if is_usable && others.is_empty() && !even_last {
            return Err(KeyError::Last(id));
        }
        // First, so that nobody who is interrupted leaves a slot that is missed by nobody.
        let before = self.changed(|_| ());
        // The slot that is removed may itself have come since: a key that could not be printed is taken back.
        let with_added = self.changed(|slots| slots.extend(added.or(Some(id))));
        let after = self.changed(|slots| {
            slots.remove(&id);
            slots.extend(added);
        });
        let (own, is_new) = announce(store, &after)?;
        let listed = ["condemned", "keys"].map(|name| store.list(&layout::directory(name)));
        let [marks, slots] = listed.map(Pending::wait);
        let (marks, slots) = (marks?, slots?);
        let expected = [before, with_added, after].map(|slots| file_name(&slots));
        let is_there = |file: &Listed| file.name.parse().is_ok_and(|slot| others.contains(&slot));
        let is_last = is_usable && !even_last && !slots.iter().any(is_there);
        if is_last || is_contested(&marks, &expected, &own) {
            if is_new {
                // One that stays makes everybody ask.
                let _ = store.remove(&own).wait();
            }
            return Err(KeyError::Contested);
        }
        supersede(store, &marks, &own);
        match store.remove(&layout::key_slot(id)).wait() {
            Err(error) if error.kind != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn file_name(slots: &BTreeSet<KeySlotId>) -> String {
    format!("{}{}", keyslot::mark(slots), layout::KEY_MARK)
}

/// Makes the mark of these slots: its name, and whether it was not there yet.
fn announce(store: &dyn Store, slots: &BTreeSet<KeySlotId>) -> Result<(Name, bool), StoreError> {
    let mark = layout::key_mark(keyslot::mark(slots));
    let mut file = store.create(&mark.with_suffix(".part"), Class::Control);
    file.append(b"\n".to_vec())?;
    match file.commit(&mark).wait() {
        Ok(_) => Ok((mark, true)),
        Err(error) if error.kind == ErrorKind::Exists => Ok((mark, false)),
        Err(error) => Err(error),
    }
}

/// Removes the marks in a listing that are not this one.
fn supersede(store: &dyn Store, listed: &[Listed], own: &Name) {
    let directory = layout::directory("condemned");
    let marks = listed.iter().filter(|file| file.name.ends_with(layout::KEY_MARK));
    let others = marks.map(|file| Name::join(&[directory.as_str(), &file.name])).filter(|name| name != own);
    let removed: Vec<_> = others.map(|name| store.remove(&name)).collect();
    for removed in removed {
        // One that stays makes everybody ask.
        let _ = removed.wait();
    }
}

/// Whether a mark says that somebody else is changing the slots: one that nothing read here explains, and that was not left behind long ago.
fn is_contested(marks: &[Listed], expected: &[String], own: &Name) -> bool {
    let own = marks.iter().find(|file| own.as_str().ends_with(&file.name));
    let now = own.map_or(i64::MAX, |file| file.modified);
    marks
        .iter()
        .filter(|file| file.name.ends_with(layout::KEY_MARK) && !expected.contains(&file.name))
        .any(|file| own.is_none() || file.modified > now.saturating_sub(CUT_OFF))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::secret::{Key32, Passphrase};
    use crate::base::time::SystemClock;
    use crate::chunker::Limits;
    use crate::crypto::Cost;
    use crate::repo::{Encryption, InitOptions, init, open};
    use crate::store::testing::{FaultyStore, MemoryStore};

    fn passphrase(text: &str) -> Passphrase {
        Passphrase::new(text.into())
    }

    fn repository() -> MemoryStore {
        let store = MemoryStore::new();
        let encryption = Encryption::Passphrase(passphrase("first"), Cost::TRIFLE);
        let options = InitOptions { encryption, label: "first".into(), limits: Limits::default() };
        init(Arc::new(store.clone()), options, &SystemClock::new()).unwrap();
        store
    }

    fn keyring(store: &MemoryStore, text: &str) -> Result<Keyring, OpenError> {
        let stored = Stored::read(store).unwrap();
        stored.keyring("here", &mut |failed| (failed == 0).then(|| passphrase(text).into()))
    }

    fn opens(store: &MemoryStore, text: &str) -> bool {
        open(Arc::new(store.clone()), &mut |failed| (failed == 0).then(|| passphrase(text).into())).is_ok()
    }

    fn add(store: &dyn Store, keyring: &Keyring, text: &str) -> Result<KeySlotId, KeyError> {
        keyring.add(
            store,
            Protection::argon2id(Cost::TRIFLE),
            &passphrase(text).into(),
            text,
            &SystemClock::new(),
        )
    }

    #[test]
    fn every_passphrase_opens_until_its_slot_is_removed() {
        let store = repository();
        let first = keyring(&store, "first").unwrap();
        let second = add(&store, &first, "second").unwrap();
        assert!(opens(&store, "first") && opens(&store, "second") && !opens(&store, "third"));
        let ring = keyring(&store, "second").unwrap();
        assert_eq!((ring.opened(), ring.label()), (second, "second"));
        assert!(matches!(ring.find(""), Err(KeyError::None(_))));
        assert_eq!(ring.find(&second.to_string()[..12]).unwrap(), second);
        ring.remove(&store, first.opened(), None, false).unwrap();
        assert!(!opens(&store, "first") && opens(&store, "second"));
    }

    #[test]
    fn the_last_one_that_can_be_used_stays_unless_told() {
        let store = repository();
        let ring = keyring(&store, "first").unwrap();
        let other = add(&store, &ring, "second").unwrap();
        // A damaged one does not count.
        store.flip(&layout::key_slot(other), 30);
        let ring = keyring(&store, "first").unwrap();
        assert!(matches!(ring.remove(&store, ring.opened(), None, false), Err(KeyError::Last(_))));
        ring.remove(&store, other, None, false).unwrap();
        let ring = keyring(&store, "first").unwrap();
        ring.remove(&store, ring.opened(), None, true).unwrap();
        assert!(matches!(keyring(&store, "first"), Err(OpenError::NoKeySlot { .. })));
    }

    #[test]
    fn a_key_file_is_one_of_the_keys() {
        let store = repository();
        let ring = keyring(&store, "first").unwrap();
        let key = |byte| Secret::Key(Key32::new([byte; 32]));
        ring.add(&store, Protection::KeyFile, &key(1), "safe", &SystemClock::new()).unwrap();
        let open_by = |secret: Secret| {
            open(Arc::new(store.clone()), &mut |failed| (failed == 0).then(|| secret.clone()))
        };
        assert!(!open_by(key(1)).unwrap().is_in_the_clear() && opens(&store, "first"));
        assert!(matches!(open_by(key(2)), Err(OpenError::WrongKeyFile { .. })));
        // With it alone, nobody is told that a passphrase was wrong.
        let ring = keyring(&store, "first").unwrap();
        ring.remove(&store, ring.opened(), None, false).unwrap();
        open_by(key(1)).unwrap();
        assert!(matches!(open_by(passphrase("first").into()), Err(OpenError::KeyFileNeeded { .. })));
        assert!(matches!(open(Arc::new(store.clone()), &mut |_| None), Err(OpenError::KeyFileNeeded { .. })));
        let stored = Stored::read(&store).unwrap();
        let ring = stored.keyring("here", &mut |_| Some(key(1))).unwrap();
        assert!(!stored.has_passphrase() && ring.label() == "safe");
        assert!(matches!(ring.remove(&store, ring.opened(), None, false), Err(KeyError::Last(_))));
    }

    #[test]
    fn two_who_remove_each_others_slot_leave_one() {
        let made = repository();
        let first = keyring(&made, "first").unwrap();
        let second = add(&made, &first, "second").unwrap();
        let mut contested = 0;
        for k in 0..8 {
            let store = made.snapshot();
            let [one, other] = ["first", "second"].map(|text| keyring(&store, text).unwrap());
            let slow = FaultyStore::stop_after(Arc::new(store.clone()), k);
            let is_done = one.remove(&slow, second, None, false).is_ok();
            match other.remove(&store, first.opened(), None, false) {
                Ok(()) => assert!(opens(&store, "second"), "after {k}"),
                Err(KeyError::Contested) => contested += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(opens(&store, "first") || opens(&store, "second"), "after {k}");
            if is_done {
                assert!(opens(&store, "first"));
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| slow.finish()));
                continue;
            }
            // Whoever was cut off stands in nobody's way for ever.
            store.set_clock(store.clock() + CUT_OFF + 1);
            if let Ok(other) = keyring(&store, "second") {
                other.remove(&store, first.opened(), None, false).unwrap();
                assert!(opens(&store, "second") && !opens(&store, "first"), "after {k}");
            }
        }
        assert!(contested > 3, "{contested}");
    }

    #[test]
    fn two_who_add_a_slot_leave_the_mark_of_both() {
        let store = repository();
        let rings = ["one", "other"].map(|text| (text, keyring(&store, "first").unwrap()));
        for (text, ring) in &rings {
            add(&store, ring, text).unwrap();
        }
        let kept = Stored::read(&store).unwrap();
        assert!(takes_for_unchanged(&store, &kept, "one") && takes_for_unchanged(&store, &kept, "other"));
        let listed = store.list(&layout::directory("condemned")).wait().unwrap();
        assert_eq!(listed.iter().filter(|file| file.name.ends_with(layout::KEY_MARK)).count(), 1);
    }

    /// Whether who has kept these files takes the repository's keys for unchanged, from what every backup lists.
    fn takes_for_unchanged(store: &MemoryStore, kept: &Stored, text: &str) -> bool {
        let secret = &mut |_| Some(passphrase(text).into());
        let repository = kept.clone().unlock_unconfirmed(Arc::new(store.clone()), secret).unwrap();
        repository.has_its_keys(&store.list(&layout::directory("condemned")).wait().unwrap())
    }

    #[test]
    fn who_has_kept_what_opens_it_hears_of_changes() {
        let store = repository();
        let first = Stored::read(&store).unwrap();
        assert!(takes_for_unchanged(&store, &first, "first"));
        let ring = keyring(&store, "first").unwrap();
        let second = add(&store, &ring, "second").unwrap();
        let both = Stored::read(&store).unwrap();
        assert!(
            !takes_for_unchanged(&store, &first, "first") && takes_for_unchanged(&store, &both, "second")
        );
        // Be the one who removes it ever so much interrupted: what is gone is missed.
        for k in 0..8 {
            let copy = store.snapshot();
            let stopped = FaultyStore::stop_after(Arc::new(copy.clone()), k);
            let removed = keyring(&copy, "first").unwrap().remove(&stopped, second, None, false);
            let is_gone = copy.contents(&layout::key_slot(second)).is_none();
            assert!(!is_gone || !takes_for_unchanged(&copy, &both, "second"), "after {k}");
            if removed.is_ok() {
                let kept = Stored::read(&copy).unwrap();
                assert!(is_gone && takes_for_unchanged(&copy, &kept, "first"), "after {k}");
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stopped.finish()));
            }
        }
    }

    #[test]
    fn a_change_that_is_killed_anywhere_leaves_a_passphrase_that_opens() {
        for k in 0..16 {
            let store = repository();
            let ring = keyring(&store, "first").unwrap();
            let stopped = FaultyStore::stop_after(Arc::new(store.clone()), k);
            let changed = add(&stopped, &ring, "second")
                .and_then(|added| ring.remove(&stopped, ring.opened(), Some(added), false));
            assert!(opens(&store, "first") || opens(&store, "second"), "after {k}");
            assert_eq!(opens(&store, "first"), changed.is_err(), "after {k}");
            if changed.is_ok() {
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stopped.finish()));
            }
        }
    }
}
