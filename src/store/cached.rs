//! Reads tree bags and small sealed files through the local cache.
//!
//! What is stored is immutable, so a copy is as good as the original, and whoever opens its seal decides whether it is one: who finds it broken calls
//! [`Store::forget`] and reads again. A tree bag of which a part is wanted is fetched whole, once however many ask for it, since the pages of a tree lie together.
//! What is written through this store is kept as it is committed.
//!
//! Every bag read or written here is taken for a tree bag: data bags are read and written beside it, through the store below.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::{Class, ErrorKind, Listed, Name, Pending, SharedStore, Store, StoreError, Traffic, Upload};
use crate::cache::{Cache, CacheFilling, Kind};

/// A larger bag is not fetched whole.
const LARGEST_BAG: u64 = 128 << 20;

/// Bytes of a bag that are asked for before its length is known: those of a night's tree.
const USUAL_BAG: u64 = 255 << 10;

/// Another store, with the cache of its repository before it.
pub struct CachedStore {
    inner: SharedStore,
    cache: Cache,
    /// Bags under way or still in somebody's hands.
    fetches: Mutex<HashMap<Name, Weak<Fetch>>>,
}

/// A bag under way: whoever needs it first waits for it, the others for him.
struct Fetch {
    pending: Mutex<Option<Pending<Vec<u8>>>>,
    bytes: OnceLock<Result<Vec<u8>, StoreError>>,
}

impl CachedStore {
    /// `inner`, whose repository is the one that `cache` belongs to.
    #[must_use]
    pub fn new(inner: SharedStore, cache: Cache) -> Self {
        Self { inner, cache, fetches: Mutex::default() }
    }

    /// The bag as a whole, on its way from the store below from now on.
    fn fetch(&self, name: &Name) -> Arc<Fetch> {
        let mut fetches = self.fetches();
        if let Some(fetch) = fetches.get(name).and_then(Weak::upgrade) {
            return fetch;
        }
        fetches.retain(|_, fetch| fetch.strong_count() > 0);
        let pending = Mutex::new(Some(self.inner.read_expected(name, LARGEST_BAG, USUAL_BAG)));
        let fetch = Arc::new(Fetch { pending, bytes: OnceLock::new() });
        fetches.insert(name.clone(), Arc::downgrade(&fetch));
        fetch
    }

    fn fetches(&self) -> MutexGuard<'_, HashMap<Name, Weak<Fetch>>> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of a bag, as `cut` takes it from the whole; `direct` asks the store below for it when the bag is too large.
    fn part<T: Send + 'static>(
        &self,
        name: &Name,
        cut: impl FnOnce(&[u8]) -> Result<T, StoreError> + Send + 'static,
        direct: impl FnOnce(&dyn Store) -> Pending<T> + Send + 'static,
    ) -> Pending<T> {
        let (fetch, cache, inner, name) =
            (self.fetch(name), self.cache.clone(), Arc::clone(&self.inner), name.clone());
        Pending::ready(Ok(())).and_then(move |()| match fetch.wait(&cache, &name) {
            Ok(bytes) => cut(bytes),
            Err(error) if error.kind == ErrorKind::TooLong => direct(&*inner).wait(),
            Err(error) => Err(error.duplicate()),
        })
    }

    /// A whole file, which `ask` asks the store below for.
    fn whole(
        &self,
        name: &Name,
        limit: u64,
        ask: impl FnOnce(&dyn Store) -> Pending<Vec<u8>>,
    ) -> Pending<Vec<u8>> {
        let Some((kind, key)) = place(name) else {
            return ask(&*self.inner);
        };
        let fits = |len: &u64| *len <= limit;
        let kept = self.cache.len_of(kind, &key).filter(fits).and_then(|_| self.cache.get(kind, &key));
        if let Some(bytes) = kept {
            return Pending::ready(Ok(bytes));
        }
        let cache = self.cache.clone();
        ask(&*self.inner).and_then(move |bytes| {
            cache.put(kind, &key, &bytes);
            Ok(bytes)
        })
    }
}

impl Fetch {
    fn wait(&self, cache: &Cache, name: &Name) -> &Result<Vec<u8>, StoreError> {
        self.bytes.get_or_init(|| {
            let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
            let bytes = match pending {
                Some(pending) => pending.wait()?,
                None => {
                    return Err(StoreError::new(ErrorKind::Other, "read", name, "reading it was given up"));
                }
            };
            if let Some((kind, key)) = place(name) {
                cache.put(kind, &key, &bytes);
            }
            Ok(bytes)
        })
    }
}

/// Where a file is kept in the cache; `None` for what is not.
fn place(name: &Name) -> Option<(Kind, String)> {
    // Temporary files have an ending; where others have one, too, it is not this.
    let has_others = ["condemned/", "generations/"].iter().any(|dir| name.as_str().starts_with(dir));
    if name.last().ends_with(".part") || (name.last().contains('.') && !has_others) {
        return None;
    }
    let key = || name.as_str().replace('/', "+");
    match name.as_str().split_once('/')?.0 {
        "bags" => Some((Kind::Bag, name.last().to_owned())),
        "index" => Some((Kind::Segment, name.last().to_owned())),
        "generations" | "condemned" | "moved" => Some((Kind::Record, key())),
        _ => None,
    }
}

fn range(bytes: &[u8], name: &Name, offset: u64, len: u64) -> Result<Vec<u8>, StoreError> {
    let range = offset.checked_add(len).and_then(|end| {
        let (start, end) = (usize::try_from(offset).ok()?, usize::try_from(end).ok()?);
        bytes.get(start..end)
    });
    range.map(<[u8]>::to_vec).ok_or_else(|| {
        let detail =
            format!("it ends at byte {}, before the end of the {len} bytes from {offset}", bytes.len());
        StoreError::new(ErrorKind::Truncated, "read", name, detail)
    })
}

impl Store for CachedStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        self.inner.list(dir)
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        let Some((kind, key)) = place(name).filter(|_| !self.cache.is_disabled()) else {
            return self.inner.read(name, offset, len);
        };
        if let Some(bytes) = self.cache.get_range(kind, &key, offset, len) {
            return Pending::ready(Ok(bytes));
        }
        let (cut_name, direct_name) = (name.clone(), name.clone());
        self.part(
            name,
            move |bytes| range(bytes, &cut_name, offset, len),
            move |inner| inner.read(&direct_name, offset, len),
        )
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        let Some((kind, key)) = place(name).filter(|_| !self.cache.is_disabled()) else {
            return self.inner.read_tail(name, len);
        };
        if let Some(tail) = self.cache.get_tail(kind, &key, len) {
            return Pending::ready(Ok(tail));
        }
        let (cut_name, direct_name) = (name.clone(), name.clone());
        self.part(
            name,
            move |bytes| {
                let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let len = len.min(size);
                Ok((range(bytes, &cut_name, size.saturating_sub(len), len)?, size))
            },
            move |inner| inner.read_tail(&direct_name, len),
        )
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        self.whole(name, limit, |inner| inner.read_all(name, limit))
    }

    fn read_expected(&self, name: &Name, limit: u64, expected: u64) -> Pending<Vec<u8>> {
        self.whole(name, limit, |inner| inner.read_expected(name, limit, expected))
    }

    fn forget(&self, name: &Name) {
        if let Some((kind, key)) = place(name) {
            self.cache.remove(kind, &key);
        }
    }

    fn create(&self, name: &Name, class: Class) -> Box<dyn Upload> {
        let (inner, filling) = (self.inner.create(name, class), self.cache.fill());
        Box::new(CachedUpload { inner, filling })
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        self.forget(name);
        self.inner.remove(name)
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        self.forget(from);
        self.inner.rename(from, to)
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        self.inner.make_dir(dir)
    }

    fn lanes(&self) -> usize {
        self.inner.lanes()
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

struct CachedUpload {
    inner: Box<dyn Upload>,
    filling: CacheFilling,
}

impl Upload for CachedUpload {
    fn created(&mut self) -> Result<(), StoreError> {
        self.inner.created()
    }

    fn append(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.filling.append(&bytes);
        self.inner.append(bytes)
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        self.inner.finish()
    }

    fn commit(self: Box<Self>, name: &Name) -> Pending<()> {
        let Self { inner, filling } = *self;
        let place = place(name);
        inner.commit(name).and_then(move |()| {
            if let Some((kind, key)) = place {
                filling.finish(kind, &key);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract;
    use crate::store::testing::{CallLog, Fault, FaultyStore, MemoryStore, Op};

    struct Setup {
        _dir: tempfile::TempDir,
        memory: MemoryStore,
        log: CallLog,
        cache: Cache,
        store: CachedStore,
    }

    fn setup() -> Setup {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), 1 << 30).unwrap();
        let memory = MemoryStore::new();
        let log = CallLog::new(Arc::new(memory.clone()));
        let store = CachedStore::new(Arc::new(log.clone()), cache.clone());
        Setup { _dir: dir, memory, log, cache, store }
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn keeps_the_promises() {
        contract::run(&|| Arc::new(setup().store));
        contract::run(&|| Arc::new(CachedStore::new(Arc::new(MemoryStore::new()), Cache::disabled())));
    }

    #[test]
    fn a_bag_is_fetched_once() {
        let setup = setup();
        let bag = name("bags/00/00ff");
        setup.memory.put(&bag, (0..100).collect());
        let parts: Vec<_> = (0..10).map(|at| setup.store.read(&bag, at * 10, 10)).collect();
        let tail = setup.store.read_tail(&bag, 2);
        assert_eq!(setup.log.lines(), ["ReadAll bags/00/00ff"]);
        for (at, part) in (0_u8..).zip(parts) {
            assert_eq!(part.wait().unwrap(), (at * 10..at * 10 + 10).collect::<Vec<u8>>());
        }
        assert_eq!(tail.wait().unwrap(), (vec![98, 99], 100));
        setup.memory.delete(&bag);
        assert_eq!(setup.store.read(&bag, 5, 1).wait().unwrap(), [5]);
        assert_eq!(setup.store.read_tail(&bag, 1).wait().unwrap(), (vec![99], 100));
        assert_eq!(setup.store.read_all(&bag, 100).wait().unwrap().len(), 100);
        assert_eq!(setup.log.lines().len(), 1);
        setup.store.forget(&bag);
        assert_eq!(setup.store.read(&bag, 5, 1).wait().unwrap_err().kind, ErrorKind::NotFound);
    }

    #[test]
    fn a_range_beyond_the_end_stays_truncated() {
        let setup = setup();
        let bag = name("bags/00/00ff");
        setup.memory.put(&bag, vec![1; 10]);
        for _ in 0..2 {
            assert_eq!(setup.store.read(&bag, 5, 6).wait().unwrap_err().kind, ErrorKind::Truncated);
        }
    }

    #[test]
    fn a_failure_is_not_kept() {
        let setup = setup();
        let unreachable = vec![Fault::fail(Op::ReadAll, ErrorKind::Unreachable)];
        let faulty = FaultyStore::new(Arc::new(setup.memory.clone()), unreachable);
        let store = CachedStore::new(Arc::new(faulty.clone()), setup.cache.clone());
        let bag = name("bags/00/00ff");
        setup.memory.put(&bag, vec![1; 10]);
        assert_eq!(store.read(&bag, 0, 1).wait().unwrap_err().kind, ErrorKind::Unreachable);
        assert_eq!(store.read(&bag, 0, 1).wait().unwrap(), [1]);
        assert_eq!(setup.cache.names(Kind::Bag).len(), 1);
        setup.store.forget(&bag);
        faulty.add(Fault::fail(Op::ReadAll, ErrorKind::TooLong));
        assert_eq!(store.read(&bag, 0, 1).wait().unwrap(), [1]);
        faulty.finish();
    }

    #[test]
    fn small_files_are_read_once_and_kept_when_written() {
        let setup = setup();
        for text in [
            "index/aa",
            "generations/c/aa",
            "generations/c/aa.bb",
            "condemned/aa",
            "condemned/aa.waits",
            "moved/aa",
            "bags/00/aa",
        ] {
            let file = name(text);
            let mut upload = setup.store.create(&name("sessions/x"), Class::Control);
            upload.append(text.as_bytes().to_vec()).unwrap();
            upload.commit(&file).wait().unwrap();
            assert_eq!(setup.store.read_all(&file, 100).wait().unwrap(), text.as_bytes());
            assert_eq!(setup.log.count(Op::ReadAll), 0, "{text}");
            setup.store.forget(&file);
            for _ in 0..2 {
                assert_eq!(setup.store.read_all(&file, 100).wait().unwrap(), text.as_bytes());
            }
            assert_eq!(setup.log.count(Op::ReadAll), 1, "{text}");
            assert_eq!(setup.store.read_all(&file, 1).wait().unwrap_err().kind, ErrorKind::TooLong);
            setup.store.remove(&file).wait().unwrap();
            assert_eq!(setup.store.read_all(&file, 100).wait().unwrap_err().kind, ErrorKind::NotFound);
            setup.log.clear();
        }
    }

    #[test]
    fn what_may_change_or_is_secret_is_not_kept() {
        let setup = setup();
        for text in ["config", "keys/aa", "sessions/aa.bb", "bags/00/aa.part", "generations/c/aa.bb.part"] {
            setup.memory.put(&name(text), vec![1]);
            setup.store.read_all(&name(text), 10).wait().unwrap();
        }
        assert!(setup.cache.info().iter().all(|usage| usage.files == 0));
    }

    #[test]
    fn a_commit_that_fails_is_not_kept() {
        let setup = setup();
        let taken = name("index/aa");
        setup.memory.put(&taken, vec![1]);
        let mut upload = setup.store.create(&name("sessions/x"), Class::Control);
        upload.append(vec![2]).unwrap();
        assert!(upload.commit(&taken).wait().is_err());
        assert_eq!(setup.store.read_all(&taken, 10).wait().unwrap(), [1]);
    }

    #[test]
    fn damage_in_the_cache_is_fetched_again() {
        let setup = setup();
        let bag = name("bags/00/aa");
        setup.memory.put(&bag, vec![7; 1000]);
        setup.store.read(&bag, 0, 10).wait().unwrap();
        let copy = setup._dir.path().join("bags/aa");
        for damage in 0..3 {
            match damage {
                0 => std::fs::remove_file(&copy).unwrap(),
                1 => std::fs::write(&copy, [7; 500]).unwrap(),
                _ => {
                    let mut bytes = std::fs::read(&copy).unwrap();
                    bytes[3] ^= 1;
                    std::fs::write(&copy, bytes).unwrap();
                }
            }
            setup.log.clear();
            assert_eq!(setup.store.read(&bag, 0, 10).wait().unwrap(), [7; 10]);
            assert_eq!(setup.log.count(Op::ReadAll), 1);
        }
    }
}
