//! Blocks of data bags: on their way, opened, and the ones used last kept, within a budget of bytes.
//!
//! A block is asked for once, however many want it at the same time: whoever needs it first waits for it and opens it, the others wait for him. Reads of
//! neighbouring blocks are put together ([`plan`](super::plan)). What cannot be had is forgotten at once, so that the next reader asks again.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lru::LruCache;

use super::open_block;
use super::plan::{Block, Read, Want, reads};
use crate::bag::BagKind;
use crate::bag::reader::{BagReader, ReadError};
use crate::base::id::BagId;
use crate::entry::{Place, Reference};
use crate::store::{Pending, StoreError};

type Key = (BagId, u64);

/// A read that is under way, of one or several blocks.
struct Flight {
    pending: Mutex<Option<Pending<Vec<u8>>>>,
    sealed: OnceLock<Result<Vec<u8>, StoreError>>,
}

impl Flight {
    fn new(pending: Pending<Vec<u8>>) -> Arc<Self> {
        Arc::new(Self { pending: Mutex::new(Some(pending)), sealed: OnceLock::new() })
    }

    fn wait(&self) -> &Result<Vec<u8>, StoreError> {
        self.sealed.get_or_init(|| match lock(&self.pending).take() {
            Some(pending) => pending.wait(),
            None => Ok(Vec::new()),
        })
    }
}

/// What brings a block.
enum Coming {
    /// A read of its own.
    Alone(Pending<Vec<u8>>),
    /// A read of several, and where in that it lies.
    Within(Arc<Flight>, Range<usize>),
}

impl Coming {
    /// Waits for the block's bytes, and opens them. Bytes that came for it alone are not copied.
    fn open(self, reader: &BagReader, place: &Place) -> Result<Vec<u8>, ReadError> {
        let mut sealed = match self {
            Self::Alone(pending) => pending.wait(),
            Self::Within(flight, range) => match flight.wait() {
                Ok(sealed) => Ok(sealed.get(range).unwrap_or_default().to_vec()),
                Err(error) => Err(error.duplicate()),
            },
        };
        open_block(reader, place, sealed.as_deref_mut().map_err(|error| &*error))
    }
}

/// A block.
pub struct Slot {
    place: Place,
    /// What brings it, until it is opened.
    coming: Mutex<Option<Coming>>,
    opened: OnceLock<Result<Vec<u8>, Arc<ReadError>>>,
    /// Objects in it that were checked against their names, by where they begin.
    checked: Mutex<HashSet<(u32, u32)>>,
}

impl Slot {
    fn new(place: Place, coming: Coming) -> Arc<Self> {
        let coming = Mutex::new(Some(coming));
        Arc::new(Self { place, coming, opened: OnceLock::new(), checked: Mutex::default() })
    }

    fn key(&self) -> Key {
        (self.place.bag, self.place.offset)
    }

    /// Whether nobody needs to wait for it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.opened.get().is_some()
    }

    fn opened(&self, reader: &BagReader) -> &Result<Vec<u8>, Arc<ReadError>> {
        self.opened.get_or_init(|| match lock(&self.coming).take() {
            Some(coming) => coming.open(reader, &self.place).map_err(Arc::new),
            None => Ok(Vec::new()),
        })
    }

    /// Its bytes, if it is open and sound.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.opened.get().and_then(|opened| opened.as_deref().ok()).unwrap_or_default()
    }

    /// Where an object lies in it, checked against its name the first time.
    fn find(&self, reader: &BagReader, reference: &Reference) -> Result<Range<usize>, Arc<ReadError>> {
        let block = self.opened(reader).as_ref().map_err(Arc::clone)?;
        let place = &reference.place;
        let is_checked = lock(&self.checked).contains(&(place.start, place.len));
        if !is_checked {
            reader.object(reference, block).map_err(Arc::new)?;
            lock(&self.checked).insert((place.start, place.len));
        }
        let start = usize::try_from(place.start).unwrap_or(usize::MAX);
        Ok(start..start.saturating_add(usize::try_from(place.len).unwrap_or(usize::MAX)))
    }
}

/// The blocks. Shared by threads.
pub struct Blocks {
    reader: BagReader,
    budget: usize,
    kept: Mutex<Kept>,
}

struct Kept {
    slots: LruCache<Key, (Arc<Slot>, usize)>,
    bytes: usize,
}

impl Blocks {
    /// Blocks read by `reader`; about `budget` bytes are kept, those under way included.
    #[must_use]
    pub fn new(reader: BagReader, budget: usize) -> Self {
        let kept = Mutex::new(Kept { slots: LruCache::unbounded(), bytes: 0 });
        Self { reader, budget, kept }
    }

    /// How many bytes are kept at most.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// The block that holds this object, asked for if it is not there.
    #[must_use]
    pub fn slot(&self, reference: &Reference) -> Arc<Slot> {
        let place = reference.place;
        let mut kept = lock(&self.kept);
        if let Some((slot, _)) = kept.slots.get(&(place.bag, place.offset)) {
            return Arc::clone(slot);
        }
        let stored = u64::from(place.stored);
        let pending = self.reader.fetch(BagKind::Data, place.bag, place.offset, stored);
        let slot = Slot::new(place, Coming::Alone(pending));
        let len = usize::try_from(place.stored).unwrap_or(usize::MAX);
        kept.insert(Arc::clone(&slot), len, self.budget);
        slot
    }

    /// Asks for the blocks of these objects, as far as they are not there, and returns those that somebody should open.
    #[must_use]
    pub fn ask(&self, references: impl Iterator<Item = Reference>) -> Vec<Arc<Slot>> {
        let mut kept = lock(&self.kept);
        let absent = references
            .filter(|reference| !kept.slots.contains(&(reference.place.bag, reference.place.offset)))
            .map(|reference| Want { reference, goal: () });
        let mut asked = Vec::new();
        for read in reads(absent.collect()) {
            let pending = self.reader.fetch(BagKind::Data, read.bag, read.offset, read.len);
            for slot in slots_of(&read, pending) {
                let len = usize::try_from(slot.place.stored).unwrap_or(usize::MAX);
                kept.insert(Arc::clone(&slot), len, self.budget);
                asked.push(slot);
            }
        }
        asked
    }

    /// Waits for a block and opens it, if it is still kept.
    pub fn open(&self, slot: &Arc<Slot>) {
        if !self.keeps(slot) {
            return;
        }
        let opened = slot.opened(&self.reader);
        self.note(slot, opened.as_ref().map(Vec::len).ok());
    }

    /// Where an object lies in its block, once that is open; waits for it.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn find(&self, slot: &Arc<Slot>, reference: &Reference) -> Result<Range<usize>, Arc<ReadError>> {
        let was_ready = slot.is_ready();
        let found = slot.find(&self.reader, reference);
        if !was_ready || found.is_err() {
            self.note(slot, found.is_ok().then(|| slot.bytes().len()));
        }
        found
    }

    fn keeps(&self, slot: &Arc<Slot>) -> bool {
        lock(&self.kept).slots.peek(&slot.key()).is_some_and(|(kept, _)| Arc::ptr_eq(kept, slot))
    }

    /// A block has this length now that it is open, or could not be had.
    fn note(&self, slot: &Arc<Slot>, len: Option<usize>) {
        let mut kept = lock(&self.kept);
        let is_kept = kept.slots.peek(&slot.key()).is_some_and(|(kept, _)| Arc::ptr_eq(kept, slot));
        if !is_kept {
            return;
        }
        match len {
            Some(len) => kept.insert(Arc::clone(slot), len, self.budget),
            None => kept.remove(slot.key()),
        }
    }
}

fn slots_of(read: &Read<()>, pending: Pending<Vec<u8>>) -> Vec<Arc<Slot>> {
    if let [block] = &read.blocks[..] {
        return vec![Slot::new(block.place, Coming::Alone(pending))];
    }
    let flight = Flight::new(pending);
    let slot = |block: &Block<()>| {
        let range = read.range(&block.place).unwrap_or_default();
        Slot::new(block.place, Coming::Within(Arc::clone(&flight), range))
    };
    read.blocks.iter().map(slot).collect()
}

impl Kept {
    /// Keeps a block of this length, in the place of what was kept of it before.
    fn insert(&mut self, slot: Arc<Slot>, len: usize, budget: usize) {
        self.bytes = self.bytes.saturating_add(len);
        if let Some((_, (_, len))) = self.slots.push(slot.key(), (slot, len)) {
            self.bytes = self.bytes.saturating_sub(len);
        }
        while self.bytes > budget
            && self.slots.len() > 1
            && let Some((_, (_, len))) = self.slots.pop_lru()
        {
            self.bytes = self.bytes.saturating_sub(len);
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some((_, len)) = self.slots.pop(&key) {
            self.bytes = self.bytes.saturating_sub(len);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
