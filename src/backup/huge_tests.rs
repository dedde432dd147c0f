//! A directory with more entries than one would like.

use std::fs;

use super::tests::Bench;
use crate::monitor::Counter;
use crate::store::testing::Op;

const FILES: u32 = 50_000;

/// One page is rewritten and the path above it: what that takes does not grow with the directory.
#[test]
fn one_file_changed_in_a_huge_directory_costs_a_page() {
    let bench = Bench::cached();
    let name = |number: u32| format!("spool/{number:08}.message");
    let dir = bench.live.path().join("spool");
    fs::create_dir(&dir).unwrap();
    for number in 0..FILES {
        fs::write(bench.live.path().join(name(number)), number.to_le_bytes()).unwrap();
    }
    let sent = || bench.log.bytes(Op::Append);
    bench.backup();
    let first = sent();
    assert!(first > 200_000, "{first} bytes for {FILES} entries");

    bench.write(&name(FILES / 2), b"changed");
    bench.log.clear();
    let (summary, collect) = bench.backup();
    assert_eq!(collect.get(Counter::FilesRead), 1);
    assert!(!summary.is_unchanged);
    assert!(sent() < 30_000, "{} bytes sent for one file", sent());

    // What comes and goes costs no more.
    bench.write(&name(FILES), b"new");
    fs::remove_file(bench.live.path().join(name(7))).unwrap();
    bench.log.clear();
    bench.backup();
    assert!(sent() < 60_000, "{} bytes sent for two files", sent());
    let last = bench.backup().0;
    assert!(last.is_unchanged);
    assert_eq!(u32::try_from(last.generation.counts.files).unwrap(), FILES);
}
