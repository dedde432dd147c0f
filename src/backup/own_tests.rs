//! What is kitbag's own stands in no generation, and makes none.

use std::fs;
use std::sync::Arc;

use super::tests::{Bench, noise};
use super::*;
use crate::base::time::SystemClock;
use crate::live::{Own, OwnPlaces};
use crate::monitor::collect::Collect;

/// Backs up without these places; gives what is in the generation, whether it is what was before, and the problems.
fn backup(bench: &Bench, own: &[(Own, &str)]) -> (Vec<String>, bool, Vec<String>) {
    thread::sleep(std::time::Duration::from_millis(30));
    let mut places = OwnPlaces::default();
    own.iter().for_each(|(own, name)| places.add(*own, &bench.path(name)));
    let mut options = bench.options();
    options.exclude = options.exclude.with_own(places);
    let collect = Arc::new(Collect::new());
    let monitor: Arc<dyn Monitor> = collect.clone();
    let summary = run(&bench.repository, &options, &monitor, &SystemClock::new(), &Cancel::new()).unwrap();
    let files = bench.read(&summary.generation).into_keys();
    let names = files.map(|name| String::from_utf8(name).unwrap().trim_start_matches('/').to_owned());
    (names.collect(), summary.is_unchanged, collect.problems())
}

#[test]
fn a_place_of_kitbags_own_is_not_missed_wherever_it_stands() {
    // First, in the middle and last among the names of its directory, and alone in one.
    for own in ["a/a", "a/m", "a/z", "b/own"] {
        let bench = Bench::new();
        for name in ["a/b", "a/n/deep", "a/y", "top"] {
            bench.write(name, name.as_bytes());
        }
        fs::create_dir(bench.path("b")).unwrap();
        let whole = backup(&bench, &[]);
        bench.write(&format!("{own}/segment"), &noise(1, 1000));
        let first = backup(&bench, &[(Own::Cache, own)]);
        assert_eq!(first.0, whole.0, "{own}");
        bench.write(&format!("{own}/segment"), &noise(2, 3000));
        bench.write(&format!("{own}/another"), &noise(3, 3000));
        let (names, is_unchanged, problems) = backup(&bench, &[(Own::Cache, own)]);
        assert!(is_unchanged, "{own}");
        assert_eq!((names, problems), (whole.0, Vec::new()), "{own}");
    }
}

#[test]
fn what_a_generation_still_has_of_it_goes() {
    let bench = Bench::new();
    for name in ["a", "repository/data", "z/file"] {
        bench.write(name, name.as_bytes());
    }
    assert!(backup(&bench, &[]).0.contains(&"repository/data".to_owned()));
    let (names, is_unchanged, problems) = backup(&bench, &[(Own::Repository, "repository")]);
    assert_eq!((names, is_unchanged), (vec!["a".to_owned(), "z/file".to_owned()], false));
    let [told] = &problems[..] else { panic!("{problems:?}") };
    assert!(told.contains("repository: this is the repository itself"), "{told}");
    assert!(backup(&bench, &[(Own::Repository, "repository")]).1);
}
