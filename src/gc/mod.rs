//! Garbage collection: gives back the space of what no generation needs, beside backups that are under way, without a lock.
//!
//! ```text
//! listings (2 flights) ──> records, lists, segments (1) ──> bag lists (1) ──> plan ──> write list, drafts (2)
//!     ──> look who is there, and what is new (1) ──> doom (1) ──> remove (1) ──> tidy (1)
//! ```
//!
//! - **What is needed** is the union of all bag lists ([`crate::reach`]), through what was moved. The rest is condemned; [`crate::condemned`] says how that goes on, and
//!   `doc/format.md` what of it others see. When nobody else is writing, all of it happens in one run; else a later run goes on.
//! - **Decisions** ([`plan`], [`verdict`]) are pure functions of what was read.
//! - **Order.** Deleting what is doomed already, and what dead uploads have left, comes before anything is written, so that a full disk can be collected.
//! - **Killed anywhere**, the next run goes on from what is published. Two collectors at once repeat each other's work and harm nothing.
//! - **Memory** is in proportion to the distinct bags.

mod collector;
mod error;
mod known;
mod listing;
mod plan;
mod publish;
mod repack;
mod segments;
mod survey;
mod sweep;
mod thinned;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use crate::base::cancel::Cancel;
use crate::monitor::Monitor;
use crate::repo::Repository;

pub use error::GcError;
pub use repack::Limits;

/// How to collect.
#[derive(Debug, Clone)]
pub struct Options {
    /// Under which client's name the session is kept.
    pub client: String,
    /// Change nothing: only say what would be done.
    pub dry_run: bool,
    /// A session that was not renewed for so long, by the server's clock, is revoked: whoever held it is gone.
    pub stale: Duration,
    /// What is repacked.
    pub repack: Limits,
}

impl Options {
    /// A week until a session is stale, and the usual limits to repacking.
    #[must_use]
    pub fn new(client: &str) -> Self {
        Self {
            client: client.to_owned(),
            dry_run: false,
            stale: Duration::from_secs(7 * 24 * 3600),
            repack: Limits::default(),
        }
    }
}

/// Bags, or other files, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    /// Counts one more.
    pub fn add(&mut self, bytes: u64) {
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What was done, or, in a dry run, what would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Generations that were asked what they need.
    pub generations: u64,
    /// Bags that are there.
    pub bags: Amount,
    /// Bags removed.
    pub removed: Amount,
    /// Bags condemned that can be removed only by a later run, because somebody else is writing.
    pub waiting: Amount,
    /// Remains of uploads that were cut off, removed.
    pub remains: Amount,
    /// Bags whose objects were copied into others, so that they can go.
    pub repacked: Amount,
    /// The bags that they were copied to.
    pub written: Amount,
    /// Index segments written.
    pub segments_written: u64,
    /// Index segments removed.
    pub segments_removed: u64,
    /// Other sessions that are waited for.
    pub sessions: u64,
    /// Stale sessions revoked.
    pub revoked: u64,
}

/// Collects. Problems that do not keep it from collecting are told to `monitor`.
///
/// # Errors
/// When the store fails, when a generation's needs cannot be read (nothing is collected then), and when the session was revoked.
pub fn run(
    repository: &Repository,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
    cancel: &Cancel,
) -> Result<Summary, GcError> {
    collector::Collector::new(repository, options, &**monitor, cancel).run()
}
