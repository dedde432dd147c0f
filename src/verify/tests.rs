//! Generations of small trees, compared with what became of the trees.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::*;
use crate::backup;
use crate::bag::BagKind;
use crate::bag::format::decode_header;
use crate::base::id::BagId;
use crate::base::time::SystemClock;
use crate::chunker::Limits;
use crate::compress::Level;
use crate::generation::Generation;
use crate::live::exclude::Rules;
use crate::monitor::collect::Collect;
use crate::repo::{Encryption, InitOptions, Repository, Stored, init};
use crate::store::Name;
use crate::store::testing::{CallLog, MemoryStore, Op};

struct Bench {
    repository: Repository,
    memory: MemoryStore,
    log: CallLog,
    live: tempfile::TempDir,
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

impl Bench {
    fn filled() -> (Self, Generation) {
        let memory = MemoryStore::new();
        let limits = Limits { min: 4 << 10, avg: 8 << 10, max: 16 << 10 };
        let options = InitOptions { encryption: Encryption::None, label: String::new(), limits };
        init(Arc::new(memory.clone()), options, &SystemClock::new()).unwrap();
        let log = CallLog::new(Arc::new(memory.clone()));
        let repository = Stored::read(&memory).unwrap().unlock(Arc::new(log.clone()), &mut |_| None).unwrap();
        let bench = Self { repository, memory, log, live: tempfile::tempdir().unwrap() };
        bench.write("inlined", b"hi");
        bench.write("empty", b"");
        bench.write("one chunk", &noise(1, 3000));
        bench.write("dir/long", &noise(2, 1 << 20));
        bench.write("dir/deeper/file", &noise(3, 20_000));
        bench.write("gone/with/all", b"below it");
        symlink("dir/long", bench.path("link")).unwrap();
        let sparse = fs::File::create(bench.path("sparse")).unwrap();
        sparse.set_len(1 << 20).unwrap();
        let generation = bench.backup();
        (bench, generation)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.live.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn backup(&self) -> Generation {
        thread::sleep(Duration::from_millis(30));
        let options = backup::Options {
            roots: vec![self.live.path().as_os_str().as_bytes().to_vec()],
            client: "laptop".into(),
            host: "host".into(),
            exclude: Rules::default().build().unwrap(),
            level: Level::Fast,
            ignore_inode: false,
            reread: false,
            skip_if_unchanged: false,
            dry_run: false,
            checkpoint: backup::Every::default(),
            walkers: 2,
            workers: 2,
            words: Vec::new(),
            tags: Vec::new(),
            index_dir: None,
            scratch: vec![std::env::temp_dir()],
        };
        let monitor: Arc<dyn Monitor> = Arc::new(Collect::new());
        backup::run(&self.repository, &options, &monitor, &SystemClock::new(), &Cancel::new())
            .unwrap()
            .generation
    }

    fn bags(&self, wanted: BagKind) -> Vec<Name> {
        let is = |name: &Name| {
            let id: BagId = name.last().parse().unwrap();
            decode_header(&self.memory.contents(name).unwrap(), id).unwrap() == wanted
        };
        self.memory.names_below("bags").into_iter().filter(is).collect()
    }

    /// Compares; gives the summary, "what path" of each difference in order, and the problems.
    fn verify(
        &self,
        generation: &Generation,
        change: impl FnOnce(&mut Options),
    ) -> (Summary, Vec<String>, Vec<String>) {
        let source = Source::new(self.repository.bags(), 1 << 20);
        let starts = generation.roots.iter().map(|root| Start {
            root: root.path.clone(),
            path: root.path.clone(),
            entry: root.entry.clone(),
        });
        let mut options = Options {
            starts: starts.collect(),
            random: None,
            read_data: false,
            own: Arc::default(),
            workers: 3,
        };
        change(&mut options);
        let told = Mutex::new(Vec::new());
        let tell = |difference: &Difference| {
            let words: Vec<_> = difference.what.iter().map(ToString::to_string).collect();
            let path = difference.path.strip_prefix(self.live.path().as_os_str().as_bytes()).unwrap();
            told.lock().unwrap().push(format!("{} {}", words.join(","), String::from_utf8_lossy(path)));
        };
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let summary = run(&source, &options, &tell, &monitor, &Cancel::new()).unwrap();
        let mut told = told.into_inner().unwrap();
        told.sort();
        assert_eq!(summary.different, told.len() as u64);
        (summary, told, collect.problems())
    }
}

#[test]
fn nothing_differs_and_no_data_are_fetched() {
    let (bench, generation) = Bench::filled();
    let data = bench.bags(BagKind::Data);
    bench.log.clear();
    let (summary, told, problems) = bench.verify(&generation, |_| {});
    assert_eq!((told, problems), (Vec::<String>::new(), Vec::new()));
    assert_eq!((summary.entries, summary.failed, summary.fetched), (13, 0, 0));
    // All but the hole.
    assert_eq!(summary.bytes, 2 + 3000 + (1 << 20) + 20_000 + 8);
    let reads = bench.log.calls();
    assert!(reads.iter().all(|call| !data.contains(&call.name)), "{:#?}", bench.log.lines());
}

#[test]
fn each_difference_is_told() {
    let (bench, generation) = Bench::filled();
    let keep_time = |name: &str, change: &dyn Fn(&PathBuf)| {
        let path = bench.path(name);
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        change(&path);
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
    };
    // The same size, the same time, one bit.
    keep_time("dir/long", &|path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[1_000_000] ^= 1;
        fs::write(path, bytes).unwrap();
    });
    keep_time("inlined", &|path| fs::write(path, "ho").unwrap());
    keep_time("empty", &|path| fs::write(path, "x").unwrap());
    keep_time("sparse", &|path| {
        use std::os::unix::fs::FileExt as _;
        fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"x", 700_000).unwrap();
    });
    fs::set_permissions(bench.path("one chunk"), fs::Permissions::from_mode(0o600)).unwrap();
    keep_time("dir", &|_| fs::remove_dir_all(bench.path("dir/deeper")).unwrap());
    let time = fs::metadata(bench.live.path()).unwrap().modified().unwrap();
    fs::remove_dir_all(bench.path("gone")).unwrap();
    fs::write(bench.path("gone"), "a file now").unwrap();
    fs::remove_file(bench.path("link")).unwrap();
    symlink("dir/lung", bench.path("link")).unwrap();
    fs::write(bench.path("added"), "no difference").unwrap();
    fs::File::open(bench.live.path()).unwrap().set_modified(time).unwrap();
    let (_, told, problems) = bench.verify(&generation, |_| {});
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        told,
        [
            "contents /dir/long",
            "contents /empty",
            "contents /inlined",
            "contents /sparse",
            "contents,time /link",
            "kind /gone",
            "missing /dir/deeper",
            "mode /one chunk",
        ]
    );
}

#[test]
fn zeros_are_as_good_as_a_hole() {
    let (bench, generation) = Bench::filled();
    let path = bench.path("sparse");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    fs::File::open(&path).unwrap().set_modified(time).unwrap();
    assert_eq!(bench.verify(&generation, |_| {}).1, Vec::<String>::new());
}

#[test]
fn a_part_of_the_files_at_random() {
    let (bench, generation) = Bench::filled();
    let (summary, told, _) = bench.verify(&generation, |options| options.random = Some(3));
    assert_eq!((summary.entries, summary.files), (3, 3));
    assert_eq!(told, Vec::<String>::new());
    fs::remove_dir_all(bench.live.path()).unwrap();
    let (summary, told, _) = bench.verify(&generation, |options| options.random = Some(100));
    assert_eq!((summary.entries, told.len()), (7, 7), "{told:?}");
    assert!(told.iter().all(|line| line.starts_with("missing /")), "{told:?}");
}

#[test]
fn only_what_is_named() {
    let (bench, generation) = Bench::filled();
    let inlined = crate::generation::locate::entry(
        &Source::new(bench.repository.bags(), 1 << 20),
        &generation,
        bench.path("inlined").as_os_str().as_bytes(),
    );
    let (path, entry) = inlined.unwrap().unwrap();
    fs::remove_file(bench.path("inlined")).unwrap();
    fs::remove_file(bench.path("empty")).unwrap();
    let (_, told, _) = bench.verify(&generation, |options| {
        let root = options.starts[0].root.clone();
        options.starts = vec![Start { root, path, entry }];
    });
    assert_eq!(told, ["missing /inlined"]);
}

#[test]
fn data_are_read_when_asked_for_and_their_damage_is_told_by_path() {
    let (bench, generation) = Bench::filled();
    let (summary, told, problems) = bench.verify(&generation, |options| options.read_data = true);
    assert_eq!((told, problems), (Vec::new(), Vec::<String>::new()));
    assert_eq!(summary.fetched, 3000 + (1 << 20) + 20_000);
    bench.log.clear();
    let few = bench.verify(&generation, |options| (options.read_data, options.random) = (true, Some(1)));
    assert!(few.0.fetched < summary.fetched);
    for name in bench.bags(BagKind::Data) {
        bench.memory.flip(&name, 200);
    }
    let (_, told, problems) = bench.verify(&generation, |options| options.read_data = true);
    assert_eq!(told, Vec::<String>::new());
    assert!(
        problems.iter().any(|line| line.contains("/one chunk: ") || line.contains("/dir/")),
        "{problems:?}"
    );
    for name in bench.bags(BagKind::Data) {
        bench.memory.delete(&name);
    }
    let (summary, _, problems) = bench.verify(&generation, |options| options.read_data = true);
    assert_eq!(summary.fetched, 0);
    for path in ["/one chunk: ", "/dir/long: ", "/dir/deeper/file: "] {
        assert!(problems.iter().any(|line| line.contains(path)), "{path} {problems:?}");
    }
}

#[test]
fn reading_data_waits_a_few_times_only() {
    let (bench, generation) = Bench::filled();
    bench.log.clear();
    bench.verify(&generation, |options| options.read_data = true);
    assert!(bench.log.count(Op::Read) > 2);
    assert!(
        bench.log.serial_round_trips() <= 8,
        "{} {:#?}",
        bench.log.serial_round_trips(),
        bench.log.lines()
    );
}

#[test]
fn damaged_pages_are_told() {
    let (bench, generation) = Bench::filled();
    for name in bench.bags(BagKind::Tree) {
        bench.memory.flip(&name, 60);
    }
    let (_, _, problems) = bench.verify(&generation, |_| {});
    assert!(problems.iter().any(|line| line.contains("damaged")), "{problems:?}");
}
