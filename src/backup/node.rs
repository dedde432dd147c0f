//! A directory while it is backed up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::bag::Placing;
use crate::base::time::Timestamp;
use crate::entry::Reference;
use crate::live::{LiveDir, NameList, Stat};

/// What a generation had at a directory's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Was {
    /// The directory's top page; `None` when it was empty.
    pub page: Option<Reference>,
    /// When that generation began.
    pub began: Timestamp,
}

/// What generations before had at a directory's place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Former {
    /// The newest complete one (or the checkpoint, where only that has something): pages are taken over from it.
    pub newest: Option<Was>,
    /// A checkpoint made after it: single entries are taken over from it.
    pub checkpoint: Option<Was>,
}

impl Former {
    /// Whatever there is, as the newest.
    pub fn promoted(self) -> Self {
        match self.newest {
            Some(_) => self,
            None => Self { newest: self.checkpoint, checkpoint: None },
        }
    }

    /// The top page of the newest.
    pub fn page(&self) -> Option<Reference> {
        self.newest.and_then(|was| was.page)
    }
}

/// A directory whose names are known and whose subdirectories are being backed up.
pub struct Node {
    /// The directory.
    pub dir: Arc<LiveDir>,
    /// Its names, in order.
    pub names: NameList,
    /// Per name, whether it is left out; empty when none is.
    pub skipped: Vec<bool>,
    /// The subdirectories, ascending by their place among the names.
    pub subdirs: Vec<Subdir>,
    /// What it was before.
    pub former: Former,
    /// Its root.
    pub root: RootOf,
    /// To whom its outcome goes.
    pub parent: Parent,
    next: AtomicUsize,
    waiting: AtomicUsize,
}

/// What is the same for all directories below a root.
#[derive(Debug, Clone, Copy)]
pub struct RootOf {
    /// The device that the root lies on.
    pub dev: u64,
    /// When the generation began that it is compared with.
    pub began: Timestamp,
}

/// To whom a directory's outcome goes.
#[derive(Clone)]
pub enum Parent {
    /// The directory it is in, and its number among the subdirectories there.
    Node(Arc<Node>, usize),
    /// It is the root of this number.
    Root(usize),
}

/// A subdirectory.
pub struct Subdir {
    /// Its place among the names.
    pub at: usize,
    /// What it was before.
    pub former: Former,
    /// What became of it.
    pub outcome: OnceLock<Outcome>,
}

/// What became of a directory.
#[derive(Clone)]
pub enum Outcome {
    /// It was backed up.
    Done(Box<Done>),
    /// It is there, but its contents could not be read; that was reported.
    Closed,
    /// It vanished.
    Gone,
    /// It is kitbag's own.
    LeftOut,
}

/// A directory that was backed up.
#[derive(Clone)]
pub struct Done {
    /// The directory as it was when it was opened.
    pub stat: Stat,
    /// Its top page; `None` when it is empty.
    pub page: Option<Placing>,
    /// Whether that is the page of the generation before.
    pub is_same: bool,
}

impl Node {
    /// A node of which nothing is done yet.
    pub fn new(
        dir: Arc<LiveDir>,
        (names, skipped, subdirs): (NameList, Vec<bool>, Vec<Subdir>),
        former: Former,
        root: RootOf,
        parent: Parent,
    ) -> Self {
        let waiting = AtomicUsize::new(subdirs.len());
        let next = AtomicUsize::new(0);
        Self { dir, names, skipped, subdirs, former, root, parent, next, waiting }
    }

    /// The number of a subdirectory to begin with, and whether it is the last.
    pub fn begin_subdir(&self) -> Option<(usize, bool)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.subdirs.len()).then(|| (number, number + 1 == self.subdirs.len()))
    }

    /// Notes what became of a subdirectory; whether it was the last one.
    pub fn end_subdir(&self, number: usize, outcome: Outcome) -> bool {
        if let Some(subdir) = self.subdirs.get(number) {
            // Set once: each subdirectory is done by one worker.
            let _ = subdir.outcome.set(outcome);
        }
        self.waiting.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The places of subdirectories that turned out to be left out, ascending. Complete when all subdirectories are done.
    pub fn left_out(&self) -> Vec<usize> {
        let is_left_out = |subdir: &&Subdir| matches!(subdir.outcome.get(), Some(Outcome::LeftOut));
        self.subdirs.iter().filter(is_left_out).map(|subdir| subdir.at).collect()
    }

    /// Whether the name at this place is left out.
    pub fn is_skipped(&self, at: usize) -> bool {
        self.skipped.get(at).copied().unwrap_or(false)
    }
}
