//! Backups into a repository that is damaged.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::tests::{Bench, live_files, noise};
use super::*;
use crate::base::time::SystemClock;
use crate::monitor::collect::Collect;
use crate::store::Name;

fn bags(bench: &Bench) -> Vec<Name> {
    bench.memory.names().into_iter().filter(|name| name.as_str().starts_with("bags/")).collect()
}

/// Backs up, and finds all contents in the new generation although the repository is damaged, which is told.
fn check(bench: &Bench, reread: bool) {
    thread::sleep(Duration::from_millis(30));
    let collect = Arc::new(Collect::new());
    let monitor: Arc<dyn Monitor> = collect.clone();
    let options = Options { reread, ..bench.options() };
    let summary = run(&bench.repository, &options, &monitor, &SystemClock::new(), &Cancel::new()).unwrap();
    assert!(collect.problems_of(Severity::Damage) > 0);
    assert_eq!(bench.read(&summary.generation), live_files(bench.live.path()));
}

#[test]
fn what_was_in_a_bag_that_is_cut_off_is_stored_again() {
    let bench = Bench::new();
    bench.write("a/large", &noise(1, 3_000_000));
    bench.write("a/small", b"small");
    bench.backup();
    for name in bags(&bench) {
        let len = bench.memory.contents(&name).unwrap().len();
        bench.memory.truncate(&name, len / 2);
    }
    check(&bench, true);
}

#[test]
fn a_listing_that_is_damaged_is_not_referred_to_again() {
    let bench = Bench::new();
    bench.write("a/b/small", b"small");
    bench.write("a/c/small", b"small, too");
    bench.backup();
    for name in bags(&bench) {
        bench.memory.flip(&name, 60);
    }
    check(&bench, false);
}
