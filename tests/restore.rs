//! Trees that are backed up into a store in memory and brought back, compared by their manifests.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test says so by failing")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use kitbag::backup;
use kitbag::bag::BagKind;
use kitbag::base::cancel::Cancel;
use kitbag::base::time::SystemClock;
use kitbag::chunker::Limits;
use kitbag::compress::Level;
use kitbag::generation::Generation;
use kitbag::live::OwnerBy;
use kitbag::live::exclude::Rules;
use kitbag::monitor::collect::Collect;
use kitbag::monitor::{Counter, Monitor, Severity};
use kitbag::repo::{Encryption, InitOptions, Repository, init, open};
use kitbag::restore::{self, RestoreError, Summary};
use kitbag::store::ErrorKind;
use kitbag::store::testing::{CallLog, Fault, FaultyStore, MemoryStore, Op};

/// A live tree, a repository in memory, and a directory to restore into.
struct Bench {
    dir: tempfile::TempDir,
    memory: MemoryStore,
    log: CallLog,
    repository: Repository,
}

/// What a restore did.
struct Restored {
    summary: Summary,
    collect: Arc<Collect>,
}

impl Bench {
    fn new() -> Self {
        let memory = MemoryStore::new();
        let options =
            InitOptions { encryption: Encryption::None, label: String::new(), limits: Limits::default() };
        init(Arc::new(memory.clone()), options, &SystemClock::new()).unwrap();
        let log = CallLog::new(Arc::new(memory.clone()));
        let repository = open(Arc::new(log.clone()), &mut |_| None).unwrap();
        // In memory, where times of any year are kept.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::create_dir(dir.path().join("live")).unwrap();
        Self { dir, memory, log, repository }
    }

    fn live(&self, name: &str) -> PathBuf {
        self.dir.path().join("live").join(name)
    }

    fn to(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    /// Where something of the live tree is restored.
    fn there(&self, name: &str) -> PathBuf {
        let live = self.live(name);
        self.to().join(live.strip_prefix("/").unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.live(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn backup(&self) -> Generation {
        self.backup_roots(vec![self.live("").as_os_str().as_bytes().to_vec()])
    }

    fn backup_roots(&self, roots: Vec<Vec<u8>>) -> Generation {
        let options = backup::Options {
            roots,
            client: "client".into(),
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
            scratch: std::env::temp_dir(),
        };
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let made = backup::run(&self.repository, &options, &monitor, &SystemClock::new(), &Cancel::new());
        assert_eq!(collect.problems(), Vec::<String>::new());
        self.log.clear();
        made.unwrap().generation
    }

    fn options(&self) -> restore::Options {
        restore::Options {
            paths: Vec::new(),
            to: self.to(),
            strip_root: false,
            owner_by: OwnerBy::Number,
            workers: 3,
        }
    }

    fn try_restore(
        &self,
        generation: &Generation,
        options: &restore::Options,
    ) -> (Result<Summary, RestoreError>, Arc<Collect>) {
        self.log.clear();
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        (restore::run(&self.repository, generation, options, &monitor, &Cancel::new()), collect)
    }

    /// Restores everything, without any problem.
    fn restore(&self, generation: &Generation) -> Restored {
        self.restore_with(generation, &self.options())
    }

    fn restore_with(&self, generation: &Generation, options: &restore::Options) -> Restored {
        let (result, collect) = self.try_restore(generation, options);
        assert_eq!(collect.problems(), Vec::<String>::new());
        let summary = result.unwrap();
        assert_eq!(collect.get(Counter::FilesRestored), summary.files);
        Restored { summary, collect }
    }

    fn assert_same(&self) {
        same(&self.live(""), &self.there(""));
    }

    /// Names of the bags of a kind, the largest first.
    fn bags(&self, kind: BagKind) -> Vec<kitbag::store::Name> {
        let mut bags: Vec<_> = self
            .memory
            .names_below("bags")
            .into_iter()
            .map(|name| (self.memory.contents(&name).unwrap(), name))
            .filter(|(bytes, _)| bytes[8] == u8::from(kind))
            .collect();
        bags.sort_by_key(|(bytes, _)| std::cmp::Reverse(bytes.len()));
        bags.into_iter().map(|(_, name)| name).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Immutable files keep a directory from being removed.
        let _ = Command::new("chattr").args(["-Rf", "-ia"]).arg(self.dir.path()).output();
    }
}

/// Two trees are the same to the last nanosecond.
fn same(one: &Path, other: &Path) {
    let (one, other) = (obbench::manifest::of(one).unwrap(), obbench::manifest::of(other).unwrap());
    let missing: Vec<_> = one.lines().filter(|line| !other.lines().any(|there| there == *line)).collect();
    let extra: Vec<_> = other.lines().filter(|line| !one.lines().any(|there| there == *line)).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?}\nextra: {extra:#?}");
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn run(dir: &Path, program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// All that a file system can hold, as far as this user may make it.
fn nasty(bench: &Bench) {
    for number in 0..400u64 {
        bench.write(&format!("many/{:02}/file {number}", number % 7), &noise(number, number as usize * 13));
    }
    bench.write("large", &noise(1, 4 << 20));
    bench.write("again", &noise(1, 4 << 20));
    bench.write("empty", b"");
    bench.write("zeros", &vec![0; 3 << 20]);
    bench.write(&format!("{}file", "deep/".repeat(300)), b"deep");
    let sparse = fs::File::create(bench.live("sparse")).unwrap();
    sparse.write_all_at(&noise(3, 100_000), 5 << 20).unwrap();
    sparse.write_all_at(b"end", 40 << 20).unwrap();
    sparse.set_len(50 << 20).unwrap();
    fs::File::create(bench.live("only a hole")).unwrap().set_len(1 << 30).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9 \xff\n\x1b[2J");
    fs::write(bench.live("").join(odd), b"odd").unwrap();
    fs::write(bench.live(&"n".repeat(255)), b"long").unwrap();
    let live = bench.live("");
    symlink(std::ffi::OsStr::from_bytes(b"../no\xffwhere"), live.join("symlink")).unwrap();
    run(&live, "mkfifo", &["-m", "620", "fifo"]);
    drop(std::os::unix::net::UnixListener::bind(live.join("socket")).unwrap());
    bench.write("other/place", b"");
    for (name, link) in [
        ("large", "other/large link"),
        ("large", "many/03/large link"),
        ("symlink", "other/symlink link"),
        ("fifo", "other/fifo link"),
        ("empty", "other/empty link"),
        ("many/00/file 7", "many/00/file 7 link"),
    ] {
        fs::hard_link(live.join(name), live.join(link)).unwrap();
    }
    for (name, mode) in
        [("many/00/file 0", 0o4755), ("many/01", 0o2750), ("other", 0o1777), ("many/02/file 2", 0)]
    {
        fs::set_permissions(live.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    if is_root() {
        for (name, major, minor) in [("char", 300, 70_000), ("block", 259, 3)] {
            run(&live, "mknod", &[name, &name[..1], &major.to_string(), &minor.to_string()]);
        }
        for (number, name) in ["empty", "symlink", "fifo", "socket", "many/04", "char"].iter().enumerate() {
            let owner = format!("{}:{}", 1000 + number, 70_000 + number);
            run(&live, "chown", &["-h", &owner, name]);
            set_xattr(&live.join(name), "trusted.small", b"\0value");
        }
        run(&live, "setfacl", &["-m", "u:12345:rw,g:54321:r", "zeros"]);
        run(&live, "setfacl", &["-d", "-m", "u:12345:rwx", "many/05"]);
        // A capability, which a change of owner would take away.
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        run(&live, "chown", &["1234", "many/06/file 6"]);
        set_xattr(&live.join("many/06/file 6"), "security.capability", &capability);
        for name in ["sparse", "symlink", "many/06", "fifo"] {
            set_xattr(&live.join(name), "trusted.large", &noise(7, 3000));
        }
    }
    for (name, date) in [
        ("symlink", "1901-01-01T00:00:00.000000001Z"),
        ("large", "1969-12-31T23:59:59.999999999Z"),
        ("many/03", "2500-06-01T00:00:00.123456789Z"),
        ("fifo", "1970-01-01T00:00:00Z"),
        ("deep/deep", "1999-09-09T09:09:09.090909090Z"),
    ] {
        run(&live, "touch", &["-h", "-d", date, name]);
    }
}

#[test]
fn a_nasty_tree_comes_back_exactly_and_again() {
    let bench = Bench::new();
    nasty(&bench);
    let generation = bench.backup();
    let first = bench.restore(&generation);
    bench.assert_same();
    assert_eq!(first.summary.files, generation.counts.files);
    assert_eq!(first.collect.get(Counter::BytesRestored), generation.counts.bytes);
    assert_eq!((first.summary.links, first.summary.kept), (6, 0));
    let inode = fs::metadata(bench.there("zeros")).unwrap().ino();

    let again = bench.restore(&generation);
    bench.assert_same();
    assert_eq!(again.summary.bytes, 0, "nothing is written");
    assert_eq!(again.summary.files, generation.counts.files);
    assert_eq!(again.collect.get(Counter::BytesRestored), generation.counts.bytes);
    assert_eq!(fs::metadata(bench.there("zeros")).unwrap().ino(), inode);
}

/// A tool that sets times, or a disk that rots, leaves size and time as they were.
#[test]
fn contents_that_differ_are_replaced_whatever_their_time() {
    let bench = Bench::new();
    bench.write("small", b"small");
    bench.write("large", &noise(5, 700_000));
    fs::File::create(bench.live("hole")).unwrap().set_len(1 << 20).unwrap();
    bench.write("zeros", &vec![0; 1 << 20]);
    let generation = bench.backup();
    bench.restore(&generation);
    for (name, at) in [("small", 2), ("large", 600_000), ("hole", 70_000)] {
        let path = bench.there(name);
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_at(&file, b"!", at).unwrap();
        file.set_modified(time).unwrap();
    }
    let zeros = fs::metadata(bench.there("zeros")).unwrap().modified().unwrap();
    fs::write(bench.there("zeros"), b"").unwrap();
    let file = fs::File::options().write(true).open(bench.there("zeros")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.set_modified(zeros).unwrap();

    assert_eq!(bench.restore(&generation).summary.kept, 0);
    bench.assert_same();
    assert_eq!(bench.restore(&generation).summary.kept, 4);
}

#[test]
fn each_kind_takes_the_place_of_each_other() {
    type Make = fn(&Path);
    let makers: [(&str, Make); 7] = [
        ("file", |path| fs::write(path, noise(5, 700_000)).unwrap()),
        ("small", |path| fs::write(path, b"small").unwrap()),
        ("dir", |path| {
            fs::create_dir_all(path.join("below/it")).unwrap();
            fs::write(path.join("below/file"), b"in the way").unwrap();
        }),
        ("link to dir", |path| symlink("..", path).unwrap()),
        ("link to file", |path| symlink("/etc/passwd", path).unwrap()),
        ("fifo", |path| run(path.parent().unwrap(), "mkfifo", &[path.to_str().unwrap()])),
        ("nothing", |_| ()),
    ];
    let bench = Bench::new();
    fs::create_dir_all(bench.there("")).unwrap();
    for (is, make_is) in &makers {
        for (was, make_was) in &makers {
            let name = format!("{is} for {was}");
            make_is(&bench.live(&name));
            if is != &"nothing" {
                make_was(&bench.there(&name));
            }
        }
    }
    // What is in a directory is not removed from it.
    fs::remove_dir_all(bench.there("dir for dir/below")).unwrap();
    let generation = bench.backup();
    bench.restore(&generation);
    bench.assert_same();
    bench.restore(&generation);
    bench.assert_same();
}

#[test]
fn only_what_differs_is_fetched() {
    let bench = Bench::new();
    bench.write("large", &noise(1, 6 << 20));
    bench.write("grown", &noise(2, 2 << 20));
    let generation = bench.backup();
    bench.restore(&generation);
    let file = fs::OpenOptions::new().write(true).open(bench.there("large")).unwrap();
    file.write_all_at(b"changed", 3 << 20).unwrap();
    fs::OpenOptions::new().append(true).open(bench.there("grown")).unwrap().write_all(b"more").unwrap();
    let there = fs::File::open(bench.there("large")).unwrap();
    let again = bench.restore(&generation);
    bench.assert_same();
    let fetched: u64 = again_reads(&bench);
    assert!(fetched < 6 << 20, "{fetched} bytes fetched");
    assert_eq!(again.summary.files, 2);
    // Who had the file open still has what was there.
    let mut still = [0; 7];
    there.read_exact_at(&mut still, 3 << 20).unwrap();
    assert_eq!(&still, b"changed");
}

/// Bytes read from data bags.
fn again_reads(bench: &Bench) -> u64 {
    let data: Vec<_> = bench.bags(BagKind::Data);
    bench.log.calls().iter().filter(|call| data.contains(&call.name)).map(|call| call.len).sum()
}

#[test]
fn links_that_should_not_be_are_taken_apart() {
    let bench = Bench::new();
    for name in ["a", "b", "c", "d", "x"] {
        bench.write(name, b"the same");
    }
    for (name, link) in [("a", "a2"), ("c", "c2")] {
        fs::hard_link(bench.live(name), bench.live(link)).unwrap();
    }
    run(&bench.live(""), "touch", &["-d", "2020-02-02", "a", "b", "c", "d", "x"]);
    let generation = bench.backup();
    bench.restore(&generation);
    for name in ["a2", "b", "c", "c2", "d", "x"] {
        fs::remove_file(bench.there(name)).unwrap();
        fs::hard_link(bench.there("a"), bench.there(name)).unwrap();
    }
    bench.restore(&generation);
    bench.assert_same();
}

#[test]
fn no_link_is_followed() {
    let bench = Bench::new();
    bench.write("dir/inner/file", b"contents");
    bench.write("dir/file", b"contents");
    let outside = bench.dir.path().join("outside");
    fs::create_dir_all(outside.join("inner")).unwrap();
    fs::write(outside.join("file"), b"precious").unwrap();
    let before = obbench::manifest::of(&outside).unwrap();
    let generation = bench.backup();
    fs::create_dir_all(bench.there("")).unwrap();
    symlink(&outside, bench.there("dir")).unwrap();
    bench.restore(&generation);
    bench.assert_same();
    // Nor on the way to the root.
    fs::remove_dir_all(bench.to()).unwrap();
    fs::create_dir(bench.to()).unwrap();
    let first =
        bench.there("").strip_prefix(bench.to()).unwrap().components().next().unwrap().as_os_str().to_owned();
    symlink(&outside, bench.to().join(first)).unwrap();
    bench.restore(&generation);
    bench.assert_same();
    assert_eq!(obbench::manifest::of(&outside).unwrap(), before);
}

#[test]
fn selected_paths_come_with_their_parents() {
    let bench = Bench::new();
    for name in ["a/b/c/file", "a/b/other", "a/beside", "z/file", "a/b/c/d/below"] {
        bench.write(name, name.as_bytes());
    }
    run(&bench.live(""), "chmod", &["750", "a", "a/b"]);
    run(&bench.live(""), "touch", &["-d", "2001-01-01", "a/b", "a"]);
    let generation = bench.backup();
    let mut options = bench.options();
    options.paths = vec![
        [bench.live("a/b/c").as_os_str().as_bytes(), b"/"].concat(),
        bench.live("a/b/c/d/below").as_os_str().as_bytes().to_vec(),
        b"z//./file".to_vec(),
    ];
    let restored = bench.restore_with(&generation, &options);
    assert_eq!(restored.summary.files, 3);
    assert!(!bench.there("a/beside").exists() && !bench.there("a/b/other").exists());
    for name in ["a", "a/b"] {
        let meta = fs::metadata(bench.there(name)).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.mtime()), (0o750, 978_307_200), "{name}");
    }
    same(&bench.live("a/b/c"), &bench.there("a/b/c"));
    same(&bench.live("z"), &bench.there("z"));

    options.paths =
        vec![b"no such".to_vec(), b"/nor/this".to_vec(), b"a/../z".to_vec(), b"a/beside".to_vec()];
    let (result, collect) = bench.try_restore(&generation, &options);
    assert_eq!((result.unwrap().failed, collect.problems_of(Severity::Lost)), (3, 3));
    assert!(collect.problems()[0].starts_with("no such: "), "{:?}", collect.problems());
    assert!(bench.there("a/beside").exists());
}

#[test]
fn roots_and_their_paths() {
    let bench = Bench::new();
    for name in ["one/sub/file", "two/file", "two/other", "single"] {
        bench.write(name, name.as_bytes());
    }
    let path = |name: &str| bench.live(name).as_os_str().as_bytes().to_vec();
    let generation = bench.backup_roots(vec![path("one"), path("two"), path("single"), path("one/sub")]);
    let mut options = bench.options();
    options.strip_root = true;
    let monitor: Arc<dyn Monitor> = Arc::new(Collect::new());
    let refused = restore::run(&bench.repository, &generation, &options, &monitor, &Cancel::new());
    assert!(matches!(refused, Err(RestoreError::Clash { .. })), "one over the other");
    options.paths = vec![path("two")];
    bench.restore_with(&generation, &options);
    options.paths.clear();
    let names = |dir: PathBuf| {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(bench.to()), ["file", "other"]);
    fs::remove_dir_all(bench.to()).unwrap();

    options.strip_root = false;
    bench.restore_with(&generation, &options);
    assert_eq!(names(bench.there("")), ["one", "single", "two"]);
    same(&bench.live("one"), &bench.there("one"));
    fs::remove_dir_all(bench.to()).unwrap();

    // Above the roots.
    options.paths = vec![path("")];
    bench.restore_with(&generation, &options);
    assert_eq!(names(bench.there("")), ["one", "single", "two"]);
}

#[test]
fn what_is_damaged_is_missing_and_nothing_else() {
    let bench = Bench::new();
    for number in 0..40u64 {
        bench.write(&format!("file {number:02}"), &noise(number, 300_000));
    }
    bench.write("inline", b"inline");
    let generation = bench.backup();
    let bag = bench.bags(BagKind::Data).remove(0);
    bench.memory.flip(&bag, 700_000);
    fs::create_dir_all(bench.there("")).unwrap();
    let (result, collect) = bench.try_restore(&generation, &bench.options());
    let failed = result.unwrap().failed;
    assert!((1..=2).contains(&failed), "{failed} failed");
    let problems = collect.problems();
    assert_eq!(collect.problems_of(Severity::Damage), failed as usize, "{problems:?}");
    let mut there = 0;
    for entry in fs::read_dir(bench.there("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with('.'), "{name} was left");
        assert_eq!(fs::read(bench.there(&name)).unwrap(), fs::read(bench.live(&name)).unwrap());
        assert!(!problems.iter().any(|problem| problem.contains(&format!("/{name}:"))), "{problems:?}");
        there += 1;
    }
    assert_eq!(there + failed, 41);

    // A bag that is cut off: what lies before is restored.
    let len = bench.memory.contents(&bag).unwrap().len();
    bench.memory.flip(&bag, 700_000);
    bench.memory.truncate(&bag, len / 2);
    fs::remove_dir_all(bench.to()).unwrap();
    let (result, _) = bench.try_restore(&generation, &bench.options());
    let failed = result.unwrap().failed;
    assert!((1..40).contains(&failed), "{failed} failed");
    assert_eq!(fs::read_dir(bench.there("")).unwrap().count() as u64 + failed, 41);

    // A bag that is gone.
    bench.memory.delete(&bag);
    let (result, collect) = bench.try_restore(&generation, &bench.options());
    assert!(result.unwrap().failed >= failed);
    assert!(collect.problems().iter().all(|problem| !problem.contains("inline")));
}

#[test]
fn waits_do_not_add_up() {
    let bench = Bench::new();
    for number in 0..3000u64 {
        let name = format!("{}/{}/{number}", number % 30, number % 7);
        bench.write(&name, &noise(number, 1000 + number as usize));
    }
    bench.write(&format!("{}file", "d/".repeat(100)), &noise(0, 3 << 20));
    let generation = bench.backup();
    bench.restore(&generation);
    assert!(bench.log.serial_round_trips() <= 4, "{}", bench.log.serial_round_trips());
    bench.assert_same();
    let data = bench.bags(BagKind::Data);
    let bytes: usize = data.iter().map(|name| bench.memory.contents(name).unwrap().len()).sum();
    assert!(again_reads(&bench) <= bytes as u64, "each block once");
    assert!(bench.log.count(Op::Read) <= data.len() + bytes / (3 << 20) + 1, "{:?}", bench.log.lines());

    fs::remove_dir_all(bench.to()).unwrap();
    let mut options = bench.options();
    options.paths = vec![format!("{}file", "d/".repeat(100)).into_bytes()];
    bench.restore_with(&generation, &options);
    assert!(bench.log.serial_round_trips() <= 3, "{}", bench.log.serial_round_trips());
}

#[test]
fn one_file_as_a_stream() {
    let bench = Bench::new();
    bench.write("dir/large", &noise(1, 9 << 20));
    bench.write("dir/small", b"small");
    let sparse = fs::File::create(bench.live("sparse")).unwrap();
    sparse.write_all_at(b"middle", 3 << 20).unwrap();
    sparse.set_len(7 << 20).unwrap();
    let generation = bench.backup();
    let cat = |path: &[u8]| {
        let mut out = Vec::new();
        restore::cat(&bench.repository, &generation, path, &mut out, &Cancel::new()).map(|len| {
            assert_eq!(len, out.len() as u64);
            out
        })
    };
    for name in ["dir/large", "dir/small", "sparse"] {
        assert!(cat(name.as_bytes()).unwrap() == fs::read(bench.live(name)).unwrap(), "{name}");
    }
    assert!(matches!(cat(b"dir"), Err(restore::CatError::NotAFile(_))));
    assert!(matches!(cat(b"dir/none"), Err(restore::CatError::NotFound(_))));
    bench.log.clear();
    cat(b"dir/large").unwrap();
    assert!(bench.log.serial_round_trips() <= 6, "{}", bench.log.serial_round_trips());
}

/// A small file system of its own for the test, where it may be mounted.
struct Mount(PathBuf);

impl Mount {
    fn new(at: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(&at).output().unwrap();
        if !mounted.status.success() {
            eprintln!("skipped: nothing can be mounted here");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_ends_it_and_leaves_nothing_half_done() {
    let bench = Bench::new();
    for number in 0..12u64 {
        bench.write(&format!("{number}"), &noise(number, 1 << 20));
    }
    let generation = bench.backup();
    let Some(mount) = Mount::new(bench.to(), "size=5m") else { return };
    let (result, collect) = bench.try_restore(&generation, &bench.options());
    let error = result.unwrap_err();
    assert!(matches!(error, RestoreError::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert_eq!(collect.problems(), Vec::<String>::new());
    for entry in fs::read_dir(bench.there("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert_eq!(fs::read(bench.there(&name)).unwrap(), fs::read(bench.live(&name)).unwrap(), "{name}");
    }
    // With more room it goes on from there.
    run(&bench.to(), "mount", &["-o", "remount,size=64m", mount.0.to_str().unwrap()]);
    bench.restore(&generation);
    bench.assert_same();
}

#[test]
fn where_no_link_can_be_made_there_is_a_copy() {
    let bench = Bench::new();
    let sparse = fs::File::create(bench.live("a")).unwrap();
    sparse.write_all_at(&noise(1, 1 << 20), 4 << 20).unwrap();
    bench.write("b/place", b"");
    fs::hard_link(bench.live("a"), bench.live("b/a")).unwrap();
    run(&bench.live(""), "mkfifo", &["fifo"]);
    fs::hard_link(bench.live("fifo"), bench.live("b/fifo")).unwrap();
    let generation = bench.backup();
    let Some(_mount) = Mount::new(bench.there("b"), "size=8m") else { return };
    let (result, collect) = bench.try_restore(&generation, &bench.options());
    assert_eq!(
        (result.unwrap().failed, collect.problems_of(Severity::Lost)),
        (0, 2),
        "{:?}",
        collect.problems()
    );
    let shown = |path: PathBuf| {
        let text = obbench::manifest::of(path.parent().unwrap()).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let line = text.lines().find(|line| line.starts_with(&format!("./{name}\t"))).unwrap().to_owned();
        line.split(" link:").next().unwrap().to_owned()
    };
    for name in ["a", "b/a", "fifo", "b/fifo"] {
        assert_eq!(shown(bench.live(name)), shown(bench.there(name)), "{name}");
    }
}

#[test]
fn a_damaged_tree_costs_what_stood_in_it() {
    let bench = Bench::new();
    for number in 0..20_000 {
        bench.write(&format!("{}/{number}", number % 40), format!("{number}").as_bytes());
    }
    let generation = bench.backup();
    let tree = bench.bags(BagKind::Tree).remove(0);
    bench.memory.flip(&tree, 1000);
    let (result, collect) = bench.try_restore(&generation, &bench.options());
    let summary = result.unwrap();
    assert!(summary.failed > 0 && summary.files > 1000, "{summary:?}");
    assert_eq!(collect.problems_of(Severity::Damage), summary.failed as usize);
    assert_eq!(collect.problems_of(Severity::Lost), 0);
    // Nothing at all is left of the trees.
    for tree in bench.bags(BagKind::Tree) {
        bench.memory.delete(&tree);
    }
    let (result, collect) = bench.try_restore(&generation, &bench.options());
    assert_eq!((result.unwrap().failed, collect.problems_of(Severity::Damage)), (1, 1));
}

#[test]
fn a_wish_to_stop_and_a_store_out_of_reach_end_it() {
    let bench = Bench::new();
    for number in 0..12u64 {
        bench.write(&format!("{number}"), &noise(number, 800_000));
    }
    let generation = bench.backup();
    let monitor: Arc<dyn Monitor> = Arc::new(Collect::new());
    let cancel = Cancel::new();
    cancel.cancel();
    let result = restore::run(&bench.repository, &generation, &bench.options(), &monitor, &cancel);
    assert!(matches!(result, Err(RestoreError::Interrupted)));

    for nth in [1, 3] {
        let fault = Fault::fail(Op::Read, ErrorKind::Unreachable).nth(nth);
        let faulty = FaultyStore::new(Arc::new(bench.memory.clone()), vec![fault]);
        let repository = open(Arc::new(faulty.clone()), &mut |_| None).unwrap();
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let result = restore::run(&repository, &generation, &bench.options(), &monitor, &Cancel::new());
        assert!(
            matches!(result, Err(RestoreError::Store(ref error)) if error.kind == ErrorKind::Unreachable)
        );
        assert_eq!(collect.problems(), Vec::<String>::new());
        faulty.finish();
    }
    bench.restore(&generation);
    bench.assert_same();
}

#[test]
fn a_tree_deeper_than_any_path() {
    let bench = Bench::new();
    let mut dir = fs::File::open(bench.live("")).unwrap();
    let name = "d".repeat(100);
    for _ in 0..100 {
        rustix::fs::mkdirat(&dir, &name, rustix::fs::Mode::from_raw_mode(0o750)).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
        dir = rustix::fs::openat(&dir, &name, flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let mut file = fs::File::from(rustix::fs::openat(&dir, "file", flags, mode).unwrap());
    file.write_all(b"deep down").unwrap();
    let generation = bench.backup();
    bench.restore(&generation);
    bench.restore(&generation);
    bench.assert_same();
    drop(file);
    drop(dir);
    run(bench.dir.path(), "rm", &["-rf", "live", "to"]);
}
