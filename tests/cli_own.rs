//! What is kitbag's own is no part of what it saves: the local cache, and the repository.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test says so by failing")]

mod common;

use common::{Kitbag, files_below};

const UNCHANGED: &str = "nothing has changed since the last generation";

/// What the latest generation holds below the directory that the program runs in.
fn saved(kitbag: &Kitbag) -> Vec<String> {
    let top = kitbag.path("").canonicalize().expect("it is there");
    let listed = kitbag.run(["ls"]).code(0).stdout;
    let below = |line: &str| line.split_once(top.to_str().expect("UTF-8")).map(|(_, path)| path.to_owned());
    listed.lines().filter_map(below).collect()
}

#[test]
fn a_home_with_its_cache_and_repository_is_unchanged() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("home/letter", "dear");
    kitbag.write("home/.cache/browser/page", "old");
    kitbag.settle();
    let first = kitbag.run(["backup", "."]).code(0);
    first.says(&["/repository: this is the repository itself", "left out"]);
    let names = saved(&kitbag);
    assert!(names.iter().any(|name| name == "/home/.cache/browser/page"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("kitbag") || name.contains("repository")), "{names:?}");

    let (mut before, repository) = (Vec::new(), kitbag.path("repository"));
    for _ in 0..3 {
        kitbag.settle();
        let again = kitbag.run(["backup", "--skip-if-unchanged", "."]).code(0);
        assert!(again.stdout.contains(UNCHANGED), "{}", again.stdout);
        let files = files_below(&repository);
        assert!(before.is_empty() || before == files, "it has grown");
        before = files;
    }
    assert_eq!(kitbag.run(["diff", "latest", "live"]).code(0).stdout, "");
    kitbag.run(["verify"]).code(0);
    kitbag.run(["-q", "backup", "."]).code(0);
    assert_eq!(kitbag.run(["-q", "backup", "."]).code(0).stderr, "");
    // Other programs are told.
    let tag = std::fs::read_to_string(kitbag.path("home/.cache/kitbag/CACHEDIR.TAG")).expect("a tag");
    assert!(tag.starts_with("Signature: 8a477f597d28d172789f06886806bc55"));
}

#[test]
fn a_cache_elsewhere_is_left_out_but_not_what_stands_beside_it() {
    for dir in ["data/apart", "data"] {
        let kitbag = Kitbag::with_repository();
        kitbag.write("data/letter", "dear");
        kitbag.settle();
        // The first run makes it, and is not to save what it has made.
        let run =
            |more: &[&str]| kitbag.run([&["backup", "--cache-dir", dir, "data"], more].concat()).code(0);
        run(&[]);
        let names = saved(&kitbag);
        assert!(names.iter().any(|name| name == "/data/letter"), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("apart") || name.contains("locations")), "{names:?}");
        kitbag.settle();
        let again = run(&["--skip-if-unchanged"]);
        assert!(again.stdout.contains(UNCHANGED), "{}", again.stdout);
    }
}

#[test]
fn a_cache_that_is_named_is_saved() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("home/.cache/kitbag/locations/file", "x");
    kitbag.run(["backup", "home/.cache/kitbag"]).code(0);
    assert!(saved(&kitbag).iter().any(|name| name.ends_with("/locations/file")));
}

#[test]
fn what_only_has_the_name_of_a_cache_is_saved_and_compared() {
    let kitbag = Kitbag::with_repository();
    let theirs = [
        "photos/locations/Rome/one",
        "photos/turns/two",
        "photos/0123456789abcdef0123456789abcdef/bags/three",
        "photos/four",
    ];
    theirs.iter().for_each(|name| kitbag.write(name, "a photograph"));
    kitbag.settle();
    let run = |more: &[&str]| kitbag.run([&["--cache-dir", "photos"], more].concat());
    let first = run(&["backup", "photos"]).code(0);
    let names = saved(&kitbag);
    for name in theirs {
        assert!(names.iter().any(|saved| saved[1..] == *name), "{name} is not in {names:?}");
    }
    // The repository's cache is left out, which is told.
    first.says(&["/photos/", "this is part of kitbag's cache", "left out"]);
    assert!(!names.iter().any(|name| name.contains("/index")), "{names:?}");
    assert!(!kitbag.path("photos/CACHEDIR.TAG").exists());
    kitbag.write("photos/locations/Rome/one", "changed");
    run(&["diff", "latest", "live"]).code(1);
    run(&["verify"]).code(3);
}

#[test]
fn what_stands_beside_a_repository_is_saved() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("repository/photos/one", "a photograph");
    kitbag.write("repository/keys.txt", "mine");
    kitbag.settle();
    // As what lies in a root, and as a root.
    for root in [".", "repository"] {
        kitbag.run(["backup", root]).code(0).says(&["/repository: the repository is in here", "left out"]);
        let mut names = saved(&kitbag);
        names.retain(|name| name.starts_with("/repository/"));
        names.sort();
        let kept = names.iter().map(String::as_str).filter(|name| !name.ends_with("/photos"));
        assert_eq!(kept.collect::<Vec<_>>(), ["/repository/keys.txt", "/repository/photos/one"], "{names:?}");
        assert_eq!(kitbag.run(["diff", "latest", "live"]).code(0).stdout, "");
        kitbag.run(["verify"]).code(0);
        let again = kitbag.run(["backup", "--skip-if-unchanged", root]).code(0);
        assert!(again.stdout.contains(UNCHANGED), "{}", again.stdout);
    }
}

#[test]
fn what_a_generation_holds_of_kitbags_own_is_told_not_compared() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("elsewhere/letter", "x");
    // The cache that another run uses is a directory like any other.
    kitbag.run(["--cache-dir", "elsewhere/cache", "generations"]).code(0);
    kitbag.settle();
    kitbag.run(["--cache-dir", "cache", "backup", "elsewhere"]).code(0);
    let told = ["/elsewhere/cache: this is not compared, since it is kitbag's own"];
    let run = |more: &[&str]| kitbag.run([&["--cache-dir", "elsewhere/cache"], more].concat()).code(0);
    let compared = run(&["diff", "latest", "live"]);
    compared.says(&told);
    // The directory around it: something was made in it since.
    assert!(!compared.stdout.contains("/cache"), "{}", compared.stdout);
    run(&["verify"]).says(&told);
    run(&["verify", "--random", "100"]).says(&told);
}
