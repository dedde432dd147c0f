//! What was found, as it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::FsckError;
use crate::monitor::{Monitor, Problem, Severity};
use crate::store::{ErrorKind, Name, StoreError};

/// Counts findings and tells them to the monitor. Shared by threads.
pub struct Report<'a> {
    monitor: &'a Arc<dyn Monitor>,
    damages: AtomicU64,
    notes: AtomicU64,
}

impl<'a> Report<'a> {
    /// Nothing found yet.
    pub fn new(monitor: &'a Arc<dyn Monitor>) -> Self {
        Self { monitor, damages: AtomicU64::new(0), notes: AtomicU64::new(0) }
    }

    /// A file that is damaged, missing or contradicts another.
    pub fn damage(&self, name: &Name, text: impl std::fmt::Display) {
        self.damages.fetch_add(1, Ordering::Relaxed);
        self.monitor.problem(Problem::new(Severity::Damage, name.as_str().as_bytes(), text));
    }

    /// Something harmless.
    pub fn note(&self, subject: &str, text: impl std::fmt::Display) {
        self.notes.fetch_add(1, Ordering::Relaxed);
        self.monitor.problem(Problem::new(Severity::Note, subject.as_bytes(), text));
    }

    /// How many damaged files, and how many notes.
    pub fn counts(&self) -> (u64, u64) {
        (self.damages.load(Ordering::Relaxed), self.notes.load(Ordering::Relaxed))
    }
}

/// An answer, or what a store says of a file that it cannot give: damage to that file. Failures that do not concern the one file end the check.
///
/// # Errors
/// When the store is out of reach.
pub fn given<T>(answer: Result<T, StoreError>) -> Result<Result<T, Unreadable>, FsckError> {
    use ErrorKind::{Cancelled, NotFound, Protocol, Refused, TooLong, Truncated, Unreachable};
    let error = match answer {
        Ok(given) => return Ok(Ok(given)),
        Err(error) => error,
    };
    match error.kind {
        Unreachable | Refused | Cancelled | Protocol => Err(error.into()),
        NotFound => Ok(Err(Unreadable::Missing)),
        Truncated => Ok(Err(Unreadable::Text("it is cut off".to_owned()))),
        TooLong => Ok(Err(Unreadable::Text("it is longer than such a file can be".to_owned()))),
        _ => Ok(Err(Unreadable::Text(format!("it cannot be read ({})", error.detail)))),
    }
}

/// Why a file could not be had, though the store works.
#[derive(Debug)]
pub enum Unreadable {
    /// It is not there.
    Missing,
    /// Something else, as a clause.
    Text(String),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("it is missing"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
