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
mod checkpoint;
mod content;
mod entries;
mod links;
mod lists;
mod moves;
mod node;
mod pause;
mod prefetch;
mod publish;
mod queue;
mod remote;
mod roots;
mod shelf;
mod tree;
mod unchanged;
mod walk;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod edit_tests;
#[cfg(test)]
mod huge_tests;
#[cfg(test)]
mod own_tests;
#[cfg(test)]
mod segment_tests;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, bounded};

use crate::bag::source::Source;
use crate::bag::{Packer, PackerOptions, Stopped};
use crate::base::cancel::Cancel;
use crate::base::id::{ClientId, GenerationId};
use crate::base::time::{Clock, Timestamp};
use crate::compress::Level;
use crate::condemned::CondemnedError;
use crate::dir::reader::TreeError;
use crate::generation::baglist::BagListError;
use crate::generation::{CatalogError, Generation, Session, SessionError, Started};
use crate::index::{FetchError, IndexError};
use crate::live::{Exclude, LiveError, Owners};
use crate::monitor::{Monitor, Problem, Severity};
use crate::reach::CustodyError;
use crate::repo::{OpenError, Repository};
use crate::store::StoreError;

use checkpoint::{Checkpoints, Lease};
use content::Sink;
use links::Links;
use moves::Moves;
use pause::Pause;
use queue::Queue;
use roots::{Roots, Walked};
use shelf::Shelf;
use tree::Tree;
use unchanged::Judge;
use walk::Walk;

pub use checkpoint::Every;
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
    /// When checkpoints are made.
    pub checkpoint: Every,
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
    /// Where the local index is kept; without, it is made in `scratch` and goes with the run.
    pub index_dir: Option<PathBuf>,
    /// Directories for temporary files: the first that has room is used, and memory where none has.
    pub scratch: Vec<PathBuf>,
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
    /// What garbage collection has condemned cannot be read.
    #[error(transparent)]
    Condemned(#[from] CondemnedError),
    /// Garbage collection has condemned what the backup refers to while it was running.
    #[error("garbage collection came in between again and again; run this again")]
    Overtaken,
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Another part has failed, and tells why.
    #[error("the repository cannot be written to")]
    Stopped,
}

impl From<CustodyError> for BackupError {
    fn from(error: CustodyError) -> Self {
        match error {
            CustodyError::Store(error) => error.into(),
            CustodyError::BagList(error) => error.into(),
        }
    }
}

impl From<Stopped> for BackupError {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}

/// Bytes of opened blocks of the generation before that are kept.
const OPENED: usize = 24 << 20;

/// How often a backup begins anew when garbage collection has condemned what it refers to. What it has stored is found again.
const ATTEMPTS: usize = 4;

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
    for _ in 1..ATTEMPTS {
        match attempt(repository, options, monitor, clock, cancel) {
            Err(BackupError::Overtaken) => {
                let text = "garbage collection has condemned what this backup refers to, so it begins again";
                monitor.problem(Problem::new(Severity::Note, b"", text));
            }
            outcome => return outcome,
        }
    }
    attempt(repository, options, monitor, clock, cancel)
}

fn attempt(
    repository: &Repository,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
    clock: &dyn Clock,
    cancel: &Cancel,
) -> Result<Summary, BackupError> {
    let started = clock.now();
    let client = repository.keys().names().client_id(options.client.as_bytes());
    let (placed, hears) = bounded(1);
    let shelf = Arc::new(Shelf::new(repository.bags(), Arc::clone(monitor), cancel.clone(), placed));
    let guess = remote::guess(repository, client);
    if guess.is_empty() {
        // It cannot be recognised by a generation, so what else tells whether it is the right one is asked for right away; and before the
        // session, which asks for a directory that most likely is not there: what follows that in one flight is asked for in vain.
        repository.ask();
        shelf.expect_much();
    }
    let begun = Session::begin(repository.cached(), &repository.sealing(), client);
    // What is met of bags in which damage was found is stored again.
    repository.cache().damaged().into_iter().for_each(|bag| shelf.distrust(bag));
    let stores = [repository.store().clone(), repository.cached().clone()];
    let keep_in = repository.cache().directory(crate::cache::UNFINISHED);
    let packing = PackerOptions { keep_in, ..PackerOptions::new(options.level, options.workers) };
    let packer = Arc::new(Packer::new(stores, repository.sealing(), packing, shelf.clone()));
    let run = Run {
        repository,
        client,
        lease: Mutex::default(),
        options,
        monitor,
        cancel,
        stop: Cancel::new(),
        source: Arc::new(Source::new(repository.bags(), OPENED)),
        shelf,
        packer: Arc::clone(&packer),
        hears,
    };
    let outcome = run.run((client, &guess), begun, (started, clock));
    // Whoever else holds the packer is gone, so it can be ended; its own failure is the cause of the others'.
    drop(run);
    match (outcome, Arc::try_unwrap(packer)) {
        (Err(BackupError::Stopped), Ok(packer)) => {
            Err(packer.finish().err().map_or(BackupError::Stopped, BackupError::from))
        }
        // What is still under way is given up after an error, and nothing is after a success.
        (outcome, _) => outcome,
    }
}

/// The parts of a run.
struct Run<'a> {
    repository: &'a Repository,
    client: ClientId,
    lease: Mutex<Lease>,
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
        (client, guess): (ClientId, &[Generation]),
        begun: Started,
        times: (Timestamp, &dyn Clock),
    ) -> Result<Summary, BackupError> {
        let compared = Roots::choose(&self.options.roots, guess).compared();
        // Stops the walk that begins with a guess.
        let wrong = Cancel::new();
        thread::scope(|scope| {
            let remote = scope.spawn(|| {
                let read = remote::read(
                    (self.repository, &self.source),
                    (client, guess),
                    begun,
                    self.options,
                    self.monitor,
                );
                match read {
                    Ok(remote) => {
                        if let Err(error) = self.shelf.open(remote.index, &self.packer) {
                            self.stop.cancel();
                            wrong.cancel();
                            return Err(error);
                        }
                        let is_right = remote::are_there(&compared, &remote.former)
                            && (!guess.is_empty() || remote.former.is_empty());
                        if !is_right {
                            wrong.cancel();
                        }
                        // A walk that compares with something lost must not become a checkpoint.
                        let kept = if is_right { &mut self.lease().session } else { &mut None };
                        let withheld = match is_right {
                            true => kept.replace(remote.session),
                            false => Some(remote.session),
                        };
                        Ok((withheld, remote.former))
                    }
                    Err(error) => {
                        self.stop.cancel();
                        wrong.cancel();
                        self.shelf.fail();
                        Err(error)
                    }
                }
            });
            // Where nothing is known of a client though its repository is, this is most likely its first generation.
            let may_guess = !guess.is_empty() || self.repository.is_known_here();
            let guessed = may_guess.then(|| self.walk(guess, times, &wrong));
            let (withheld, former) = remote.join().unwrap_or(Err(BackupError::Stopped))?;
            let walked = match (guessed, withheld) {
                (Some(Err(BackupError::Interrupted)), _) => Err(BackupError::Interrupted),
                (Some(walked), None) => walked,
                (None, None) => self.walk(&former, times, &self.stop),
                (_, Some(session)) => {
                    self.lease().session = Some(session);
                    self.walk(&former, times, &self.stop)
                }
            };
            let mut lease = self.lease();
            let (walked, tree) = walked.map_err(|error| lease.lost.take().unwrap_or(error))?;
            let session = lease.session.take().ok_or(BackupError::Stopped)?;
            let maker = publish::Maker {
                shelf: &self.shelf,
                packer: &self.packer,
                source: &self.source,
                monitor: self.monitor,
            };
            let summary = maker.publish(session, tree, walked, &former, self.options, times)?;
            if !summary.is_skipped {
                self.forget_checkpoints(lease.partial, &former);
            }
            Ok(summary)
        })
    }

    fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the checkpoints that this generation has made needless.
    fn forget_checkpoints(&self, own: Option<GenerationId>, former: &[Generation]) {
        let earlier = former.iter().filter(|one| one.partial).map(|one| one.id);
        for id in own.into_iter().chain(earlier) {
            if let Err(error) = self.forget(id) {
                let text = format!("the checkpoint {id} is needless and could not be removed: {error}");
                self.monitor.problem(Problem::new(Severity::Note, b"", text));
            }
        }
    }

    /// Walks all roots, comparing with these generations.
    fn walk(
        &self,
        former: &[Generation],
        (started, clock): (Timestamp, &dyn Clock),
        stop: &Cancel,
    ) -> Result<(Walked, Tree), BackupError> {
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
            interrupted: Cancel::new(),
            stop: stop.clone(),
            pause: Pause::default(),
        };
        let judge = Judge { ignore_inode: options.ignore_inode, reread: options.reread };
        let walk = Walk {
            sink,
            source: Arc::clone(&self.source),
            judge,
            exclude: options.exclude.clone(),
            owners: Owners::new(),
            cutter: self.repository.cutter(),
            keys: self.repository.keys().clone(),
            counted: Mutex::default(),
            queue: Queue::default(),
            moves: Moves::new(Arc::clone(&self.source), roots.former_entries(), roots.began()),
            links: Links::new(),
        };
        let walked = roots.walk(&walk, options.walkers, |files, done| {
            let (run, walk, roots) = (self, &walk, &roots);
            Checkpoints { run, walk, roots, files, former, started, clock }.watch(done);
        });
        let tree = walk.sink.tree;
        match walked {
            Ok(walked) => Ok((walked, tree)),
            // Whoever was stopped was stopped by somebody, perhaps by the tree.
            Err(error) => Err(match (error, tree.finish()) {
                (BackupError::Stopped, Err(cause)) => cause,
                (error, _) => error,
            }),
        }
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
