//! Repairs, killed anywhere, and readings of a part.

use std::collections::BTreeSet;
use std::time::Duration;

use super::tests::{Bench, Blow, check, fsck, noise, strike};
use super::*;
use crate::bag::format::HEADER;
use crate::base::time::{SystemClock, Timestamp};
use crate::generation::tags;
use crate::monitor::Severity;
use crate::monitor::collect::Collect;
use crate::store::testing::{Fault, FaultyStore, Op};
use crate::store::{ErrorKind, Name, layout};

fn repair() -> Options {
    Options {
        read_data: Some(Portion::default()),
        repair: true,
        client: "laptop".into(),
        ..Options::default()
    }
}

/// A record, tags of the other generation, a segment and a data bag: all damaged.
fn damaged() -> (Bench, Vec<Name>) {
    let bench = Bench::filled();
    let client = bench.repository.keys().names().client_id(b"laptop");
    let newest = bench.generations().pop().unwrap();
    let wanted = BTreeSet::from(["kept".to_owned()]);
    tags::replace(&bench.memory, &bench.sealing(), (client, newest.id), &wanted, &[]).unwrap();
    let names = bench.names("generations");
    let of_tags = names.iter().find(|name| name.as_str().contains('.')).unwrap().clone();
    let is_oldest = |name: &&Name| !name.last().starts_with(&newest.id.to_string());
    let oldest = names.iter().find(is_oldest).unwrap().clone();
    let broken = vec![of_tags, oldest];
    for name in broken.iter().chain(&bench.names("index")[..1]) {
        strike(&bench.memory, name, Blow::Flip(40));
    }
    strike(&bench.memory, &bench.bag(BagKind::Data), Blow::Flip(HEADER + 30));
    (bench, broken)
}

#[test]
fn what_cannot_be_read_is_taken_out_of_the_way() {
    let (bench, broken) = damaged();
    let before: Vec<_> = broken.iter().map(|name| bench.memory.contents(name).unwrap()).collect();
    let (summary, _) = fsck(&bench.repository, &repair());
    assert_eq!((summary.damages, summary.quarantined, summary.segments_written), (4, 2, 1));
    for (name, bytes) in broken.iter().zip(before) {
        assert_eq!(bench.memory.contents(name), None);
        assert_eq!(bench.memory.contents(&layout::quarantined(name)), Some(bytes), "{name}");
    }
    // What is left is the bag, which the newest generation needs.
    let (summary, collect) = check(&bench.repository, true);
    assert_eq!((summary.damages, summary.generations), (1, 1), "{:#?}", collect.problems());
    let (again, _) = bench.backup_with(true);
    let (summary, collect) = check(&bench.repository, true);
    let problem = collect.problems().into_iter().find(|line| line.starts_with("bags/")).unwrap();
    assert!(summary.damages == 1 && !problem.contains(&again.generation.id.to_string()), "{problem}");
}

#[test]
fn what_was_put_back_and_is_still_broken_is_moved_again() {
    let (bench, broken) = damaged();
    fsck(&bench.repository, &repair());
    for name in &broken {
        bench.memory.put(name, bench.memory.contents(&layout::quarantined(name)).unwrap());
    }
    assert_eq!(fsck(&bench.repository, &repair()).0.quarantined, 2);
    assert_eq!(bench.names("quarantine").len(), 4);
}

#[test]
fn what_a_later_kitbag_wrote_stays() {
    let bench = Bench::filled();
    let name = bench.names("generations")[0].clone();
    bench.memory.damage(&name, |bytes| bytes[8] = 9);
    let (summary, _) = fsck(&bench.repository, &repair());
    assert_eq!((summary.damages, summary.quarantined), (1, 0));
    assert!(bench.memory.contents(&name).is_some());
}

#[test]
fn a_repair_that_is_killed_anywhere_can_be_run_again() {
    let (bench, broken) = damaged();
    let whole = FaultyStore::new(Arc::new(bench.memory.snapshot()), Vec::new());
    fsck(&bench.over(Arc::new(whole.clone())), &repair());
    let calls = whole.mutating_calls();
    assert!(calls >= 9, "{calls}");
    for k in 0..calls {
        let memory = bench.memory.snapshot();
        let stopped = FaultyStore::stop_after(Arc::new(memory.clone()), k);
        let monitor: Arc<dyn Monitor> = Arc::new(Collect::new());
        let outcome =
            run(&bench.over(Arc::new(stopped)), &repair(), &monitor, &SystemClock::new(), &Cancel::new());
        // Only what is cleaned up at the end may fail without a word.
        assert!(outcome.is_err() || k + 1 >= calls, "after {k} of {calls}");
        let killed = bench.over(Arc::new(memory.clone()));
        let (summary, collect) = fsck(&killed, &repair());
        let lost = collect.problems_of(Severity::Damage);
        assert!(lost >= 1 && summary.segments_written == 1, "after {k}: {:#?}", collect.problems());
        for name in &broken {
            assert!(
                memory.contents(name).is_none() && memory.contents(&layout::quarantined(name)).is_some(),
                "after {k}"
            );
        }
        let (summary, collect) = check(&killed, true);
        assert_eq!((summary.damages, summary.generations), (1, 1), "after {k}: {:#?}", collect.problems());
    }
}

#[test]
fn parts_of_the_data_add_up_to_all_of_them() {
    let bench = Bench::filled();
    for number in 0..6 {
        bench.write(&format!("more/{number}"), &noise(50 + number, 100_000));
        bench.backup();
    }
    let ids: BTreeSet<BagId> =
        bench.bags(BagKind::Data).iter().map(|name| name.last().parse().unwrap()).collect();
    let (mut after, mut unseen) = (BagId([0x80; 16]), ids.clone());
    let mut rounds = 0;
    while !unseen.is_empty() {
        rounds += 1;
        assert!(rounds <= ids.len(), "{unseen:?}");
        let part = Portion { share: Some(50_000), after: Some(after), time: None };
        let (summary, _) = fsck(&bench.repository, &Options { read_data: Some(part), ..Options::default() });
        assert!(summary.left_out > 0);
        let last = summary.read_up_to.unwrap();
        let was_read =
            |id: &BagId| if after < last { after < *id && *id <= last } else { after < *id || *id <= last };
        unseen.retain(|id| !was_read(id));
        after = last;
    }
    assert!(rounds > 3, "{rounds}");
    // All that there are leave nothing out, and the next part may begin anywhere.
    let all = Portion { share: Some(1_000_000), ..Portion::default() };
    let (summary, _) = fsck(&bench.repository, &Options { read_data: Some(all), ..Options::default() });
    assert_eq!((summary.left_out, summary.read_up_to), (0, None));
}

/// A clock on which a second passes at each look.
struct Hasty(std::sync::atomic::AtomicU64);

impl Clock for Hasty {
    fn now(&self) -> Timestamp {
        SystemClock::new().now()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }
}

#[test]
fn when_the_time_is_over_no_further_bag_is_begun() {
    let bench = Bench::filled();
    assert_eq!(bench.bags(BagKind::Data).len(), 2);
    let portion = Portion { time: Some(Duration::from_secs(2)), ..Portion::default() };
    let options = Options { read_data: Some(portion), ..Options::default() };
    let monitor: Arc<dyn Monitor> = Arc::new(Collect::new());
    let clock = Hasty(std::sync::atomic::AtomicU64::new(0));
    let summary = run(&bench.repository, &options, &monitor, &clock, &Cancel::new()).unwrap();
    assert!(summary.left_out > 0 && summary.read_up_to.is_some());
}

#[test]
fn a_bag_that_is_collected_while_it_is_checked_is_no_damage() {
    let bench = Bench::filled();
    // It is listed, and not there when it is read; nobody needs it.
    let name = layout::bag(BagId([0x77; 16]));
    bench.memory.put(&name, vec![0; 500]);
    let fault = |op| Fault::fail(op, ErrorKind::NotFound).below(name.as_str());
    let faulty = FaultyStore::new(Arc::new(bench.memory.clone()), vec![fault(Op::Read), fault(Op::ReadTail)]);
    let (summary, collect) = check(&bench.over(Arc::new(faulty)), false);
    assert_eq!(summary.damages, 0, "{:#?}", collect.problems());
}
