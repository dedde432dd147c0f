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
mod node;
mod publish;
mod roots;
mod shelf;
mod tree;
mod unchanged;
mod walk;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::bounded;

use crate::bag::reader::BagReader;
use crate::bag::source::Source;
use crate::bag::{Packer, PackerOptions, Sealing, Stopped, StoredBag};
use crate::base::cancel::Cancel;
use crate::base::id::SegmentId;
use crate::base::time::Clock;
use crate::compress::Level;
use crate::crypto::Kind;
use crate::dir::reader::TreeError;
use crate::generation::{Catalog, CatalogError, Session, SessionError};
use crate::index::{FetchError, Index, IndexError, ListedSegment};
use crate::live::{Exclude, LiveError, Owners};
use crate::monitor::{Monitor, Problem, Severity};
use crate::repo::Repository;
use crate::sealed;
use crate::store::{ErrorKind, Listed, StoreError, layout};

use content::Sink;
use roots::Roots;
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
    let sealing = Sealing { keys: repository.keys().clone(), repository: repository.id() };
    let store = repository.store();
    let client = repository.keys().names().client_id(options.client.as_bytes());
    let begun = Session::begin(store, &sealing, client);
    let mut session = begun.session;

    monitor.phase("reading the repository");
    let _condemned = begun.condemned.wait()?;
    let index = open_index(&begun.index.wait()?, repository, options, monitor)?;
    let generations = begun.generations.wait()?;
    session.created()?;
    let catalog = Catalog::new(store.clone(), sealing.clone());
    let mut former = Vec::new();
    for (_, record) in catalog.read(client, &Catalog::ids(&generations)) {
        match record {
            Ok(generation) => former.push(generation),
            // A record that is gone was forgotten meanwhile.
            Err(error) if error.is_gone() => {}
            Err(error) if error.is_damage() => {
                monitor.problem(Problem::new(Severity::Damage, b"", error));
            }
            Err(error) => return Err(error.into()),
        }
    }

    monitor.phase("backing up");
    let reader = BagReader::new(store.clone(), sealing.clone());
    let source = Arc::new(Source::new(reader.clone(), OPENED));
    let (placed, hears) = bounded(1);
    let keep = Box::new(|_: &StoredBag| ());
    let shelf = Arc::new(Shelf::new(reader, index, Arc::clone(monitor), placed, keep));
    let packing = PackerOptions::new(options.level, options.workers);
    let packer = Arc::new(Packer::new(store.clone(), sealing, packing, shelf.clone()));
    let tree = Tree::start(Arc::clone(&shelf), Arc::clone(&packer), hears);
    let sink = Sink {
        shelf: Arc::clone(&shelf),
        packer: Arc::clone(&packer),
        tree,
        monitor: Arc::clone(monitor),
        cancel: cancel.clone(),
    };
    let roots = Roots::choose(&options.roots, &former);
    let judge = Judge { began: roots.began(), ignore_inode: options.ignore_inode, reread: options.reread };
    let walk = Walk {
        sink,
        source: Arc::clone(&source),
        judge,
        exclude: options.exclude.clone(),
        owners: Owners::new(),
        cutter: repository.cutter(),
        keys: repository.keys().clone(),
        queue: Queue::default(),
        links: links::Links::new(),
    };
    let walked = roots.walk(&walk, options.walkers);
    let Walk { sink, .. } = walk;
    let outcome = match walked {
        Ok(walked) => {
            let maker = publish::Maker { shelf: &shelf, packer: &packer, source: &source, monitor };
            maker.publish(session, sink.tree, walked, &former, options, (started, clock))
        }
        Err(BackupError::Stopped) => Err(sink.tree.finish().err().unwrap_or(BackupError::Stopped)),
        Err(error) => Err(error),
    };
    // Whoever holds the packer is gone, so it can be ended; its own failure is the cause of the others'.
    drop(shelf);
    drop(source);
    match (outcome, Arc::try_unwrap(packer).map(Packer::finish)) {
        (Err(BackupError::Stopped), Ok(Err(cause))) => Err(cause.into()),
        (outcome, _) => outcome,
    }
}

fn open_index(
    listed: &[Listed],
    repository: &Repository,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
) -> Result<Index, BackupError> {
    let segments: Vec<_> = listed
        .iter()
        .filter_map(|file| Some(ListedSegment { id: file.name.parse().ok()?, size: file.size }))
        .collect();
    let fetch_one = |id: SegmentId| -> crate::index::Waiting<Vec<u8>> {
        let name = layout::segment(id);
        let limit = u64::try_from(crate::index::format::MAX_SEGMENT).unwrap_or(u64::MAX);
        let pending = repository.store().read_all(&name, limit);
        let (keys, id) = (repository.keys().clone(), repository.id());
        Box::new(move || match pending.wait() {
            Ok(bytes) => {
                let limit = crate::index::format::MAX_SEGMENT;
                let opened = sealed::decode(&keys, id, Kind::Segment, &name, bytes, limit)?;
                Ok(Some(opened))
            }
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FetchError::from(error)),
        })
    };
    let mut fetch = fetch_one;
    let mut open = |dir| Index::open(dir, &segments, &mut fetch);
    let index = match open(options.index_dir.as_deref()) {
        Err(IndexError::Local { dir: Some(dir), source }) => {
            let text = format!("the local index there cannot be used, so it is made in memory ({source})");
            monitor.problem(Problem::new(Severity::Note, dir.as_os_str().as_encoded_bytes(), text));
            Index::open(None, &segments, &mut fetch)?
        }
        other => other?,
    };
    for (segment, error) in &index.synced().unreadable {
        let text = format!("this index segment is damaged, so what it lists may be stored again ({error})");
        let name = layout::segment(*segment);
        monitor.problem(Problem::new(Severity::Damage, name.as_str().as_bytes(), text));
    }
    Ok(index)
}

/// Reports that a root could not be read.
fn lost_root(monitor: &dyn Monitor, path: &[u8], error: &LiveError) {
    let text = match error {
        LiveError::Vanished => "there is no such file or directory".to_owned(),
        other => other.to_string(),
    };
    monitor.problem(Problem::new(Severity::Lost, path, text));
}
