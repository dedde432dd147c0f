//! Comparing a generation with the live data, without fetching what it holds.
//!
//! ```text
//! walk of pages ──> entries, a directory's descriptor beside each ──> workers: look, read and hash ──> differences
//!                                                       (--read-data) └─> blocks of data bags, opened and their objects' names verified
//! ```
//!
//! The pages say of each file the ids of its chunks and how long each is. So the live file is read in just these lengths and each piece hashed: equal ids are equal contents. What
//! crosses the link is tree bags, mostly from the local cache; [`Options::read_data`] fetches the data besides, and so proves that what is equal could also be restored.
//!
//! Whatever a restore would bring back is compared: kind, contents, mode, owner and group by number, time of modification, extended attributes, inode flags, targets of links, numbers of devices. Where a
//! whole directory is missing, only that is told. What was added since is no difference: a generation says nothing of what was left out of it.

mod contents;
mod data;
mod entries;
mod sample;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::dir::reader::TreeError;
use crate::dir::walk::{Visit, WalkError, walk};
use crate::entry::{Entry, Kind};
use crate::live::OwnPlaces;
use crate::monitor::{Monitor, Problem, Severity};
use crate::store::StoreError;

use entries::Comparison;
use sample::Reservoir;

/// A tree, or a part of one, to be compared.
#[derive(Debug, Clone)]
pub struct Start {
    /// The path of the root in which it stands.
    pub root: Vec<u8>,
    /// Its own path.
    pub path: Vec<u8>,
    /// What the generation has there.
    pub entry: Entry,
}

/// What to compare.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to begin; nothing twice.
    pub starts: Vec<Start>,
    /// Compare only so many files, chosen at random.
    pub random: Option<usize>,
    /// Fetch the contents, too, and verify them.
    pub read_data: bool,
    /// What is kitbag's own, and not compared.
    pub own: Arc<OwnPlaces>,
    /// Threads that read live files.
    pub workers: usize,
}

/// How a live file is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// It is not there.
    Missing,
    /// Something of another kind is.
    Kind,
    /// It has other contents; of a link, another target.
    Contents,
    /// Its permission bits.
    Mode,
    /// Its owner or group, by number.
    Owner,
    /// When its contents last changed.
    Time,
    /// Its extended attributes, access lists included.
    Xattrs,
    /// Its inode flags.
    Flags,
    /// The device that it stands for.
    Device,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "missing",
            Self::Kind => "kind",
            Self::Contents => "contents",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Time => "time",
            Self::Xattrs => "xattrs",
            Self::Flags => "flags",
            Self::Device => "device",
        })
    }
}

/// A path that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The path.
    pub path: Vec<u8>,
    /// What differs; never empty.
    pub what: Vec<What>,
}

/// What was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Entries of any kind.
    pub entries: u64,
    /// Files whose contents were read here and hashed.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Entries that differ.
    pub different: u64,
    /// Entries that could not be looked at, or not wholly: problems that were told.
    pub failed: u64,
    /// Bytes of contents that were fetched from the repository and verified.
    pub fetched: u64,
}

/// Why it came to no end.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A page could not be fetched.
    #[error(transparent)]
    Tree(TreeError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Compares. Each difference goes to `tell`, from several threads and in no order; what cannot be read here is told to `monitor` as lost, what is damaged there as damage.
///
/// # Errors
/// When the store is out of reach. Differences and damage are no error.
pub fn run(
    source: &Source,
    options: &Options,
    tell: &(dyn Fn(&Difference) + Sync),
    monitor: &Arc<dyn Monitor>,
    cancel: &Cancel,
) -> Result<Summary, VerifyError> {
    let chosen = match options.random {
        None => None,
        Some(most) => {
            monitor.phase("choosing");
            let mut reservoir = Reservoir::new(most);
            each(source, options, &**monitor, cancel, &mut |visit, start, _| {
                if visit.entry.metadata.kind == Kind::File {
                    reservoir.offer(|| (start, visit));
                }
                Ok(Go::On)
            })?;
            Some(reservoir.chosen())
        }
    };
    monitor.phase("comparing");
    let comparison = Comparison::new(source, &**monitor, tell, cancel);
    match &chosen {
        Some(chosen) => comparison.some(options, chosen)?,
        None => comparison.all(options, source)?,
    }
    let mut summary = comparison.finish();
    if options.read_data {
        monitor.phase("reading data");
        let mut flight = data::Flight::new(source, &**monitor, cancel);
        match chosen {
            Some(chosen) => {
                for (_, visit) in &chosen {
                    flight.entry(&visit.path, &visit.entry)?;
                }
            }
            // What was damaged on the way was told already.
            None => each(source, options, &Deaf, cancel, &mut |visit, _, _| {
                flight.entry(&visit.path, &visit.entry)?;
                Ok(Go::On)
            })?,
        }
        summary.fetched = flight.finish()?;
    }
    Ok(summary)
}

/// Whether to visit what stands in the directory visited last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    PassBy,
}

/// Shows all entries to `visit`, with the number of the start below which they are. Damage is told, and the walk goes on behind it.
fn each(
    source: &Source,
    options: &Options,
    monitor: &dyn Monitor,
    cancel: &Cancel,
    visit: &mut dyn FnMut(Visit, usize, usize) -> Result<Go, VerifyError>,
) -> Result<(), VerifyError> {
    for (number, start) in options.starts.iter().enumerate() {
        let mut walk = walk(source, start.path.clone(), start.entry.clone());
        while let Some(next) = walk.next() {
            if cancel.is_cancelled() {
                return Err(VerifyError::Interrupted);
            }
            match next {
                Ok(one) => {
                    let depth = one.depth;
                    if visit(one, number, depth)? == Go::PassBy {
                        walk.pass_by();
                    }
                }
                Err(WalkError { path, source }) if source.is_damage() => {
                    monitor.problem(Problem::new(Severity::Damage, &path, source));
                }
                Err(WalkError { source, .. }) => return Err(VerifyError::Tree(source)),
            }
        }
    }
    Ok(())
}

/// Hears nothing.
struct Deaf;

impl Monitor for Deaf {
    fn count(&self, _counter: crate::monitor::Counter, _amount: u64) {}
    fn phase(&self, _name: &'static str) {}
    fn path(&self, _path: &[u8]) {}
    fn change(&self, _path: &[u8], _change: crate::monitor::Change) {}
    fn problem(&self, _problem: Problem) {}
}
