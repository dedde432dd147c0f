//! Each mistake and each misfortune ends in one sentence that says what to do, and in the right exit code.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use common::{Kitbag, Outcome};

/// The only file of a directory of the repository.
fn only_file(kitbag: &Kitbag, dir: &str) -> std::path::PathBuf {
    let mut entries = fs::read_dir(kitbag.path("repository").join(dir)).expect("a directory");
    entries.next().expect("a file").expect("readable").path()
}

fn here(kitbag: Kitbag) -> Kitbag {
    kitbag.set("KITBAG_REPOSITORY", "repository")
}

#[test]
fn no_repository() {
    let kitbag = here(Kitbag::new());
    kitbag.run(["generations"]).code(10).says(&["no repository", "repository", "kitbag init"]);
    fs::create_dir(kitbag.path("repository")).expect("made");
    kitbag.run(["generations"]).code(10).says(&["no repository"]);
    kitbag.write("repository/config", "[core]\n");
    kitbag.run(["generations"]).code(10).says(&["no repository"]);
}

#[test]
fn a_place_that_cannot_be_meant() {
    for (place, word) in [
        ("ssh://host/x", "ssh://"),
        ("sftp://host", "names no directory"),
        ("sftp://me:secret@host/x", "password"),
        ("~/x", "tilde"),
    ] {
        let outcome = Kitbag::new().set("KITBAG_REPOSITORY", place).run(["generations"]).code(2);
        outcome.says(&[word]);
        assert!(!outcome.stderr.contains("secret"));
    }
}

#[test]
fn init_leaves_alone_what_is_there() {
    let kitbag = Kitbag::with_repository();
    kitbag.run(["init", "--encryption", "none"]).code(1).says(&["already", "another directory"]);
    let kitbag = here(Kitbag::new());
    kitbag.write("repository/holiday.jpg", "x");
    kitbag.run(["init", "--encryption", "none"]).code(1).says(&["not empty", "holiday.jpg"]);
}

#[test]
fn init_where_nothing_can_be_written() {
    let kitbag = Kitbag::new();
    kitbag.write("file", "x");
    for place in ["file", "file/below", "/proc/kitbag"] {
        let outcome = kitbag.run(["init", "--encryption", "none", "-r", place]).code(1);
        outcome.says(&[place]);
    }
}

#[test]
fn a_newer_format() {
    let kitbag = Kitbag::with_repository();
    let config = kitbag.path("repository/config");
    let mut bytes = fs::read(&config).expect("a config");
    bytes[8] = 9;
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).expect("writable");
    fs::write(&config, bytes).expect("written");
    kitbag.run(["generations"]).code(1).says(&["format version 9", "newer kitbag"]);
}

#[test]
fn a_damaged_configuration_or_key_slot() {
    for file in ["config", "keys"] {
        let kitbag = Kitbag::with_repository();
        let path = if file == "keys" { only_file(&kitbag, "keys") } else { kitbag.path("repository/config") };
        let mut bytes = fs::read(&path).expect("readable");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).expect("written");
        kitbag.run(["generations"]).code(4).says(&["damaged", "copy"]);
        fs::remove_file(&path).expect("removed");
        kitbag.run(["generations"]).code(if file == "keys" { 4 } else { 10 }).says(&["repository"]);
    }
}

/// What is older is not given out for the latest without a word, or with success.
#[test]
fn a_damaged_record_is_not_passed_over() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("tree/file", "x");
    let ids: Vec<String> = ["one", "two"]
        .map(|tag| {
            kitbag.write("tree/file", tag);
            kitbag.run(["backup", "--no-cache", "tree"]).code(0);
            let list = kitbag.run(["generations", "--no-cache"]).code(0).stdout.clone();
            list.lines().last().and_then(|line| line.split('\t').next()).expect("an id").to_owned()
        })
        .into();
    let client = only_file(&kitbag, "generations");
    for (damaged, sound) in [(1, Some(0)), (0, None)] {
        let path = client.join(&ids[damaged]);
        let mut bytes = fs::read(&path).expect("readable");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("writable");
        fs::write(&path, bytes).expect("written");
        for command in [&["ls"][..], &["restore", "--to", "out"]] {
            let run = |spec: &str| kitbag.run(command.iter().copied().chain(["--no-cache", "-g", spec]));
            assert!(run("latest").code(4).stderr.contains("damaged"));
            run(&ids[damaged]).code(4);
            if let Some(sound) = sound {
                assert!(run("latest").stderr.contains(&ids[sound]));
                run(&ids[sound]).code(0);
            }
        }
    }
}

#[test]
fn passphrases_that_are_wrong_or_missing() {
    let kitbag = here(Kitbag::new());
    kitbag.secret("right", "correct horse\n");
    kitbag.secret("wrong", "wrong horse\n");
    kitbag.run(["init", "--passphrase-file", "right"]).code(0);
    kitbag.run(["generations", "--passphrase-file", "right"]).code(0);
    kitbag.run(["generations", "--passphrase-command", "echo correct horse"]).code(0);
    kitbag.run(["generations", "--passphrase-file", "wrong"]).code(12).says(&["passphrase"]);
    kitbag.run(["generations"]).code(1).says(&["passphrase", "--passphrase-file"]);
    kitbag.run(["generations", "--passphrase-file", "absent"]).code(1).says(&["absent"]);
    kitbag.run(["generations", "--passphrase-command", "exit 3"]).code(1).says(&["exit 3", "ended with 3"]);
    kitbag
        .run(["generations", "--passphrase-command", "kitbag-nosuch 2>/dev/null"])
        .code(1)
        .says(&["does not find"]);
    kitbag.run(["generations", "--passphrase-fd", "77"]).code(1).says(&["77"]);
    let wrong = here(kitbag).set("KITBAG_PASSPHRASE", "wrong horse");
    wrong.run(["generations"]).code(12);
    wrong.run(["generations", "--passphrase-file", "right"]).code(0);
}

#[test]
fn a_passphrase_for_what_is_not_encrypted() {
    let kitbag = Kitbag::with_repository().set("KITBAG_PASSPHRASE", "correct horse");
    kitbag.run(["generations"]).code(0).says(&["without the passphrase"]);
}

#[test]
fn an_empty_passphrase_is_no_protection() {
    let kitbag = here(Kitbag::new()).set("KITBAG_PASSPHRASE", "");
    kitbag.run(["init"]).code(1).says(&["empty", "--encryption none"]);
    kitbag.run(["generations"]).code(10);
}

#[test]
fn a_reader_that_goes_away_is_no_trouble() {
    let kitbag = Kitbag::with_repository();
    let mut command = kitbag.command();
    // The end that would be read from is closed before the program starts.
    let (_, writer) = std::io::pipe().expect("a pipe");
    let output = command.arg("init").args(["--help"]).stdout(writer).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_backup_of_nothing_is_none() {
    let kitbag = Kitbag::with_repository();
    let outcome = kitbag.run(["backup", "home/nope"]).code(1);
    assert!(outcome.stderr.contains("home/nope: there is no such file or directory"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("nothing was backed up"), "{}", outcome.stderr);
    assert_eq!(kitbag.run(["generations"]).code(0).stdout, "");
}

#[test]
fn what_a_generation_does_not_hold_is_not_restored() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("tree/one", "1");
    kitbag.write("tree/two", "2");
    kitbag.run(["backup", "tree"]).code(0);
    let none = kitbag.run(["restore", "--to", "out", "nope"]).code(1);
    none.says(&["the generation does not hold nope", "kitbag ls"]);
    let none = kitbag.run(["restore", "--to", "out", "nope", "/nor/this"]).code(1);
    none.says(&["the generation does not hold any of nope, /nor/this", "kitbag ls"]);
    assert!(!kitbag.path("out").exists());
    let some = kitbag.run(["restore", "--strip-root", "--to", "out", "nope", "two"]).code(3);
    some.says(&["nope", "no such path"]);
    assert!(some.stdout.starts_with("restored 1 entry "), "{}", some.stdout);
    assert!(some.stdout.contains("; 1 could not be restored"), "{}", some.stdout);
    assert_eq!(fs::read_to_string(kitbag.path("out/two")).expect("restored"), "2");
}

#[test]
fn a_file_larger_than_the_limit_is_missed_and_no_other() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("tree/large", vec![7; 3 << 20]);
    kitbag.write("tree/small", "small");
    kitbag.run(["backup", "tree"]).code(0);
    let limited = kitbag.command();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 1024 && exec \"$0\" \"$@\""]).arg(limited.get_program());
    command.args(["restore", "--no-cache", "--to", "out"]).current_dir(kitbag.path(""));
    command.env_clear().envs(limited.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let outcome = Outcome::of(&mut command).code(3);
    assert!(
        outcome.stderr.contains("large: not restored: ") && outcome.stderr.contains("File too large"),
        "{}",
        outcome.stderr
    );
    let restored = common::files_below(&kitbag.path("out"));
    assert_eq!(restored.len(), 1, "{restored:?}");
    assert!(restored.iter().all(|path| path.ends_with("tree/small")), "{restored:?}");
}
