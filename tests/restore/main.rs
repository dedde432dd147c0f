//! Trees that are backed up into a store in memory and brought back, compared by their manifests.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test says so by failing")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod bench;

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use kitbag::bag::BagKind;
use kitbag::base::cancel::Cancel;
use kitbag::monitor::collect::Collect;
use kitbag::monitor::{Counter, Monitor, Severity};
use kitbag::repo::open;
use kitbag::restore::{self, RestoreError};
use kitbag::store::ErrorKind;
use kitbag::store::testing::{Fault, FaultyStore, Op};

use bench::{Bench, nasty, noise, run, same};

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
    let restore::Summary { failed, entries, .. } = result.unwrap();
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
    assert_eq!(entries, there + 1, "what stands there, and the root");

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
