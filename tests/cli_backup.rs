//! What a person who backs up sees of it: options, words, and what is not done again.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};

use common::{Kitbag, files_below, json_field};

/// Files that need to be read, written long enough ago to be believed.
fn with_trees() -> Kitbag {
    let kitbag = Kitbag::with_repository();
    for tree in ["one", "two"] {
        for number in 0..20 {
            kitbag.write(&format!("{tree}/dir/{number}"), format!("{tree} {number}\n").repeat(500));
        }
    }
    kitbag.settle();
    kitbag
}

fn files_read(kitbag: &Kitbag, line: &[&str]) -> u64 {
    let json = kitbag.run(["backup", "--json"].iter().chain(line)).code(0).stdout;
    json_field(&json, "files_read").parse().expect("a number")
}

#[test]
fn roots_used_in_turn_keep_their_own_history() {
    let kitbag = with_trees();
    assert_eq!(files_read(&kitbag, &["one"]), 20);
    assert_eq!(files_read(&kitbag, &["two"]), 20);
    assert_eq!(files_read(&kitbag, &["one"]), 0);
    assert_eq!(files_read(&kitbag, &["two", "one"]), 0);
    // Another client has another history, and stores nothing twice.
    let json = kitbag.run(["backup", "--json", "--client-name", "desktop", "one"]).code(0).stdout;
    assert_eq!((json_field(&json, "files_read"), json_field(&json, "new_bytes")), ("20", "0"));
}

#[test]
fn without_a_change_a_generation_can_be_left_out() {
    let kitbag = with_trees();
    let generations = || kitbag.run(["generations"]).code(0).stdout.lines().count();
    kitbag.run(["backup", "--skip-if-unchanged", "one"]).code(0);
    let said = kitbag.run(["backup", "--skip-if-unchanged", "one"]).code(0).stdout;
    assert!(said.starts_with("nothing has changed"), "{said}");
    assert_eq!(generations(), 1);
    kitbag.write("one/new", "new");
    kitbag.run(["backup", "--skip-if-unchanged", "one"]).code(0);
    kitbag.run(["backup", "one"]).code(0);
    assert_eq!(generations(), 3);
}

#[test]
fn a_dry_run_stores_nothing_anywhere() {
    let kitbag = with_trees();
    kitbag.run(["backup", "one"]).code(0);
    let all = || (files_below(&kitbag.path("repository")), files_below(&kitbag.path("home")));
    let before = all();
    let said = kitbag.run(["backup", "--dry-run", "one", "two"]).code(0).stdout;
    assert!(said.starts_with("would save 40 files"), "{said}");
    assert_eq!(all(), before);
    let elsewhere = ["backup", "--dry-run", "--init", "--encryption", "none", "-r", "elsewhere", "one"];
    kitbag.run(elsewhere).code(0);
    assert!(files_below(&kitbag.path("elsewhere")).is_empty());
}

#[test]
fn each_file_can_be_told() {
    let kitbag = with_trees();
    kitbag.run(["backup", "one"]).code(0);
    kitbag.write("one/dir/3", "other contents");
    kitbag.write("one/new", "new");
    let (from, to) = (kitbag.path("one/dir/4"), kitbag.path("one/four"));
    assert!(std::process::Command::new("mv").args([from, to]).status().expect("mv").success());
    fs::set_permissions(kitbag.path("one/dir/6"), fs::Permissions::from_mode(0o600)).expect("changed");
    let told = kitbag.run(["backup", "-v", "one"]).code(0).stderr;
    let words = ["changed dir/3", "new new", "moved four", "metadata dir/6", "unchanged dir/5"];
    for (word, name) in words.iter().filter_map(|pair| pair.split_once(' ')) {
        let path = kitbag.path("one").join(name);
        let is_told = |line: &str| line.starts_with(word) && line.ends_with(path.to_str().expect("UTF-8"));
        assert!(told.lines().any(is_told), "{word} {name} in:\n{told}");
    }
}

#[test]
fn a_repository_may_be_moved() {
    let kitbag = with_trees();
    kitbag.run(["backup", "one"]).code(0);
    let (from, to) = (kitbag.path("repository"), kitbag.path("moved"));
    assert!(std::process::Command::new("mv").args([from, to]).status().expect("mv").success());
    kitbag.run(["generations", "-r", "moved"]).code(0).says(&["moved", "was opened at another place before"]);
    assert_eq!(files_read(&kitbag, &["-r", "moved", "one"]), 0);
    assert_eq!(kitbag.run(["generations", "-r", "moved"]).code(0).stderr, "", "said once");
}

#[test]
fn files_of_more_than_four_gigabytes() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("tree/sparse", "beginning");
    let far = (4 << 30) + 12_345;
    let file = File::options().write(true).open(kitbag.path("tree/sparse")).expect("opened");
    file.write_all_at(b"far away", far).expect("written");
    file.set_len(5 << 30).expect("long");
    kitbag.run(["backup", "tree"]).code(0);
    kitbag.run(["restore", "--strip-root", "--to", "out"]).code(0);
    let file = File::open(kitbag.path("out/sparse")).expect("restored");
    let metadata = file.metadata().expect("metadata");
    assert_eq!(metadata.len(), 5 << 30);
    assert!(metadata.blocks() < 10_000, "{} blocks", metadata.blocks());
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, far - 1).expect("read");
    assert_eq!(&bytes, b"\0far away\0");
}

#[test]
fn a_root_that_is_missing_does_not_keep_the_others_out() {
    let kitbag = with_trees();
    let outcome = kitbag.run(["backup", "one", "missing"]).code(3);
    outcome.says(&["missing", "no such file"]);
    assert_eq!(kitbag.run(["generations"]).code(0).stdout.lines().count(), 1);
    fs::remove_dir_all(kitbag.path("one")).expect("removed");
    // Nothing is left: there is no backup.
    assert!(kitbag.run(["backup", "one"]).code(1).stderr.contains("nothing was backed up"));
    assert_eq!(kitbag.run(["generations"]).code(0).stdout.lines().count(), 1);
}

#[test]
fn what_a_lost_bag_held_is_stored_again_once_the_index_was_made_anew() {
    let kitbag = with_trees();
    kitbag.write("one/large", "0123456789abcdef\n".repeat(50_000));
    kitbag.settle();
    kitbag.run(["backup", "one"]).code(0);
    // The index of the chunks is kept from here on.
    kitbag.write("two/large", "another\n".repeat(100_000));
    kitbag.run(["backup", "one", "two"]).code(0);
    let bags = files_below(&kitbag.path("repository/bags"));
    let largest = bags.iter().max_by_key(|bag| fs::metadata(bag).map_or(0, |it| it.len())).expect("a bag");
    fs::remove_file(largest).expect("removed");
    kitbag.run(["fsck"]).code(4);
    kitbag.run(["fsck", "--rebuild-index"]).code(4);
    kitbag.run(["backup", "--reread", "one", "two"]).code(0);
    kitbag.run(["restore", "--to", "out"]).code(0);
    for tree in ["one", "two"] {
        let original = kitbag.path(tree);
        let restored = kitbag.path("out").join(original.strip_prefix("/").expect("absolute"));
        assert_eq!(common::manifest(&restored), common::manifest(&original), "{tree}");
    }
}

/// What the repository has, put aside and put back as a restored copy of the server's disk would be.
fn copy(kitbag: &Kitbag, from: &str, to: &str) {
    let _ = fs::remove_dir_all(kitbag.path(to));
    let copied =
        std::process::Command::new("cp").arg("-a").args([kitbag.path(from), kitbag.path(to)]).status();
    assert!(copied.expect("cp").success());
}

fn assert_restores(kitbag: &Kitbag, tree: &str) {
    let _ = fs::remove_dir_all(kitbag.path("out"));
    kitbag.run(["restore", "--strip-root", "--to", "out"]).code(0);
    assert_eq!(common::manifest(&kitbag.path("out")), common::manifest(&kitbag.path(tree)));
    kitbag.run(["fsck", "--read-data"]).code(0);
}

#[test]
fn a_repository_set_back_to_an_older_copy_gets_what_it_lacks() {
    let kitbag = with_trees();
    kitbag.run(["backup", "one"]).code(0);
    copy(&kitbag, "repository", "older");
    kitbag.write("one/large", "0123456789abcdef\n".repeat(50_000));
    kitbag.settle();
    for _ in 0..2 {
        // The second fills the index of the chunks, too.
        kitbag.run(["backup", "--reread", "one"]).code(0);
    }
    copy(&kitbag, "older", "repository");
    let outcome = kitbag.run(["backup", "--json", "one"]).code(0);
    assert_eq!(outcome.stderr.lines().count(), 1, "one sentence: {}", outcome.stderr);
    assert!(outcome.stderr.contains("set back to an older copy"), "{}", outcome.stderr);
    assert_ne!(json_field(&outcome.stdout, "new_bytes"), "0", "what the copy lacks is stored again");
    assert_eq!(kitbag.run(["backup", "one"]).code(0).stderr, "", "said once");
    assert_restores(&kitbag, "one");
}

#[test]
fn another_repository_at_the_same_place_gets_everything() {
    let kitbag = with_trees();
    kitbag.run(["backup", "one"]).code(0);
    fs::remove_dir_all(kitbag.path("repository")).expect("removed");
    // Made under another name, so that nobody here has heard of it.
    kitbag.run(["init", "--encryption", "none", "-r", "other"]).code(0);
    let moved =
        std::process::Command::new("mv").args([kitbag.path("other"), kitbag.path("repository")]).status();
    assert!(moved.expect("mv").success());
    let outcome = kitbag.run(["backup", "one"]).code(0);
    let sentences: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("kitbag: ")).collect();
    assert!(
        matches!(sentences[..], [one] if one.contains("another repository than before")),
        "{sentences:?}"
    );
    assert_restores(&kitbag, "one");
    assert_eq!(kitbag.run(["generations"]).code(0).stdout.lines().count(), 1);
}
