//! Keeps the bytes sent and received below a rate.
//!
//! Each direction is a bucket that runs out at its rate: who takes bytes from it waits until those taken before have had their time, less what a
//! quiet half second has saved up. Uploads are handed on in pieces, so that they do not come in gusts; a range is asked for when its turn has come. Files
//! whose length is known only afterwards, and listings, are counted when they are there.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Class, Listed, Name, Pending, SharedStore, Store, StoreError, Traffic, Upload};
use crate::base::time::Clock;

/// What a pause in the traffic may save up.
const SAVED: Duration = Duration::from_millis(500);

/// The bytes of a listing for each of its entries, roughly.
const ENTRY: u64 = 120;

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
    inner: SharedStore,
    up: Arc<Bucket>,
    down: Arc<Bucket>,
}

struct Bucket {
    /// Bytes per second.
    rate: Option<u64>,
    /// When all bytes taken so far have had their time.
    free: Mutex<Duration>,
    clock: Arc<dyn Clock>,
    pause: Arc<Pause>,
}

impl Throttled {
    /// `inner` at these rates; a rate of zero is taken for one byte per second.
    #[must_use]
    pub fn new(inner: SharedStore, rates: Rates, clock: Arc<dyn Clock>) -> Self {
        Self::with_pause(inner, rates, clock, Arc::new(thread::sleep))
    }

    /// The same with another way to wait.
    fn with_pause(inner: SharedStore, rates: Rates, clock: Arc<dyn Clock>, pause: Arc<Pause>) -> Self {
        let up = Bucket::new(rates.up, Arc::clone(&clock), Arc::clone(&pause));
        let down = Bucket::new(rates.down, clock, pause);
        Self { inner, up: Arc::new(up), down: Arc::new(down) }
    }

    /// Counts what has come when it is waited for.
    fn count<T: Send + 'static>(
        &self,
        pending: Pending<T>,
        bytes: impl FnOnce(&T) -> u64 + Send + 'static,
    ) -> Pending<T> {
        let down = Arc::clone(&self.down);
        pending.and_then(move |value| {
            down.take(bytes(&value));
            Ok(value)
        })
    }
}

fn size<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

impl Bucket {
    fn new(rate: Option<u64>, clock: Arc<dyn Clock>, pause: Arc<Pause>) -> Self {
        Self { rate: rate.map(|rate| rate.max(1)), free: Mutex::new(clock.monotonic()), clock, pause }
    }

    /// Waits until it is these bytes' turn.
    fn take(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
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

    /// How much to hand on at once: an eighth of a second's worth.
    fn piece(&self) -> usize {
        let piece = self.rate.map_or(u64::MAX, |rate| (rate / 8).max(4096));
        usize::try_from(piece).unwrap_or(usize::MAX)
    }
}

impl Store for Throttled {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        self.count(self.inner.list(dir), |files| size(files).saturating_mul(ENTRY))
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        self.down.take(len);
        self.inner.read(name, offset, len)
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        self.count(self.inner.read_tail(name, len), |(bytes, _)| size(bytes))
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        self.count(self.inner.read_all(name, limit), |bytes| size(bytes))
    }

    fn create(&self, name: &Name, class: Class) -> Box<dyn Upload> {
        Box::new(ThrottledUpload { inner: self.inner.create(name, class), up: Arc::clone(&self.up) })
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        self.inner.rename(from, to)
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        self.inner.make_dir(dir)
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
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
        while bytes.len() > self.up.piece() {
            let later = bytes.split_off(self.up.piece());
            self.up.take(size(&bytes));
            self.inner.append(std::mem::replace(&mut bytes, later))?;
        }
        self.up.take(size(&bytes));
        self.inner.append(bytes)
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
        );
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
