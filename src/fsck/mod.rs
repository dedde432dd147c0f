//! Checking a repository: that what generations refer to is there, and, when asked to, that every byte of it is right.
//!
//! ```text
//! listings (2 flights) ──> small files (1) ──> bags' ends and tables (2) ──> tree bags, whole ──> graph ──> walks of generations
//!                                                                   └──> data bags, whole (--read-data)
//! ```
//!
//! - **Structure.** Every small file opens; every bag's header, trailer, size and table agree; every tree bag is read whole, and each page, list
//!   and bucket in it becomes a vertex of a graph ([`graph`]). Each generation is then walked in that graph: every reference must lead to an object that
//!   the bag's table has at exactly that place, and the bag list must name exactly the bags needed. The invariants themselves are the functions of [`mod@check`].
//! - **Data.** Every bag is read whole, once, in order: the trailer's hash is computed, every block opened, every object's name verified.
//! - **Serial waits** are a constant number, whatever exists: nothing is fetched by following references. Only the search for the *paths* that damage
//!   hits ([`blame`]) follows them, and only when there is damage.
//! - **Memory**: eight bytes for each object, about a hundred for each page or list, and a window of 32 MiB. The walk of a
//!   generation touches each of its pages once, and asks nobody.
//!
//! **Repair** ([`Options::repair`]) makes the index anew, without the bags in which damage was found, and takes records that cannot be read out of the way ([`quarantine`]). What was in damaged bags is
//! stored again by `backup --reread`, from the live data.
//!
//! Nothing is locked: what vanishes or appears beside the check is looked at again before it is called damage.

mod bags;
mod blame;
pub mod check;
mod flight;
mod graph;
mod listing;
mod portion;
mod quarantine;
mod reach;
mod rebuild;
mod report;
mod scan;
mod small;
mod verdict;

#[cfg(test)]
mod list_tests;
#[cfg(test)]
mod rebuild_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::bag::BagKind;
use crate::bag::reader::BagReader;
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::id::BagId;
use crate::base::time::Clock;
use crate::entry::Reference;
use crate::generation::{Session, SessionError};
use crate::monitor::Monitor;
use crate::repo::{OpenError, Repository};
use crate::store::{StoreError, layout};

use bags::{BagNo, Bags, cancelled};
pub use portion::Portion;

use graph::Graph;
use rebuild::Rebuilt;
use report::Report;
use scan::{Scan, Visit};

/// What to check, and what to repair.
#[derive(Default)]
pub struct Options {
    /// Read data and verify every object in them: all, or a portion.
    pub read_data: Option<Portion>,
    /// Make the index segments anew.
    pub rebuild_index: bool,
    /// Take records that cannot be read out of the way, and make the index anew.
    pub repair: bool,
    /// Under which name the session of a repair is kept.
    pub client: String,
}

/// What was checked, and what was found. The findings themselves were told to the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Generations whose records were read.
    pub generations: u64,
    /// Bags that are there.
    pub bags: u64,
    /// Objects that their tables list.
    pub objects: u64,
    /// Bytes of bags that were read whole and verified.
    pub bytes: u64,
    /// The data bag that was read last, when only a portion was read: where the next run goes on.
    pub read_up_to: Option<BagId>,
    /// Bytes of data bags that were left out.
    pub left_out: u64,
    /// Files that are damaged or missing.
    pub damages: u64,
    /// Harmless findings.
    pub notes: u64,
    /// Index segments written.
    pub segments_written: u64,
    /// Index segments removed.
    pub segments_removed: u64,
    /// Files taken out of the way.
    pub quarantined: u64,
}

/// Why the check came to no end.
#[derive(Debug, thiserror::Error)]
pub enum FsckError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A segment could not be published.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The repository is gone, or another stands in its place.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted {
        /// The data bag that was read last, if data were read: where the next run may go on.
        read_up_to: Option<BagId>,
        /// Files that had been found damaged: they were told.
        damages: u64,
    },
}

/// Bytes of opened blocks kept while paths are searched for.
const OPENED: usize = 24 << 20;

/// Checks the repository. Findings are told to `monitor`: damage as such, with the file, what it hits and what to do; harmless things as notes.
///
/// # Errors
/// When the store is out of reach, or a repair fails. Damage is no error.
pub fn run(
    repository: &Repository,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
    clock: &dyn Clock,
    cancel: &Cancel,
) -> Result<Summary, FsckError> {
    let (report, read_up_to) = (Report::new(monitor), Cell::new(None));
    check(repository, options, monitor, (&report, &read_up_to), clock, cancel).map_err(|error| match error {
        FsckError::Interrupted { .. } => {
            FsckError::Interrupted { read_up_to: read_up_to.get(), damages: report.counts().0 }
        }
        other => other,
    })
}

fn check(
    repository: &Repository,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
    (report, read_up_to): (&Report<'_>, &Cell<Option<BagId>>),
    clock: &dyn Clock,
    cancel: &Cancel,
) -> Result<Summary, FsckError> {
    let sealing = repository.sealing();
    // What the local cache holds proves nothing about the server: everything is read there.
    let store = repository.store();
    let reader = BagReader::new(Arc::clone(store), sealing.clone());

    // The lease of a repair is held before anything is read.
    let mut session = None;
    if options.rebuild_index || options.repair {
        let client = repository.keys().names().client_id(options.client.as_bytes());
        let mut begun = Session::begin(store, &sealing, client);
        begun.session.created()?;
        session = Some(begun.session);
    }
    monitor.phase("listing");
    repository.ask();
    let mut listing = listing::read(&**store, report, session.is_some())?;
    repository.confirm()?;
    if let Some(session) = &session {
        listing.sessions.retain(|(_, id, _)| *id != session.id());
    }
    monitor.phase("checking records");
    let ends = Bags::ask(&reader, &listing.bags);
    let mut contents = small::read(repository, &listing, report, cancel)?;
    monitor.phase("checking bags");
    let mut bags = Bags::read(ends, cancel)?;
    let tables = bags.take_tables();
    bags.know_moves(std::mem::take(&mut contents.moves).into_iter().collect());
    if contents.has_all_moves {
        bags.give_up(std::mem::take(&mut contents.given_up).into_iter());
    }
    small::compare(&contents.claims, &bags, report);

    let of_kind = |wanted: BagKind| -> Vec<BagNo> {
        let sound = |bag: &bags::Bag| bag.sound.as_ref().is_some_and(|sound| sound.entry.kind == wanted);
        (0..).zip(bags.existing()).filter(|(_, bag)| sound(bag)).map(|(number, _)| number).collect()
    };
    let (mut bytes, mut left_out) = (0, 0);
    let mut whole: HashSet<BagNo> = HashSet::new();
    let scan = Scan {
        reader: &reader,
        bags: &bags,
        monitor: &**monitor,
        cancel,
        tables: &tables,
        is_enough: &|_| false,
        last: &AtomicU32::new(BagNo::MAX),
    };
    if let Some(portion) = &options.read_data {
        monitor.phase("reading data");
        let data = portion.ordered(&bags, of_kind(BagKind::Data));
        let (total, begun) = (bags.bytes_of(&data), clock.monotonic());
        let is_enough = |read: u64| portion.is_enough(read, total, clock.monotonic().saturating_sub(begun));
        let last = AtomicU32::new(BagNo::MAX);
        let read = Scan { is_enough: &is_enough, last: &last, ..scan }.run(&data, &Nobody);
        let read = read.map_err(|error| {
            read_up_to.set(bags.id_of(last.into_inner()));
            told_before(error, repository, &bags, report)
        })?;
        bytes = read.bytes;
        let (done, rest) = data.split_at(read.bags.min(data.len()));
        whole.extend(done);
        left_out = bags.bytes_of(rest);
        read_up_to.set(done.last().filter(|_| !rest.is_empty()).and_then(|last| bags.id_of(*last)));
    }
    monitor.phase("reading directories");
    let graph = Graph::new(&bags);
    let trees = scan.run(&of_kind(BagKind::Tree), &graph);
    let trees = trees.map_err(|error| told_before(error, repository, &bags, report))?;
    bytes = trees.bytes.saturating_add(bytes);
    note_damaged(repository, &bags, &whole);

    monitor.phase("checking generations");
    let source = Source::new(reader.clone(), OPENED);
    let verdict = verdict::Verdict {
        repository,
        bags: &bags,
        graph: &graph,
        source: &source,
        report,
        repairs: session.is_some(),
        now: clock.now(),
        cancel,
    };
    let generations = u64::try_from(contents.generations.len()).unwrap_or(u64::MAX);
    let broken = std::mem::take(&mut contents.broken);
    let pronounced = verdict.pronounce(contents, &listing);
    pronounced.map_err(|error| told_before(error, repository, &bags, report))?;

    let (mut rebuilt, mut quarantined) = (Rebuilt::default(), 0);
    if let Some(session) = session {
        cancelled(cancel)?;
        if options.repair {
            quarantined = quarantine::run(&**store, &broken, report)?;
        }
        monitor.phase("writing the index");
        let wrongs = bags.wrongs();
        let sound = (0..).take(bags.existing().len()).filter(|number| !wrongs.contains_key(number));
        let old: Vec<_> = listing.segments.iter().map(|(id, _)| *id).collect();
        rebuilt = rebuild::run(&session, &reader, &bags, &sound.collect::<Vec<_>>(), &old, cancel)?;
    }
    let (damages, notes) = report.counts();
    Ok(Summary {
        generations,
        bags: u64::try_from(listing.bags.len()).unwrap_or(u64::MAX),
        objects: bags.objects(),
        bytes,
        damages,
        notes,
        segments_written: rebuilt.written,
        segments_removed: rebuilt.removed,
        read_up_to: read_up_to.get(),
        left_out,
        quarantined,
    })
}

/// Of an interrupted check, tells what was seen of damaged bags, and remembers it: the next one goes on behind them. What they hit was not found out.
fn told_before(error: FsckError, repository: &Repository, bags: &Bags, report: &Report<'_>) -> FsckError {
    if matches!(error, FsckError::Interrupted { .. }) {
        note_damaged(repository, bags, &HashSet::new());
        for (number, wrongs) in bags.wrongs() {
            // One that is gone may have been collected meanwhile.
            let wrongs: Vec<_> = wrongs
                .into_iter()
                .filter(|wrong| *wrong != report::Unreadable::Missing.to_string())
                .collect();
            if let Some(id) = bags.id_of(number).filter(|_| !wrongs.is_empty()) {
                let text =
                    format!("{}; the check was stopped before it knew what that hits", wrongs.join("; "));
                report.damage(&layout::bag(id), text);
            }
        }
    }
    error
}

/// Remembers which data bags are damaged, for the next backup, and which are not, since they were read as a `whole` or are gone.
fn note_damaged(repository: &Repository, bags: &Bags, whole: &HashSet<BagNo>) {
    let wrongs = bags.wrongs();
    let is_tree = |number: &BagNo| {
        let sound = bags.get(*number).and_then(|bag| bag.sound.as_ref());
        sound.is_some_and(|sound| sound.entry.kind == BagKind::Tree)
    };
    let damaged: Vec<_> = wrongs.keys().filter(|number| !is_tree(number)).collect();
    let found = damaged.into_iter().filter_map(|number| bags.get(*number)).map(|bag| bag.id);
    repository.cache().note_damaged(found, |bag| {
        let number = bags.number_of(bag);
        bags.get(number).is_none() || (whole.contains(&number) && !wrongs.contains_key(&number))
    });
}

/// Looks at no object: reading it has verified it.
struct Nobody;

impl Visit for Nobody {
    fn object(&self, _reference: &Reference, _bytes: &[u8]) {}
}
