//! Keeps the bytes sent and received below a rate.
//!
//! Each direction is a bucket of tokens that fills at its rate and holds half a second's worth: who takes bytes from it waits until
//! there are so many. So that they do not come in gusts, bytes travel in pieces of a fraction of a second: uploads are handed on in
//! such pieces, and a long range is asked for in them, each when its turn has come, by a thread that does nothing else; whoever
//! asked need not wait yet. Files whose length is not known are begun at their end, which tells it. Listings are counted when
//! they are there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, unbounded};

use super::{
    Class, Completer, ErrorKind, GiveUp, Listed, Name, Pending, SharedStore, Store, StoreError, Traffic,
    Upload,
};
use crate::base::time::Clock;

/// What a pause in the traffic may save up.
const SAVED: Duration = Duration::from_millis(500);

/// The bytes of a listing for each of its entries, roughly.
const ENTRY: u64 = 120;

/// The least that travels at once: each piece of a range costs requests of its own.
const LEAST_UP: u64 = 4 << 10;

/// See [`LEAST_UP`].
const LEAST_DOWN: u64 = 64 << 10;

/// Bytes per second; `None` for as many as there can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// To the store.
    pub up: Option<u64>,
    /// From the store.
    pub down: Option<u64>,
}

/// Waits for this long.
type Pause = dyn Fn(Duration) + Send + Sync;

/// Another store, at limited rates that all its users share.
pub struct Throttled {
    down: Arc<Downward>,
    up: Arc<Bucket>,
}

/// A limited way from the store.
struct Downward {
    inner: SharedStore,
    bucket: Bucket,
    ranges: Sender<Range>,
}

/// A long range to be asked for in pieces.
struct Range {
    name: Name,
    offset: u64,
    len: u64,
    /// Is given the pieces when all are asked for.
    pieces: Completer<Vec<Pending<Vec<u8>>>>,
}

struct Bucket {
    /// Bytes per second.
    rate: Option<u64>,
    /// When all bytes taken so far have had their time.
    free: Mutex<Duration>,
    clock: Arc<dyn Clock>,
    pause: Arc<Pause>,
    /// Nobody waits any more.
    is_open: AtomicBool,
}

impl Throttled {
    /// `inner` at these rates; a rate of zero is taken for one byte per second.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn new(inner: SharedStore, rates: Rates, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::with_pause(inner, rates, clock, Arc::new(thread::sleep))
    }

    /// The same with another way to wait.
    fn with_pause(
        inner: SharedStore,
        rates: Rates,
        clock: Arc<dyn Clock>,
        pause: Arc<Pause>,
    ) -> Result<Self, StoreError> {
        let up = Bucket::new(rates.up, Arc::clone(&clock), Arc::clone(&pause));
        let bucket = Bucket::new(rates.down, clock, pause);
        let (ranges, wanted) = unbounded::<Range>();
        let down = Arc::new(Downward { inner, bucket, ranges });
        // It ends with its last user, who holds the sender.
        let asking = Arc::downgrade(&down);
        let ask = move || {
            for range in wanted {
                match asking.upgrade() {
                    Some(down) => down.ask(range),
                    None => return,
                }
            }
        };
        let failed = |error| StoreError::from_io("limit the rate of", down.inner.describe(), error);
        thread::Builder::new().name("throttle".to_owned()).spawn(ask).map_err(failed)?;
        Ok(Self { down, up: Arc::new(up) })
    }
}

fn size<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

impl Downward {
    /// A range, at once if it is short.
    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        if len <= self.piece() {
            self.bucket.take(len);
            return self.inner.read(name, offset, len);
        }
        let (pieces, asked) = Pending::later();
        // A thread that is gone drops the completer, which tells whoever waits.
        let _ = self.ranges.send(Range { name: name.clone(), offset, len, pieces });
        asked.and_then(|pieces| {
            let mut bytes = Vec::new();
            for piece in pieces {
                bytes.append(&mut piece.wait()?);
            }
            Ok(bytes)
        })
    }

    /// Asks for the pieces of a long range, each in its time.
    fn ask(&self, Range { name, offset, len, pieces }: Range) {
        let mut asked = Vec::new();
        let mut done = 0;
        while done < len {
            let piece = self.piece().min(len.saturating_sub(done));
            self.bucket.take(piece);
            asked.push(self.inner.read(&name, offset.saturating_add(done), piece));
            done = done.saturating_add(piece);
        }
        pieces.complete(Ok(asked));
    }

    /// The last bytes of a file, as many as `wanted` says for its size, and the size.
    fn read_end(
        self: &Arc<Self>,
        name: &Name,
        most: u64,
        wanted: impl FnOnce(u64) -> Result<u64, StoreError> + Send + 'static,
    ) -> Pending<(Vec<u8>, u64)> {
        let (this, name) = (Arc::clone(self), name.clone());
        self.inner.read_tail(&name, most.min(self.piece())).and_then(move |(mut tail, size_of_all)| {
            this.bucket.take(size(&tail));
            let len = wanted(size_of_all)?;
            let missing = len.saturating_sub(size(&tail));
            if missing > 0 {
                let mut bytes = this.read(&name, size_of_all.saturating_sub(len), missing).wait()?;
                bytes.append(&mut tail);
                tail = bytes;
            }
            Ok((tail, size_of_all))
        })
    }

    /// How much to ask for at once: a quarter of a second's worth.
    fn piece(&self) -> u64 {
        self.bucket.share(4, LEAST_DOWN)
    }
}

impl Bucket {
    fn new(rate: Option<u64>, clock: Arc<dyn Clock>, pause: Arc<Pause>) -> Self {
        Self {
            rate: rate.map(|rate| rate.max(1)),
            free: Mutex::new(clock.monotonic()),
            clock,
            pause,
            is_open: AtomicBool::new(false),
        }
    }

    /// From now on nothing has to wait: it will fail without being sent.
    fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Waits until it is these bytes' turn.
    fn take(&self, bytes: u64) {
        let Some(rate) = self.rate.filter(|_| !self.is_open.load(Ordering::Relaxed)) else { return };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let needed = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let wait = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.monotonic();
            let turn = (*free).max(now.saturating_sub(SAVED));
            *free = turn.saturating_add(needed);
            turn.saturating_sub(now)
        };
        if !wait.is_zero() {
            (self.pause)(wait);
        }
    }

    /// What passes in a fraction of a second, but at least so much.
    fn share(&self, fraction: u64, least: u64) -> u64 {
        self.rate.map_or(u64::MAX, |rate| (rate / fraction).max(least))
    }
}

impl Store for Throttled {
    fn describe(&self) -> String {
        self.down.inner.describe()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        let down = Arc::clone(&self.down);
        self.down.inner.list(dir).and_then(move |files| {
            down.bucket.take(size(&files).saturating_mul(ENTRY));
            Ok(files)
        })
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        self.down.read(name, offset, len)
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        self.down.read_end(name, len, move |size| Ok(size.min(len)))
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        if limit <= self.down.piece() {
            let down = Arc::clone(&self.down);
            return self.down.inner.read_all(name, limit).and_then(move |bytes| {
                down.bucket.take(size(&bytes));
                Ok(bytes)
            });
        }
        let subject = name.clone();
        let wanted = move |size| {
            let detail = format!("it has {size} bytes, at most {limit} were expected");
            let too_long = StoreError::new(ErrorKind::TooLong, "read", subject, detail);
            if size <= limit { Ok(size) } else { Err(too_long) }
        };
        self.down.read_end(name, limit, wanted).and_then(|(bytes, _)| Ok(bytes))
    }

    fn create(&self, name: &Name, class: Class) -> Box<dyn Upload> {
        Box::new(ThrottledUpload { inner: self.down.inner.create(name, class), up: Arc::clone(&self.up) })
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        self.down.inner.remove(name)
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        self.down.inner.rename(from, to)
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        self.down.inner.make_dir(dir)
    }

    fn lanes(&self) -> usize {
        self.down.inner.lanes()
    }

    fn give_up(&self, when: GiveUp) {
        self.down.inner.give_up(when);
        if when == GiveUp::Anyway {
            self.up.open();
            self.down.bucket.open();
        }
    }

    fn traffic(&self) -> Traffic {
        self.down.inner.traffic()
    }
}

struct ThrottledUpload {
    inner: Box<dyn Upload>,
    up: Arc<Bucket>,
}

impl Upload for ThrottledUpload {
    fn created(&mut self) -> Result<(), StoreError> {
        self.inner.created()
    }

    fn append(&mut self, mut bytes: Vec<u8>) -> Result<(), StoreError> {
        // An eighth of a second's worth at once.
        let piece = usize::try_from(self.up.share(8, LEAST_UP)).unwrap_or(usize::MAX);
        while bytes.len() > piece {
            let later = bytes.split_off(piece);
            self.up.take(size(&bytes));
            self.inner.append(std::mem::replace(&mut bytes, later))?;
        }
        self.up.take(size(&bytes));
        self.inner.append(bytes)
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        self.inner.finish()
    }

    fn commit(self: Box<Self>, name: &Name) -> Pending<()> {
        self.inner.commit(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::store::contract;
    use crate::store::testing::{CallLog, MemoryStore, Op};

    /// Stands still, unless somebody waits.
    #[derive(Clone, Default)]
    struct Still(Arc<Mutex<Duration>>);

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            *self.0.lock().unwrap()
        }
    }

    impl Still {
        fn advance(&self, time: Duration) {
            *self.0.lock().unwrap() += time;
        }
    }

    fn throttled(rates: Rates) -> (CallLog, Still, Throttled) {
        let log = CallLog::new(Arc::new(MemoryStore::new()));
        let clock = Still::default();
        let waits = clock.clone();
        let store = Throttled::with_pause(
            Arc::new(log.clone()),
            rates,
            Arc::new(clock.clone()),
            Arc::new(move |time| waits.advance(time)),
        )
        .unwrap();
        (log, clock, store)
    }

    fn put(store: &dyn Store, bytes: usize) {
        let name = Name::join(&["x"]);
        let mut upload = store.create(&name.with_suffix(".part"), Class::Bulk);
        upload.append(vec![1; bytes]).unwrap();
        upload.commit(&name).wait().unwrap();
    }

    #[test]
    fn keeps_the_promises() {
        contract::run(&|| Arc::new(throttled(Rates::default()).2));
        let slow = Rates { up: Some(100_000), down: Some(100_000) };
        contract::run(&|| Arc::new(throttled(slow).2));
    }

    #[test]
    fn uploads_take_their_time_in_pieces() {
        let (log, clock, store) = throttled(Rates { up: Some(1_000_000), down: None });
        put(&store, 10_000_000);
        let seconds = clock.monotonic().as_secs_f64();
        assert!((9.0..=10.0).contains(&seconds), "{seconds}");
        assert_eq!(log.count(Op::Append), 80);
        let before = clock.monotonic();
        store.read(&Name::join(&["x"]), 0, 10_000_000).wait().unwrap();
        assert_eq!(clock.monotonic(), before);
    }

    #[test]
    fn downloads_take_their_time() {
        let (_, clock, store) = throttled(Rates { up: None, down: Some(1000) });
        put(&store, 10_000);
        assert_eq!(clock.monotonic(), Duration::ZERO);
        let name = Name::join(&["x"]);
        for at in 0..10 {
            store.read(&name, at * 1000, 1000).wait().unwrap();
        }
        store.read_all(&name, 10_000).wait().unwrap();
        // The last one's time is what the next has to wait for.
        assert_eq!(clock.monotonic(), Duration::from_secs(10));
        store.read_tail(&name, 1).wait().unwrap();
        assert_eq!(clock.monotonic(), Duration::from_secs(20));
    }

    #[test]
    fn long_ranges_come_in_pieces() {
        let (log, clock, store) = throttled(Rates { up: None, down: Some(1_000_000) });
        let name = Name::join(&["x"]);
        put(&store, 10_000_000);
        log.clear();
        let all = store.read(&name, 0, 10_000_000).wait().unwrap();
        assert_eq!(all.len(), 10_000_000);
        assert_eq!((log.count(Op::Read), clock.monotonic()), (40, Duration::from_millis(9_750)));

        // What is longer than it seems is asked for from its end.
        log.clear();
        assert_eq!(store.read_all(&name, 20_000_000).wait().unwrap(), all);
        assert_eq!((log.count(Op::ReadTail), log.count(Op::Read)), (1, 39));
        assert_eq!(
            store.read_tail(&name, 5_000_000).wait().unwrap(),
            (all[5_000_000..].to_vec(), 10_000_000)
        );
        let kind = store.read_all(&name, 9_999_999).wait().unwrap_err().kind;
        assert_eq!(kind, ErrorKind::TooLong);
        let seconds = clock.monotonic().as_secs_f64();
        assert!((24.0..=25.5).contains(&seconds), "{seconds}");
    }

    #[test]
    fn whoever_asks_for_a_long_range_need_not_wait() {
        let (_, clock, store) = throttled(Rates { up: None, down: Some(1_000_000) });
        put(&store, 1_000_000);
        let gone = store.read(&Name::join(&["gone"]), 0, 1_000_000);
        let first = store.read(&Name::join(&["x"]), 0, 1_000_000);
        assert_eq!(first.wait().unwrap().len(), 1_000_000);
        assert_eq!(gone.wait().unwrap_err().kind, ErrorKind::NotFound);
        assert!(clock.monotonic() >= Duration::from_millis(1_500));
    }

    #[test]
    fn nobody_waits_for_a_store_that_was_given_up() {
        let (_, clock, store) = throttled(Rates { up: Some(1000), down: None });
        let before = clock.monotonic();
        store.give_up(GiveUp::Anyway);
        let mut upload = store.create(&Name::join(&["file.part"]), Class::Bulk);
        upload.append(vec![1; 1_000_000]).unwrap();
        assert_eq!(clock.monotonic(), before);
    }

    #[test]
    fn a_long_pause_saves_up_little() {
        let (_, clock, store) = throttled(Rates { up: Some(1000), down: None });
        clock.advance(Duration::from_secs(3600));
        put(&store, 4096);
        let start = clock.monotonic();
        store.create(&Name::join(&["y"]), Class::Bulk).append(vec![0]).unwrap();
        let waited = clock.monotonic() - start;
        assert_eq!(waited, Duration::from_millis(4096 - 500));
    }
}
