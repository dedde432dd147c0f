//! What a collection takes, what it leaves, and what it costs.

use std::sync::Arc;

use kitbag::base::id::GenerationId;
use kitbag::forget::{self, What};
use kitbag::gc::{Amount, Options};
use kitbag::generation::Session;
use kitbag::store::layout;
use kitbag::store::testing::CallLog;

use crate::bench::{Bench, collect, noise, saved_files};

/// Six generations of one client, each with a file that no other has.
fn six() -> (Bench, Vec<GenerationId>, crate::bench::Client) {
    let bench = Bench::new();
    let client = bench.client("laptop");
    client.write("same", &noise(0, 20_000));
    let mut ids = Vec::new();
    for number in 1..=6 {
        client.write("changes", &noise(number, 30_000 + usize::try_from(number).unwrap()));
        ids.push(client.backup().id);
    }
    (bench, ids, client)
}

#[test]
fn what_no_generation_needs_goes_and_the_rest_can_be_restored() {
    let (bench, ids, client) = six();
    assert_eq!(bench.gc().removed, Amount::default());
    bench.assert_clean();
    for id in &ids[..5] {
        bench.forget(client.id(), *id);
    }
    let before = bench.bags();
    let summary = bench.gc();
    assert!(summary.removed.files >= 5 && summary.waiting == Amount::default(), "{summary:?}");
    assert_eq!(before - bench.bags(), usize::try_from(summary.removed.files).unwrap());
    bench.assert_clean();
    let (_, last) = bench.generations().pop().unwrap();
    assert_eq!(saved_files(&bench.repository, &last), client.files());
    let again = bench.gc();
    assert_eq!((again.removed, again.segments_written), (Amount::default(), 0));
    // And the next backup finds what it needs.
    client.write("more", &noise(77, 9000));
    let next = client.backup();
    assert_eq!(saved_files(&bench.repository, &next), client.files());
    bench.assert_clean();
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_would_go() {
    let (bench, ids, client) = six();
    ids[..5].iter().for_each(|id| bench.forget(client.id(), *id));
    let names = bench.memory.names();
    let options = Options { dry_run: true, ..Options::new("collector") };
    let would = collect(&bench.repository, &options).unwrap();
    assert_eq!(bench.memory.names(), names);
    assert_eq!(would.removed, bench.gc().removed);
}

#[test]
fn it_costs_these_waits() {
    let (bench, ids, client) = six();
    ids[..5].iter().for_each(|id| bench.forget(client.id(), *id));
    let log = CallLog::new(Arc::new(bench.memory.clone()));
    let repository = bench.over(Arc::new(log.clone()));
    log.clear();
    let summary = collect(&repository, &Options::new("laptop")).unwrap();
    assert!(summary.removed.files >= 5);
    assert!(log.serial_round_trips() <= 9, "{} waits: {:#?}", log.serial_round_trips(), log.lines());
    log.clear();
    collect(&repository, &Options::new("laptop")).unwrap();
    assert!(log.serial_round_trips() <= 3, "{} waits: {:#?}", log.serial_round_trips(), log.lines());
}

#[test]
fn forgetting_and_collecting_cost_these_waits_together() {
    let (bench, ids, client) = six();
    let log = CallLog::new(Arc::new(bench.memory.clone()));
    let repository = bench.over(Arc::new(log.clone()));
    log.clear();
    let listed = vec![(client.id(), repository.catalog().list(client.id()).wait().unwrap())];
    let found = repository.catalog().find(&listed);
    let policy = "1".parse().unwrap();
    let options =
        forget::Options { what: What::Policy(policy), allow_empty: false, zone: jiff::tz::TimeZone::UTC };
    // The clock of these backups is ahead.
    let now = found.iter().map(|one| one.record.as_ref().unwrap().ended).max().unwrap();
    let plan = forget::plan(&found, &options, now).unwrap();
    forget::carry_out(&**repository.cached(), &found, &plan, &[]).unwrap();
    let summary = collect(&repository, &Options::new("laptop")).unwrap();
    assert!(summary.removed.files >= 5 && bench.generations().len() == 1, "{summary:?}, {ids:?}");
    assert!(log.serial_round_trips() <= 12, "{} waits: {:#?}", log.serial_round_trips(), log.lines());
}

#[test]
fn who_is_writing_is_waited_for() {
    let (bench, ids, client) = six();
    ids[..5].iter().for_each(|id| bench.forget(client.id(), *id));
    let sealing = bench.repository.sealing();
    let mut session = Session::begin(bench.repository.store(), &sealing, client.id()).session;
    session.created().unwrap();
    let before = bench.bags();
    let summary = bench.gc();
    assert!(summary.removed.files == 0 && summary.waiting.files >= 5 && summary.sessions == 1, "{summary:?}");
    assert_eq!(bench.bags(), before);
    assert_eq!(bench.gc().waiting, summary.waiting);
    // One that began afterwards is not waited for.
    let mut later = Session::begin(bench.repository.store(), &sealing, client.id()).session;
    later.created().unwrap();
    drop(session);
    let summary = bench.gc();
    assert!(summary.removed.files >= 5, "{summary:?}");
    drop(later);
    bench.gc();
    bench.assert_clean();
}

#[test]
fn a_stale_session_is_revoked() {
    let (bench, ids, client) = six();
    ids[..5].iter().for_each(|id| bench.forget(client.id(), *id));
    let sealing = bench.repository.sealing();
    let mut session = Session::begin(bench.repository.store(), &sealing, client.id()).session;
    session.created().unwrap();
    bench.memory.set_clock(bench.memory.clock() + 7 * 24 * 3600 + 1);
    let summary = bench.gc();
    assert!(summary.revoked == 1 && summary.removed.files >= 5, "{summary:?}");
    assert!(bench.memory.contents(&layout::session(client.id(), session.id())).is_none());
    bench.assert_clean();
}

#[test]
fn the_remains_of_dead_uploads_go() {
    let (bench, _, _) = six();
    let part = layout::bag_part(kitbag::base::id::BagId([7; 16]));
    bench.memory.put(&part, vec![0; 500]);
    bench.memory.put(&layout::bag(kitbag::base::id::BagId([8; 16])), vec![0; 300]);
    let summary = bench.gc();
    assert_eq!(
        (summary.remains, summary.removed),
        (Amount { files: 1, bytes: 500 }, Amount { files: 1, bytes: 300 })
    );
    bench.assert_clean();
}

#[test]
fn an_upload_is_a_remnant_when_nobody_is_left_who_may_have_begun_it() {
    let (bench, ..) = six();
    let now = bench.memory.clock();
    let put_at = |number: u8, at: i64| {
        bench.memory.set_clock(at);
        let part = layout::bag_part(kitbag::base::id::BagId([number; 16]));
        bench.memory.put(&part, vec![0; 500]);
        part
    };
    let is_there = |part: &kitbag::store::Name| bench.memory.contents(part).is_some();
    // Its session has ended, was killed or revoked: whoever is there now came later.
    let of_the_dead = put_at(7, now + 100);
    bench.memory.set_clock(now + 200);
    let sealing = bench.repository.sealing();
    let client = bench.generations()[0].0;
    let mut session = Session::begin(bench.repository.store(), &sealing, client).session;
    session.created().unwrap();
    let under_way = put_at(8, now + 300);
    assert_eq!(bench.gc().remains.files, 1);
    assert!(!is_there(&of_the_dead) && is_there(&under_way));
    // That one is never heard of again: with its session its upload goes, in the same run.
    std::mem::forget(session);
    bench.memory.set_clock(now + 8 * 24 * 3600);
    let summary = bench.gc();
    assert_eq!((summary.revoked, summary.remains.files), (1, 1));
    assert!(!is_there(&under_way));
    bench.assert_clean();
}
