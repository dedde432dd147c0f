//! What the repository has: by its index, and by what this run has put there so far.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::Sender;

use crate::bag::reader::{BagReader, ReadError};
use crate::bag::{BagKind, FullBlock, Packer, PackerEvents, Placing, StoredBag};
use crate::base::id::ObjectId;
use crate::index::{BagEntry, BagTables, FetchError, Fingerprint, Index, IndexError, SegmentBag};
use crate::monitor::{Counter, Monitor};
use crate::store::{ErrorKind, StoreError};

use super::BackupError;

/// Bytes of bag tables kept.
const TABLES: usize = 16 << 20;

/// Knows which objects are there. Shared by threads; hears from the packer what was stored.
pub struct Shelf {
    reader: BagReader,
    monitor: Arc<dyn Monitor>,
    /// Objects of this run whose bags are not acknowledged yet.
    open: Mutex<HashMap<ObjectId, Placing>>,
    known: Mutex<Known>,
    /// Bags of this run that no segment names yet.
    stored: Mutex<Vec<SegmentBag>>,
    keep: Box<dyn Fn(&StoredBag) + Send + Sync>,
    placed: Sender<()>,
}

struct Known {
    index: Index,
    tables: BagTables,
    failed: Option<IndexError>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where an object is, and whether it had to be stored.
#[derive(Debug)]
pub struct Shelved {
    /// Where it is, or will be.
    pub placing: Placing,
    /// Whether it was not there before.
    pub is_new: bool,
}

impl Shelf {
    /// A shelf that tells `placed` when places of blocks were decided, and gives acknowledged bags to `keep`.
    pub fn new(
        reader: BagReader,
        index: Index,
        monitor: Arc<dyn Monitor>,
        placed: Sender<()>,
        keep: Box<dyn Fn(&StoredBag) + Send + Sync>,
    ) -> Self {
        let known = Known { index, tables: BagTables::new(TABLES), failed: None };
        Self {
            reader,
            monitor,
            open: Mutex::default(),
            known: Mutex::new(known),
            stored: Mutex::default(),
            keep,
            placed,
        }
    }

    /// Finds an object, or has it stored.
    ///
    /// # Errors
    /// When the packer has stopped, or a bag's table cannot be fetched.
    pub fn put(&self, packer: &Packer, kind: BagKind, bytes: &[u8]) -> Result<Shelved, BackupError> {
        let id = self.reader.id_of(bytes);
        let find_open = |open: &HashMap<ObjectId, Placing>| open.get(&id).cloned();
        if let Some(placing) = find_open(&lock(&self.open)) {
            return Ok(Shelved { placing, is_new: false });
        }
        if let Some(placing) = self.find(&id)? {
            return Ok(Shelved { placing, is_new: false });
        }
        let (placing, full) = {
            let mut open = lock(&self.open);
            // Another thread may have come with the same object meanwhile.
            if let Some(placing) = find_open(&open) {
                return Ok(Shelved { placing, is_new: false });
            }
            let (placing, full): (_, Option<FullBlock>) = packer.place(kind, id, bytes);
            open.insert(id, placing.clone());
            (placing, full)
        };
        full.map_or(Ok(()), |block| packer.submit(block))?;
        Ok(Shelved { placing, is_new: true })
    }

    fn find(&self, id: &ObjectId) -> Result<Option<Placing>, BackupError> {
        let mut known = lock(&self.known);
        let Known { index, tables, .. } = &mut *known;
        if index.is_empty() {
            return Ok(None);
        }
        let reader = &self.reader;
        let mut fetch = |bag: &BagEntry| -> crate::index::Waiting<Vec<crate::entry::Reference>> {
            let (bag, reader) = (*bag, reader.clone());
            Box::new(move || match reader.table_at(bag.bag, bag.table_offset, bag.table_len) {
                Ok(table) => Ok(Some(table.references(bag.bag).collect())),
                Err(ReadError::Store(StoreError { kind: ErrorKind::NotFound, .. })) => Ok(None),
                Err(error) => Err(FetchError::from(error)),
            })
        };
        let found = tables.locate(index, std::slice::from_ref(id), &mut fetch);
        let found = found.map_err(BackupError::Table)?;
        Ok(found.into_iter().next().flatten().map(Placing::Known))
    }

    /// The name of an object with these contents.
    pub fn id_of(&self, bytes: &[u8]) -> ObjectId {
        self.reader.id_of(bytes)
    }

    /// Hands over the bags stored since this was last asked, for a segment to name.
    pub fn take_stored(&self) -> Vec<SegmentBag> {
        std::mem::take(&mut *lock(&self.stored))
    }

    /// The index, to be told of a published segment and flushed.
    ///
    /// # Errors
    /// The first failure to remember a bag in it.
    pub fn with_index<T>(&self, use_it: impl FnOnce(&mut Index) -> T) -> Result<T, IndexError> {
        let mut known = lock(&self.known);
        match known.failed.take() {
            Some(error) => Err(error),
            None => Ok(use_it(&mut known.index)),
        }
    }
}

impl PackerEvents for Shelf {
    fn placed(&self) {
        // One token is enough to wake the listener.
        let _ = self.placed.try_send(());
    }

    fn queued(&self, bytes: u64) {
        self.monitor.count(Counter::BytesQueued, bytes);
    }

    fn stored(&self, bag: &StoredBag) {
        self.monitor.count(Counter::BytesStored, bag.size);
        (self.keep)(bag);
        let entry = BagEntry {
            bag: bag.id,
            kind: bag.kind,
            size: bag.size,
            table_offset: bag.table_offset,
            table_len: bag.table_len,
        };
        let objects = || bag.table.blocks.iter().flat_map(|block| block.objects.iter().map(|(id, _, _)| id));
        let segment_bag = SegmentBag::new(entry, objects().map(Fingerprint::of).collect());
        {
            let mut known = lock(&self.known);
            if let Err(error) = known.index.insert(&segment_bag) {
                known.failed = known.failed.take().or(Some(error));
            }
        }
        lock(&self.stored).push(segment_bag);
        let mut open = lock(&self.open);
        for id in objects() {
            open.remove(id);
        }
    }
}
