//! A tree, a store in memory, and what comes back from it.

use std::fs;
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
use kitbag::monitor::{Counter, Monitor};
use kitbag::repo::{Encryption, InitOptions, Repository, init, open};
use kitbag::restore::{self, RestoreError, Summary};
use kitbag::store::testing::{CallLog, MemoryStore};

/// A live tree, a repository in memory, and a directory to restore into.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub memory: MemoryStore,
    pub log: CallLog,
    pub repository: Repository,
}

/// What a restore did.
pub struct Restored {
    pub summary: Summary,
    pub collect: Arc<Collect>,
}

impl Bench {
    pub fn new() -> Self {
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

    pub fn live(&self, name: &str) -> PathBuf {
        self.dir.path().join("live").join(name)
    }

    pub fn to(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    /// Where something of the live tree is restored.
    pub fn there(&self, name: &str) -> PathBuf {
        let live = self.live(name);
        self.to().join(live.strip_prefix("/").unwrap())
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.live(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn backup(&self) -> Generation {
        self.backup_roots(vec![self.live("").as_os_str().as_bytes().to_vec()])
    }

    pub fn backup_roots(&self, roots: Vec<Vec<u8>>) -> Generation {
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
            scratch: vec![std::env::temp_dir()],
        };
        let collect = Arc::new(Collect::new());
        let monitor: Arc<dyn Monitor> = collect.clone();
        let made = backup::run(&self.repository, &options, &monitor, &SystemClock::new(), &Cancel::new());
        assert_eq!(collect.problems(), Vec::<String>::new());
        self.log.clear();
        made.unwrap().generation
    }

    pub fn options(&self) -> restore::Options {
        restore::Options {
            paths: Vec::new(),
            to: self.to(),
            strip_root: false,
            owner_by: OwnerBy::Number,
            workers: 3,
        }
    }

    pub fn try_restore(
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
    pub fn restore(&self, generation: &Generation) -> Restored {
        self.restore_with(generation, &self.options())
    }

    pub fn restore_with(&self, generation: &Generation, options: &restore::Options) -> Restored {
        let (result, collect) = self.try_restore(generation, options);
        assert_eq!(collect.problems(), Vec::<String>::new());
        let summary = result.unwrap();
        assert_eq!(collect.get(Counter::FilesRestored), summary.files);
        Restored { summary, collect }
    }

    pub fn assert_same(&self) {
        same(&self.live(""), &self.there(""));
    }

    /// Names of the bags of a kind, the largest first.
    pub fn bags(&self, kind: BagKind) -> Vec<kitbag::store::Name> {
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
pub fn same(one: &Path, other: &Path) {
    let (one, other) = (obbench::manifest::of(one).unwrap(), obbench::manifest::of(other).unwrap());
    let missing: Vec<_> = one.lines().filter(|line| !other.lines().any(|there| there == *line)).collect();
    let extra: Vec<_> = other.lines().filter(|line| !one.lines().any(|there| there == *line)).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?}\nextra: {extra:#?}");
}

pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

pub fn run(dir: &Path, program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// All that a file system can hold, as far as this user may make it.
pub fn nasty(bench: &Bench) {
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
