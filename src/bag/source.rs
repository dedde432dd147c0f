//! Objects by reference, with the blocks opened last kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
        Self { reader, opened: Mutex::new(opened) }
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
        let block = self.block(kind, &reference.place)?;
        self.reader.object(reference, &block).map(use_it)
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
        let block = Arc::new(self.reader.block(kind, place)?);
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
