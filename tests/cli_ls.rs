//! What `ls` and `cat` find by the paths that people type.

mod common;

use common::Kitbag;

fn backed_up() -> Kitbag {
    let kitbag = Kitbag::with_repository();
    kitbag.write("tree/docs/letters/one", "first\n");
    kitbag.write("tree/docs/letters2", "x");
    kitbag.write("tree/top", "y");
    kitbag.run(["backup", "tree"]).code(0);
    kitbag
}

/// The last components of the paths listed.
fn listed(kitbag: &Kitbag, paths: &[&str]) -> String {
    let outcome = kitbag.run(["ls"].iter().chain(paths)).code(0);
    let names = outcome.stdout.lines().filter_map(|line| line.rsplit('/').next().map(str::to_owned));
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn directories_before_what_is_in_them() {
    let kitbag = backed_up();
    assert_eq!(listed(&kitbag, &[]), "tree docs letters one letters2 top");
    assert_eq!(listed(&kitbag, &["docs"]), "docs letters one letters2");
    assert_eq!(listed(&kitbag, &["./docs//letters/"]), "letters one");
    let absolute = kitbag.path("tree/docs/letters");
    assert_eq!(listed(&kitbag, &[absolute.to_str().unwrap_or_default()]), "letters one");
}

#[test]
fn nothing_is_listed_twice() {
    let kitbag = backed_up();
    assert_eq!(listed(&kitbag, &["top", "docs/letters/one", "docs/letters"]), "letters one top");
    // Above the root is the root.
    assert_eq!(listed(&kitbag, &["/", "top"]), "tree docs letters one letters2 top");
}

#[test]
fn what_is_not_there_is_told_after_what_is() {
    let kitbag = backed_up();
    let outcome = kitbag.run(["ls", "nowhere", "top"]).code(1);
    outcome.says(&["nowhere", "`kitbag ls`"]);
    assert!(outcome.stdout.ends_with("/top\n"), "{}", outcome.stdout);
    kitbag.run(["cat", "nowhere"]).code(1).says(&["nowhere"]);
    kitbag.run(["cat", "docs"]).code(1).says(&["docs", "no regular file"]);
}

#[test]
fn contents_come_out_as_they_went_in() {
    let kitbag = backed_up();
    assert_eq!(kitbag.run(["cat", "docs/letters/one"]).code(0).stdout, "first\n");
}
