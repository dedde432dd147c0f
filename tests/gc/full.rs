//! Collections on a disk that fills up at any moment, and has room again afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use kitbag::gc::{GcError, Limits, Options};
use kitbag::store::testing::MemoryStore;
use kitbag::store::{
    Class, ErrorKind, Listed, Name, Pending, SharedStore, Store, StoreError, Traffic, Upload,
};

use crate::bench::{Bench, collect, noise, saved_files};

/// A store with room for so many calls that need room. Removing and renaming need none.
#[derive(Clone)]
struct Filling {
    inner: SharedStore,
    left: Arc<AtomicI64>,
    asked: Arc<AtomicU64>,
}

impl Filling {
    fn new(memory: &MemoryStore, left: i64) -> Self {
        let inner: SharedStore = Arc::new(memory.clone());
        Self { inner, left: Arc::new(AtomicI64::new(left)), asked: Arc::default() }
    }

    fn take(&self, what: &'static str, name: &Name) -> Result<(), StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            return Ok(());
        }
        Err(StoreError::new(ErrorKind::NoSpace, what, name, "the disk is full"))
    }
}

struct Part {
    store: Filling,
    name: Name,
    inner: Option<Box<dyn Upload>>,
    failure: Option<StoreError>,
}

impl Upload for Part {
    fn created(&mut self) -> Result<(), StoreError> {
        match (&self.failure, &mut self.inner) {
            (Some(error), _) => Err(error.duplicate()),
            (None, Some(inner)) => inner.created(),
            (None, None) => Ok(()),
        }
    }

    fn append(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.created()?;
        if let Err(error) = self.store.take("write", &self.name) {
            self.failure = Some(error.duplicate());
            return Err(error);
        }
        self.inner.as_mut().map_or(Ok(()), |inner| inner.append(bytes))
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        self.created()?;
        self.inner.as_mut().map_or(Ok(()), |inner| inner.finish())
    }

    fn commit(mut self: Box<Self>, name: &Name) -> Pending<()> {
        if let Err(error) = self.created() {
            return Pending::ready(Err(error));
        }
        match self.inner.take() {
            Some(inner) => inner.commit(name),
            None => Pending::ready(Ok(())),
        }
    }
}

impl Store for Filling {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        self.inner.list(dir)
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        self.inner.read(name, offset, len)
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        self.inner.read_tail(name, len)
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        self.inner.read_all(name, limit)
    }

    fn create(&self, name: &Name, class: Class) -> Box<dyn Upload> {
        let failure = self.take("create", name).err();
        let inner = failure.is_none().then(|| self.inner.create(name, class));
        Box::new(Part { store: self.clone(), name: name.clone(), inner, failure })
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        self.inner.rename(from, to)
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        match self.take("make", dir) {
            Ok(()) => self.inner.make_dir(dir),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

fn some_nights() -> Bench {
    let bench = Bench::new();
    let client = bench.client("laptop");
    client.write("kept", &noise(1000, 9000));
    for night in 0..5 {
        client.write(&format!("new/{night}"), &noise(night, 3000));
        client.write("changes", &noise(100 + night, 4000 + usize::try_from(night).unwrap()));
        client.backup();
    }
    bench
}

/// Forgets, and collects on a disk that has room for so many calls, for all numbers of them; how many it takes.
fn filled_everywhere(options: &Options) -> u64 {
    let start = some_nights();
    let mut all = start.generations();
    all.sort_by_key(|(_, generation)| generation.started);
    let files: Vec<_> =
        all[3..].iter().map(|(_, generation)| saved_files(&start.repository, generation)).collect();
    for room in 0.. {
        let memory = start.memory.snapshot();
        let filling = Filling::new(&memory, room);
        let bench = Bench {
            repository: start.over(Arc::new(filling.clone())),
            memory: memory.clone(),
            clock: Arc::clone(&start.clock),
        };
        // Forgetting needs no room.
        all[..3].iter().for_each(|(client, generation)| bench.forget(*client, generation.id));
        let outcome = collect(&bench.repository, options);
        let is_full = filling.left.load(Ordering::Relaxed) < 0;
        match outcome {
            Ok(_) => {}
            Err(GcError::Store(error)) => assert_eq!(error.kind, ErrorKind::NoSpace, "room for {room}"),
            Err(GcError::Session(error)) => assert!(error.to_string().contains("full"), "{error}"),
            Err(other) => panic!("room for {room}: {other}"),
        }
        let rest = Bench {
            repository: start.over(Arc::new(memory.clone())),
            memory,
            clock: Arc::clone(&start.clock),
        };
        let can_be_read = |when: &str| {
            for ((_, generation), files) in all[3..].iter().zip(&files) {
                assert!(&saved_files(&rest.repository, generation) == files, "{when}: room for {room}");
            }
        };
        can_be_read("on a full disk");
        rest.fsck();
        // There is room again.
        collect(&rest.repository, options).unwrap();
        collect(&rest.repository, options).unwrap();
        can_be_read("with room again");
        rest.assert_clean();
        if !is_full {
            return filling.asked.load(Ordering::Relaxed);
        }
    }
    0
}

#[test]
fn a_collection_may_run_out_of_room_anywhere() {
    let calls = filled_everywhere(&Options::new("collector"));
    assert!(calls > 5, "{calls}");
}

#[test]
fn a_repacking_collection_may_run_out_of_room_anywhere() {
    let repack = Limits { most: 1 << 30, small: 1 << 20, many: 2, waste: 1 };
    let calls = filled_everywhere(&Options { repack, ..Options::new("collector") });
    assert!(calls > 20, "{calls}");
}
