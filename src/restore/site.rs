//! What all threads of a restore share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::links::Links;
use super::{RestoreError, Summary};
use crate::bag::reader::{BagReader, ReadError};
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::dir::reader::TreeError;
use crate::live::{LiveError, Target};
use crate::monitor::{Counter, Monitor, Problem, Severity};

/// Why one thing could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The live file system refused.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// Its contents could not be had.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The same, told to several.
    #[error(transparent)]
    Shared(Arc<ReadError>),
    /// Its chunk list, or what stands in it, could not be had.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The repository contradicts itself.
    #[error("{0}")]
    Damage(String),
    /// Another thing, on which it depends, could not be restored.
    #[error("{0}")]
    Dependent(&'static str),
}

impl Trouble {
    fn is_damage(&self) -> bool {
        match self {
            Self::Live(_) | Self::Dependent(_) => false,
            Self::Read(error) => error.is_damage(),
            Self::Shared(error) => error.is_damage(),
            Self::Tree(error) => error.is_damage(),
            Self::Damage(_) => true,
        }
    }
}

/// What was done.
#[derive(Debug, Default)]
pub struct Tally {
    pub entries: AtomicU64,
    pub files: AtomicU64,
    pub kept: AtomicU64,
    pub links: AtomicU64,
    pub bytes: AtomicU64,
    pub failed: AtomicU64,
}

/// What all threads of a restore share.
pub struct Site<'a> {
    /// What writes.
    pub target: Target,
    /// Directories and chunk lists.
    pub source: Source,
    /// Who is told.
    pub monitor: &'a Arc<dyn Monitor>,
    /// Hard links.
    pub links: Links,
    /// What was done.
    pub tally: Tally,
    told_apart: AtomicBool,
    cancel: &'a Cancel,
    stopped: AtomicBool,
    cause: Mutex<Option<RestoreError>>,
}

impl<'a> Site<'a> {
    /// Nothing done yet.
    pub fn new(target: Target, source: Source, monitor: &'a Arc<dyn Monitor>, cancel: &'a Cancel) -> Self {
        Self {
            target,
            source,
            monitor,
            links: Links::default(),
            tally: Tally::default(),
            told_apart: AtomicBool::new(false),
            cancel,
            stopped: AtomicBool::new(false),
            cause: Mutex::new(None),
        }
    }

    /// Chunks.
    pub fn reader(&self) -> &BagReader {
        self.source.reader()
    }

    /// Whether to go no further.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }

    /// Goes no further. The first cause counts.
    pub fn stop(&self, cause: RestoreError) {
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Reports that something could not be restored. Some causes let nothing else be restored either: those end it.
    pub fn lost(&self, path: &[u8], trouble: Trouble) {
        let is_damage = trouble.is_damage();
        if let Trouble::Shared(error) = &trouble
            && let ReadError::Store(error) = &**error
            && !is_damage
        {
            return self.stop(error.duplicate().into());
        }
        match trouble {
            Trouble::Live(error) if error.is_no_space() => {
                return self.stop(RestoreError::NoSpace { path: path.to_vec() });
            }
            Trouble::Read(ReadError::Store(error))
            | Trouble::Tree(TreeError::Read(ReadError::Store(error)))
                if !is_damage =>
            {
                return self.stop(error.into());
            }
            trouble => {
                let severity = if is_damage { Severity::Damage } else { Severity::Lost };
                self.monitor.problem(Problem::new(severity, path, format!("not restored: {trouble}")));
            }
        }
        self.tally.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports, once, that hard links become files of their own.
    pub fn apart(&self, path: &[u8]) {
        if !self.told_apart.swap(true, Ordering::Relaxed) {
            let text = "from here on, hard links met for the first time become files of their own: there are too many";
            self.monitor.problem(Problem::new(Severity::Lost, path, text));
        }
    }

    /// A regular file is complete.
    pub fn file_done(&self) {
        self.tally.files.fetch_add(1, Ordering::Relaxed);
        self.monitor.count(Counter::FilesRestored, 1);
    }

    /// So many bytes of contents are in their place.
    pub fn bytes_done(&self, bytes: u64) {
        self.monitor.count(Counter::BytesRestored, bytes);
    }

    /// How it ended.
    pub fn outcome(self) -> Result<Summary, RestoreError> {
        if let Some(cause) = self.cause.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(cause);
        }
        if self.cancel.is_cancelled() {
            return Err(RestoreError::Interrupted);
        }
        let Tally { entries, files, kept, links, bytes, failed } = self.tally;
        Ok(Summary {
            entries: entries.into_inner(),
            files: files.into_inner(),
            kept: kept.into_inner(),
            links: links.into_inner(),
            bytes: bytes.into_inner(),
            failed: failed.into_inner(),
        })
    }
}
