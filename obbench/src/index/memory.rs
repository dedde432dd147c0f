//! What this process takes of memory, and how fast memory is.

use std::fs;
use std::hint::black_box;

use super::processor;
use crate::random::Random;

/// Words of the memory that is read: 128 MiB, as much as an index of ten million chunks.
const WORDS: u32 = 16 << 20;
/// Words of a cache line.
const LINE: u32 = 8;
const READS: u32 = 1_000_000;

/// Nanoseconds of a read that has to wait for the one before, anywhere in memory: what no search can go below.
pub(super) fn dependent_read() -> f64 {
    let mut places: Vec<u32> = (0..WORDS / LINE).map(|line| line * LINE).collect();
    let mut random = Random::new(7);
    for at in (1..places.len()).rev() {
        let other = random.below(u64::try_from(at).unwrap_or(0) + 1);
        places.swap(at, usize::try_from(other).unwrap_or(0));
    }
    let mut words = vec![0_u64; usize::try_from(WORDS).unwrap_or(0)];
    for (here, next) in places.iter().zip(places.iter().cycle().skip(1)) {
        if let Some(word) = usize::try_from(*here).ok().and_then(|here| words.get_mut(here)) {
            *word = u64::from(*next);
        }
    }
    drop(places);
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let (start, mut at) = (processor(), 0);
        for _ in 0..READS {
            at = usize::try_from(words.get(at).copied().unwrap_or(0)).unwrap_or(0);
        }
        black_box(at);
        best = best.min(processor().saturating_sub(start).as_secs_f64());
    }
    best * 1e9 / f64::from(READS)
}

/// Bytes of memory that are no file's.
pub(super) fn anonymous() -> u64 {
    status("RssAnon")
}

/// The most memory since [`forget_peak`].
pub(super) fn peak() -> u64 {
    status("VmHWM")
}

/// Begins to look for the most memory anew; where the system does not allow that, it stays that of the process.
pub(super) fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// A number of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}
