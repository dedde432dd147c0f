//! From objects to acknowledged bags: grouping, compressing, sealing, streaming.
//!
//! ```text
//! place ──> blocks ──> compress ──> reserve a place ──> seal ──> streams, one bag each ──> store
//! callers             worker threads                            a thread each
//! ```
//!
//! The place of a block is reserved as soon as its compressed length is known, so references resolve before the bytes have left. Memory is bounded by the
//! queue of blocks and by a budget of sealed bytes, which is taken *before* a place is reserved: between reserving and handing over nothing waits, so a block
//! that others wait behind always arrives.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::Sealing;
use super::block::{Block, Grouping, Placing};
use super::format::{BagKind, HEADER, TableBlock};
use super::stream::{self, Message, StoredBag};
use crate::base::budget::Budget;
use crate::base::id::{BagId, ObjectId};
use crate::compress::Level;
use crate::crypto::seal;
use crate::store::{ErrorKind, SharedStore, StoreError};

/// How a packer works.
#[derive(Debug, Clone)]
pub struct PackerOptions {
    /// How hard blocks are compressed.
    pub level: Level,
    /// Threads that compress and seal.
    pub workers: usize,
    /// How many bags of one kind are streamed at once, if the store does not know better.
    pub streams: usize,
    /// A bag is ended when it has grown to this many bytes.
    pub bag_bytes: u64,
    /// Most sealed bytes that wait for the store.
    pub queued_bytes: u64,
    /// A local directory where bags are kept until they are acknowledged, so that one that the store loses can be sent
    /// once more.
    pub keep_in: Option<PathBuf>,
}

impl PackerOptions {
    /// Bags of 32 MiB, four streams, 24 MiB queued.
    #[must_use]
    pub fn new(level: Level, workers: usize) -> Self {
        Self { level, workers, streams: 4, bag_bytes: 32 << 20, queued_bytes: 24 << 20, keep_in: None }
    }
}

/// Another bag is begun when so many bytes wait for each that is open.
const SPILL: u64 = 1 << 20;

/// Hears of what a packer has done. Called from its threads; must not call the packer.
pub trait PackerEvents: Send + Sync {
    /// The places of some blocks have been decided.
    fn placed(&self);
    /// So many sealed bytes were queued for the store.
    fn queued(&self, bytes: u64);
    /// All of a bag has been handed to the store, which has not acknowledged it yet.
    fn written(&self, _bag: &StoredBag) {}
    /// The store has acknowledged a bag.
    fn stored(&self, bag: &StoredBag);
}

/// The packer could not go on; [`Packer::finish`] tells why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the repository cannot be written to")]
pub struct Stopped;

/// A full block that must be submitted: see [`Packer::place`].
#[must_use = "a block that is not submitted is never stored"]
#[derive(Debug)]
pub struct FullBlock(BagKind, Block);

/// Puts objects into bags. Shared by threads.
pub struct Packer {
    shared: Arc<Shared>,
    jobs: Sender<FullBlock>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    stores: [SharedStore; 2],
    sealing: Sealing,
    options: PackerOptions,
    events: Arc<dyn PackerEvents>,
    grouping: [Mutex<Grouping>; 2],
    lanes: [Mutex<Vec<Stream>>; 2],
    budget: Budget,
    stopped: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Blocks that were submitted and not yet handed to a stream.
    blocks: usize,
    /// Bags begun and not yet acknowledged.
    bags: usize,
    /// Bags begun and not yet written to their ends.
    unwritten: usize,
    error: Option<StoreError>,
}

struct Stream {
    bag: BagId,
    end: u64,
    messages: Sender<Message>,
    queued: Arc<AtomicU64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of<T>(both: &[T; 2], kind: BagKind) -> &T {
    let [data, tree] = both;
    match kind {
        BagKind::Data => data,
        BagKind::Tree => tree,
    }
}

impl Packer {
    /// A packer that stores data bags into the first store, tree bags into the second.
    #[must_use]
    pub fn new(
        stores: [SharedStore; 2],
        sealing: Sealing,
        options: PackerOptions,
        events: Arc<dyn PackerEvents>,
    ) -> Self {
        let (threads, queued) = (options.workers.max(1), options.queued_bytes);
        let shared = Arc::new(Shared {
            stores,
            sealing,
            options,
            events,
            grouping: Default::default(),
            lanes: Default::default(),
            budget: Budget::new(queued),
            stopped: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (jobs, receiver) = bounded(threads);
        let workers = (0..threads)
            .map(|_| {
                let (shared, receiver): (_, Receiver<FullBlock>) = (Arc::clone(&shared), receiver.clone());
                thread::spawn(move || receiver.iter().for_each(|job| shared.seal(job)))
            })
            .collect();
        Self { shared, jobs, workers }
    }

    /// Takes an object in, without waiting. A block that became full by it must be handed to [`submit`](Self::submit), which may wait, so not under a lock.
    #[must_use = "a full block must be submitted"]
    pub fn place(&self, kind: BagKind, id: ObjectId, bytes: &[u8]) -> (Placing, Option<FullBlock>) {
        let (placing, full) = lock(of(&self.shared.grouping, kind)).push(id, bytes);
        (placing, full.map(|block| FullBlock(kind, block)))
    }

    /// Hands a full block over; waits while too many are in work.
    ///
    /// # Errors
    /// When the packer has stopped.
    pub fn submit(&self, block: FullBlock) -> Result<(), Stopped> {
        self.check()?;
        lock(&self.shared.state).blocks += 1;
        self.jobs.send(block).map_err(|_gone| Stopped)
    }

    /// [`place`](Self::place) and [`submit`](Self::submit).
    ///
    /// # Errors
    /// When the packer has stopped.
    pub fn put(&self, kind: BagKind, id: ObjectId, bytes: &[u8]) -> Result<Placing, Stopped> {
        let (placing, full) = self.place(kind, id, bytes);
        full.map_or(Ok(()), |block| self.submit(block))?;
        Ok(placing)
    }

    /// Seals the block that is being filled, though it is not full, so that its objects get their places.
    ///
    /// # Errors
    /// When the packer has stopped.
    pub fn flush(&self, kind: BagKind) -> Result<(), Stopped> {
        let open = lock(of(&self.shared.grouping, kind)).take();
        open.map_or(Ok(()), |block| self.submit(FullBlock(kind, block)))
    }

    /// Begins a bag, so that the store has made its file by the time the first block is there. If none comes, none is stored.
    pub fn begin(&self, kind: BagKind) {
        let mut lane = lock(of(&self.shared.lanes, kind));
        if lane.is_empty() {
            let stream = self.shared.begin(kind);
            lane.push(stream);
        }
    }

    /// Whether it goes on.
    ///
    /// # Errors
    /// When the packer has stopped.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.shared.stopped.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }

    /// Seals what is being filled and waits until every object put in so far has its place.
    ///
    /// # Errors
    /// When the packer has stopped.
    pub fn settle(&self) -> Result<(), Stopped> {
        self.flush(BagKind::Data)?;
        self.flush(BagKind::Tree)?;
        self.wait_while(|state| state.blocks > 0);
        self.check()
    }

    fn wait_while(&self, busy: impl Fn(&State) -> bool) {
        let mut state = lock(&self.shared.state);
        while busy(&state) && state.error.is_none() {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends all open bags and waits until all of every bag that was begun has been handed to the store, so that it is known
    /// what they hold. Objects may be put in again afterwards; others must not do so meanwhile.
    ///
    /// # Errors
    /// When the packer has stopped.
    pub fn write_out(&self) -> Result<(), Stopped> {
        self.settle()?;
        for lane in &self.shared.lanes {
            for stream in lock(lane).drain(..) {
                // A stream that is gone has left its error.
                let _ = stream.messages.send(Message::End(stream.end));
            }
        }
        self.wait_while(|state| state.unwritten > 0);
        self.check()
    }

    /// [`write_out`](Self::write_out), and waits until the store has acknowledged every bag.
    ///
    /// # Errors
    /// When the packer has stopped.
    pub fn quiesce(&self) -> Result<(), Stopped> {
        self.write_out()?;
        self.wait_while(|state| state.bags > 0);
        self.check()
    }

    /// [`quiesce`](Self::quiesce)s and ends.
    ///
    /// # Errors
    /// The store's failure that stopped it.
    pub fn finish(mut self) -> Result<(), StoreError> {
        let _ = self.quiesce();
        self.stop();
        match lock(&self.shared.state).error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn stop(&mut self) {
        let (hung_up, _) = bounded(0);
        drop(std::mem::replace(&mut self.jobs, hung_up));
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
        // What is still open is given up: hanging up tells the streams.
        for lane in &self.shared.lanes {
            lock(lane).clear();
        }
        let mut state = lock(&self.shared.state);
        while state.bags > 0 {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.stop();
    }
}

impl Shared {
    fn seal(self: &Arc<Self>, FullBlock(kind, block): FullBlock) {
        if !self.stopped.load(Ordering::Relaxed) {
            let mut sealed = Sealing::compress(block.bytes, self.options.level);
            let len = u64::try_from(sealed.len() + seal::TAG_LEN).unwrap_or(u64::MAX);
            let permit = self.budget.take(len);
            let (bag, offset, messages, queued) = self.reserve(kind, len);
            let stored = u32::try_from(len).unwrap_or(u32::MAX);
            block.slot.set(bag, offset, stored);
            self.events.placed();
            self.sealing.seal(super::block_kind(kind), bag, offset, &mut sealed);
            queued.fetch_add(len, Ordering::Relaxed);
            self.events.queued(len);
            let block = TableBlock { offset, stored, objects: block.objects };
            // A stream that is gone has left its error.
            let _ = messages.send(Message::Block { block, sealed, permit });
        }
        lock(&self.state).blocks -= 1;
        self.changed.notify_all();
    }

    /// A place for `len` bytes: in the stream with the least queued, or in a new one while all have a lot to do.
    fn reserve(self: &Arc<Self>, kind: BagKind, len: u64) -> (BagId, u64, Sender<Message>, Arc<AtomicU64>) {
        let mut lane = lock(of(&self.lanes, kind));
        let backlog = |stream: &Stream| stream.queued.load(Ordering::Relaxed);
        let least = lane.iter().map(backlog).min();
        let streams = match of(&self.stores, kind).lanes() {
            0 => self.options.streams,
            lanes => lanes,
        };
        if least.is_none_or(|least| least > SPILL && lane.len() < streams) {
            let stream = self.begin(kind);
            lane.insert(0, stream);
        }
        let at = lane.iter().enumerate().min_by_key(|(_, stream)| backlog(stream)).map_or(0, |(at, _)| at);
        let stream = &mut lane[at];
        let offset = stream.end;
        stream.end = stream.end.saturating_add(len);
        let place = (stream.bag, offset, stream.messages.clone(), Arc::clone(&stream.queued));
        if stream.end >= self.options.bag_bytes {
            let full = lane.swap_remove(at);
            let _ = full.messages.send(Message::End(full.end));
        }
        place
    }

    fn begin(self: &Arc<Self>, kind: BagKind) -> Stream {
        let bag = BagId::random();
        let (messages, receiver) = unbounded();
        let queued = Arc::new(AtomicU64::new(0));
        let mut state = lock(&self.state);
        state.bags += 1;
        state.unwritten += 1;
        drop(state);
        let (shared, seen) = (Arc::clone(self), Arc::clone(&queued));
        thread::spawn(move || {
            let (store, keep_in) = (of(&shared.stores, kind), shared.options.keep_in.as_deref());
            let mut is_written = false;
            let written = |bag: &StoredBag| {
                is_written = true;
                shared.events.written(bag);
                lock(&shared.state).unwritten -= 1;
                shared.changed.notify_all();
            };
            let outcome =
                stream::run(&**store, keep_in, &shared.sealing, (bag, kind), &receiver, &seen, written);
            // Permits of blocks that were never written are given back here.
            drop(receiver);
            shared.ended(outcome, is_written);
        });
        Stream { bag, end: HEADER as u64, messages, queued }
    }

    fn ended(&self, outcome: Result<Option<StoredBag>, StoreError>, is_written: bool) {
        if let Ok(Some(bag)) = &outcome {
            self.events.stored(bag);
        }
        let mut state = lock(&self.state);
        state.bags -= 1;
        state.unwritten -= usize::from(!is_written);
        if let Err(error) = outcome {
            self.stopped.store(true, Ordering::Relaxed);
            if state.error.as_ref().is_none_or(|earlier| earlier.kind == ErrorKind::Cancelled) {
                state.error = Some(error);
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bag::reader::BagReader;
    use crate::base::id::RepositoryId;
    use crate::crypto::{Keys, MasterKey};
    use crate::store::testing::MemoryStore;

    #[derive(Default)]
    struct Seen(Mutex<Vec<StoredBag>>);

    impl PackerEvents for Seen {
        fn placed(&self) {}
        fn queued(&self, _bytes: u64) {}
        fn stored(&self, bag: &StoredBag) {
            lock(&self.0).push(bag.clone());
        }
    }

    fn object(number: usize) -> Vec<u8> {
        let len = if number.is_multiple_of(17) { 300_000 } else { number * 7 % 9000 };
        number.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    #[test]
    fn every_object_is_where_its_reference_says() {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let sealing =
            Sealing { keys: Keys::derive(&MasterKey::random()), repository: RepositoryId::random() };
        let reader = BagReader::new(Arc::clone(&store), sealing.clone());
        let seen = Arc::new(Seen::default());
        let mut options = PackerOptions::new(Level::Off, 3);
        options.bag_bytes = 1 << 20;
        let packer = Packer::new([store.clone(), store], sealing, options, seen.clone());
        let placings: Vec<_> = (0..500)
            .map(|number| {
                let bytes = object(number);
                packer.put(BagKind::Data, reader.id_of(&bytes), &bytes).unwrap()
            })
            .collect();
        packer.quiesce().unwrap();
        for (number, placing) in placings.iter().enumerate() {
            let reference = placing.get().unwrap();
            let block = reader.block(BagKind::Data, &reference.place).unwrap();
            assert_eq!(reader.object(&reference, &block).unwrap(), object(number));
        }
        packer.finish().unwrap();
        let bags = lock(&seen.0);
        assert!(bags.len() > 4, "{} bags", bags.len());
        for bag in bags.iter() {
            let found = reader.find_table(bag.id).unwrap();
            assert_eq!(found.table, bag.table);
            assert_eq!((found.offset, found.len, found.size), (bag.table_offset, bag.table_len, bag.size));
        }
        assert_eq!(bags.iter().map(|bag| bag.table.objects()).sum::<usize>(), 500);
    }
}
