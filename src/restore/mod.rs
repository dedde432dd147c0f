//! Bringing a generation back.
//!
//! ```text
//! tree bags, ahead ──> walk: directories, what is there already ──> window of wanted chunks ──> reads, ordered by bag and place
//!  generation::trees                planner.rs                  fetch.rs, contents::plan               │ many under way
//!                                                                                                           v
//!        directories get their metadata <── files take their places <── open, check, write: workers (fetch.rs, item.rs)
//!               node.rs                          item.rs
//! ```
//!
//! One thread plans, several do. Memory is bounded by the bytes that are under way, by the tree bags held and by the depth of the tree, never by files.
//! Waits do not add up: tree bags come in two flights, and reads of data follow each other without a pause.
//!
//! **What is there already** and is the same, which is found by reading it where size and time are the same, is left alone but for its metadata; of a file that differs, only the chunks that differ are
//! fetched. A file takes its place when it is complete, and not before: what cannot be restored leaves what was there.

mod cat;
mod existing;
mod fetch;
mod item;
mod links;
mod node;
mod planner;
mod select;
mod site;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::bounded;

use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::text::escape;
use crate::generation::{Generation, trees};
use crate::live::{LiveError, OwnerBy, Target};
use crate::monitor::Monitor;
use crate::repo::Repository;
use crate::store::StoreError;

use fetch::{Window, land_all};
use planner::{Planner, make_all};
use site::{Site, Trouble};

pub use cat::{CatError, cat};

/// Bytes of opened tree blocks that are kept.
const OPENED: usize = 16 << 20;

/// Things that wait to be made.
const JOBS: usize = 512;

/// Reads that are under way, or wait to be opened, at most; their bytes have a budget besides.
const FLIGHTS: usize = 512;

/// What to restore, and where to.
pub struct Options {
    /// What to restore, each with all that is below: absolute paths, or paths below a root. All if there are none.
    pub paths: Vec<Vec<u8>>,
    /// Below which directory; it is made where it is missing.
    pub to: PathBuf,
    /// Leave out the path of the roots: what stands in them comes directly below `to`, which gets their metadata.
    pub strip_root: bool,
    /// By what owners are found.
    pub owner_by: OwnerBy,
    /// Threads that open, check and write.
    pub workers: usize,
}

/// What was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Entries of any kind that stand in their places now.
    pub entries: u64,
    /// Regular files that are complete now.
    pub files: u64,
    /// Things that were there already and needed their metadata at most.
    pub kept: u64,
    /// Further names of files.
    pub links: u64,
    /// Bytes written to files.
    pub bytes: u64,
    /// Things that could not be restored, paths that are not there included; each was reported.
    pub failed: u64,
}

/// Why restoring ended early. What is complete stays; running it again goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory to restore into cannot be used.
    #[error("cannot restore into {to}: {source}", to = escape(.to.as_os_str().as_encoded_bytes()))]
    Target {
        /// The directory.
        to: PathBuf,
        /// Why.
        source: LiveError,
    },
    /// None of what was named is in the generation. Nothing was made.
    #[error("{}", not_held(.paths))]
    NotHeld {
        /// What was named.
        paths: Vec<Vec<u8>>,
    },
    /// Without their paths, several roots would be put one over the other.
    #[error(
        "without their paths, {one} and {other} would be restored one over the other: name one of them, or leave the paths in",
        one = escape(.one),
        other = escape(.other)
    )]
    Clash {
        /// A root.
        one: Vec<u8>,
        /// Another root.
        other: Vec<u8>,
    },
    /// The disk or quota is full.
    #[error(
        "there was no space left for {path}: make room and run the same command again, which goes on from there",
        path = escape(.path)
    )]
    NoSpace {
        /// What was being restored.
        path: Vec<u8>,
    },
    /// It was asked to stop.
    #[error("interrupted: running the same command again goes on from there")]
    Interrupted,
}

fn not_held(paths: &[Vec<u8>]) -> String {
    let names: Vec<_> = paths.iter().map(|path| escape(path)).collect();
    let none_of = if paths.len() > 1 { "any of " } else { "" };
    format!("the generation does not hold {none_of}{}", names.join(", "))
}

/// Restores (a part of) a generation.
///
/// Problems with single files go to `monitor`; they do not end it, and the summary counts them.
///
/// # Errors
/// See [`RestoreError`].
pub fn run(
    repository: &Repository,
    generation: &Generation,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
    cancel: &Cancel,
) -> Result<Summary, RestoreError> {
    let source = Source::new(repository.bags(), OPENED);
    monitor.phase("reading directories");
    if options.paths.is_empty() || trees::are_cheap(generation) {
        trees::fetch_ahead(&source, generation)?;
    }
    let (selected, missing) = select::select(&source, generation, options)?;
    let is_absent = |(_, trouble): &(Vec<u8>, Trouble)| matches!(trouble, Trouble::Dependent(_));
    if selected.is_empty() && !missing.is_empty() && missing.iter().all(is_absent) {
        return Err(RestoreError::NotHeld { paths: options.paths.clone() });
    }
    let target = Target::new(options.owner_by, Arc::clone(monitor));
    let dir = target
        .open(options.to.as_os_str().as_encoded_bytes())
        .map_err(|source| RestoreError::Target { to: options.to.clone(), source })?;
    let site = Site::new(target, source, monitor, cancel);
    for (path, trouble) in missing {
        site.lost(&path, trouble);
    }
    monitor.phase("restoring");
    let (flights, land) = bounded(FLIGHTS);
    let (jobs, make) = bounded(JOBS);
    thread::scope(|scope| {
        for _ in 0..options.workers.max(1) {
            let (site, land, make) = (&site, land.clone(), make.clone());
            // Apart, so that nothing that could be made waits behind what is still under way.
            scope.spawn(move || land_all(site, &land));
            scope.spawn(move || make_all(site, &make));
        }
        drop((land, make));
        Planner::new(&site, Window::new(flights), jobs, dir).run(selected);
    });
    site.outcome()
}
