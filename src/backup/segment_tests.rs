//! Bags and the segments that name them, with checkpoints on the way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::tests::{Bench, noise};
use super::*;
use crate::base::time::SystemClock;
use crate::crypto::Kind;
use crate::index::{Segment, format};
use crate::monitor::collect::Collect;
use crate::repo::open;
use crate::sealed;
use crate::store::ErrorKind;
use crate::store::layout;
use crate::store::testing::{Fault, FaultyStore, Op};

/// The bags that segments name.
fn named(bench: &Bench) -> BTreeSet<String> {
    let (repository, mut bags) = (&bench.repository, BTreeSet::new());
    for name in bench.memory.names_below("index") {
        let bytes = bench.memory.contents(&name).unwrap();
        let (keys, id) = (repository.keys(), repository.id());
        let bytes = sealed::decode(keys, id, Kind::Segment, &name, bytes, format::MAX_SEGMENT).unwrap();
        bags.extend(
            Segment::decode(&bytes).unwrap().bags.iter().map(|bag| layout::bag(bag.entry().bag).to_string()),
        );
    }
    bags
}

/// A backup with many checkpoints, of which the first segment cannot be published for this reason; and what was said of it. Once: at the end it would
/// not be noticed.
fn first_segment_fails(bench: &Bench, kind: ErrorKind) -> (Result<Summary, BackupError>, Vec<String>) {
    for number in 0..4000 {
        bench.write(&format!("{}/{number}", number % 40), &noise(number, 4000));
    }
    let fault = Fault::fail(Op::Commit, kind).below("index/");
    let store = Arc::new(FaultyStore::new(Arc::new(bench.memory.clone()), vec![fault]));
    let repository = open(store, &mut |_| None).unwrap();
    let collect = Arc::new(Collect::new());
    let monitor: Arc<dyn Monitor> = collect.clone();
    let checkpoint = Every { time: Duration::ZERO, bytes: 1 };
    let options = Options { checkpoint, walkers: 1, ..bench.options() };
    let ended = run(&repository, &options, &monitor, &SystemClock::new(), &Cancel::new());
    (ended, collect.problems())
}

#[test]
fn a_checkpoint_that_fails_leaves_no_bag_without_a_name() {
    let bench = Bench::new();
    let (ended, said) = first_segment_fails(&bench, ErrorKind::Other);
    let summary = ended.unwrap();
    assert!(said.iter().any(|one| one.contains("no checkpoint could be made")), "{said:?}");

    let bags = bench.memory.names_below("bags");
    assert_eq!(named(&bench), bags.iter().map(ToString::to_string).collect());
    // And all are counted, those of checkpoints too.
    let bytes: usize = bags.iter().map(|bag| bench.memory.contents(bag).unwrap().len()).sum();
    assert_eq!((summary.bags, summary.bag_bytes), (bags.len() as u64, bytes as u64));
    assert_eq!(summary.generation.counts.stored_bytes, bytes as u64);
    bench.check();
}

#[test]
fn who_is_revoked_stops_at_the_next_checkpoint() {
    let bench = Bench::new();
    let (ended, said) = first_segment_fails(&bench, ErrorKind::NotFound);
    assert!(matches!(ended, Err(BackupError::Session(SessionError::Revoked(_)))), "{ended:?}");
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(bench.generations().len(), 0);
}

#[test]
fn without_any_directory_the_index_is_in_memory() {
    let bench = Bench::new();
    for number in 0..3 {
        bench.write(&format!("{number}"), &noise(number, 40_000));
    }
    bench.backup();
    bench.write("more", &noise(7, 40_000));
    // The way that no privilege overcomes: they are not there.
    let missing = ["one", "two"].map(|name| bench.cache.path().join(name));
    let options = Options { scratch: missing.to_vec(), reread: true, ..bench.options() };
    let collect = Arc::new(Collect::new());
    let monitor: Arc<dyn Monitor> = collect.clone();
    let summary = run(&bench.repository, &options, &monitor, &SystemClock::new(), &Cancel::new()).unwrap();
    let said = collect.problems();
    assert_eq!(said.len(), 2, "{said:?}");
    for (said, dir) in said.iter().zip(&missing) {
        assert!(said.contains(&*dir.to_string_lossy()) && said.contains("made elsewhere"), "{said}");
    }
    // What was there is known all the same.
    assert!(summary.bag_bytes < 60_000, "{summary:?}");
    bench.check();
}
