//! Measures the local index with made-up bags: `cargo run --release --example index -- CHUNKS [DIR]`.
//!
//! Prints one line of a table: nanoseconds for a known and an unknown object, seconds to build and most memory meanwhile, bytes
//! of disk and of anonymous memory for each chunk, and the longest time that adding a million chunks kept the caller waiting.
//! Look-ups and building are measured in processor time, so that other programs on the machine disturb them less.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that measures, and nothing else")]

use std::env;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kitbag::bag::BagKind;
use kitbag::base::id::{BagId, ObjectId, SegmentId};
use kitbag::base::time::{Clock, SystemClock};
use kitbag::index::{BagEntry, Fingerprint, Index, ListedSegment, Segment, SegmentBag};

/// Chunks of a bag: 16 MiB of chunks of 1 MiB, the worst case for the table of bags, would be 16.
const PER_BAG: u64 = 64;
/// Bags of a segment: a million objects, 8 MB.
const PER_SEGMENT: u64 = 1 << 14;
/// Look-ups that are timed.
const ASKED: u64 = 2_000_000;
/// Chunks added at the end.
const ADDED: u64 = 1_000_000;

fn main() {
    let mut arguments = env::args_os().skip(1);
    let chunks: u64 = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(1_000_000);
    let parent = arguments.next().map_or_else(env::temp_dir, PathBuf::from);
    let dir = parent.join(format!("kitbag-index-{}", std::process::id()));
    measure(chunks, &dir);
    fs::remove_dir_all(&dir).unwrap();
}

fn measure(chunks: u64, dir: &Path) {
    let clock = SystemClock::new();
    let bags = chunks / PER_BAG;
    let segments = bags.div_ceil(PER_SEGMENT);
    let listed: Vec<ListedSegment> = (0..segments).map(listed).collect();
    let mut making = Duration::ZERO;
    let (start, begun) = (processor(), clock.monotonic());
    let index = Index::open(Some(dir), &listed, &mut |id| {
        let start = processor();
        let contents = segment(number(id), bags);
        making += processor() - start;
        Box::new(move || Ok(Some(contents)))
    });
    let build = processor() - start - making;
    let whole = clock.monotonic() - begun - making;
    let peak = status("VmHWM");
    drop(index.unwrap());
    let disk: u64 = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();

    let start = clock.monotonic();
    let anonymous = status("RssAnon");
    let mut index = Index::open(Some(dir), &listed, &mut |_| panic!("the index was not kept")).unwrap();
    let open = clock.monotonic() - start;

    let known: Vec<ObjectId> = (0..ASKED).map(|i| object(mix(i) % (bags * PER_BAG))).collect();
    let unknown: Vec<ObjectId> = (0..ASKED).map(|i| object(chunks + ADDED * 2 + i)).collect();
    let time = |ids: &[ObjectId]| {
        let mut found = 0;
        let mut best = Duration::MAX;
        // The first round warms the page cache and the checks of blocks.
        for _ in 0..3 {
            let start = processor();
            found = ids.iter().filter(|id| !black_box(index.candidates(id)).is_empty()).count();
            best = best.min(processor() - start);
        }
        (best.as_nanos() / u128::from(ASKED), found)
    };
    let (known_ns, found) = time(&known);
    assert_eq!(found, known.len());
    let (unknown_ns, found) = time(&unknown);
    assert!(found < 10);
    drop((known, unknown));

    let mut longest = Duration::ZERO;
    let mut most = 0;
    let start = clock.monotonic();
    for number in bags..bags + ADDED / PER_BAG {
        let bag = bag(number);
        let start = clock.monotonic();
        index.insert(&bag).unwrap();
        longest = longest.max(clock.monotonic() - start);
        if number % 256 == 0 {
            most = most.max(status("RssAnon"));
        }
    }
    let adding = clock.monotonic() - start;
    let start = clock.monotonic();
    let new: Vec<SegmentBag> = (bags..bags + ADDED / PER_BAG).map(bag).collect();
    index.published(SegmentId([255; 16]), &new);
    index.flush().unwrap();
    let flush = clock.monotonic() - start;

    let per_chunk = |bytes: u64| f64::from(u32::try_from(bytes * 100 / chunks).unwrap()) / 100.0;
    println!(
        "| {chunks} | {known_ns} ns | {unknown_ns} ns | {:.1} s | {} MiB | {:.2} | {:.2} | {:.1} ms |  built in {:.1} s, open {:.1} ms, adding {:.2} s, flush {:.2} s",
        build.as_secs_f64(),
        peak >> 20,
        per_chunk(disk),
        per_chunk(most.saturating_sub(anonymous)),
        longest.as_secs_f64() * 1000.0,
        whole.as_secs_f64(),
        open.as_secs_f64() * 1000.0,
        adding.as_secs_f64(),
        flush.as_secs_f64(),
    );
}

fn listed(number: u64) -> ListedSegment {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    ListedSegment { id: SegmentId(id), size: PER_SEGMENT * (PER_BAG * 8 + 50) }
}

fn number(id: SegmentId) -> u64 {
    u64::from_le_bytes(*id.as_bytes().first_chunk().unwrap())
}

fn segment(number: u64, bags: u64) -> Vec<u8> {
    let range = number * PER_SEGMENT..bags.min((number + 1) * PER_SEGMENT);
    // A part at a time: what is measured is the index, not this.
    Segment { bags: range.map(bag).collect() }.encode()
}

fn bag(number: u64) -> SegmentBag {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&mix(!number).to_le_bytes());
    id[8..].copy_from_slice(&number.to_le_bytes());
    let entry = BagEntry {
        bag: BagId(id),
        kind: BagKind::Data,
        size: 16 << 20,
        table_offset: (16 << 20) - 5000,
        table_len: 4900,
    };
    let first = number * PER_BAG;
    SegmentBag::new(entry, (first..first + PER_BAG).map(|object| Fingerprint(mix(object))).collect())
}

fn object(number: u64) -> ObjectId {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&mix(number).to_be_bytes());
    ObjectId(id)
}

/// Uniform numbers, each another (the finalizer of `SplitMix64`, a permutation).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Processor time of this thread.
fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// A number of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
