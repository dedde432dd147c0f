//! An index that is made anew, by a program that is killed at any moment of it.

use std::fs;
use std::sync::Arc;

use super::tests::{Bench, check, rebuild};
use super::*;
use crate::base::time::SystemClock;
use crate::monitor::Counter;
use crate::monitor::collect::Collect;
use crate::store::testing::FaultyStore;

fn outcome(repository: &Repository) -> Result<Summary, FsckError> {
    let monitor: Arc<dyn Monitor> = Arc::new(Collect::new());
    run(repository, &rebuild(), &monitor, &SystemClock::new(), &Cancel::new())
}

/// There is never a moment in which an object that is stored is not listed, and whatever was left is cleared up by another try.
#[test]
fn killed_after_any_call_it_has_lost_nothing_and_another_one_finishes() {
    let mut bench = Bench::filled();
    let whole = bench.memory.snapshot();
    let calls = {
        let counted = FaultyStore::new(Arc::new(whole.snapshot()), Vec::new());
        outcome(&bench.over(Arc::new(counted.clone()))).unwrap();
        counted.mutating_calls()
    };
    assert!(calls >= 6, "a session, a segment and its two removals: {calls}");
    for killed_after in 0..calls {
        bench.memory = whole.snapshot();
        let killed = FaultyStore::stop_after(Arc::new(bench.memory.clone()), killed_after);
        let died = outcome(&bench.over(Arc::new(killed.clone())));
        // The very last calls tidy up, and nobody is told when that fails.
        assert!(died.is_err() || killed_after >= calls - 2, "killed after {killed_after}: {died:?}");
        assert!(killed.is_stopped());

        bench.repository = bench.over(Arc::new(bench.memory.clone()));
        let (summary, collect) = check(&bench.repository, true);
        assert_eq!(summary.damages, 0, "killed after {killed_after}: {:#?}", collect.problems());
        fs::copy(bench.path("long"), bench.path("copy")).unwrap();
        let (_, collect) = bench.backup_with(true);
        assert_eq!(collect.get(Counter::NewChunks), 0, "killed after {killed_after}");
        fs::remove_file(bench.path("copy")).unwrap();

        let again = outcome(&bench.repository).unwrap();
        assert!(again.segments_written == 1 && again.damages == 0, "killed after {killed_after}: {again:?}");
        assert_eq!(bench.names("index").len(), 1, "killed after {killed_after}");
        assert_eq!(check(&bench.repository, false).0.damages, 0);
    }
}
