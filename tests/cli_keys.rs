//! Passphrases: several of them, changed and taken away.

mod common;

use common::{Kitbag, files_below, json_field};

fn locked() -> Kitbag {
    let kitbag = Kitbag::new().set("KITBAG_REPOSITORY", "repository");
    for word in ["first", "second", "third"] {
        kitbag.secret(word, format!("{word} horse\n"));
    }
    kitbag.run(["init", "--passphrase-file", "first"]).code(0);
    kitbag
}

fn opens(kitbag: &Kitbag, word: &str) -> i32 {
    kitbag.run(["generations", "--passphrase-file", word]).code.unwrap_or(-1)
}

#[test]
fn a_second_passphrase_opens_as_well() {
    let kitbag = locked();
    let add = ["key", "add", "--label", "safe", "--new-passphrase-file", "second", "--passphrase-file"];
    kitbag.run(add.iter().chain(&["third"])).code(12);
    kitbag.run(add.iter().chain(&["first"])).code(0);
    assert_eq!(["first", "second", "third"].map(|word| opens(&kitbag, word)), [0, 0, 12]);
    let list = kitbag.run(["key", "list"]).code(0).stdout;
    assert!(
        list.lines().count() == 2 && list.contains("\tsafe\n") && list.contains("passphrase, 64 MiB"),
        "{list}"
    );
    let json = kitbag.run(["key", "list", "--json"]).code(0).stdout;
    assert_eq!((json_field(&json, "passphrase"), json_field(&json, "damaged")), ("true", "false"));
    let first = list.split('\t').next().unwrap_or_default().to_owned();
    kitbag.run(["key", "remove", &first[..10], "--passphrase-file", "second"]).code(0);
    assert_eq!(["first", "second"].map(|word| opens(&kitbag, word)), [12, 0]);
}

#[test]
fn a_passphrase_is_changed() {
    let kitbag = locked();
    kitbag.run(["key", "change", "--new-passphrase-file", "second", "--passphrase-file", "first"]).code(0);
    let again = kitbag.run(["generations", "--passphrase-file", "second"]).code(0);
    assert_eq!(again.stderr, "", "it is at the same place");
    assert_eq!(["first", "second"].map(|word| opens(&kitbag, word)), [12, 0]);
    assert_eq!(files_below(&kitbag.path("repository/keys")).len(), 1);
}

#[test]
fn the_last_one_stays_unless_told() {
    let kitbag = locked();
    let list = kitbag.run(["key", "list"]).code(0).stdout;
    let id = list.split('\t').next().unwrap_or_default();
    let remove = ["key", "remove", id, "--passphrase-file", "first"];
    kitbag.run(remove).code(1).says(&["no other key slot", "--even-last"]);
    assert_eq!(opens(&kitbag, "first"), 0);
    kitbag.run(["key", "remove", "zz", "--passphrase-file", "first"]).code(1).says(&["no key slot zz"]);
    kitbag
        .run(["key", "remove", "", "--even-last", "--passphrase-file", "first"])
        .code(1)
        .says(&["no key slot"]);
    kitbag.run(remove.iter().chain(&["--even-last"])).code(0);
    assert_eq!(opens(&kitbag, "first"), 4);
}

#[test]
fn a_passphrase_for_a_repository_that_had_none() {
    let kitbag = locked().set("KITBAG_REPOSITORY", "clear");
    kitbag.run(["init", "--encryption", "none"]).code(0);
    let said = kitbag.run(["key", "add", "--new-passphrase-file", "second"]).code(0).stderr;
    assert!(said.contains("needs no passphrase"), "{said}");
    assert_eq!(["second", "third"].map(|word| opens(&kitbag, word)), [0, 12]);
}
