//! The objects that `--progress json` writes on standard error, a line each; `doc/json.md` has the meanings.

use serde::Serialize;

use super::lines::{Job, Snapshot};
use super::log::Level;
use crate::base::text::escape;
use crate::monitor::{Problem, Severity};

/// Something that is said.
#[derive(Debug, Serialize)]
pub struct Message<'a> {
    event: &'static str,
    level: &'static str,
    text: &'a str,
}

impl<'a> Message<'a> {
    /// This text.
    #[must_use]
    pub fn new(level: Level, text: &'a str) -> Self {
        Self { event: "message", level: level.word(), text }
    }
}

/// Something that went wrong with one thing while the operation went on.
#[derive(Debug, Serialize)]
pub struct Trouble<'a> {
    event: &'static str,
    severity: &'static str,
    subject: String,
    text: &'a str,
}

impl<'a> From<&'a Problem> for Trouble<'a> {
    fn from(problem: &'a Problem) -> Self {
        let severity = match problem.severity {
            Severity::Note => "note",
            Severity::Lost => "lost",
            Severity::Damage => "damage",
        };
        Self { event: "problem", severity, subject: escape(&problem.subject), text: &problem.text }
    }
}

/// What was done so far.
#[derive(Debug, Serialize)]
pub struct Step {
    event: &'static str,
    job: &'static str,
    phase: &'static str,
    #[serde(rename = "final")]
    is_final: bool,
    seconds: f64,
    files: u64,
    file_bytes: u64,
    files_read: u64,
    bytes_read: u64,
    new_bytes: u64,
    bytes_queued: u64,
    bytes_stored: u64,
    files_restored: u64,
    bytes_restored: u64,
    objects_checked: u64,
    path: Option<String>,
}

impl Step {
    /// These counts, after so many seconds.
    #[must_use]
    pub fn new(job: Job, snapshot: &Snapshot, seconds: f64, is_final: bool) -> Self {
        Self {
            event: "progress",
            job: match job {
                Job::Backup => "backup",
                Job::Restore => "restore",
                Job::Check => "check",
                Job::Verify => "verify",
            },
            phase: snapshot.phase,
            is_final,
            seconds,
            files: snapshot.files,
            file_bytes: snapshot.file_bytes,
            files_read: snapshot.files_read,
            bytes_read: snapshot.bytes_read,
            new_bytes: snapshot.new_bytes,
            bytes_queued: snapshot.queued,
            bytes_stored: snapshot.stored,
            files_restored: snapshot.restored_files,
            bytes_restored: snapshot.restored_bytes,
            objects_checked: snapshot.checked,
            path: (!snapshot.path.is_empty()).then(|| escape(&snapshot.path)),
        }
    }
}
