//! What the repository has: by its index, and by what this run has put there so far.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
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

/// Bytes of objects that are held back until the index is there. What comes then waits: a handshake leaves time for about so
/// much.
const HELD_BACK: usize = 32 << 20;

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
    written: Mutex<Vec<SegmentBag>>,
    /// Bags that this run refers to without having found the reference in a generation.
    referred: Mutex<HashSet<BagId>>,
    /// Bags that were found damaged.
    distrusted: Arc<Mutex<HashSet<BagId>>>,
    placed: Sender<()>,
    ready: Condvar,
    new: AtomicU64,
    new_contents: AtomicU64,
    bags: AtomicU64,
    bag_bytes: AtomicU64,
    is_first_run: AtomicBool,
    /// Whether it was told that the index cannot be kept.
    is_told: AtomicBool,
}

enum State {
    /// The index is being opened. Meanwhile, what is put in is held back.
    Opening(HeldBack),
    /// It is there.
    Ready(Box<Known>),
    /// It will not come; whoever opened it tells why.
    Failed,
}

/// Objects of which nobody can tell yet whether they are there.
#[derive(Default)]
struct HeldBack {
    objects: Vec<Unsettled>,
    slots: HashMap<ObjectId, Arc<OnceLock<Placing>>>,
    bytes: usize,
    has_data: bool,
    has_tree: bool,
}

struct Unsettled {
    kind: BagKind,
    bytes: Vec<u8>,
    slot: Arc<OnceLock<Placing>>,
}

struct Known {
    index: Index,
    tables: BagTables,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shelf {
    /// A shelf that tells `placed` when places of blocks were decided. Until the index [is there](Self::open), what is put in is held
    /// back, and whoever brings more than a handshake leaves time for waits.
    pub fn new(reader: BagReader, monitor: Arc<dyn Monitor>, cancel: Cancel, placed: Sender<()>) -> Self {
        Self {
            reader,
            monitor,
            cancel,
            open: Mutex::default(),
            known: Mutex::new(State::Opening(HeldBack::default())),
            written: Mutex::default(),
            referred: Mutex::default(),
            distrusted: Arc::default(),
            placed,
            ready: Condvar::new(),
            new: AtomicU64::new(0),
            new_contents: AtomicU64::new(0),
            bags: AtomicU64::new(0),
            bag_bytes: AtomicU64::new(0),
            is_first_run: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        }
    }

    /// What is put in will most likely have to be stored: nothing is known of the client.
    pub fn expect_much(&self) {
        self.is_first_run.store(true, Ordering::Relaxed);
    }

    /// Brings the index, and has what was held back stored unless it is there.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn open(&self, index: Index, packer: &Packer) -> Result<(), BackupError> {
        let known = Known { index, tables: BagTables::new(TABLES) };
        let held_back = self.turn(State::Ready(Box::new(known)));
        for Unsettled { kind, bytes, slot } in held_back.objects {
            match self.put(packer, kind, &bytes) {
                // Set once: each slot belongs to one object.
                Ok(placing) => drop(slot.set(placing)),
                Err(error) => {
                    self.fail();
                    return Err(error);
                }
            }
        }
        self.placed();
        Ok(())
    }

    /// There will be no index.
    pub fn fail(&self) {
        self.turn(State::Failed);
    }

    fn turn(&self, state: State) -> HeldBack {
        let before = std::mem::replace(&mut *lock(&self.known), state);
        self.ready.notify_all();
        match before {
            State::Opening(held_back) => held_back,
            State::Ready(_) | State::Failed => HeldBack::default(),
        }
    }

    /// Whether what was put in will get its places.
    ///
    /// # Errors
    /// `Stopped` when it will not, `Interrupted` when the user does not want to wait for it.
    pub fn check(&self) -> Result<(), BackupError> {
        match &*lock(&self.known) {
            State::Opening(_) if self.cancel.is_cancelled() => Err(BackupError::Interrupted),
            State::Opening(_) | State::Ready(_) => Ok(()),
            State::Failed => Err(BackupError::Stopped),
        }
    }

    /// What `use_it` makes of the index and the tables, once they are there.
    fn with_known<T>(&self, use_it: impl FnOnce(&mut Known) -> T) -> Result<T, BackupError> {
        let mut state = lock(&self.known);
        loop {
            match &mut *state {
                State::Ready(known) => return Ok(use_it(known)),
                State::Failed => return Err(BackupError::Stopped),
                State::Opening(_) => {}
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
    pub fn put(&self, packer: &Packer, kind: BagKind, bytes: &[u8]) -> Result<Placing, BackupError> {
        let id = self.reader.id_of(bytes);
        let find_open = |open: &HashMap<ObjectId, Placing>| open.get(&id).cloned();
        if let Some(placing) = find_open(&lock(&self.open)) {
            return Ok(self.known(kind, placing));
        }
        if let Some(placing) = self.hold_back(packer, kind, id, bytes) {
            return Ok(placing);
        }
        if let Some(placing) = self.find(&id)? {
            return Ok(self.known(kind, placing));
        }
        let (placing, full) = {
            let mut open = lock(&self.open);
            // Another thread may have come with the same object meanwhile.
            if let Some(placing) = find_open(&open) {
                return Ok(self.known(kind, placing));
            }
            let (placing, full): (_, Option<FullBlock>) = packer.place(kind, id, bytes);
            open.insert(id, placing.clone());
            (placing, full)
        };
        let len = u64::try_from(bytes.len()).unwrap_or(0);
        self.new.fetch_add(len, Ordering::Relaxed);
        if kind == BagKind::Data {
            self.monitor.count(Counter::NewChunks, 1);
            self.monitor.count(Counter::NewBytes, len);
            self.new_contents.fetch_add(len, Ordering::Relaxed);
        }
        full.map_or(Ok(()), |block| packer.submit(block))?;
        Ok(placing)
    }

    /// Counts an object that need not be stored.
    fn known(&self, kind: BagKind, placing: Placing) -> Placing {
        if kind == BagKind::Data {
            self.monitor.count(Counter::KnownChunks, 1);
        }
        placing
    }

    /// Holds an object back, as long as the index is not there and memory is to be had.
    fn hold_back(&self, packer: &Packer, kind: BagKind, id: ObjectId, bytes: &[u8]) -> Option<Placing> {
        let len = u32::try_from(bytes.len()).ok()?;
        let mut state = lock(&self.known);
        let State::Opening(held_back) = &mut *state else { return None };
        if let Some(slot) = held_back.slots.get(&id) {
            let placing = Placing::Unsettled { id, len, placing: Arc::clone(slot) };
            return Some(self.known(kind, placing));
        }
        let sum = held_back.bytes.saturating_add(bytes.len());
        if sum > HELD_BACK {
            return None;
        }
        held_back.bytes = sum;
        let slot = Arc::new(OnceLock::new());
        let has_data = held_back.has_data;
        let has_any = if kind == BagKind::Data { &mut held_back.has_data } else { &mut held_back.has_tree };
        let is_first = !std::mem::replace(has_any, true);
        held_back.objects.push(Unsettled { kind, bytes: bytes.to_vec(), slot: Arc::clone(&slot) });
        held_back.slots.insert(id, Arc::clone(&slot));
        drop(state);
        // What will most likely be stored gets its file behind what is under way. Contents may have been read once more to make
        // sure of them, but a page that is put in is another one than before.
        let has_changed = kind == BagKind::Tree || self.is_first_run.load(Ordering::Relaxed);
        if is_first && has_changed {
            if has_data {
                packer.begin(BagKind::Data);
            }
            packer.begin(kind);
        }
        Some(Placing::Unsettled { id, len, placing: slot })
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
        let found = found.filter(is_trusted);
        if let Some(reference) = &found {
            lock(&self.referred).insert(reference.place.bag);
        }
        Ok(found.map(Placing::Known))
    }

    /// The bags that this run has made fresh references to, its own included.
    pub fn referred(&self) -> HashSet<BagId> {
        lock(&self.referred).clone()
    }

    /// Bags were condemned: objects that are met from now on are stored again rather than found in them.
    ///
    /// # Errors
    /// As [`with_index`](Self::with_index).
    pub fn exclude(&self, bags: &HashSet<BagId>) -> Result<(), BackupError> {
        if bags.is_empty() { Ok(()) } else { self.with_index(|index| index.exclude(bags)) }
    }

    /// A bag was found damaged: objects that are met from now on are stored again rather than found in it.
    pub fn distrust(&self, bag: BagId) {
        lock(&self.distrusted).insert(bag);
    }

    /// Bytes of objects that were not there before.
    pub fn new_bytes(&self) -> u64 {
        self.new.load(Ordering::Relaxed)
    }

    /// Those of them that are contents of files.
    pub fn new_contents(&self) -> u64 {
        self.new_contents.load(Ordering::Relaxed)
    }

    /// The name of an object with these contents.
    pub fn id_of(&self, bytes: &[u8]) -> ObjectId {
        self.reader.id_of(bytes)
    }

    /// Hands over the bags written since this was last asked, for a segment to name once they are acknowledged.
    pub fn take_written(&self) -> Vec<SegmentBag> {
        std::mem::take(&mut *lock(&self.written))
    }

    /// These could not be named; the next segment will.
    pub fn give_back(&self, bags: Vec<SegmentBag>) {
        lock(&self.written).extend(bags);
    }

    /// How many bags this run has written, and their bytes.
    pub fn bags_written(&self) -> (u64, u64) {
        (self.bags.load(Ordering::Relaxed), self.bag_bytes.load(Ordering::Relaxed))
    }

    /// The index, to be told of a published segment and flushed.
    ///
    /// # Errors
    /// `Stopped` where there is none.
    pub fn with_index<T>(&self, use_it: impl FnOnce(&mut Index) -> T) -> Result<T, BackupError> {
        self.with_known(|known| use_it(&mut known.index))
    }

    /// Tells, once, that the disk does not take what the index should keep. It knows all the same, so the run goes on.
    pub fn index_not_kept(&self, error: &IndexError) {
        if self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let text = format!("what this run stores cannot be noted here, so the next run fetches it ({error})");
        self.monitor.problem(Problem::new(Severity::Note, b"", text));
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

    fn written(&self, bag: &StoredBag) {
        self.bags.fetch_add(1, Ordering::Relaxed);
        self.bag_bytes.fetch_add(bag.size, Ordering::Relaxed);
        lock(&self.written).push(segment_bag(bag));
    }

    fn stored(&self, bag: &StoredBag) {
        self.monitor.count(Counter::BytesStored, bag.size);
        let segment_bag = segment_bag(bag);
        // A bag is stored only after its objects were looked for, so the index is there, or has failed.
        let inserted = self.with_known(|known| known.index.insert(&segment_bag));
        if let Ok(Err(error)) = inserted {
            self.index_not_kept(&error);
        }
        lock(&self.referred).insert(bag.id);
        let mut open = lock(&self.open);
        for id in objects(bag) {
            open.remove(id);
        }
    }
}

fn objects(bag: &StoredBag) -> impl Iterator<Item = &ObjectId> {
    bag.table.blocks.iter().flat_map(|block| block.objects.iter().map(|(id, _, _)| id))
}

/// A bag as a segment names it.
fn segment_bag(bag: &StoredBag) -> SegmentBag {
    let entry = BagEntry {
        bag: bag.id,
        kind: bag.kind,
        size: bag.size,
        table_offset: bag.table_offset,
        table_len: bag.table_len,
    };
    SegmentBag::new(entry, objects(bag).map(Fingerprint::of).collect())
}
