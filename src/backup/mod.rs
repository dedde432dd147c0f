//! Making a generation of the live data.
//!
//! ```text
//! walk + compare + read, chunk, hash ──> known? ──> pack into blocks ──> compress + seal ──> bags ──> store
//!        workers (walk.rs)              shelf.rs      bag::packer
//!            └── drafts of pages ──> tree.rs, as soon as their references are known
//! ```
//!
//! Each directory is compared, entry by entry, with its pages in the generation before; a page whose entries are all unchanged
//! is taken over by reference, and so is a directory whose pages are. Queues between the stages are bounded, so memory does not depend on the sizes of
//! files, directories or the repository. A generation is published only after every bag and segment that it needs is acknowledged.

mod builder;
mod content;
mod entries;
mod links;
mod lists;
mod moves;
mod node;
mod prefetch;
mod publish;
mod remote;
mod roots;
mod shelf;
mod tree;
mod unchanged;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, bounded};

use crate::bag::source::Source;
use crate::bag::{Packer, PackerOptions, Stopped};
use crate::base::cancel::Cancel;
use crate::base::id::{ClientId, GenerationId};
use crate::base::time::{Clock, Timestamp};
use crate::compress::Level;
use crate::dir::reader::TreeError;
use crate::generation::baglist::BagListError;
use crate::generation::{CatalogError, Generation, Session, SessionError, Started};
use crate::index::{FetchError, IndexError};
use crate::live::{Exclude, LiveError, Owners};
use crate::monitor::{Monitor, Problem, Severity};
use crate::repo::{OpenError, Repository};
use crate::store::StoreError;

use content::Sink;
use links::Links;
use moves::Moves;
use roots::{Roots, Walked};
use shelf::Shelf;
use tree::Tree;
use unchanged::Judge;
use walk::{Queue, Walk};

pub use publish::Summary;

/// What to back up, and how.
pub struct Options {
    /// The trees, as the user named them.
    pub roots: Vec<Vec<u8>>,
    /// Under which name generations are kept.
    pub client: String,
    /// The machine's name.
    pub host: String,
    /// What is left out.
    pub exclude: Exclude,
    /// How hard blocks are compressed.
    pub level: Level,
    /// Inode numbers mean nothing.
    pub ignore_inode: bool,
    /// Read every file, whatever the generation before says.
    pub reread: bool,
    /// Publish nothing when nothing has changed.
    pub skip_if_unchanged: bool,
    /// Store nothing: only find out what would be stored. The store must be one that discards.
    pub dry_run: bool,
    /// Threads that walk and read.
    pub walkers: usize,
    /// Threads that compress and seal.
    pub workers: usize,
    /// Options that shaped the generation, for the record.
    pub words: Vec<String>,
    /// Labels for the record.
    pub tags: Vec<String>,
    /// Where the local index is kept; without, it is made in memory.
    pub index_dir: Option<PathBuf>,
}

/// Why no generation was made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The repository is gone, or another stands in its place.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The lease is lost, or the store failed while publishing.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The local index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The table of a bag could not be read.
    #[error("cannot find out what the repository has: {0}")]
    Table(FetchError),
    /// A page of the generation before could not be fetched.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A generation record could not be fetched.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The bag list of the generation before could not be read.
    #[error(transparent)]
    BagList(#[from] BagListError),
    /// None of the roots could be read.
    #[error("nothing was backed up: none of the directories named could be read")]
    NoRoots,
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Another part has failed, and tells why.
    #[error("the repository cannot be written to")]
    Stopped,
}

impl From<Stopped> for BackupError {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}

/// Bytes of opened blocks of the generation before that are kept.
const OPENED: usize = 24 << 20;

/// Backs up. Problems with single files are told to `monitor`, and the backup goes on.
///
/// The walk begins at once, with the generations that the local cache has, while the repository is asked what is there. Should it turn out
/// to have lost the one that was compared with, everything is compared again with what it has.
///
/// # Errors
/// Why no generation was published. What was stored until then is found again by the next run only where a segment names it.
pub fn run(
    repository: &Repository,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
    clock: &dyn Clock,
    cancel: &Cancel,
) -> Result<Summary, BackupError> {
    let started = clock.now();
    let client = repository.keys().names().client_id(options.client.as_bytes());
    let begun = Session::begin(repository.cached(), &repository.sealing(), client);

    let (placed, hears) = bounded(1);
    let shelf = Arc::new(Shelf::new(repository.bags(), Arc::clone(monitor), placed));
    let stores = [repository.store().clone(), repository.cached().clone()];
    let packing = PackerOptions::new(options.level, options.workers);
    let packer = Arc::new(Packer::new(stores, repository.sealing(), packing, shelf.clone()));
    let run = Run {
        repository,
        options,
        monitor,
        cancel,
        stop: Cancel::new(),
        source: Arc::new(Source::new(repository.bags(), OPENED)),
        shelf,
        packer: Arc::clone(&packer),
        hears,
    };
    let outcome = run.run(client, begun, (started, clock));
    // Whoever else holds the packer is gone, so it can be ended; its own failure is the cause of the others'.
    drop(run);
    match (outcome, Arc::try_unwrap(packer).map(Packer::finish)) {
        (Err(BackupError::Stopped), Ok(Err(cause))) => Err(cause.into()),
        (outcome, _) => outcome,
    }
}

/// The parts of a run.
struct Run<'a> {
    repository: &'a Repository,
    options: &'a Options,
    monitor: &'a Arc<dyn Monitor>,
    cancel: &'a Cancel,
    stop: Cancel,
    source: Arc<Source>,
    shelf: Arc<Shelf>,
    packer: Arc<Packer>,
    hears: Receiver<()>,
}

impl Run<'_> {
    fn run(
        &self,
        client: ClientId,
        begun: Started,
        times: (Timestamp, &dyn Clock),
    ) -> Result<Summary, BackupError> {
        let guess = remote::guess(self.repository, client);
        thread::scope(|scope| {
            let remote = scope.spawn(|| {
                let remote =
                    remote::read(self.repository, (client, &guess), begun, self.options, self.monitor);
                match remote {
                    Ok(remote::Remote { session, former, index }) => {
                        self.shelf.open(Some(index));
                        Ok((session, former))
                    }
                    Err(error) => {
                        self.stop.cancel();
                        self.shelf.open(None);
                        Err(error)
                    }
                }
            });
            let guessed = (!guess.is_empty()).then(|| self.walk(&guess));
            let (session, former) = remote.join().unwrap_or(Err(BackupError::Stopped))?;
            let (walked, tree) = match guessed {
                Some((compared, walked)) if remote::are_there(&compared, &former) => walked?,
                Some((_, Err(BackupError::Interrupted))) => return Err(BackupError::Interrupted),
                _ => self.walk(&former).1?,
            };
            let maker = publish::Maker {
                shelf: &self.shelf,
                packer: &self.packer,
                source: &self.source,
                monitor: self.monitor,
            };
            maker.publish(session, tree, walked, &former, self.options, times)
        })
    }

    /// Walks all roots, comparing with these generations; tells which of them.
    fn walk(&self, former: &[Generation]) -> (BTreeSet<GenerationId>, Result<(Walked, Tree), BackupError>) {
        self.monitor.phase("backing up");
        let options = self.options;
        let roots = Roots::choose(&options.roots, former);
        let compared = roots.compared();
        if let Err(error) = prefetch::tree_bags(&self.source, self.repository, former, &compared) {
            // Pages are fetched when they are needed, and what is wrong is said then.
            tracing::debug!("prefetching tree bags: {error}");
        }
        let tree = Tree::start(Arc::clone(&self.shelf), Arc::clone(&self.packer), self.hears.clone());
        let sink = Sink {
            shelf: Arc::clone(&self.shelf),
            packer: Arc::clone(&self.packer),
            tree,
            monitor: Arc::clone(self.monitor),
            cancel: self.cancel.clone(),
            stop: self.stop.clone(),
        };
        let began = roots.began();
        let judge = Judge { began, ignore_inode: options.ignore_inode, reread: options.reread };
        let walk = Walk {
            sink,
            source: Arc::clone(&self.source),
            judge,
            exclude: options.exclude.clone(),
            owners: Owners::new(),
            cutter: self.repository.cutter(),
            keys: self.repository.keys().clone(),
            queue: Queue::default(),
            moves: Moves::new(Arc::clone(&self.source), roots.former_entries()),
            links: Links::new(),
        };
        let walked = roots.walk(&walk, options.walkers);
        let tree = walk.sink.tree;
        let outcome = match walked {
            Ok(walked) => Ok((walked, tree)),
            // Whoever was stopped was stopped by somebody, perhaps by the tree.
            Err(error) => Err(match (error, tree.finish()) {
                (BackupError::Stopped, Err(cause)) => cause,
                (error, _) => error,
            }),
        };
        (compared, outcome)
    }
}

/// Reports that a root could not be read.
fn lost_root(monitor: &dyn Monitor, path: &[u8], error: &LiveError) {
    let text = match error {
        LiveError::Vanished => "there is no such file or directory".to_owned(),
        other => other.to_string(),
    };
    monitor.problem(Problem::new(Severity::Lost, path, text));
}
