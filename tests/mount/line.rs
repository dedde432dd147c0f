//! Over a line that is far, or is cut, or is gone.

use std::fs;
use std::thread;
use std::time::Duration;

use obbench::need;
use obbench::relay::{Direction, Fault, Link};

use crate::bench::{Bench, internal};
use crate::common::manifest;
use crate::mounted::{Mounted, number, run, text};
use crate::tree::shell;

/// A server with a saved tree, seen over such a line; none where a program is missing.
fn saved(link: Link, script: &str) -> Option<Bench> {
    if !need::fuse() {
        return None;
    }
    let bench = Bench::start(internal(), link, "ssh2")?.patient();
    shell(&bench.live(), script);
    bench.local(&["backup", text(&bench.live())]).code(0);
    forget_cache(&bench);
    Some(bench)
}

fn forget_cache(bench: &Bench) {
    let _ = fs::remove_dir_all(bench.kitbag.path("home/.cache"));
}

fn mount(bench: &Bench, more: &[&str]) -> Mounted {
    Mounted::start(&bench.kitbag, "mnt", bench.remote(&["mount"]).args(more))
}

const MANY: &str = "for i in $(seq 60); do mkdir -p $i/$i; for j in $(seq 30); do echo $j > $i/$i/$j; done; done; seq 300000 > a; ln a b";

#[test]
fn mount_far_away_waits_only_for_the_directories_once() {
    let Some(bench) = saved(Link::delayed(Duration::from_millis(20)), MANY) else { return };
    let waits_of_find = || {
        let mut mounted = mount(&bench, &[]);
        let find = ["-printf", "%s %T@ %n\n"];
        let found = run("find", &[&[text(&mounted.at)], &find[..]].concat());
        assert!(found.lines().count() > 1900);
        assert!(found.contains(" 2\n"), "names are counted");
        mounted.signal("-INT");
        let over = mounted.end().code(0).stdout;
        let waits = |line: &str| number(line, "traffic.serial_waits");
        (waits(&mounted.began), waits(&over) - waits(&mounted.began))
    };
    let (opening, cold) = waits_of_find();
    println!("without a cache: {opening} waits until it is mounted, {cold} for find");
    assert!(cold <= 8, "{cold} waits");
    let (opening, warm) = waits_of_find();
    println!("with a cache: {opening} waits until it is mounted, {warm} for find");
    assert_eq!(warm, 0);
}

#[test]
fn mount_reads_on_over_a_line_that_is_cut() {
    let script = "head -c 24M /dev/urandom > large; seq 100 > small";
    let Some(bench) = saved(Link::default(), script) else { return };
    let mounted = mount(&bench, &["--memory", "8M"]);
    let seen = mounted.latest(&bench.live());
    thread::scope(|scope| {
        let reader = scope.spawn(|| fs::read(seen.join("large")).expect("read"));
        for _ in 0..3 {
            bench.relay.fault_after(Direction::Down, 3 << 20, Fault::Cut);
            let struck = || bench.relay.has_struck() || reader.is_finished();
            assert!(obbench::clock::wait_until(Duration::from_secs(60), struck));
        }
        assert!(reader.join().expect("ended") == fs::read(bench.live().join("large")).expect("there"));
    });
    assert!(bench.relay.traffic().connections > 1);
    assert!(manifest(&bench.live()) == manifest(&seen));
    mounted.stop().code(0);
}

#[test]
fn mount_ends_when_the_line_is_gone_for_good() {
    let script = "head -c 24M /dev/urandom > large; seq 100 > small";
    let Some(mut bench) = saved(Link::default(), script) else { return };
    bench.link_timeout = Duration::from_secs(2);
    let mut mounted = mount(&bench, &["--memory", "8M", "--give-up-after", "4s"]);
    let seen = mounted.latest(&bench.live());
    assert_eq!(fs::read(seen.join("small")).expect("there").len(), 292);
    bench.relay.fault(Fault::Swallow);
    // Names are known; contents are not, and nobody waits for ever.
    assert_eq!(fs::metadata(seen.join("large")).expect("known").len(), 24 << 20);
    let began = obbench::clock::now();
    let error = fs::read(seen.join("large")).expect_err("gone");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    // EIO, unless it is unmounted already.
    assert!(matches!(error.raw_os_error(), Some(5 | 103 | 107)), "{error}");
    let outcome = mounted.end().code(1);
    assert!(outcome.stderr.contains("run this again when it can be reached"), "{}", outcome.stderr);
}
