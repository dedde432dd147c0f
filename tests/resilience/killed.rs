//! The program itself is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use obbench::clock;
use obbench::random::Random;
use obbench::relay::Link;

use crate::bench::{Bench, Running, files_below, internal, is_long};

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

/// What stands directly below a directory.
fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
}

/// Killed in the middle of a large file, a restore leaves things behind on this side, which the next one takes away.
#[test]
fn sshd_a_killed_restore_leaves_nothing_for_ever() {
    let Some(bench) = Bench::start(internal(), Link::default(), "openssh").map(Bench::patient) else {
        return;
    };
    bench.make_tree(6 << 20);
    bench.backup(&[]).end().code(0);
    let (to, temporary) = (bench.kitbag.path("restored"), bench.kitbag.path("tmp"));
    fs::create_dir(&temporary).expect("made");
    let restore = |more: &[&str]| {
        let mut command = bench.remote(&["restore", "--strip-root", "--no-cache", "--to"]);
        Running::start(command.arg(&to).args(more).env("TMPDIR", &temporary))
    };
    let unfinished = || {
        let is_one = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".kitbag-"))
        };
        files_below(&to).into_iter().filter(is_one).count()
    };
    let run = restore(&["--limit-download", "500K"]);
    assert!(clock::wait_until(Duration::from_secs(60), || unfinished() > 0), "it does not begin");
    run.kill();
    assert!(unfinished() > 0);
    let left = entries(&temporary);
    assert_eq!(left.len(), 1, "{left:?}");
    // Its `ssh` ends by itself, and takes the socket away; and all of that is as if it were a while ago.
    assert!(clock::wait_until(Duration::from_secs(60), || left.iter().all(|path| entries(path).is_empty())));
    for path in &left {
        assert!(
            Command::new("touch")
                .args(["-d", "2 minutes ago"])
                .arg(path)
                .status()
                .is_ok_and(|it| it.success())
        );
    }
    restore(&[]).end().code(0);
    assert_eq!(unfinished(), 0);
    assert_eq!(entries(&temporary), Vec::<PathBuf>::new());
    bench.assert_restored();
}
