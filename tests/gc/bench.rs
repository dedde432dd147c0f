//! Several clients, each with a small tree, and one repository in memory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kitbag::backup;
use kitbag::bag::BagKind;
use kitbag::bag::source::Source;
use kitbag::base::cancel::Cancel;
use kitbag::base::id::{ClientId, GenerationId};
use kitbag::base::secret::Passphrase;
use kitbag::base::time::{Clock, SystemClock, Timestamp};
use kitbag::cache::Cache;
use kitbag::chunker::Limits;
use kitbag::compress::Level;
use kitbag::crypto::Cost;
use kitbag::dir::reader;
use kitbag::entry::{Content, Entry, Piece};
use kitbag::fsck;
use kitbag::gc::{self, GcError, Options, Summary};
use kitbag::generation::Generation;
use kitbag::live::exclude::Rules;
use kitbag::monitor::Monitor;
use kitbag::monitor::collect::Collect;
use kitbag::repo::{Encryption, InitOptions, Repository, Stored, init};
use kitbag::store::testing::MemoryStore;
use kitbag::store::{SharedStore, Store as _, layout};

/// The files of a tree: contents by path.
pub type Files = BTreeMap<Vec<u8>, Vec<u8>>;

/// A clock that is always ahead of the file system's, so that a file that was saved a moment ago counts as unchanged.
pub struct Ahead(AtomicI64);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        let ahead = self.0.fetch_add(10, Ordering::Relaxed);
        let now = SystemClock::new().now();
        Timestamp { secs: now.secs + ahead, nanos: 1 }
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// A repository in memory.
pub struct Bench {
    pub memory: MemoryStore,
    pub repository: Repository,
    pub clock: Arc<Ahead>,
}

/// A machine that is backed up.
pub struct Client {
    pub name: String,
    pub repository: Repository,
    pub live: tempfile::TempDir,
    _cache: Option<tempfile::TempDir>,
    pub clock: Arc<Ahead>,
    pub checkpoint: backup::Every,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(Encryption::None)
    }

    /// One that is opened by a passphrase, which costs next to nothing.
    pub fn with_passphrase() -> Self {
        Self::with(Encryption::Passphrase(passphrase(), Cost::new(8, 1, 1).unwrap()))
    }

    fn with(encryption: Encryption) -> Self {
        let memory = MemoryStore::new();
        let limits = Limits { min: 512, avg: 1024, max: 4096 };
        let options = InitOptions { encryption, label: String::new(), limits };
        let repository = init(Arc::new(memory.clone()), options, &SystemClock::new()).unwrap();
        Self { memory, repository, clock: Arc::new(Ahead(AtomicI64::new(60))) }
    }

    /// The repository through another store.
    pub fn over(&self, store: SharedStore) -> Repository {
        Stored::read(&self.memory).unwrap().unlock(store, &mut |_| Some(passphrase().into())).unwrap()
    }

    pub fn client(&self, name: &str) -> Client {
        self.client_over(name, self.repository.clone(), false)
    }

    pub fn client_over(&self, name: &str, repository: Repository, is_cached: bool) -> Client {
        let cache = is_cached.then(quick_dir);
        let repository = match &cache {
            Some(dir) => repository.with_cache(Cache::open(dir.path(), 1 << 30).unwrap()),
            None => repository,
        };
        let clock = Arc::clone(&self.clock);
        let live = tempfile::tempdir().unwrap();
        Client {
            name: name.to_owned(),
            repository,
            live,
            _cache: cache,
            clock,
            checkpoint: backup::Every::default(),
        }
    }

    /// Forgets a generation.
    pub fn forget(&self, client: ClientId, id: GenerationId) {
        self.memory.remove(&layout::generation(client, id)).wait().unwrap();
    }

    /// All generations.
    pub fn generations(&self) -> Vec<(ClientId, Generation)> {
        let catalog = self.repository.catalog();
        let clients = catalog.clients().unwrap();
        let mut all = Vec::new();
        for client in clients {
            let ids = kitbag::generation::Catalog::ids(&catalog.list(client).wait().unwrap());
            for (_, generation) in catalog.read(client, &ids) {
                all.push((client, generation.unwrap()));
            }
        }
        all
    }

    pub fn bags(&self) -> usize {
        self.memory.names_below("bags").len()
    }

    /// Collects with a client name of its own.
    pub fn gc(&self) -> Summary {
        collect(&self.repository, &Options::new("collector")).unwrap()
    }

    /// Checks everything; the notes.
    pub fn fsck(&self) -> Vec<String> {
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let options = fsck::Options { read_data: Some(fsck::Portion::default()), ..fsck::Options::default() };
        let summary = fsck::run(&self.repository, &options, &monitor, &*self.clock, &Cancel::new()).unwrap();
        assert_eq!(summary.damages, 0, "{:#?}", collect.problems());
        collect.problems()
    }

    /// That all that is left is what the generations need.
    pub fn assert_clean(&self) {
        let notes: Vec<_> =
            self.fsck().into_iter().filter(|note| !note.contains("dated in the future")).collect();
        assert!(notes.is_empty(), "{notes:#?}");
        for directory in ["condemned", "sessions"] {
            let left = self.memory.names_below(directory);
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

pub fn collect(repository: &Repository, options: &Options) -> Result<Summary, GcError> {
    let collect = Arc::new(Collect::new());
    let monitor: Arc<dyn Monitor> = collect.clone();
    gc::run(repository, options, &monitor, &Cancel::new())
}

impl Client {
    pub fn id(&self) -> ClientId {
        self.repository.keys().names().client_id(self.name.as_bytes())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.live.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn backup(&self) -> Generation {
        self.try_backup().unwrap().generation
    }

    pub fn try_backup(&self) -> Result<backup::Summary, backup::BackupError> {
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let options = backup::Options {
            roots: vec![self.live.path().as_os_str().as_bytes().to_vec()],
            client: self.name.clone(),
            host: "host".into(),
            exclude: Rules::default().build().unwrap(),
            level: Level::Fast,
            ignore_inode: false,
            reread: false,
            skip_if_unchanged: false,
            dry_run: false,
            checkpoint: self.checkpoint,
            walkers: 1,
            workers: 1,
            words: Vec::new(),
            tags: Vec::new(),
            index_dir: self.repository.index_dir(),
            scratch: vec![std::env::temp_dir()],
        };
        let summary = backup::run(&self.repository, &options, &monitor, &*self.clock, &Cancel::new())?;
        // That somebody has forgotten a generation is said, and nothing else.
        let problems = collect.problems();
        assert!(problems.iter().all(|text| text.contains("it was forgotten")), "{problems:#?}");
        Ok(summary)
    }

    /// What is there now.
    pub fn files(&self) -> Files {
        live_files(self.live.path())
    }
}

pub fn live_files(root: &Path) -> Files {
    let mut files = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = [b"/", path.strip_prefix(root).unwrap().as_os_str().as_bytes()].concat();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

/// The files of a generation, read as any reader does.
pub fn saved_files(repository: &Repository, generation: &Generation) -> Files {
    let source = Source::new(repository.bags(), 1 << 20);
    let mut files = BTreeMap::new();
    for root in &generation.roots {
        read_entry(&source, &root.entry, Vec::new(), &mut files);
    }
    files
}

fn read_entry(source: &Source, entry: &Entry, path: Vec<u8>, files: &mut Files) {
    match &entry.content {
        Content::Directory(top) => {
            for leaf in reader::leaves(source, *top) {
                for entry in leaf.unwrap().entries {
                    let path = [&path[..], b"/", &entry.name].concat();
                    read_entry(source, &entry, path, files);
                }
            }
        }
        Content::Inline(bytes) | Content::Target(bytes) => {
            files.insert(path, bytes.to_vec());
        }
        content => {
            let mut bytes = Vec::new();
            for piece in reader::pieces(source, content) {
                match piece.unwrap() {
                    Piece::Chunk(chunk) => bytes.extend(source.object(BagKind::Data, &chunk).unwrap()),
                    Piece::Hole(len) => bytes.resize(bytes.len() + usize::try_from(len).unwrap(), 0),
                }
            }
            assert_eq!(bytes.len() as u64, entry.metadata.size, "{path:?}");
            files.insert(path, bytes);
        }
    }
}

/// A directory in memory, if there is such a place: nobody waits for a disk then.
fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn passphrase() -> Passphrase {
    Passphrase::new(b"kept by nobody".to_vec())
}

/// Bytes that are not like any others.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}
