//! `kitbag gc`, the way a person uses it.

mod common;

use common::Kitbag;

fn with_two_generations() -> Kitbag {
    let kitbag = Kitbag::with_repository();
    kitbag.write("live/large", vec![7; 3_000_000]);
    kitbag.write("live/small", "small");
    kitbag.run(["backup", "live"]).code(0);
    kitbag.write("live/large", "not large any more");
    kitbag.run(["backup", "live"]).code(0);
    kitbag
}

#[test]
fn what_was_forgotten_is_given_back() {
    let kitbag = with_two_generations();
    kitbag.run(["forget", "--keep", "1"]).code(0);
    let would = kitbag.run(["gc", "--dry-run"]).code(0);
    assert!(would.stdout.contains("would be removed"), "{}", would.stdout);
    let done = kitbag.run(["gc"]).code(0);
    assert!(done.stdout.contains(" removed"), "{}", done.stdout);
    let again = kitbag.run(["gc", "--json"]).code(0);
    assert!(again.stdout.contains(r#""bags_removed":0"#), "{}", again.stdout);
    kitbag.run(["fsck", "--read-data"]).code(0);
    kitbag.run(["restore", "--to", "back"]).code(0);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let kitbag = Kitbag::with_repository();
    kitbag.run(["gc", "--max-repack", "much"]).code(2);
    kitbag.run(["gc", "--max-repack", "0"]).code(0);
    Kitbag::new().set("KITBAG_REPOSITORY", "nowhere").run(["gc"]).code(10);
}
