use std::time::{Duration, UNIX_EPOCH};

use super::*;

const NAME: &str = "00ff";

fn cache(budget: u64) -> (tempfile::TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(&dir.path().join("cache"), budget).unwrap();
    (dir, cache)
}

fn path(cache: &Cache, kind: Kind, name: &str) -> PathBuf {
    cache.0.as_ref().unwrap().path(kind, name).unwrap()
}

/// Makes a file look as if last used at this second.
fn used_at(cache: &Cache, kind: Kind, name: &str, secs: u64) {
    let file = fs::File::options().write(true).open(path(cache, kind, name)).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(secs)).unwrap();
}

fn pattern(len: usize) -> Vec<u8> {
    (0..=250_u8).cycle().take(len).collect()
}

#[test]
fn what_is_kept_can_be_read() {
    let (dir, cache) = cache(1 << 30);
    for len in [0, 1, 1000, 65_535, 65_536, 65_537, 131_072, 200_000] {
        let bytes = pattern(len);
        for kind in Kind::ALL {
            cache.put(kind, NAME, &bytes);
            let again = Cache::open(&dir.path().join("cache"), 1).unwrap();
            assert!(again.get(kind, NAME).unwrap() == bytes, "{len}");
            assert_eq!(again.len_of(kind, NAME), Some(u64::try_from(len).unwrap()));
        }
    }
    assert_eq!(cache.names(Kind::Bag), [NAME]);
    assert_eq!(cache.get(Kind::Bag, "other"), None);
    cache.remove(Kind::Bag, NAME);
    cache.remove(Kind::Bag, NAME);
    assert_eq!(cache.get(Kind::Bag, NAME), None);
    assert!(cache.get(Kind::Segment, NAME).is_some());
    assert_eq!(cache.trouble(), None);
}

#[test]
fn ranges_and_tails() {
    let (_dir, cache) = cache(1 << 30);
    let bytes = pattern(200_000);
    let mut filling = cache.fill();
    for piece in bytes.chunks(7_001) {
        filling.append(piece);
    }
    filling.finish(Kind::Bag, NAME);
    for (from, to) in [(0, 0), (0, 1), (65_535, 65_537), (70_000, 140_000), (199_999, 200_000), (0, 200_000)]
    {
        let (offset, len) = (u64::try_from(from).unwrap(), u64::try_from(to - from).unwrap());
        assert!(cache.get_range(Kind::Bag, NAME, offset, len).unwrap() == bytes[from..to], "{from}..{to}");
    }
    assert_eq!(cache.get_range(Kind::Bag, NAME, 199_999, 2), None);
    assert_eq!(cache.get_range(Kind::Bag, NAME, u64::MAX, 2), None);
    assert_eq!(cache.get_tail(Kind::Bag, NAME, 3), Some((bytes[199_997..].to_vec(), 200_000)));
    assert_eq!(cache.get_tail(Kind::Bag, NAME, 1 << 40).unwrap().0.len(), 200_000);
    // Asking beyond the end is no damage.
    assert!(cache.get(Kind::Bag, NAME).is_some());
}

#[test]
fn damage_is_noticed_and_dropped() {
    let (_dir, cache) = cache(1 << 30);
    let bytes = pattern(70_000);
    cache.put(Kind::Segment, NAME, &bytes);
    let path = path(&cache, Kind::Segment, NAME);
    let good = fs::read(&path).unwrap();
    let places = (0..good.len()).step_by(997).chain(70_000..good.len());
    for at in places {
        let mut flipped = good.clone();
        flipped[at] ^= 0x10;
        for bad in [&flipped[..], &good[..at], &[&good[..], b"x"].concat(), &vec![0; good.len()]] {
            fs::write(&path, bad).unwrap();
            assert_eq!(cache.get(Kind::Segment, NAME), None, "at {at}");
            assert!(!path.exists(), "damaged at {at}, but kept");
        }
    }
    // Damage elsewhere does not spoil a range; damage in it does.
    let mut flipped = good.clone();
    flipped[69_999] ^= 1;
    fs::write(&path, &flipped).unwrap();
    assert!(cache.get_range(Kind::Segment, NAME, 0, 65_536).is_some());
    assert_eq!(cache.get_range(Kind::Segment, NAME, 65_536, 1), None);
    assert!(!path.exists());
}

#[test]
fn a_file_in_anothers_place_is_damage() {
    let (_dir, cache) = cache(1 << 30);
    cache.put(Kind::Record, "one", b"1");
    fs::copy(path(&cache, Kind::Record, "one"), path(&cache, Kind::Record, "two")).unwrap();
    fs::copy(path(&cache, Kind::Record, "one"), path(&cache, Kind::Segment, "one")).unwrap();
    assert_eq!(cache.get(Kind::Record, "two"), None);
    assert_eq!(cache.get(Kind::Segment, "one"), None);
    assert!(cache.get(Kind::Record, "one").is_some());
    std::os::unix::fs::symlink("one", path(&cache, Kind::Record, "two")).unwrap();
    assert_eq!(cache.get(Kind::Record, "two"), None);
}

#[test]
fn odd_names_are_nowhere() {
    let (dir, cache) = cache(1 << 30);
    let long = "a".repeat(201);
    for name in ["", ".", "..", "../x", "a/b", ".x", "x.tmp", "X", &long] {
        cache.put(Kind::Bag, name, b"x");
        assert_eq!(cache.get(Kind::Bag, name), None);
        cache.remove(Kind::Bag, name);
        assert_eq!(cache.directory(name), None);
    }
    assert_eq!(cache.directory("bags"), None);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(cache.info().iter().all(|usage| usage.files == 0));
}

#[test]
fn private() {
    let (dir, cache) = cache(1 << 30);
    cache.put(Kind::Bag, NAME, b"x");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let root = dir.path().join("cache");
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join("bags")), 0o700);
    assert_eq!(mode(&path(&cache, Kind::Bag, NAME)), 0o600);
    assert_eq!(mode(&cache.directory("shards").unwrap()), 0o700);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    Cache::open(&root, 1).unwrap();
    assert_eq!(mode(&root), 0o700);
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let (_dir, cache) = cache(100_000);
    for (at, name) in (1..).zip(["a", "b", "c", "d", "e", "f", "g", "h", "i"]) {
        cache.put(Kind::Bag, name, &[0; 10_000]);
        used_at(&cache, Kind::Bag, name, at);
    }
    assert_eq!(cache.names(Kind::Bag).len(), 9);
    // Another process uses the oldest.
    let other = Cache::open(&cache.0.as_ref().unwrap().root, 100_000).unwrap();
    assert!(other.get(Kind::Bag, "a").is_some());
    other.put(Kind::Segment, "j", &[0; 10_000]);
    let mut left = cache.names(Kind::Bag);
    left.sort();
    assert_eq!(left, ["a", "d", "e", "f", "g", "h", "i"]);
    assert!(cache.get(Kind::Segment, "j").is_some());
    let total: u64 = cache.info().iter().map(|usage| usage.bytes).sum();
    assert!(total <= 90_000);
}

#[test]
fn what_is_larger_than_the_budget_drives_nothing_out() {
    let (_dir, cache) = cache(100_000);
    cache.put(Kind::Bag, "small", &[0; 1000]);
    cache.put(Kind::Bag, "large", &[0; 100_001]);
    assert_eq!(cache.names(Kind::Bag), ["small"]);
}

#[test]
fn a_lost_sum_is_made_anew() {
    let (_dir, cache) = cache(100_000);
    let usage = cache.0.as_ref().unwrap().root.join("usage");
    for (at, name) in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"].iter().enumerate() {
        cache.put(Kind::Bag, name, &[0; 20_000]);
        match at % 3 {
            0 => fs::remove_file(&usage).unwrap(),
            1 => fs::write(&usage, "nonsense").unwrap(),
            _ => {}
        }
        let total: u64 = cache.info().iter().map(|usage| usage.bytes).sum();
        assert!(total <= 100_000, "{total}");
    }
}

#[test]
fn what_a_crash_left_goes_too() {
    let (_dir, cache) = cache(100_000);
    let left = cache.0.as_ref().unwrap().root.join("0123.tmp");
    fs::write(&left, [0; 50_000]).unwrap();
    fs::File::options().write(true).open(&left).unwrap().set_modified(UNIX_EPOCH).unwrap();
    fs::remove_file(left.with_file_name("usage")).ok();
    cache.put(Kind::Bag, "a", &[0; 60_000]);
    assert!(!left.exists());
    assert!(cache.get(Kind::Bag, "a").is_some());
    drop(cache.fill());
    let root = left.parent().unwrap();
    let temporary =
        |entry: io::Result<fs::DirEntry>| entry.unwrap().path().extension().is_some_and(|end| end == "tmp");
    assert!(!fs::read_dir(root).unwrap().any(temporary));
}

/// Threads with caches of their own, as processes have, on one directory.
#[test]
fn many_at_once() {
    let (dir, _) = cache(0);
    let root = dir.path().join("cache");
    std::thread::scope(|scope| {
        for at in 0..4_usize {
            let cache = Cache::open(&root, 300_000).unwrap();
            scope.spawn(move || {
                for round in 0..100 {
                    let name = format!("f{}", (at + round) % 10);
                    let expected = pattern(30_000 + ((at + round) % 10) * 100);
                    if let Some(bytes) = cache.get(Kind::Bag, &name) {
                        assert!(bytes == expected);
                    }
                    cache.put(Kind::Bag, &name, &expected);
                }
                assert_eq!(cache.trouble(), None);
            });
        }
    });
    let cache = Cache::open(&root, 300_000).unwrap();
    cache.put(Kind::Bag, "last", &pattern(100_000));
    let total: u64 = cache.info().iter().map(|usage| usage.bytes).sum();
    assert!(total <= 400_000, "{total}");
}

#[test]
fn what_another_process_drove_out_half_written_is_not_kept_and_not_told() {
    let (dir, cache) = cache(1 << 30);
    let mut filling = cache.fill();
    filling.append(b"x");
    for entry in fs::read_dir(dir.path().join("cache")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "tmp") {
            fs::remove_file(path).unwrap();
        }
    }
    filling.finish(Kind::Bag, NAME);
    assert_eq!((cache.get(Kind::Bag, NAME), cache.trouble()), (None, None));
    cache.put(Kind::Bag, NAME, b"y");
    assert_eq!(cache.get(Kind::Bag, NAME), Some(b"y".to_vec()));
}

#[test]
fn cleared() {
    let (_dir, cache) = cache(1 << 30);
    let shards = cache.directory(CHUNK_INDEX).unwrap();
    fs::write(shards.join("x"), "xyz").unwrap();
    assert_eq!(cache.chunk_index(), Usage { kind: None, files: 1, bytes: 3 });
    cache.put(Kind::Bag, NAME, b"x");
    cache.clear().unwrap();
    assert_eq!(cache.get(Kind::Bag, NAME), None);
    assert!(!shards.exists());
    cache.put(Kind::Bag, NAME, b"y");
    assert_eq!(cache.get(Kind::Bag, NAME), Some(b"y".to_vec()));
}

#[test]
fn a_deleted_cache_is_no_failure_to_read_and_one_sentence_to_write() {
    let (dir, cache) = cache(1 << 30);
    fs::remove_dir_all(dir.path().join("cache")).unwrap();
    assert_eq!(cache.get(Kind::Bag, NAME), None);
    assert!(cache.names(Kind::Bag).is_empty());
    cache.put(Kind::Bag, NAME, b"x");
    cache.put(Kind::Bag, NAME, b"x");
    let sentence = cache.trouble().unwrap();
    assert!(sentence.contains("cache"), "{sentence}");
    assert_eq!(cache.trouble(), None);
}

#[test]
fn disabled() {
    let cache = Cache::disabled();
    cache.put(Kind::Bag, NAME, b"x");
    assert_eq!(cache.get(Kind::Bag, NAME), None);
    assert!(cache.names(Kind::Bag).is_empty() && cache.info().is_empty() && cache.directory("x").is_none());
    cache.clear().unwrap();
}

#[test]
fn what_cannot_be_used_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = Cache::open(&file, 1).unwrap_err();
    assert!(matches!(error, CacheError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains("file"));
    if rustix::process::geteuid().is_root() {
        let foreign = dir.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        std::os::unix::fs::chown(&foreign, Some(65534), None).unwrap();
        assert!(matches!(Cache::open(&foreign, 1).unwrap_err(), CacheError::Foreign { .. }));
        // Somebody else, who may not even look into it.
        let hidden = dir.path().join("hidden");
        fs::create_dir(&hidden).unwrap();
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let nobody = rustix::process::Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                let error = Cache::open(&hidden.join("cache"), 1).unwrap_err();
                assert!(matches!(error, CacheError::Unusable { .. }), "{error}");
            });
        });
    }
}

#[test]
fn other_backup_programs_leave_it_out() {
    let (dir, cache) = cache(1 << 30);
    let tag = dir.path().join("cache/CACHEDIR.TAG");
    assert!(fs::read(&tag).unwrap().starts_with(b"Signature: 8a477f597d28d172789f06886806bc55"));
    cache.clear().unwrap();
    assert!(tag.exists());
}
