//! The program itself is killed.

use std::thread;
use std::time::Duration;

use obbench::random::Random;
use obbench::relay::Link;

use crate::bench::{Bench, internal, is_long};

/// Killed at random times, it leaves a sound repository, and the next run ends well.
#[test]
fn sshd_a_killed_program_harms_nothing() {
    let Some(bench) = Bench::start(internal(), Link::default(), "ssh2").map(Bench::patient) else { return };
    let mut random = Random::new(7);
    bench.make_tree(4 << 20);
    for round in 0..if is_long() { 100 } else { 5 } {
        bench.add_noise(&format!("round/{round}"), 2 << 20);
        // Somewhere between the start and a little after the usual end.
        let run = bench.backup(&["--limit-upload", "4M", "--checkpoint", "1M"]);
        thread::sleep(Duration::from_millis(random.below(2500)));
        run.kill();
        bench.local(&["fsck", "--read-data"]).code(0);
        bench.backup(&[]).end().code(0);
        bench.assert_sound();
    }
}
