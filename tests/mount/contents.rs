//! Bytes, however they are asked for.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::thread;

use obbench::need;
use obbench::random::Random;

use crate::common::files_below;
use crate::mounted::{Mounted, run, text};
use crate::tree::saved;

#[test]
fn mount_reads_in_odd_steps_and_backwards() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved(
        "head -c 9000001 /dev/urandom > random; seq 500000 > text; truncate -s 9M random-sparse
         dd if=random of=random-sparse bs=1000 count=3000 seek=2000 conv=notrunc status=none; cp /bin/ls program",
    );
    let live = kitbag.path("live");
    let mounted = Mounted::new(&kitbag, "mnt", &["--memory", "4M"]);
    let seen = mounted.latest(&live);
    for name in ["random", "text", "random-sparse"] {
        let wanted = fs::read(live.join(name)).unwrap();
        let file = File::open(seen.join(name)).unwrap();
        // Backwards first, while the kernel knows nothing of it.
        let mut end = wanted.len();
        while end > 0 {
            let start = end.saturating_sub(65_537);
            let mut bytes = vec![0; end - start];
            file.read_exact_at(&mut bytes, start as u64).unwrap();
            assert!(bytes == wanted[start..end], "{name}: {start}..{end}");
            end = start;
        }
        let mut past = [0; 10];
        assert_eq!(file.read_at(&mut past, wanted.len() as u64).unwrap(), 0);
        assert_eq!(file.read_at(&mut past, wanted.len() as u64 - 3).unwrap(), 3);
        for size in ["bs=4099", "bs=1", "bs=1M"] {
            let count = if size == "bs=1" { "count=3000" } else { "count=9999" };
            let path = seen.join(name);
            let mut dd = Command::new("dd");
            let read = dd.args([size, count, "status=none"]).arg(format!("if={}", text(&path)));
            let read = read.output().unwrap().stdout;
            assert!(read == wanted[..read.len()] && read.len() >= 3000, "{name}: {size}");
        }
    }
    // What is executed is mapped into memory.
    assert_eq!(run(text(&seen.join("program")), &[text(&seen)]).lines().count(), 4);
    mounted.stop().code(0);
}

#[test]
fn mount_serves_eight_readers_within_its_memory() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("head -c 24M /dev/urandom > random; seq 3000000 > text");
    let live = kitbag.path("live");
    let mounted = Mounted::new(&kitbag, "mnt", &["--memory", "16M"]);
    let seen = mounted.latest(&live);
    let started = mounted.peak_kib();
    thread::scope(|scope| {
        for reader in 0..8u64 {
            let (live, seen) = (live.clone(), seen.clone());
            scope.spawn(move || {
                let name = if reader % 2 == 0 { "random" } else { "text" };
                let (live, seen) =
                    (File::open(live.join(name)).unwrap(), File::open(seen.join(name)).unwrap());
                let len = live.metadata().unwrap().len();
                let mut random = Random::new(reader);
                let (mut wanted, mut found) = (vec![0; 128 << 10], vec![0; 128 << 10]);
                for _ in 0..16 {
                    let at = random.below(len - (128 << 10));
                    live.read_exact_at(&mut wanted, at).unwrap();
                    seen.read_exact_at(&mut found, at).unwrap();
                    assert!(wanted == found, "{name} at {at}");
                }
            });
        }
    });
    // And one after the other, to the end.
    for name in ["random", "text"] {
        run("cmp", &[text(&live.join(name)), text(&seen.join(name))]);
    }
    let grown = mounted.peak_kib() - started;
    // The budget, what is under way for 8 readers, and what the allocator keeps.
    assert!(grown < (16 + 96) << 10, "{started} KiB at first, {grown} more");
    mounted.stop().code(0);
}

#[test]
fn mount_twice_at_once() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("for i in $(seq 50); do mkdir -p $i; seq $((i * 1000)) > $i/file; done");
    let live = kitbag.path("live");
    let one = Mounted::new(&kitbag, "one", &[]);
    let other = Mounted::new(&kitbag, "other", &["--generation", "latest"]);
    let inside = other.at.join(live.strip_prefix("/").unwrap());
    thread::scope(|scope| {
        scope.spawn(|| run("diff", &["-r", text(&live), text(&one.latest(&live))]));
        scope.spawn(|| run("diff", &["-r", text(&inside), text(&live)]));
    });
    one.stop().code(0);
    run("diff", &["-r", text(&inside), text(&live)]);
    other.stop().code(0);
}

#[test]
fn mount_gives_an_error_for_what_is_damaged() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("head -c 3000000 /dev/urandom > large; echo small > small");
    for bag in files_below(&kitbag.path("repository/bags")) {
        let len = fs::metadata(&bag).unwrap().len();
        if len > 1_000_000 {
            run("chmod", &["u+w", text(&bag)]);
            File::options().write(true).open(&bag).unwrap().write_all_at(b"damage", len / 2).unwrap();
        }
    }
    let live = kitbag.path("live");
    let mounted = Mounted::new(&kitbag, "mnt", &[]);
    let seen = mounted.latest(&live);
    let error = fs::read(seen.join("large")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    assert_eq!(fs::read_to_string(seen.join("small")).unwrap(), "small\n");
    let outcome = mounted.stop().code(4);
    outcome.says(&["damaged"]);
}
