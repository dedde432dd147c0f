//! What is kept on the client between runs: seen, cleared, and missed by nobody.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs;
use std::path::Path;

use common::{Kitbag, files_below, json_field};

/// A repository with a file of many chunks, backed up once.
fn backed_up() -> Kitbag {
    let kitbag = Kitbag::with_repository();
    // Numbers compress, and do not repeat.
    let text: String = (0..200_000).map(|number| format!("{number:08x}\n")).collect();
    kitbag.write("tree/dir/numbers", text);
    kitbag.write("tree/small", "small\n");
    kitbag.settle();
    kitbag.run(["backup", "tree"]).code(0);
    kitbag
}

#[test]
fn nothing_is_kept_before_the_first_backup() {
    let kitbag = Kitbag::new();
    assert_eq!(kitbag.run(["cache", "info"]).code(0).stdout, "");
    kitbag.run(["cache", "clear"]).code(0);
    kitbag.run(["cache", "info", "--no-cache"]).code(2).says(&["no local cache", "--cache-dir"]);
}

#[test]
fn what_is_kept_is_seen_and_cleared() {
    let kitbag = backed_up();
    let info = kitbag.run(["cache", "info"]).code(0).stdout;
    assert_eq!(info.lines().count(), 1, "{info}");
    assert!(info.contains("records") && info.contains("chunk index"), "{info}");
    let json = kitbag.run(["cache", "info", "--json"]).code(0).stdout;
    assert_eq!(json_field(&json, "limit"), (2_u64 << 30).to_string());
    for part in ["bag_bytes", "segment_bytes", "record_bytes"] {
        assert_ne!(json_field(&json, part), "0", "{part} in {json}");
    }
    let (id, bytes) = (json_field(&json, "repository"), json_field(&json, "bytes"));
    assert!(info.starts_with(id), "{info}");

    let cleared = kitbag.run(["cache", "clear", "--json", id]).code(0).stdout;
    assert_eq!((json_field(&cleared, "repository"), json_field(&cleared, "bytes")), (id, bytes));
    assert_eq!(kitbag.run(["cache", "info"]).code(0).stdout, "");
    kitbag.run(["cache", "clear", id]).code(1).says(&[id, "kitbag cache info"]);
    kitbag.run(["cache", "clear", "xyz"]).code(2);
}

#[test]
fn nothing_is_left_when_all_is_cleared() {
    let kitbag = backed_up();
    let names = || {
        let entries = fs::read_dir(kitbag.path("home/.cache/kitbag")).expect("it is there");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names().len(), 4, "a repository's, its place, its turn, and a tag: {:?}", names());
    kitbag.run(["cache", "clear"]).code(0);
    assert!(!kitbag.path("home/.cache/kitbag").exists(), "what it has made goes with it");
    kitbag.run(["backup", "tree"]).code(0);
    // Not so of one of them.
    let id = json_field(&kitbag.run(["cache", "info", "--json"]).code(0).stdout, "repository").to_owned();
    kitbag.run(["cache", "clear", &id]).code(0);
    assert_eq!(names(), ["CACHEDIR.TAG", "locations", "turns"]);
}

#[test]
fn what_others_keep_beside_the_cache_is_not_cleared() {
    let kitbag = backed_up();
    let id = "0123456789abcdef0123456789abcdef";
    let theirs = ["photos/locations/Rome/one", "photos/turns/two"].map(str::to_owned);
    let theirs = [&theirs[..], &[format!("photos/{id}/bags/three"), "photos/four".to_owned()]].concat();
    theirs.iter().for_each(|name| kitbag.write(name, "a photograph"));
    kitbag.run(["--cache-dir", "photos", "backup", "tree"]).code(0);
    kitbag.run(["--cache-dir", "photos", "cache", "clear", id]).code(1);
    kitbag.run(["--cache-dir", "photos", "cache", "clear"]).code(0);
    for name in &theirs {
        assert_eq!(fs::read_to_string(kitbag.path(name)).expect(name), "a photograph");
    }
    let names = fs::read_dir(kitbag.path("photos")).expect("it is there").flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, [id, "four", "locations", "turns"]);
}

#[test]
fn a_backup_after_clearing_reads_no_file_and_stores_no_chunk_again() {
    let kitbag = backed_up();
    kitbag.run(["cache", "clear"]).code(0);
    let json = kitbag.run(["backup", "tree", "--json"]).code(0).stdout;
    assert_eq!(json_field(&json, "files_read"), "0", "{json}");
    kitbag.write("tree/other", fs::read(kitbag.path("tree/dir/numbers")).expect("readable"));
    kitbag.run(["cache", "clear"]).code(0);
    let json = kitbag.run(["backup", "tree", "--json"]).code(0).stdout;
    assert_eq!((json_field(&json, "files_read"), json_field(&json, "new_bytes")), ("1", "0"), "{json}");
}

#[test]
fn the_chunk_index_is_kept_on_disk_when_chunks_are_looked_up() {
    let kitbag = backed_up();
    kitbag.write("tree/other", fs::read(kitbag.path("tree/dir/numbers")).expect("readable"));
    for _ in 0..2 {
        let json = kitbag.run(["backup", "tree", "--json", "--reread"]).code(0).stdout;
        assert_eq!(json_field(&json, "new_bytes"), "0", "{json}");
    }
    let json = kitbag.run(["cache", "info", "--json"]).code(0).stdout;
    assert_ne!(json_field(&json, "chunk_index_bytes"), "0", "{json}");
}

/// What can happen to a file.
type Damage = fn(&Path, &Path);

const DAMAGES: [(&str, Damage); 4] = [
    ("deleted", |file, _| fs::remove_file(file).expect("removed")),
    ("cut", |file, _| {
        let len = fs::metadata(file).expect("metadata").len();
        let open = fs::File::options().write(true).open(file).expect("opened");
        open.set_len(len / 2).expect("cut");
    }),
    ("flipped", |file, _| {
        let mut bytes = fs::read(file).expect("readable");
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 1;
        }
        fs::write(file, bytes).expect("written");
    }),
    // What was there a backup ago, where something was.
    ("old", |file, old| {
        if old.exists() {
            fs::copy(old, file).map(drop).expect("copied");
        }
    }),
];

#[test]
fn no_damage_to_the_cache_is_noticed_by_anybody() {
    let kitbag = backed_up();
    let (cache, old, sound) = (kitbag.path("home/.cache/kitbag"), kitbag.path("old"), kitbag.path("sound"));
    let copy = |from: &Path, to: &Path| {
        let _ = fs::remove_dir_all(to);
        for file in files_below(from) {
            let target = to.join(file.strip_prefix(from).expect("below"));
            fs::create_dir_all(target.parent().expect("a parent")).expect("made");
            fs::copy(file, target).expect("copied");
        }
    };
    copy(&cache, &old);
    kitbag.write("tree/new", "new\n");
    kitbag.write("tree/again", fs::read(kitbag.path("tree/dir/numbers")).expect("readable"));
    kitbag.settle();
    kitbag.run(["backup", "tree"]).code(0);
    copy(&cache, &sound);
    let wanted = common::manifest(&kitbag.path("tree"));
    let is_of_kind = |file: &Path, kind: &str| file.components().any(|part| part.as_os_str() == kind);
    for kind in ["bags", "index", "records", "listings", "chunks", "usage"] {
        for (damage, apply) in DAMAGES {
            for command in ["backup", "ls", "restore"] {
                copy(&sound, &cache);
                for file in files_below(&cache).into_iter().filter(|file| is_of_kind(file, kind)) {
                    apply(&file, &old.join(file.strip_prefix(&cache).expect("below")));
                }
                let what = format!("{kind} {damage}, then {command}");
                let outcome = match command {
                    "backup" => kitbag.run(["backup", "tree", "--json"]),
                    "ls" => kitbag.run(["ls"]),
                    _ => kitbag.run(["restore", "--to", "out"]),
                };
                assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{what}");
                if command == "backup" {
                    assert_eq!(json_field(&outcome.stdout, "files_read"), "0", "{what}: {}", outcome.stdout);
                }
            }
        }
    }
    let tree = kitbag.path("tree");
    let out = kitbag.path("out").join(tree.strip_prefix("/").expect("absolute"));
    assert_eq!(common::manifest(&out), wanted);
    kitbag.run(["fsck", "--read-data"]).code(0);
}

#[test]
fn processes_and_clients_share_repository_and_cache() {
    let kitbag = Kitbag::with_repository();
    for tree in ["one", "two"] {
        for number in 0..200 {
            kitbag.write(&format!("{tree}/dir/{number}"), format!("{tree} {number}\n").repeat(number));
        }
        // The same on both.
        kitbag.write(&format!("{tree}/large"), "0123456789abcdef".repeat(100_000));
    }
    for night in ["first", "second"] {
        kitbag.write("one/night", night);
        let runs = [("one", "laptop"), ("two", "laptop"), ("one", "desktop"), ("two", "desktop")];
        let children = runs.map(|(tree, client)| {
            let mut command = kitbag.command();
            command.args(["backup", "-q", tree, "--client-name", client]);
            command.spawn().expect("it starts")
        });
        for mut child in children {
            assert_eq!(child.wait().expect("it ends").code(), Some(0), "{night}");
        }
    }
    for client in ["laptop", "desktop"] {
        let listed = kitbag.run(["generations", "--client-name", client]).code(0).stdout;
        assert_eq!(listed.lines().count(), 4, "{client}: {listed}");
    }
    kitbag.run(["fsck", "--read-data"]).code(0);
}
