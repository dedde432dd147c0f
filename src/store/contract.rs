//! One suite that every store passes: a function for each promise of [`Store`].
//!
//! [`run`] runs them all, each on a store of its own, or on one shared by all of them: they use directories of different names, and none
//! expects the store to be empty. A promise that is broken panics, with its function in the backtrace.

#![expect(clippy::unwrap_used, reason = "a suite of tests: a broken promise panics")]

use std::sync::Barrier;
use std::thread;

use super::{Class, ErrorKind, Name, Pending, SharedStore, Store, StoreError, Upload};

/// Everything below, each on what `make` makes.
pub fn run(make: &dyn Fn() -> SharedStore) {
    for (_, promise) in PROMISES {
        promise(&*make());
    }
}

/// Checks one promise; panics when it is broken.
pub type Promise = fn(&dyn Store);

/// The promises by name, for a suite that wants a report for each.
pub const PROMISES: &[(&str, Promise)] = &[
    ("what_is_committed_can_be_read", what_is_committed_can_be_read),
    ("an_empty_file_is_a_file", an_empty_file_is_a_file),
    ("big_appends_arrive_in_order", big_appends_arrive_in_order),
    ("both_classes_write", both_classes_write),
    ("creation_is_exclusive", creation_is_exclusive),
    ("a_file_is_visible_while_it_is_written", a_file_is_visible_while_it_is_written),
    ("a_committed_file_has_one_name", a_committed_file_has_one_name),
    ("commit_never_overwrites", commit_never_overwrites),
    ("commit_makes_directories", commit_makes_directories),
    ("a_revoked_file_is_not_committed", a_revoked_file_is_not_committed),
    ("a_dropped_upload_leaves_nothing", a_dropped_upload_leaves_nothing),
    ("a_refused_upload_harms_nothing", a_refused_upload_harms_nothing),
    ("ranges_are_exact", ranges_are_exact),
    ("tails_are_exact", tails_are_exact),
    ("limits_are_kept", limits_are_kept),
    ("what_is_not_there_is_not_found", what_is_not_there_is_not_found),
    ("a_missing_directory_is_empty", a_missing_directory_is_empty),
    ("a_listing_is_complete", a_listing_is_complete),
    ("small_things_happen_in_order", small_things_happen_in_order),
    ("rename_never_overwrites", rename_never_overwrites),
    ("removing_twice_is_not_found", removing_twice_is_not_found),
    ("make_dir_is_content_with_what_is_there", make_dir_is_content_with_what_is_there),
    ("the_top_can_be_made_and_listed", the_top_can_be_made_and_listed),
    ("many_are_in_flight", many_are_in_flight),
    ("one_creator_wins", one_creator_wins),
    ("one_renamer_wins", one_renamer_wins),
];

const LIMIT: u64 = 64 << 20;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn kind<T>(result: Result<T, StoreError>) -> ErrorKind {
    match result {
        Ok(_) => panic!("succeeded, but should have failed"),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            error.kind
        }
    }
}

/// Bytes in which every place can be told from its neighbours.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251).to_le_bytes().first().copied().unwrap_or(0).wrapping_add(seed)).collect()
}

fn begin(store: &dyn Store, text: &str, bytes: &[u8]) -> Box<dyn Upload> {
    let mut upload = store.create(&name(text), Class::Control);
    upload.created().unwrap();
    if !bytes.is_empty() {
        upload.append(bytes.to_vec()).unwrap();
    }
    upload
}

/// Stores a file at once.
fn put(store: &dyn Store, text: &str, bytes: &[u8]) {
    begin(store, &format!("{text}.part"), bytes).commit(&name(text)).wait().unwrap();
}

fn get(store: &dyn Store, text: &str) -> Vec<u8> {
    store.read_all(&name(text), LIMIT).wait().unwrap()
}

fn listed(store: &dyn Store, dir: &str) -> Vec<String> {
    let mut names: Vec<_> =
        store.list(&name(dir)).wait().unwrap().into_iter().map(|file| file.name).collect();
    names.sort();
    names
}

/// Waits for what happens in the background.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what} did not come true in ten seconds");
}

fn what_is_committed_can_be_read(store: &dyn Store) {
    put(store, "read/me", b"some bytes");
    assert_eq!(get(store, "read/me"), b"some bytes");
    assert!(!store.describe().is_empty());
}

fn an_empty_file_is_a_file(store: &dyn Store) {
    put(store, "empty/file", b"");
    assert_eq!(get(store, "empty/file"), b"");
    assert_eq!(store.read_tail(&name("empty/file"), 10).wait().unwrap(), (Vec::new(), 0));
    assert_eq!(store.list(&name("empty")).wait().unwrap().first().unwrap().size, 0);
}

fn big_appends_arrive_in_order(store: &dyn Store) {
    let big = pattern(5 << 20, 1);
    let mut upload = store.create(&name("big/file.part"), Class::Bulk);
    upload.append(vec![42]).unwrap();
    upload.append(big.clone()).unwrap();
    upload.append(Vec::new()).unwrap();
    upload.append(pattern(100_000, 7)).unwrap();
    upload.commit(&name("big/file")).wait().unwrap();
    let whole = get(store, "big/file");
    assert_eq!(whole.len(), 1 + big.len() + 100_000);
    assert_eq!(whole.first(), Some(&42));
    assert!(whole.get(1..=big.len()) == Some(&*big), "the bytes differ");
    assert!(whole.get(1 + big.len()..) == Some(&*pattern(100_000, 7)), "the bytes differ");
    let read = store.read(&name("big/file"), 1, 5 << 20).wait().unwrap();
    assert!(read == big, "the bytes differ");
}

fn both_classes_write(store: &dyn Store) {
    for (text, class) in [("class/control", Class::Control), ("class/bulk", Class::Bulk)] {
        let mut upload = store.create(&name(text).with_suffix(".part"), class);
        upload.append(vec![7]).unwrap();
        upload.commit(&name(text)).wait().unwrap();
        assert_eq!(get(store, text), [7]);
    }
}

fn creation_is_exclusive(store: &dyn Store) {
    let first = begin(store, "exclusive/name", b"first");
    assert_eq!(kind(store.create(&name("exclusive/name"), Class::Control).created()), ErrorKind::Exists);
    first.commit(&name("exclusive/final")).wait().unwrap();
    // The name is free again; a committed one is not.
    drop(begin(store, "exclusive/name", b""));
    assert_eq!(kind(store.create(&name("exclusive/final"), Class::Control).created()), ErrorKind::Exists);
    // A failure not asked for is told by the commit.
    let mut blind = store.create(&name("exclusive/final"), Class::Control);
    let _ = blind.append(vec![1]);
    assert_eq!(kind(blind.commit(&name("exclusive/other")).wait()), ErrorKind::Exists);
    assert_eq!(get(store, "exclusive/final"), b"first");
}

fn a_file_is_visible_while_it_is_written(store: &dyn Store) {
    let upload = begin(store, "lease/held", b"");
    assert_eq!(listed(store, "lease"), ["held"]);
    upload.commit(&name("lease-done/held")).wait().unwrap();
}

fn a_committed_file_has_one_name(store: &dyn Store) {
    put(store, "once/file", b"1");
    assert_eq!(listed(store, "once"), ["file"]);
    assert_eq!(kind(store.read_all(&name("once/file.part"), LIMIT).wait()), ErrorKind::NotFound);
}

fn commit_never_overwrites(store: &dyn Store) {
    put(store, "keep/file", b"old");
    let upload = begin(store, "keep/file.part", b"new");
    assert_eq!(kind(upload.commit(&name("keep/file")).wait()), ErrorKind::Exists);
    assert_eq!(get(store, "keep/file"), b"old");
    eventually("the removal of what was not committed", || listed(store, "keep") == ["file"]);
}

fn commit_makes_directories(store: &dyn Store) {
    begin(store, "shallow", b"x").commit(&name("deep/er/and/deeper")).wait().unwrap();
    assert_eq!(get(store, "deep/er/and/deeper"), b"x");
}

fn a_revoked_file_is_not_committed(store: &dyn Store) {
    let mut upload = begin(store, "revoked/session", b"be");
    store.remove(&name("revoked/session")).wait().unwrap();
    upload.append(b"fore".to_vec()).unwrap();
    assert_eq!(kind(upload.commit(&name("revoked/generation")).wait()), ErrorKind::NotFound);
    assert!(listed(store, "revoked").is_empty());
}

fn a_dropped_upload_leaves_nothing(store: &dyn Store) {
    drop(begin(store, "dropped/before", b""));
    drop(begin(store, "dropped/within", &pattern(300_000, 0)));
    eventually("the removal of what was dropped", || listed(store, "dropped").is_empty());
}

fn a_refused_upload_harms_nothing(store: &dyn Store) {
    let first = begin(store, "refused/name", b"mine");
    drop(store.create(&name("refused/name"), Class::Control));
    let mut asked = store.create(&name("refused/name"), Class::Control);
    assert_eq!(kind(asked.created()), ErrorKind::Exists);
    drop(asked);
    first.commit(&name("refused/final")).wait().unwrap();
    assert_eq!(get(store, "refused/final"), b"mine");
}

fn ranges_are_exact(store: &dyn Store) {
    put(store, "range/file", &pattern(100_000, 0));
    let file = name("range/file");
    let read = |offset, len| store.read(&file, offset, len).wait();
    assert_eq!(read(0, 3).unwrap(), [0, 1, 2]);
    assert_eq!(read(251, 2).unwrap(), [0, 1]);
    assert!(read(0, 100_000).unwrap() == pattern(100_000, 0));
    assert_eq!(read(99_999, 1).unwrap().len(), 1);
    assert!(read(5, 0).unwrap().is_empty());
    assert_eq!(kind(read(99_999, 2)), ErrorKind::Truncated);
    assert_eq!(kind(read(0, 100_001)), ErrorKind::Truncated);
    assert_eq!(kind(read(100_000, 1)), ErrorKind::Truncated);
    assert_eq!(kind(read(1 << 40, 10)), ErrorKind::Truncated);
}

fn tails_are_exact(store: &dyn Store) {
    put(store, "tail/file", &pattern(70_000, 0));
    let file = name("tail/file");
    assert_eq!(store.read_tail(&file, 10).wait().unwrap(), (pattern(70_000, 0).split_off(69_990), 70_000));
    assert_eq!(store.read_tail(&file, 70_000).wait().unwrap().0.len(), 70_000);
    assert_eq!(store.read_tail(&file, 1 << 20).wait().unwrap(), (pattern(70_000, 0), 70_000));
    assert_eq!(store.read_tail(&file, 0).wait().unwrap(), (Vec::new(), 70_000));
}

fn limits_are_kept(store: &dyn Store) {
    put(store, "limit/file", &pattern(1000, 0));
    let file = name("limit/file");
    assert_eq!(store.read_all(&file, 1000).wait().unwrap().len(), 1000);
    assert_eq!(store.read_all(&file, 1001).wait().unwrap().len(), 1000);
    assert_eq!(kind(store.read_all(&file, 999).wait()), ErrorKind::TooLong);
    assert_eq!(kind(store.read_all(&file, 0).wait()), ErrorKind::TooLong);
}

fn what_is_not_there_is_not_found(store: &dyn Store) {
    put(store, "missing/other", b"x");
    for missing in [name("missing/file"), name("missing-too/file")] {
        assert_eq!(kind(store.read(&missing, 0, 1).wait()), ErrorKind::NotFound);
        assert_eq!(kind(store.read_tail(&missing, 1).wait()), ErrorKind::NotFound);
        assert_eq!(kind(store.read_all(&missing, 1).wait()), ErrorKind::NotFound);
        assert_eq!(kind(store.remove(&missing).wait()), ErrorKind::NotFound);
        assert_eq!(kind(store.rename(&missing, &name("missing/new")).wait()), ErrorKind::NotFound);
    }
}

fn a_missing_directory_is_empty(store: &dyn Store) {
    assert!(listed(store, "nowhere").is_empty());
    assert!(listed(store, "nowhere/at/all").is_empty());
}

fn a_listing_is_complete(store: &dyn Store) {
    for at in 0..300 {
        put(store, &format!("many/file-{at:03}"), &pattern(at, 0));
    }
    put(store, "many/dir/below", b"x");
    let mut files = store.list(&name("many")).wait().unwrap();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(files.len(), 301);
    assert!(files.first().is_some_and(|first| first.name == "dir" && first.is_dir));
    for (at, file) in files.iter().skip(1).enumerate() {
        assert_eq!(file.name, format!("file-{at:03}"));
        assert_eq!(file.size, u64::try_from(at).unwrap());
        assert!(file.modified > 0 && !file.is_dir);
    }
}

/// What the lease protocol builds on: a listing asked for after a creation shows it, without waiting for the creation. (It may show
/// what was done after it was asked for, too: a server reads a directory some time after it has opened it.)
fn small_things_happen_in_order(store: &dyn Store) {
    let mut uploads = Vec::new();
    for at in 0..20 {
        let file = name(&format!("order/file-{at}"));
        let shows = |listing: Pending<Vec<_>>| {
            let files: Vec<super::Listed> = listing.wait().unwrap();
            files.iter().any(|listed| listed.name == file.last())
        };
        uploads.push(store.create(&file, Class::Control));
        assert!(shows(store.list(&name("order"))));
        let removed = store.remove(&file);
        assert!(!shows(store.list(&name("order"))));
        removed.wait().unwrap();
    }
}

fn rename_never_overwrites(store: &dyn Store) {
    put(store, "rename/a", b"a");
    put(store, "rename/b", b"b");
    assert_eq!(kind(store.rename(&name("rename/a"), &name("rename/b")).wait()), ErrorKind::Exists);
    assert_eq!(get(store, "rename/a"), b"a");
    assert_eq!(get(store, "rename/b"), b"b");
    store.rename(&name("rename/a"), &name("rename/c")).wait().unwrap();
    assert_eq!(get(store, "rename/c"), b"a");
    assert_eq!(listed(store, "rename"), ["b", "c"]);
}

fn removing_twice_is_not_found(store: &dyn Store) {
    put(store, "twice/file", b"x");
    store.remove(&name("twice/file")).wait().unwrap();
    assert_eq!(kind(store.remove(&name("twice/file")).wait()), ErrorKind::NotFound);
    assert!(listed(store, "twice").is_empty());
}

fn make_dir_is_content_with_what_is_there(store: &dyn Store) {
    for _ in 0..2 {
        store.make_dir(&name("made/with/parents")).wait().unwrap();
        store.make_dir(&name("made")).wait().unwrap();
    }
    assert_eq!(listed(store, "made"), ["with"]);
    put(store, "made/with/parents/file", b"x");
    store.make_dir(&name("made/with/parents")).wait().unwrap();
    assert_eq!(get(store, "made/with/parents/file"), b"x");
}

fn the_top_can_be_made_and_listed(store: &dyn Store) {
    store.make_dir(&Name::top()).wait().unwrap();
    put(store, "top", b"bytes");
    put(store, "below/file", b"");
    let mut entries = store.list(&Name::top()).wait().unwrap();
    entries.retain(|entry| entry.name == "top" || entry.name == "below");
    entries.sort_by(|one, two| one.name.cmp(&two.name));
    let entries: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.is_dir)).collect();
    assert_eq!(entries, [("below", true), ("top", false)]);
}

fn many_are_in_flight(store: &dyn Store) {
    let texts: Vec<_> = (0..64).map(|at| format!("flight/{}/file-{at}", at % 8)).collect();
    let mut uploads: Vec<_> =
        texts.iter().map(|text| store.create(&name(text).with_suffix(".part"), Class::Bulk)).collect();
    for round in 0..4 {
        for upload in &mut uploads {
            upload.append(pattern(20_000, round)).unwrap();
        }
    }
    let commits: Vec<_> =
        uploads.into_iter().zip(&texts).map(|(upload, text)| upload.commit(&name(text))).collect();
    for commit in commits {
        commit.wait().unwrap();
    }
    let expected: Vec<u8> = (0..4).flat_map(|round| pattern(20_000, round)).collect();
    let reads: Vec<_> = texts.iter().map(|text| store.read(&name(text), 0, 80_000)).collect();
    for read in reads {
        assert!(read.wait().unwrap() == expected, "the bytes differ");
    }
}

/// How many of eight threads that start together succeed.
fn winners(act: impl Fn(usize) -> Result<(), StoreError> + Sync, loses_with: ErrorKind) -> usize {
    let barrier = Barrier::new(8);
    let (barrier, act) = (&barrier, &act);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|at| {
                scope.spawn(move || {
                    barrier.wait();
                    act(at)
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        let won = |result: &Result<(), StoreError>| match result {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind, loses_with, "{error}");
                false
            }
        };
        results.filter(won).count()
    })
}

fn one_creator_wins(store: &dyn Store) {
    for round in 0..10 {
        let part = name(&format!("race/part-{round}"));
        let create = |at| {
            let mut upload = store.create(&part, Class::Control);
            upload.created()?;
            upload.commit(&name(&format!("race/won-{round}-{at}"))).wait()
        };
        // Whoever comes after the winner's rename wins too: hence at least one, and all names are there.
        let won = winners(create, ErrorKind::Exists);
        let prefix = format!("won-{round}-");
        assert!(won >= 1);
        assert_eq!(listed(store, "race").iter().filter(|file| file.starts_with(&prefix)).count(), won);

        let held = name(&format!("race/held-{round}"));
        let keep = std::sync::Mutex::new(Vec::new());
        let create = |_| {
            let mut upload = store.create(&held, Class::Control);
            let created = upload.created();
            keep.lock().unwrap().push(upload);
            created
        };
        assert_eq!(winners(create, ErrorKind::Exists), 1);
    }
}

fn one_renamer_wins(store: &dyn Store) {
    for round in 0..10 {
        put(store, &format!("duel/from-{round}"), b"x");
        let from = name(&format!("duel/from-{round}"));
        let rename = |at| store.rename(&from, &name(&format!("duel/to-{round}-{at}"))).wait();
        assert_eq!(winners(rename, ErrorKind::NotFound), 1);

        let to = name(&format!("duel/target-{round}"));
        let commit = |at: usize| {
            let text = format!("duel/source-{round}-{at}");
            begin(store, &text, &pattern(at, 0)).commit(&to).wait()
        };
        assert_eq!(winners(commit, ErrorKind::Exists), 1);
    }
}
