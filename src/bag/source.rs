//! Objects by reference, with the blocks opened last kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lru::LruCache;

use super::format::BagKind;
use super::reader::{BagReader, ReadError};
use crate::base::id::BagId;
use crate::entry::{Place, Reference};

/// What was opened last is what is asked for next: objects are packed in the order in which a tree is walked.
/// Shared by threads.
pub struct Source {
    reader: BagReader,
    opened: Mutex<Opened>,
    /// Sealed bags that are here as a whole.
    held: RwLock<HashMap<BagId, Vec<u8>>>,
}

struct Opened {
    blocks: LruCache<(BagId, u64), Arc<Vec<u8>>>,
    bytes: usize,
    budget: usize,
}

impl Source {
    /// A source that keeps at most about `budget` bytes of opened blocks.
    #[must_use]
    pub fn new(reader: BagReader, budget: usize) -> Self {
        let opened = Opened { blocks: LruCache::unbounded(), bytes: 0, budget };
        Self { reader, opened: Mutex::new(opened), held: RwLock::default() }
    }

    /// Keeps a whole sealed bag, beside the budget: what lies in it costs no round trip from now on.
    pub fn hold(&self, bag: BagId, sealed: Vec<u8>) {
        self.held.write().unwrap_or_else(PoisonError::into_inner).insert(bag, sealed);
    }

    /// Whether a bag is kept as a whole.
    #[must_use]
    pub fn holds(&self, bag: BagId) -> bool {
        self.held.read().unwrap_or_else(PoisonError::into_inner).contains_key(&bag)
    }

    /// A block out of a bag that is kept as a whole.
    fn held(&self, place: &Place) -> Option<Vec<u8>> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(place.offset).ok()?;
        let end = start.checked_add(usize::try_from(place.stored).ok()?)?;
        held.get(&place.bag)?.get(start..end).map(<[u8]>::to_vec)
    }

    /// The reader below.
    #[must_use]
    pub fn reader(&self) -> &BagReader {
        &self.reader
    }

    /// The bytes of an object, checked against its name. At most one serial round trip.
    ///
    /// # Errors
    /// When it cannot be fetched or is damaged.
    pub fn object(&self, kind: BagKind, reference: &Reference) -> Result<Vec<u8>, ReadError> {
        self.with(kind, reference, <[u8]>::to_vec)
    }

    /// What `use_it` makes of the bytes of an object.
    ///
    /// # Errors
    /// When it cannot be fetched or is damaged.
    pub fn with<T>(
        &self,
        kind: BagKind,
        reference: &Reference,
        use_it: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, ReadError> {
        let block = if self.is_at_hand(&reference.place) {
            self.block(kind, &reference.place)
        } else {
            let moved = self.reader.resolved(reference);
            if moved != *reference {
                let block = self.block(kind, &moved.place)?;
                return self.reader.object(&moved, &block).map(use_it);
            }
            self.block(kind, &reference.place)
        }?;
        self.reader.object(reference, &block).map(use_it)
    }

    /// Whether the block at a place is here, so that it does not matter where it has gone.
    fn is_at_hand(&self, place: &Place) -> bool {
        self.holds(place.bag) || self.lock().blocks.contains(&(place.bag, place.offset))
    }

    /// The opened block at a place.
    ///
    /// # Errors
    /// When it cannot be fetched or is damaged.
    pub fn block(&self, kind: BagKind, place: &Place) -> Result<Arc<Vec<u8>>, ReadError> {
        let key = (place.bag, place.offset);
        if let Some(block) = self.lock().blocks.get(&key) {
            return Ok(Arc::clone(block));
        }
        let opened = match self.held(place) {
            Some(mut sealed) => self.reader.open(kind, place.bag, place.offset, &mut sealed)?,
            None => self.reader.block(kind, place)?,
        };
        let block = Arc::new(opened);
        self.lock().insert(key, Arc::clone(&block));
        Ok(block)
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    fn insert(&mut self, key: (BagId, u64), block: Arc<Vec<u8>>) {
        self.bytes = self.bytes.saturating_add(block.len());
        if let Some((_, former)) = self.blocks.push(key, block) {
            self.bytes = self.bytes.saturating_sub(former.len());
        }
        while self.bytes > self.budget && self.blocks.len() > 1 {
            match self.blocks.pop_lru() {
                Some((_, oldest)) => self.bytes = self.bytes.saturating_sub(oldest.len()),
                None => return,
            }
        }
    }
}
