//! How an operation tells what it does: counts, phases and problems, without knowing who listens.

pub mod collect;

use std::fmt;

/// What is counted while an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Counter {
    /// Entries of any kind seen in the live data or in a generation.
    Entries,
    /// Regular files seen.
    Files,
    /// Bytes of the contents of the regular files seen.
    FileBytes,
    /// Bytes read from live files.
    BytesRead,
    /// Files whose contents were read.
    FilesRead,
    /// Bytes of contents found new and handed to the packer, before compression.
    NewBytes,
    /// Chunks found new.
    NewChunks,
    /// Chunks that the repository had already.
    KnownChunks,
    /// Bytes of sealed blocks, tables and records queued for the store.
    BytesQueued,
    /// Bytes acknowledged by the store.
    BytesStored,
    /// Bytes of restored files' contents that are in their places: written, found there already, or holes.
    BytesRestored,
    /// Files completely restored.
    FilesRestored,
    /// Objects checked.
    ObjectsChecked,
}

/// How an entry compares with the previous generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    New,
    /// Its contents (or its type) differ.
    Changed,
    /// Only its metadata differ.
    Metadata,
    /// It stood under another name.
    Moved,
    /// Nothing differs.
    Unchanged,
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Worth saying; the result is complete.
    Note,
    /// Something could not be saved, restored or checked; the operation goes on and ends with exit code 3.
    Lost,
    /// The repository is damaged; the operation goes on where it can and ends with exit code 4.
    Damage,
}

/// Something that went wrong with one thing while the operation went on.
#[derive(Debug)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The path or repository file, as bytes; empty when it concerns no single one.
    pub subject: Vec<u8>,
    /// What happened, as a sentence without the subject, without a full stop.
    pub text: String,
}

impl Problem {
    /// A problem with `subject`.
    #[must_use]
    pub fn new(severity: Severity, subject: &[u8], text: impl fmt::Display) -> Self {
        Self { severity, subject: subject.to_vec(), text: text.to_string() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.subject.is_empty() {
            write!(f, "{}: ", crate::base::text::escape(&self.subject))?;
        }
        f.write_str(&self.text)
    }
}

/// Hears what an operation does. Called from many threads, often: it must be cheap and must not block.
pub trait Monitor: Send + Sync {
    /// `amount` more of `counter`.
    fn count(&self, counter: Counter, amount: u64);
    /// A new phase began ("walking", "checking bags").
    fn phase(&self, name: &'static str);
    /// Work on this path began.
    fn path(&self, path: &[u8]);
    /// An entry of the live data was compared with the previous generation.
    fn change(&self, path: &[u8], change: Change);
    /// Whether [`change`](Self::change) is listened to; else no path need be put together.
    fn follows_changes(&self) -> bool {
        true
    }
    /// Something went wrong with one thing.
    fn problem(&self, problem: Problem);
}
