//! What the repository has: by its index, and by what this run has put there so far.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::bag::reader::{BagReader, ReadError};
use crate::bag::{BagKind, FullBlock, Packer, PackerEvents, Placing, StoredBag};
use crate::base::cancel::Cancel;
use crate::base::id::{BagId, ObjectId};
use crate::entry::Reference;
use crate::index::{BagEntry, BagTables, FetchError, Fingerprint, Index, IndexError, SegmentBag, Waiting};
use crate::monitor::{Counter, Monitor, Problem, Severity};
use crate::store::{ErrorKind, StoreError, layout};

use super::BackupError;

/// How long a wait for the index goes on without looking whether the user wants to stop.
const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes of bag tables kept.
const TABLES: usize = 16 << 20;

/// Knows which objects are there. Shared by threads; hears from the packer what was stored.
pub struct Shelf {
    reader: BagReader,
    monitor: Arc<dyn Monitor>,
    cancel: Cancel,
    /// Objects of this run whose bags are not acknowledged yet.
    open: Mutex<HashMap<ObjectId, Placing>>,
    known: Mutex<State>,
    /// Bags of this run that no segment names yet.
    stored: Mutex<Vec<SegmentBag>>,
    /// Bags that were found damaged.
    distrusted: Arc<Mutex<HashSet<BagId>>>,
    placed: Sender<()>,
    ready: Condvar,
    new: AtomicU64,
}

enum State {
    /// The index is being opened.
    Opening,
    /// It is there.
    Ready(Box<Known>),
    /// It will not come; whoever opened it tells why.
    Failed,
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
    /// A shelf that tells `placed` when places of blocks were decided. Whoever asks for an object waits until the index
    /// [is there](Self::open).
    pub fn new(reader: BagReader, monitor: Arc<dyn Monitor>, cancel: Cancel, placed: Sender<()>) -> Self {
        Self {
            reader,
            monitor,
            cancel,
            open: Mutex::default(),
            known: Mutex::new(State::Opening),
            stored: Mutex::default(),
            distrusted: Arc::default(),
            placed,
            ready: Condvar::new(),
            new: AtomicU64::new(0),
        }
    }

    /// Brings the index; `None` when there will be none.
    pub fn open(&self, index: Option<Index>) {
        *lock(&self.known) = match index {
            Some(index) => {
                State::Ready(Box::new(Known { index, tables: BagTables::new(TABLES), failed: None }))
            }
            None => State::Failed,
        };
        self.ready.notify_all();
    }

    /// What `use_it` makes of the index and the tables, once they are there.
    fn with_known<T>(&self, use_it: impl FnOnce(&mut Known) -> T) -> Result<T, BackupError> {
        let mut state = lock(&self.known);
        loop {
            match &mut *state {
                State::Ready(known) => return Ok(use_it(known)),
                State::Failed => return Err(BackupError::Stopped),
                State::Opening => {}
            }
            // The server may be slow to answer, or never do so; the user need not wait for that.
            if self.cancel.is_cancelled() {
                return Err(BackupError::Interrupted);
            }
            let waited = self.ready.wait_timeout(state, PATIENCE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
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
        self.new.fetch_add(u64::try_from(bytes.len()).unwrap_or(0), Ordering::Relaxed);
        full.map_or(Ok(()), |block| packer.submit(block))?;
        Ok(Shelved { placing, is_new: true })
    }

    fn find(&self, id: &ObjectId) -> Result<Option<Placing>, BackupError> {
        let reader = &self.reader;
        let mut fetch = |bag: &BagEntry| -> Waiting<Vec<Reference>> {
            let (bag, reader) = (*bag, reader.clone());
            let (distrusted, monitor) = (Arc::clone(&self.distrusted), Arc::clone(&self.monitor));
            Box::new(move || match reader.table_at(bag.bag, bag.table_offset, bag.table_len) {
                Ok(table) => Ok(Some(table.references(bag.bag).collect())),
                Err(ReadError::Store(StoreError { kind: ErrorKind::NotFound, .. })) => Ok(None),
                // Nothing in it can be referred to any more, so whatever of it is met is stored again.
                Err(error) if error.is_damage() => {
                    if lock(&distrusted).insert(bag.bag) {
                        report_damage(&*monitor, bag.bag, &error);
                    }
                    Ok(None)
                }
                Err(error) => Err(FetchError::from(error)),
            })
        };
        let found = self.with_known(|Known { index, tables, .. }| {
            if index.is_empty() {
                return Ok(Vec::new());
            }
            tables.locate(index, std::slice::from_ref(id), &mut fetch)
        })?;
        let found = found.map_err(BackupError::Table)?;
        let found = found.into_iter().next().flatten();
        let is_trusted = |found: &Reference| !lock(&self.distrusted).contains(&found.place.bag);
        Ok(found.filter(is_trusted).map(Placing::Known))
    }

    /// A bag was found damaged: objects that are met from now on are stored again rather than found in it.
    pub fn distrust(&self, bag: BagId) {
        lock(&self.distrusted).insert(bag);
    }

    /// Bytes of objects that were not there before.
    pub fn new_bytes(&self) -> u64 {
        self.new.load(Ordering::Relaxed)
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
    pub fn with_index<T>(&self, use_it: impl FnOnce(&mut Index) -> T) -> Result<T, BackupError> {
        self.with_known(|known| match known.failed.take() {
            Some(error) => Err(BackupError::from(error)),
            None => Ok(use_it(&mut known.index)),
        })?
    }
}

/// The table of a bag cannot be read.
fn report_damage(monitor: &dyn Monitor, bag: BagId, error: &ReadError) {
    let text = format!(
        "what it holds is stored again where it is needed; `kitbag fsck` tells what else is lost ({error})"
    );
    let name = layout::bag(bag);
    monitor.problem(Problem::new(Severity::Damage, name.as_str().as_bytes(), text));
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
        let entry = BagEntry {
            bag: bag.id,
            kind: bag.kind,
            size: bag.size,
            table_offset: bag.table_offset,
            table_len: bag.table_len,
        };
        let objects = || bag.table.blocks.iter().flat_map(|block| block.objects.iter().map(|(id, _, _)| id));
        let segment_bag = SegmentBag::new(entry, objects().map(Fingerprint::of).collect());
        // A bag is stored only after its objects were looked for, so the index is there, or has failed.
        let _ = self.with_known(|known| {
            if let Err(error) = known.index.insert(&segment_bag) {
                known.failed = known.failed.take().or(Some(error));
            }
        });
        lock(&self.stored).push(segment_bag);
        let mut open = lock(&self.open);
        for id in objects() {
            open.remove(id);
        }
    }
}
