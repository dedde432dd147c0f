//! Backups of small trees into a store in memory, read back by reference.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::*;
use crate::bag::BagKind;
use crate::base::time::SystemClock;
use crate::cache::Cache;
use crate::chunker::Limits;
use crate::dir::reader;
use crate::entry::{Content, Entry, Piece};
use crate::generation::Generation;
use crate::live::exclude::Rules;
use crate::monitor::collect::Collect;
use crate::monitor::{Change, Counter};
use crate::repo::init::{Encryption, InitOptions, init};
use crate::store::testing::{CallLog, MemoryStore};

pub(super) struct Bench {
    pub(super) repository: Repository,
    pub(super) memory: MemoryStore,
    pub(super) live: tempfile::TempDir,
    pub(super) cache: tempfile::TempDir,
    pub(super) log: CallLog,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    fn with_limits(limits: Limits) -> Self {
        let memory = MemoryStore::new();
        let log = CallLog::new(Arc::new(memory.clone()));
        let store = Arc::new(log.clone());
        let options = InitOptions { encryption: Encryption::None, label: String::new(), limits };
        let repository = init(store, options, &SystemClock::new()).unwrap();
        let (live, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Self { repository, memory, live, cache, log }
    }

    /// With a local cache.
    pub(super) fn cached() -> Self {
        let bench = Self::new();
        let cache = Cache::open(bench.cache.path(), 1 << 30).unwrap();
        Self { repository: bench.repository.with_cache(cache), ..bench }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.live.path().join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(super) fn options(&self) -> Options {
        Options {
            roots: vec![self.live.path().as_os_str().as_bytes().to_vec()],
            client: "client".into(),
            host: "host".into(),
            exclude: Rules::default().build().unwrap(),
            level: Level::Fast,
            ignore_inode: false,
            reread: false,
            skip_if_unchanged: false,
            dry_run: false,
            checkpoint: Every::default(),
            walkers: 3,
            workers: 2,
            words: Vec::new(),
            tags: Vec::new(),
            index_dir: self.repository.index_dir(),
            scratch: vec![self.cache.path().to_owned()],
        }
    }

    pub(super) fn backup(&self) -> (Summary, Arc<Collect>) {
        let (summary, collect) = self.backup_with_problems();
        assert_eq!(collect.problems(), Vec::<String>::new());
        (summary, collect)
    }

    fn backup_with_problems(&self) -> (Summary, Arc<Collect>) {
        // Later than the tick in which the files were written, so that nothing counts as changed since.
        thread::sleep(std::time::Duration::from_millis(30));
        let collect = Arc::new(Collect::with_changes());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let clock = SystemClock::new();
        let summary = run(&self.repository, &self.options(), &monitor, &clock, &Cancel::new()).unwrap();
        (summary, collect)
    }

    /// Contents by path below the root.
    pub(super) fn read(&self, generation: &Generation) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let source = Source::new(self.repository.bags(), 1 << 20);
        let mut files = BTreeMap::new();
        for root in &generation.roots {
            read_entry(&source, &root.entry, Vec::new(), &mut files);
        }
        files
    }
}

fn read_entry(source: &Source, entry: &Entry, path: Vec<u8>, files: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
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

pub(super) fn live_files(root: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = [b"/", path.strip_prefix(root).unwrap().as_os_str().as_bytes()].concat();
            if path.is_symlink() {
                files.insert(name, fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec());
            } else if path.is_dir() {
                open.push(path);
            } else {
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

fn rename(from: &Path, to: &Path) {
    crate::base::atomic_file::rename_over(from, to).unwrap();
}

pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn fill(bench: &Bench) {
    for number in 0..700 {
        let bytes = noise(number, usize::try_from(number).unwrap());
        bench.write(&format!("many/{:02}/file {number}", number % 7), &bytes);
    }
    for number in 0..3000 {
        bench.write(&format!("wide/{number}"), b"x");
    }
    bench.write("large", &noise(1, 5 << 20));
    bench.write("again", &noise(1, 5 << 20));
    bench.write("empty", b"");
    bench.write("a/b/c/d/e/f/g", b"deep");
    std::os::unix::fs::symlink("large", bench.path("link")).unwrap();
}

#[test]
fn what_was_backed_up_can_be_read_back() {
    let bench = Bench::new();
    fill(&bench);
    let (summary, collect) = bench.backup();
    assert_eq!(bench.read(&summary.generation), live_files(bench.live.path()));
    assert!(collect.get(Counter::KnownChunks) >= 5, "the second copy is known");
    assert!(!summary.is_unchanged && summary.bags > 1);
    assert!(bench.memory.names_below("sessions").is_empty());
}

#[test]
fn an_unchanged_tree_is_taken_over() {
    let bench = Bench::new();
    fill(&bench);
    let (first, _) = bench.backup();
    let (second, collect) = bench.backup();
    assert!(second.is_unchanged);
    assert_eq!((second.bags, collect.get(Counter::FilesRead)), (0, 0));
    assert_eq!(second.generation.roots, first.generation.roots);
    assert_eq!(second.generation.bag_list, first.generation.bag_list);
    assert_eq!(second.generation.counts.files, first.generation.counts.files);
    assert!(collect.changes().iter().all(|(_, change)| *change == Change::Unchanged));
    assert_eq!(bench.memory.names_below("generations").len(), 2);
}

#[test]
fn a_change_costs_what_changed() {
    let bench = Bench::new();
    fill(&bench);
    bench.backup();
    bench.write("wide/1500", b"y");
    fs::remove_file(bench.path("many/03/file 10")).unwrap();
    bench.write("new", b"new");
    let (summary, collect) = bench.backup();
    assert_eq!(bench.read(&summary.generation), live_files(bench.live.path()));
    assert_eq!(collect.get(Counter::FilesRead), 2);
    assert!(summary.bag_bytes < 60_000, "{} bytes", summary.bag_bytes);
    let changed: Vec<_> = collect.changes().into_iter().filter(|(_, c)| *c != Change::Unchanged).collect();
    assert_eq!(changed.len(), 2 + 3, "two files, their directories and one that lost an entry: {changed:?}");
}

/// Everything that an unchanged run asks of the repository.
#[test]
fn an_unchanged_tree_costs_these_calls() {
    let bench = Bench::cached();
    fill(&bench);
    bench.backup();
    bench.log.clear();
    let (summary, _) = bench.backup();
    assert!(summary.is_unchanged);
    let lines = bench.log.lines();
    let verbs: Vec<_> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(verbs, ["Create", "List", "List", "List", "Append", "Commit"], "{lines:#?}");
    assert_eq!(bench.log.serial_round_trips(), 3, "the lists, the record, its rename");
}

#[test]
fn without_its_cache_a_run_reads_no_file_again() {
    let bench = Bench::cached();
    fill(&bench);
    bench.backup();
    bench.repository.cache().clear().unwrap();
    bench.log.clear();
    let (summary, collect) = bench.backup();
    assert!(summary.is_unchanged);
    assert_eq!(collect.get(Counter::FilesRead), 0);
    assert!(bench.log.serial_round_trips() <= 7, "{:#?}", bench.log.lines());
}

#[test]
fn a_generation_lost_meanwhile_is_not_built_upon() {
    let bench = Bench::cached();
    fill(&bench);
    bench.backup();
    // The repository is rolled back to what it was before: only the cache knows the generation.
    for name in bench.memory.names() {
        if ["bags/", "index/", "generations/"].iter().any(|dir| name.as_str().starts_with(dir)) {
            bench.memory.delete(&name);
        }
    }
    let (summary, collect) = bench.backup_with_problems();
    assert!(matches!(&collect.problems()[..], [one] if one.contains("set back to an older copy")));
    assert!(!summary.is_unchanged);
    assert_eq!(bench.read(&summary.generation), live_files(bench.live.path()));
}

#[test]
fn what_moved_is_not_read_again() {
    let bench = Bench::new();
    fill(&bench);
    bench.backup();
    rename(&bench.path("large"), &bench.path("many/renamed"));
    rename(&bench.path("many/03"), &bench.path("a/b/moved"));
    rename(&bench.path("many/04/file 11"), &bench.path("swap"));
    rename(&bench.path("many/04/file 18"), &bench.path("many/04/file 11"));
    rename(&bench.path("swap"), &bench.path("many/04/file 18"));
    let (summary, collect) = bench.backup();
    assert_eq!(bench.read(&summary.generation), live_files(bench.live.path()));
    assert_eq!((collect.get(Counter::FilesRead), collect.get(Counter::NewBytes)), (0, 0));
    let moved = collect.changes().into_iter().filter(|(_, change)| *change == Change::Moved).count();
    assert_eq!(moved, 4, "two files swapped, one renamed, one directory");
}

#[test]
fn changes_that_hide_are_found() {
    let bench = Bench::new();
    bench.write("quiet", b"before");
    bench.write("mode", b"before");
    bench.backup();
    let before = fs::metadata(bench.path("quiet")).unwrap();
    bench.write("quiet", b"after!");
    let file = fs::File::options().write(true).open(bench.path("quiet")).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(bench.path("mode"), mode).unwrap();
    let (summary, collect) = bench.backup();
    assert_eq!(bench.read(&summary.generation)[&b"/quiet"[..]], b"after!");
    let change = |name: &str| {
        let path = bench.path(name);
        let fits = |(other, _): &&(Vec<u8>, Change)| other == path.as_os_str().as_bytes();
        collect.changes().iter().find(fits).map(|(_, change)| *change)
    };
    assert_eq!(change("quiet"), Some(Change::Changed));
    assert_eq!(change("mode"), Some(Change::Metadata));
    assert_eq!(collect.get(Counter::FilesRead), 1);
}

/// Another file than the one that was saved, although inode number, size and time of modification are equal.
#[test]
fn an_inode_number_that_is_used_again_deceives_nobody() {
    use std::os::unix::fs::MetadataExt as _;
    let bench = Bench::new();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let write = |name: &str, bytes: &[u8]| {
        bench.write(name, bytes);
        let file = fs::File::options().write(true).open(bench.path(name)).unwrap();
        file.set_modified(time).unwrap();
        fs::metadata(bench.path(name)).unwrap().ino()
    };
    let old = [write("elsewhere", b"before"), write("here", b"before")];
    bench.backup();
    for name in ["elsewhere", "here"] {
        fs::remove_file(bench.path(name)).unwrap();
    }
    // Some file systems give out numbers again at once, others seldom: then this shows nothing.
    let new: Vec<_> = (0..200).map(|number| write(&format!("new/{number}"), b"after!")).collect();
    for (number, inode) in new.iter().enumerate() {
        if *inode == old[1] {
            let path = bench.path("here");
            rename(&bench.path(&format!("new/{number}")), &path);
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        }
    }
    let (summary, _) = bench.backup();
    assert_eq!(bench.read(&summary.generation), live_files(bench.live.path()));
}

/// Copies in the local cache that pass its own check and yet are not what they should be.
#[test]
fn a_wrong_copy_in_the_cache_is_fetched_again() {
    let bench = Bench::cached();
    fill(&bench);
    let (first, _) = bench.backup();
    let cache = bench.repository.cache();
    for kind in [crate::cache::Kind::Bag, crate::cache::Kind::Record, crate::cache::Kind::Segment] {
        for name in cache.names(kind) {
            let mut bytes = cache.get(kind, &name).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            bytes[100] ^= 1;
            cache.put(kind, &name, &bytes);
        }
    }
    let (second, collect) = bench.backup();
    assert!(second.is_unchanged);
    assert_eq!(collect.get(Counter::FilesRead), 0);
    assert_eq!(second.generation.roots, first.generation.roots);
}

/// Asks to stop after so many files were read.
struct Impatient {
    collect: Collect,
    after: u64,
    cancel: Cancel,
}

impl Monitor for Impatient {
    fn count(&self, counter: Counter, amount: u64) {
        self.collect.count(counter, amount);
        if self.collect.get(Counter::FilesRead) >= self.after {
            self.cancel.cancel();
        }
    }
    fn phase(&self, _name: &'static str) {}
    fn path(&self, _path: &[u8]) {}
    fn change(&self, path: &[u8], change: Change) {
        self.collect.change(path, change);
    }
    fn problem(&self, problem: Problem) {
        self.collect.problem(problem);
    }
}

impl Bench {
    fn interrupted(&self, after: u64) -> Arc<Impatient> {
        thread::sleep(std::time::Duration::from_millis(30));
        let cancel = Cancel::new();
        let impatient = Arc::new(Impatient { collect: Collect::new(), after, cancel: cancel.clone() });
        let monitor: Arc<dyn Monitor> = impatient.clone();
        // One worker, so that it is known what is done.
        let options = Options { walkers: 1, ..self.options() };
        let outcome = run(&self.repository, &options, &monitor, &SystemClock::new(), &cancel);
        assert!(matches!(outcome, Err(BackupError::Interrupted)), "{outcome:?}");
        assert_eq!(impatient.collect.problems(), Vec::<String>::new());
        impatient
    }

    pub(super) fn generations(&self) -> Vec<Generation> {
        let client = self.repository.keys().names().client_id(b"client");
        let catalog = self.repository.catalog();
        let ids = crate::generation::Catalog::ids(&catalog.list(client).wait().unwrap());
        catalog.read(client, &ids).into_iter().map(|(_, one)| one.unwrap()).collect()
    }
}

#[test]
fn an_interrupted_backup_goes_on_where_it_was() {
    let bench = Bench::cached();
    for number in 0..2000u64 {
        bench.write(&format!("{:02}/deep/{}/{number}", number % 10, number % 3), &noise(number, 2000));
    }
    for number in 0..400u64 {
        bench.write(&format!("flat/{number:03}"), &noise(5000 + number, 30_000));
    }
    bench.interrupted(1500);
    let [partial] = &bench.generations()[..] else { panic!("one checkpoint") };
    assert!(partial.partial);
    assert!(bench.memory.names_below("sessions").is_empty());
    let saved = bench.read(partial);
    let live = live_files(bench.live.path());
    assert!(saved.len() > 1000 && saved.len() < live.len(), "{} saved", saved.len());
    assert!(saved.iter().all(|(path, bytes)| live.get(path) == Some(bytes)));

    bench.check();

    // Interrupted again: what the first time has saved stays saved.
    bench.interrupted(100);
    bench.check();
    let partials = bench.generations();
    assert!(partials.iter().all(|one| one.partial));

    let (summary, collect) = bench.backup();
    assert_eq!(bench.read(&summary.generation), live);
    let read = collect.get(Counter::FilesRead);
    assert!(read < 2400 - 1500 + 200, "{read} files read");
    assert_eq!(bench.generations().len(), 1, "the checkpoints are gone");
    assert!(!bench.generations()[0].partial);
}

#[test]
fn a_checkpoint_helps_beside_a_complete_generation() {
    let bench = Bench::cached();
    fill(&bench);
    bench.backup();
    for number in 0..300u64 {
        bench.write(&format!("wide/1{number}"), &noise(9000 + number, 3000));
        bench.write(&format!("new/{number}"), &noise(7000 + number, 3000));
    }
    // Behind all others, and so many that the walk is not over before the wish to stop is seen.
    for number in 0..3000u64 {
        bench.write(&format!("zz/{number}"), &noise(20_000 + number, 600));
    }
    bench.interrupted(450);
    assert_eq!(bench.generations().iter().filter(|one| one.partial).count(), 1);
    bench.check();
    let (summary, collect) = bench.backup();
    assert_eq!(bench.read(&summary.generation), live_files(bench.live.path()));
    let read = collect.get(Counter::FilesRead);
    assert!(read <= 3150 + 10, "{read} files read");
    assert!(bench.generations().iter().all(|one| !one.partial));
}

impl Bench {
    /// Nothing is amiss in the repository: bag lists name what is referred to, among others.
    pub(super) fn check(&self) {
        let options = crate::fsck::Options {
            read_data: Some(crate::fsck::Portion::default()),
            client: "client".into(),
            ..crate::fsck::Options::default()
        };
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let clock = SystemClock::new();
        let summary = crate::fsck::run(&self.repository, &options, &monitor, &clock, &Cancel::new()).unwrap();
        assert_eq!((summary.damages, collect.problems()), (0, Vec::new()));
    }
}

/// A file with so many chunks that they need lists keeps them through changes that leave its contents alone.
#[test]
fn long_lists_are_taken_over_whole() {
    let limits = Limits { min: 1 << 10, avg: 4 << 10, max: 16 << 10 };
    let bench = Bench::with_limits(limits);
    bench.write("dir/long", &noise(3, 3 << 20));
    bench.write("dir/other", b"other");
    bench.write("long", &noise(4, 1 << 20));
    let (first, _) = bench.backup();
    bench.check();
    let long = |generation: &Generation| bench.read(generation)[&b"/dir/long"[..]].clone();
    assert_eq!(long(&first.generation), noise(3, 3 << 20));

    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(bench.path("dir/long"), mode).unwrap();
    rename(&bench.path("long"), &bench.path("moved"));
    let (second, collect) = bench.backup();
    assert_eq!(collect.get(Counter::FilesRead), 0);
    assert_eq!(long(&second.generation), noise(3, 3 << 20));
    bench.check();

    // Its neighbour changes, so that its page is made anew.
    bench.write("dir/other", b"changed");
    let (third, collect) = bench.backup();
    assert_eq!(collect.get(Counter::FilesRead), 1);
    assert_eq!(bench.read(&third.generation), live_files(bench.live.path()));
    bench.check();

    // One chunk in the middle: few lists are made anew.
    let mut bytes = noise(3, 3 << 20);
    bytes[1 << 20] ^= 1;
    bench.write("dir/long", &bytes);
    let (fourth, _) = bench.backup();
    assert_eq!(bench.read(&fourth.generation), live_files(bench.live.path()));
    assert!(fourth.bag_bytes < 150_000, "{} bytes", fourth.bag_bytes);
    bench.check();
}
