//! The line is cut, falls silent, or drops again and again.

use std::thread;
use std::time::Duration;

use obbench::clock;
use obbench::random::Random;
use obbench::relay::{Direction, Fault, Link};

use crate::bench::{Bench, LINK_TIMEOUT, Running, bytes_up, internal, is_long};

/// What may be sent again for each cut: 8 MiB on each of four channels, though never more than may be outstanding in all.
const AGAIN: u64 = 24 << 20;

/// How long a cut may go unnoticed. The new connection comes at once, unless the old one stood for less than a second.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Lets the faults happen to a run, one after another, each after so many more bytes; sees to it that each is noticed in time.
fn strike(bench: &Bench, run: &mut Running, direction: Direction, fault: Fault, gaps: &[u64]) {
    let more_than = |before: u64| move || bench.relay.traffic().connections > before;
    assert!(clock::wait_until(Duration::from_secs(30), more_than(0)), "it does not connect");
    for (number, gap) in gaps.iter().enumerate() {
        let before = bench.relay.traffic().connections;
        bench.relay.fault_after(direction, *gap, fault);
        // The next one may be a hundred megabytes away, which takes a loaded machine its time.
        let reach = Duration::from_secs(if is_long() { 600 } else { 60 });
        let struck = clock::wait_until(reach, || bench.relay.has_struck() || run.is_over());
        assert!(struck && bench.relay.has_struck(), "fault {number} of {gaps:?} did not happen");
        let since = clock::now();
        let limit = if fault == Fault::Cut { AT_ONCE } else { LINK_TIMEOUT + Duration::from_secs(3) };
        let again = clock::wait_until(limit, more_than(before));
        assert!(again, "fault {number} of {gaps:?} was not noticed in {limit:?}");
        println!("fault {number} noticed after {:?}", since.elapsed());
        if fault != Fault::Cut {
            // The attempt that was made in the silence ends with it, and is followed by one that succeeds.
            let before = bench.relay.traffic().connections;
            bench.relay.heal();
            assert!(clock::wait_until(Duration::from_secs(30), more_than(before)), "it does not come back");
        }
    }
}

/// Random distances that add up to less than `bytes`.
fn gaps(seed: u64, count: u64, bytes: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let mut places: Vec<_> = (0..count).map(|_| random.below(bytes - bytes / 16)).collect();
    places.sort_unstable();
    let mut before = 0;
    places.into_iter().map(|place| place - std::mem::replace(&mut before, place)).collect()
}

/// Bytes and cuts. Programs that are built for tests are slow, so only the first of all is as large as it should be.
fn size(is_first: bool) -> (u64, u64) {
    match (is_long(), is_first) {
        (true, _) => (1 << 30, 50),
        (false, true) => (64 << 20, 6),
        (false, false) => (20 << 20, 3),
    }
}

fn upload(transport: &'static str, fault: Fault, seed: u64) {
    let Some(bench) = Bench::start(internal(), Link::default(), transport) else { return };
    let (bytes, cuts) = size(seed == 1);
    bench.make_tree(bytes);
    let mut run = bench.backup(&[]);
    let gaps = gaps(seed, cuts, bytes);
    strike(&bench, &mut run, Direction::Up, fault, &gaps);
    let outcome = run.end().code(0);
    let sent = bytes_up(&outcome);
    let again = sent.saturating_sub(bench.stored());
    println!("{sent} bytes sent, {again} of them again");
    assert!(again <= cuts * AGAIN + bytes / 100, "{again} bytes were sent again for cuts at {gaps:?}");
    assert!(bench.parts().is_empty(), "{:?}", bench.parts());
    bench.assert_sound();
}

fn download(transport: &'static str, fault: Fault, seed: u64) {
    let Some(bench) = Bench::start(internal(), Link::default(), transport) else { return };
    let (bytes, cuts) = size(false);
    bench.make_tree(bytes);
    let live = bench.live();
    bench.local(&["backup", live.to_str().expect("UTF-8")]).code(0);
    let mut run = bench.restore();
    strike(&bench, &mut run, Direction::Down, fault, &gaps(seed, cuts, bytes));
    run.end().code(0);
    bench.assert_restored();
}

#[test]
fn sshd_upload_over_a_line_that_is_cut() {
    upload("ssh2", Fault::Cut, 1);
}

#[test]
fn sshd_upload_over_a_line_that_falls_silent() {
    upload("ssh2", Fault::Swallow, 2);
}

#[test]
fn sshd_upload_by_openssh_over_a_line_that_is_cut() {
    upload("openssh", Fault::Cut, 3);
}

#[test]
fn sshd_upload_by_openssh_over_a_line_that_falls_silent() {
    upload("openssh", Fault::Swallow, 4);
}

#[test]
fn sshd_restore_over_a_line_that_is_cut() {
    download("ssh2", Fault::Cut, 5);
}

#[test]
fn sshd_restore_by_openssh_over_a_line_that_falls_silent() {
    download("openssh", Fault::Swallow, 6);
}

/// A line of a few Mbit/s that drops regularly is used to 0.8 of its rate at least: little is sent twice, which load on
/// this machine cannot hide, and little time is lost, which it can, so the short form is content with less.
#[test]
fn sshd_a_line_that_drops_regularly_makes_progress() {
    let (mbit, every, bytes, least) = match is_long() {
        true => (5, Duration::from_secs(30), 90 << 20, 0.8),
        false => (8, Duration::from_secs(7), 18 << 20, 0.6),
    };
    let link = Link::delayed(Duration::from_millis(20)).with_mbit_per_second(mbit, mbit);
    let Some(bench) = Bench::start(internal(), link, "ssh2") else { return };
    bench.make_tree(bytes);
    let mut run = bench.backup(&[]);
    bench.wait_for_upload(100_000);
    let began = run.time();
    let mut drops = 0;
    'run: loop {
        let until = clock::now() + every;
        while clock::now() < until {
            if run.is_over() {
                break 'run;
            }
            thread::sleep(Duration::from_millis(20));
        }
        bench.relay.fault(Fault::Cut);
        drops += 1;
    }
    let time = run.time() - began;
    run.end().code(0);
    #[expect(clippy::cast_precision_loss, reason = "shares need no more")]
    let ratio = |part: u64, whole: u128| part as f64 / whole as f64;
    let useful = ratio(bench.stored(), bench.relay.traffic().bytes_up.into());
    let used = ratio(bench.stored() * 8 / (mbit * 1000), time.as_millis());
    println!("{drops} drops, {useful:.2} of the bytes were of use, {used:.2} of the rate was used");
    assert!(drops >= 2 && useful >= 0.85 && used >= least, "{drops} drops: {useful:.2}, {used:.2}");
    bench.assert_sound();
}
