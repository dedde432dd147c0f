//! Repositories in memory, damaged in every way that this can tell apart.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::*;
use crate::backup;
use crate::bag::Sealing;
use crate::bag::format::{self, HEADER, TRAILER};
use crate::base::id::{BagId, GenerationId};
use crate::base::time::SystemClock;
use crate::chunker::Limits;
use crate::compress::Level;
use crate::crypto::Kind;
use crate::generation::format::encode_record;
use crate::generation::{Catalog, Generation};
use crate::index::{Segment, SegmentBag};
use crate::live::exclude::Rules;
use crate::monitor::collect::Collect;
use crate::monitor::{Counter, Severity};
use crate::repo::init::{Encryption, InitOptions, init};
use crate::sealed;
use crate::store::testing::{CallLog, Fault, FaultyStore, MemoryStore, Op};
use crate::store::{ErrorKind, Name, SharedStore, layout};

pub(super) struct Bench {
    pub(super) repository: Repository,
    pub(super) memory: MemoryStore,
    pub(super) live: tempfile::TempDir,
}

pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

impl Bench {
    pub(super) fn new() -> Self {
        let memory = MemoryStore::new();
        let limits = Limits { min: 4 << 10, avg: 8 << 10, max: 16 << 10 };
        let options = InitOptions { encryption: Encryption::None, label: String::new(), limits };
        let repository = init(Arc::new(memory.clone()), options, &SystemClock::new()).unwrap();
        Self { repository, memory, live: tempfile::tempdir().unwrap() }
    }

    /// With two generations, of which the second shares most with the first.
    pub(super) fn filled() -> Self {
        let bench = Self::new();
        bench.write("small/one", &noise(1, 2000));
        bench.write("small/two", &noise(2, 3000));
        bench.write("deep/er/and/deeper", &noise(3, 50_000));
        bench.write("long", &noise(4, 1 << 20));
        for number in 0..700 {
            bench.write(&format!("wide/{number}"), b"x");
        }
        bench.write("empty", b"");
        bench.backup();
        bench.write("small/three", &noise(5, 40_000));
        bench.backup();
        bench
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.live.path().join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(super) fn backup(&self) -> backup::Summary {
        self.backup_with(false).0
    }

    pub(super) fn backup_with(&self, reread: bool) -> (backup::Summary, Arc<Collect>) {
        // Later than the tick in which the files were written.
        thread::sleep(Duration::from_millis(30));
        let options = backup::Options {
            roots: vec![self.live.path().as_os_str().as_bytes().to_vec()],
            client: "laptop".into(),
            host: "host".into(),
            exclude: Rules::default().build().unwrap(),
            level: Level::Fast,
            ignore_inode: false,
            reread,
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
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let clock = SystemClock::new();
        let summary = backup::run(&self.repository, &options, &monitor, &clock, &Cancel::new()).unwrap();
        (summary, collect)
    }

    /// What another store holds, opened with the keys of this one.
    pub(super) fn over(&self, store: SharedStore) -> Repository {
        let stored = crate::repo::Stored::read(&self.memory).unwrap();
        stored.unlock(store, &mut |_| None).unwrap()
    }

    pub(super) fn names(&self, directory: &str) -> Vec<Name> {
        self.memory.names_below(directory)
    }

    pub(super) fn sealing(&self) -> Sealing {
        Sealing { keys: self.repository.keys().clone(), repository: self.repository.id() }
    }

    pub(super) fn bags(&self, wanted: BagKind) -> Vec<Name> {
        let is = |name: &Name| {
            let id: BagId = name.last().parse().unwrap();
            format::decode_header(&self.memory.contents(name).unwrap(), id).unwrap() == wanted
        };
        self.names("bags").into_iter().filter(is).collect()
    }

    /// The largest: that of the first backup.
    pub(super) fn bag(&self, wanted: BagKind) -> Name {
        let size = |name: &Name| self.memory.contents(name).unwrap().len();
        self.bags(wanted).into_iter().max_by_key(size).unwrap()
    }

    pub(super) fn generations(&self) -> Vec<Generation> {
        let catalog = Catalog::new(self.repository.store().clone(), self.sealing());
        let client = self.repository.keys().names().client_id(b"laptop");
        let ids: Vec<GenerationId> =
            self.names("generations").iter().map(|name| name.last().parse().unwrap()).collect();
        let read = catalog.read(client, &ids).into_iter().map(|(_, record)| record.unwrap());
        let mut all: Vec<_> = read.collect();
        all.sort_by_key(|one| one.started);
        all
    }
}

pub(super) fn check(repository: &Repository, read_data: bool) -> (Summary, Arc<Collect>) {
    let options = Options { read_data: read_data.then(Portion::default), ..Options::default() };
    fsck(repository, &options)
}

pub(super) fn fsck(repository: &Repository, options: &Options) -> (Summary, Arc<Collect>) {
    let collect = Arc::new(Collect::new());
    let monitor: Arc<dyn Monitor> = collect.clone();
    let summary = run(repository, options, &monitor, &SystemClock::new(), &Cancel::new()).unwrap();
    let told = |severity| u64::try_from(collect.problems_of(severity)).unwrap();
    assert_eq!((summary.damages, summary.notes), (told(Severity::Damage), told(Severity::Note)));
    (summary, collect)
}

pub(super) fn rebuild() -> Options {
    Options { rebuild_index: true, client: "laptop".into(), ..Options::default() }
}

/// Where the parts of a bag lie.
fn parts(memory: &MemoryStore, name: &Name) -> BTreeMap<&'static str, usize> {
    let bytes = memory.contents(name).unwrap();
    let trailer = bytes.len() - TRAILER;
    let (table, len) = format::decode_trailer(&bytes[trailer..], bytes.len() as u64).unwrap();
    let table = usize::try_from(table).unwrap();
    BTreeMap::from([
        ("header", 3),
        ("block", HEADER + 30),
        ("table", table + len as usize / 2),
        ("trailer", trailer + 2),
        ("hash", bytes.len() - 5),
    ])
}

#[test]
fn nothing_is_found_in_a_sound_repository() {
    let bench = Bench::filled();
    let (summary, collect) = check(&bench.repository, false);
    assert_eq!(collect.problems(), Vec::<String>::new());
    assert_eq!(summary.generations, 2);
    assert_eq!(summary.bags, bench.names("bags").len() as u64);
    let (all, collect) = check(&bench.repository, true);
    assert_eq!(collect.problems(), Vec::<String>::new());
    let sizes: u64 =
        bench.names("bags").iter().map(|name| bench.memory.contents(name).unwrap().len() as u64).sum();
    assert_eq!(all.bytes, sizes, "every byte of every bag");
    assert!(summary.bytes < all.bytes);
    assert_eq!(collect.get(Counter::ObjectsChecked), all.objects);
}

#[test]
fn nothing_is_found_in_an_empty_one() {
    let bench = Bench::new();
    let (summary, collect) = check(&bench.repository, true);
    assert_eq!(collect.problems(), Vec::<String>::new());
    assert_eq!((summary.generations, summary.bags), (0, 0));
}

/// What happens to a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Blow {
    Delete,
    Cut,
    Flip(usize),
}

pub(super) fn strike(memory: &MemoryStore, name: &Name, blow: Blow) {
    match blow {
        Blow::Delete => memory.delete(name),
        Blow::Cut => memory.damage(name, |bytes| bytes.truncate(bytes.len() * 2 / 3)),
        Blow::Flip(at) => memory.flip(name, at),
    }
}

#[test]
fn every_damage_to_every_kind_of_file_is_named() {
    let bench = Bench::filled();
    let (data, tree) = (bench.bag(BagKind::Data), bench.bag(BagKind::Tree));
    let mut blows: Vec<(Name, Blow, bool)> = Vec::new();
    let small = [
        layout::config(),
        bench.names("keys")[0].clone(),
        bench.names("index")[0].clone(),
        bench.names("generations")[0].clone(),
    ];
    for name in &small {
        let half = bench.memory.contents(name).unwrap().len() / 2;
        blows.extend([(name.clone(), Blow::Cut, false), (name.clone(), Blow::Flip(half), false)]);
    }
    for name in [&data, &tree] {
        blows.extend([(name.clone(), Blow::Delete, false), (name.clone(), Blow::Cut, false)]);
        for (part, at) in parts(&bench.memory, name) {
            // What lies in a data bag and the hash of it are read only when data are read.
            let needs_data = name == &data && matches!(part, "block" | "hash");
            blows.push((name.clone(), Blow::Flip(at), needs_data));
        }
    }
    blows.push((layout::config(), Blow::Delete, false));
    for (name, blow, needs_data) in blows {
        let struck = bench.memory.snapshot();
        strike(&struck, &name, blow);
        let repository = bench.over(Arc::new(struck));
        for read_data in [false, true] {
            let (summary, collect) = check(&repository, read_data);
            let problems = collect.problems();
            let is_named = problems.iter().any(|line| line.starts_with(&format!("{name}: ")));
            let expected = read_data || !needs_data;
            assert_eq!(is_named, expected, "{name} {blow:?} {read_data}: {problems:#?}");
            assert_eq!(summary.damages > 0, expected);
        }
    }
}

#[test]
fn a_missing_bag_is_told_with_generations_and_paths() {
    let bench = Bench::filled();
    let newest = bench.generations().pop().unwrap();
    bench.memory.delete(&bench.bag(BagKind::Data));
    let (_, collect) = check(&bench.repository, false);
    let root = bench.live.path().to_str().unwrap();
    let problems = collect.problems();
    let bag: Vec<_> = problems.iter().filter(|line| line.starts_with("bags/")).collect();
    assert_eq!(bag.len(), 1, "{problems:#?}");
    for part in [
        "it is missing; it is needed by generations ".to_owned(),
        newest.id.to_string(),
        " of client laptop, for ".to_owned(),
        format!("{root}/long"),
        format!("{root}/deep/er/and/deeper"),
        format!("{root}/small/one"),
        "kitbag backup --reread".to_owned(),
    ] {
        assert!(bag[0].contains(&part), "{part}: {}", bag[0]);
    }
    assert!(!bag[0].contains("wide"), "inlined contents are not lost: {}", bag[0]);
    // And the segment that lists it.
    assert!(problems.iter().any(|line| line.starts_with("index/")), "{problems:#?}");
}

#[test]
fn a_damaged_block_hits_only_what_lies_in_it() {
    let bench = Bench::new();
    bench.write("hit", &noise(1, 300_000));
    bench.write("spared/file", &noise(2, 300_000));
    bench.backup();
    // The second of two blocks.
    let name = bench.bag(BagKind::Data);
    let reader = BagReader::new(bench.repository.store().clone(), bench.sealing());
    let table = reader.find_table(name.last().parse().unwrap()).unwrap().table;
    assert!(table.blocks.len() > 1);
    let last = table.blocks.last().unwrap();
    bench.memory.flip(&name, usize::try_from(last.offset).unwrap() + 50);
    let (summary, collect) = check(&bench.repository, true);
    assert_eq!(summary.damages, 1);
    let problem = &collect.problems()[0];
    let paths = ["/hit", "/spared/file"].map(|path| problem.contains(path));
    assert!(paths.contains(&true), "{problem}");
    let (summary, _) = check(&bench.repository, false);
    assert_eq!(summary.damages, 0, "blocks of data bags are not opened without being asked to");
}

#[test]
fn a_damaged_directory_page_is_told_by_its_directory() {
    let bench = Bench::filled();
    let tree = bench.bag(BagKind::Tree);
    bench.memory.flip(&tree, HEADER + 30);
    let (summary, collect) = check(&bench.repository, false);
    assert_eq!(summary.damages, 1, "{:#?}", collect.problems());
    let problem = &collect.problems()[0];
    assert!(problem.contains("some of its blocks are damaged"), "{problem}");
    assert!(problem.contains(&format!("{}/", bench.live.path().display())), "{problem}");
}

#[test]
fn harmless_things_are_notes() {
    let bench = Bench::filled();
    let put = |name: &[&str]| bench.memory.put(&Name::join(name), b"x".to_vec());
    put(&["bags", "00", "00112233445566778899aabbccddeeff.part"]);
    put(&["index", "notes.txt"]);
    put(&["lost-and-found"]);
    bench.memory.set_clock(1_796_080_574);
    let started = Session::begin(
        bench.repository.store(),
        &bench.sealing(),
        bench.repository.keys().names().client_id(b"laptop"),
    );
    let mut session = started.session;
    session.created().unwrap();
    // A bag that nothing names.
    let other = Bench::filled();
    let orphan = other.bag(BagKind::Data);
    bench.memory.put(&orphan, sound_orphan(&bench, &orphan));
    let (summary, collect) = check(&bench.repository, true);
    assert_eq!((summary.damages, summary.notes), (0, 5), "{:#?}", collect.problems());
    let told = |part: &str| collect.problems().iter().any(|line| line.contains(part));
    assert!(told("client laptop is writing") && told("last renewed at 2026-11-30T23:16:14Z"));
    assert!(told(".part: an upload") && told("index/notes.txt"));
    assert!(told(&format!("{orphan}: no generation")));
}

/// An empty bag of this repository under a name.
fn sound_orphan(bench: &Bench, name: &Name) -> Vec<u8> {
    let id: BagId = name.last().parse().unwrap();
    let mut bag = format::encode_header(id, BagKind::Data).to_vec();
    let table = format::encode_table(&crate::bag::Table::default());
    let mut plain = vec![0];
    plain.extend(u32::try_from(table.len()).unwrap().to_le_bytes());
    plain.extend(table);
    let context = bench.repository.context(Kind::BagTable, id.as_bytes(), HEADER as u64);
    let sealed = bench.repository.keys().seal().seal(&context, &plain);
    bag.extend(&sealed);
    bag.extend(format::encode_trailer_head(HEADER as u64, u32::try_from(sealed.len()).unwrap()));
    let hash = *blake3::hash(&bag).as_bytes();
    bag.extend(hash);
    bag
}

/// Replaces a record by another that says something wrong.
pub(super) fn rewrite(bench: &Bench, change: impl FnOnce(&mut Generation)) -> Name {
    let mut generation = bench.generations().pop().unwrap();
    let client = bench.repository.keys().names().client_id(b"laptop");
    let name = layout::generation(client, generation.id);
    change(&mut generation);
    let plaintext = encode_record(&generation);
    let (keys, id) = (bench.repository.keys(), bench.repository.id());
    bench.memory.put(&name, sealed::encode(keys, id, Kind::Generation, &name, &plaintext));
    name
}

fn told(bench: &Bench, name: &Name, part: &str) {
    let (summary, collect) = check(&bench.repository, false);
    let problems = collect.problems();
    let is_told = problems.iter().any(|line| line.starts_with(name.as_str()) && line.contains(part));
    assert!(is_told && summary.damages > 0, "{part}: {problems:#?}");
}

#[test]
fn records_that_say_something_wrong_are_told() {
    let bench = Bench::filled();
    let name = rewrite(&bench, |record| record.bag_list = Default::default());
    told(&bench, &name, "its bag list leaves out bags that it needs");
    let bench = Bench::filled();
    let name = rewrite(&bench, |record| record.client = "other".into());
    told(&bench, &name, "another client");
    let bench = Bench::filled();
    let name = rewrite(&bench, |record| record.roots[0].path = b"relative".to_vec());
    told(&bench, &name, "absolute paths");
}

#[test]
fn references_that_are_off_by_one_are_told() {
    use crate::entry::Content;
    let bench = Bench::filled();
    let tree = {
        let generation = bench.generations().pop().unwrap();
        let Content::Directory(Some(page)) = generation.roots[0].entry.content else { panic!("a directory") };
        layout::bag(page.place.bag)
    };
    rewrite(&bench, |record| {
        if let Content::Directory(Some(page)) = &mut record.roots[0].entry.content {
            page.place.start += 1;
        }
    });
    told(&bench, &tree, "it does not hold all that generations refer to");
}

#[test]
fn a_bucket_in_the_place_of_a_directory_is_told() {
    use crate::entry::Content;
    let bench = Bench::filled();
    let bucket = bench.generations().pop().unwrap().bag_list.buckets[0];
    rewrite(&bench, |record| record.roots[0].entry.content = Content::Directory(Some(bucket)));
    told(&bench, &layout::bag(bucket.place.bag), "it holds something else than what is referred to");
}

#[test]
fn segments_that_say_something_wrong_are_told() {
    let bench = Bench::filled();
    let name = bench.names("index")[0].clone();
    let (keys, id) = (bench.repository.keys(), bench.repository.id());
    let open = |bytes| sealed::decode(keys, id, Kind::Segment, &name, bytes, 1 << 20).unwrap();
    let sound = Segment::decode(&open(bench.memory.contents(&name).unwrap())).unwrap();
    let publish = |bag: SegmentBag| {
        let plaintext = Segment { bags: vec![bag] }.encode();
        bench.memory.put(&name, sealed::encode(keys, id, Kind::Segment, &name, &plaintext));
    };
    let bag = &sound.bags[0];
    publish(SegmentBag::new(*bag.entry(), bag.fingerprints()[1..].to_vec()));
    told(&bench, &name, "it lists other objects than bag");
    let mut entry = *bag.entry();
    entry.table_offset += 1;
    publish(SegmentBag::new(entry, bag.fingerprints().to_vec()));
    told(&bench, &name, "a wrong size or place");
}

#[test]
fn waits_do_not_grow_with_what_exists() {
    let waits = |bench: &Bench, read_data| {
        let log = CallLog::new(Arc::new(bench.memory.clone()));
        let repository = bench.over(Arc::new(log.clone()));
        log.clear();
        check(&repository, read_data);
        (log.serial_round_trips(), log.count(Op::List))
    };
    let bench = Bench::filled();
    let few = bench.names("bags").len();
    let (structure, _) = waits(&bench, false);
    let (data, _) = waits(&bench, true);
    assert!(structure <= 8, "{structure} serial waits");
    assert!(data <= 10, "{data} serial waits");
    for number in 0..12 {
        bench.write(&format!("more/{number}/a/b/c"), &noise(100 + number, 30_000));
        bench.backup();
    }
    assert!(bench.names("bags").len() >= few + 24);
    assert_eq!(waits(&bench, false).0, structure);
    assert_eq!(waits(&bench, true).0, data);
}

#[test]
fn an_index_made_anew_knows_everything() {
    let bench = Bench::filled();
    let old = bench.names("index");
    assert_eq!(old.len(), 2);
    let (summary, collect) = fsck(&bench.repository, &rebuild());
    assert_eq!(collect.problems(), Vec::<String>::new());
    assert_eq!((summary.segments_written, summary.segments_removed), (1, 2));
    assert!(old.iter().all(|name| bench.memory.contents(name).is_none()));
    assert!(bench.names("sessions").is_empty());
    for name in bench.names("index") {
        bench.memory.delete(&name);
    }
    fsck(&bench.repository, &rebuild());
    let (summary, collect) = check(&bench.repository, true);
    assert_eq!((summary.damages, summary.notes), (0, 0), "{:#?}", collect.problems());
    fs::copy(bench.path("long"), bench.path("copy")).unwrap();
    let (summary, collect) = bench.backup_with(true);
    assert_eq!(collect.get(Counter::NewChunks), 0, "all chunks are known");
    assert!(collect.get(Counter::KnownChunks) > 100);
    assert!(summary.bag_bytes < 20_000, "only the page that names it and those above: {}", summary.bag_bytes);
}

#[test]
fn what_a_damaged_bag_held_is_stored_again_after_the_index_was_made_anew() {
    let bench = Bench::filled();
    let data = bench.bag(BagKind::Data);
    bench.memory.flip(&data, HEADER + 30);
    let options = Options { read_data: Some(Portion::default()), ..rebuild() };
    let (summary, _) = fsck(&bench.repository, &options);
    assert_eq!(summary.damages, 1);
    let (summary, _) = bench.backup_with(true);
    assert!(summary.bag_bytes > 1 << 20, "{} bytes stored again", summary.bag_bytes);
}

#[test]
fn a_revoked_repair_removes_nothing() {
    let bench = Bench::filled();
    let old = bench.names("index");
    // The lease of the segment vanishes before it is published.
    let faulty = FaultyStore::new(
        Arc::new(bench.memory.clone()),
        vec![Fault::fail(Op::Commit, ErrorKind::NotFound).below("index")],
    );
    let repository = bench.over(Arc::new(faulty));
    let monitor: Arc<dyn Monitor> = Arc::new(Collect::new());
    let outcome = run(&repository, &rebuild(), &monitor, &SystemClock::new(), &Cancel::new());
    assert!(matches!(outcome, Err(FsckError::Session(SessionError::Revoked(_)))), "{outcome:?}");
    assert_eq!(bench.names("index"), old);
}

#[test]
fn a_lost_server_is_no_damage() {
    let bench = Bench::filled();
    for (op, prefix) in
        [(Op::List, "bags"), (Op::ReadTail, "bags"), (Op::ReadAll, "generations"), (Op::Read, "bags")]
    {
        let fault = Fault::fail(op, ErrorKind::Unreachable).below(prefix);
        let faulty = FaultyStore::new(Arc::new(bench.memory.clone()), vec![fault]);
        let repository = bench.over(Arc::new(faulty.clone()));
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let outcome = run(&repository, &Options::default(), &monitor, &SystemClock::new(), &Cancel::new());
        assert!(matches!(outcome, Err(FsckError::Store(_))), "{op:?}: {outcome:?}");
        assert_eq!(collect.problems_of(Severity::Damage), 0);
        faulty.finish();
    }
}
