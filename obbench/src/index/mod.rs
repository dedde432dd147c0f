//! The local index of chunks, measured with made-up bags: speed, memory, disk, and what adding to it holds up.
//!
//! Only this part of the program uses kitbag's library, since there is no other way to ask its index ten million times.
//! Look-ups and building are measured in processor time, which other programs on the machine disturb less than time on the
//! clock. They do disturb memory itself, so beside each look-up's time stands what one read of memory took in the same minute.

mod made_up;
mod memory;

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use kitbag::base::id::ObjectId;
use kitbag::index::{Files, Index, IndexError, SegmentBag};
use rustix::time::{ClockId, clock_gettime};

use crate::clock;
use crate::smoke::{Figure, SmokeError};

use made_up::MadeUp;

/// Look-ups that are timed.
const ASKED: u32 = 2_000_000;
/// Chunks added at the end.
const ADDED: u64 = 1_000_000;
/// The limits are those that were promised for ten million chunks.
const PROMISED: u64 = 10_000_000;

/// Measures an index of so many chunks, made in a new directory below `scratch`.
///
/// # Errors
/// When the files cannot be made.
pub fn measure(chunks: u64, scratch: &Path) -> Result<Vec<Figure>, SmokeError> {
    let dir = tempfile::Builder::new()
        .prefix("obbench-index-")
        .tempdir_in(scratch)
        .map_err(SmokeError::io(format!("make a directory in {}", scratch.display())))?;
    let made_up = MadeUp::new(chunks);
    let built = build(&made_up, dir.path())?;
    let mut opened = open(&made_up, dir.path())?;
    let asked = ask(&made_up, &opened.index);
    let added = add(&made_up, &mut opened.index)?;
    let (word, per_chunk) = (words(chunks), |bytes: u64| float(bytes) / float(chunks));
    let figure = |what: &str, measured, limit, unit| {
        Figure::at_most(format!("{word} chunks, {what}"), measured, limit, unit)
    };
    // Beyond what was promised: a search and a filter take log n, a sort n log n, what is read when it is opened n.
    let scale = float(chunks.max(PROMISED)) / float(PROMISED);
    Ok(vec![
        figure("a known one", asked.known, 400.0 * (1.0 + scale.log10()), " ns").of(format!(
            "{:.0} ns with its bag's record; one read of memory {:.0} ns",
            asked.record, asked.read
        )),
        figure("a known one, reads of memory", asked.known / asked.read, 4.0, " ×"),
        figure("an unknown one", asked.unknown, 100.0 * (1.0 + scale.log10() / 2.0), " ns"),
        figure("building from segments", built.seconds, 15.0 * scale * (1.0 + scale.log10() / 7.0), " s"),
        figure("most memory meanwhile", float(built.peak >> 20), 64.0, " MiB"),
        figure("disk for each", per_chunk(built.disk), 16.0, " B"),
        figure("anonymous memory for each, while a million is added", per_chunk(added.anonymous), 2.0, " B"),
        figure("longest stop while a million is added", milliseconds(added.longest), 50.0, " ms"),
        figure("opening", milliseconds(opened.took), 5.0 * scale, " ms")
            .of(format!("adding a million {:.1} s, keeping it {:.1} s", added.adding, added.keeping)),
    ])
}

struct Built {
    /// Processor time.
    seconds: f64,
    peak: u64,
    disk: u64,
}

fn build(made_up: &MadeUp, dir: &Path) -> Result<Built, SmokeError> {
    let mut making = Duration::ZERO;
    memory::forget_peak();
    let start = processor();
    let index = Index::open(Files::Kept(dir), &made_up.listed(), &mut |id| {
        let start = processor();
        let contents = made_up.segment(id);
        making += processor().saturating_sub(start);
        Box::new(move || Ok(Some(contents)))
    });
    let seconds = processor().saturating_sub(start).saturating_sub(making).as_secs_f64();
    let peak = memory::peak();
    drop(index.map_err(failed)?);
    Ok(Built { seconds, peak, disk: size(dir)? })
}

struct Opened {
    index: Index,
    took: Duration,
}

fn open(made_up: &MadeUp, dir: &Path) -> Result<Opened, SmokeError> {
    let start = clock::now();
    let index = Index::open(Files::Kept(dir), &made_up.listed(), &mut |id| {
        Box::new(move || Err(format!("the index did not keep the segment {id}").into()))
    });
    Ok(Opened { index: index.map_err(failed)?, took: start.elapsed() })
}

/// Nanoseconds.
struct Asked {
    known: f64,
    /// A known one, and its bag's record read.
    record: f64,
    unknown: f64,
    /// A read of memory that depends on the one before.
    read: f64,
}

fn ask(made_up: &MadeUp, index: &Index) -> Asked {
    let read = memory::dependent_read();
    let known: Vec<ObjectId> = made_up.known(ASKED).collect();
    let proposed = |id: &ObjectId| {
        index.propose(id, |bag| {
            black_box(bag);
        });
    };
    let times = [
        best(&known, proposed),
        best(&known, |id| {
            index.propose(id, |bag| {
                black_box(index.bag(bag));
            });
        }),
        best(&made_up.unknown(ASKED).collect::<Vec<_>>(), proposed),
    ];
    let [known, record, unknown] = times;
    Asked { known, record, unknown, read: read.min(memory::dependent_read()) }
}

/// Nanoseconds for one, the best of some rounds: the first warms the page cache and the checks of blocks.
fn best(ids: &[ObjectId], mut ask: impl FnMut(&ObjectId)) -> f64 {
    let round = |_| {
        let start = processor();
        ids.iter().for_each(&mut ask);
        processor().saturating_sub(start).as_secs_f64()
    };
    (0..4).map(round).fold(f64::INFINITY, f64::min) * 1e9 / f64::from(ASKED)
}

struct Added {
    anonymous: u64,
    longest: Duration,
    adding: f64,
    keeping: f64,
}

fn add(made_up: &MadeUp, index: &mut Index) -> Result<Added, SmokeError> {
    let before = memory::anonymous();
    let (mut anonymous, mut longest) = (0, Duration::ZERO);
    let start = clock::now();
    for (number, bag) in (0_u32..).zip(made_up.more(ADDED)) {
        let start = clock::now();
        index.insert(&bag).map_err(failed)?;
        longest = longest.max(start.elapsed());
        if number.is_multiple_of(256) {
            anonymous = anonymous.max(memory::anonymous().saturating_sub(before));
        }
    }
    let adding = start.elapsed().as_secs_f64();
    let start = clock::now();
    let new: Vec<SegmentBag> = made_up.more(ADDED).collect();
    index.published(made_up.next_segment(), &new);
    index.flush().map_err(failed)?;
    Ok(Added { anonymous, longest, adding, keeping: start.elapsed().as_secs_f64() })
}

fn failed(error: IndexError) -> SmokeError {
    SmokeError::io("use the index")(std::io::Error::other(error))
}

/// Bytes of the files in a directory.
fn size(dir: &Path) -> Result<u64, SmokeError> {
    let sum =
        || std::fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.len())).sum::<std::io::Result<u64>>();
    sum().map_err(SmokeError::io(format!("read {}", dir.display())))
}

/// Processor time of this thread.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn float(count: u64) -> f64 {
    crate::result::float(count)
}

fn words(chunks: u64) -> String {
    if chunks.is_multiple_of(1_000_000) {
        format!("{} million", chunks / 1_000_000)
    } else {
        chunks.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_as_small_as_promised_and_opens() {
        let scratch = tempfile::tempdir().expect("a directory");
        let made_up = MadeUp::new(50_000);
        let built = build(&made_up, scratch.path()).expect("built");
        assert!(built.disk < 16 * 50_000, "{} bytes", built.disk);
        let opened = open(&made_up, scratch.path()).expect("kept");
        let known: Vec<ObjectId> = made_up.known(1000).collect();
        assert!(known.iter().all(|id| !opened.index.candidates(id).is_empty()));
        assert!(made_up.unknown(1000).all(|id| opened.index.candidates(&id).is_empty()));
    }
}
