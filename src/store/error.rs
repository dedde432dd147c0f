//! Why a store could not do something, classified where it was found.

use std::error::Error;
use std::fmt;

use crate::base::text::system;

/// What kind of failure it is: callers decide by this, never by the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The file or directory is not there.
    NotFound,
    /// The name is taken.
    Exists,
    /// The disk or quota is full.
    NoSpace,
    /// Not permitted.
    Denied,
    /// Not permitted to this key, which may only add to what is there.
    AppendOnly,
    /// Not permitted to this key, which may only read.
    ReadOnly,
    /// The file is shorter than the range asked for.
    Truncated,
    /// The file is longer than the limit given.
    TooLong,
    /// The server cannot be reached, or went away and did not come back in time.
    Unreachable,
    /// The server refused the user, or its host key was refused: trying again does not help.
    Refused,
    /// The operation was cancelled.
    Cancelled,
    /// The server broke the protocol.
    Protocol,
    /// Anything else.
    Other,
}

/// A failure of one operation on one file.
#[derive(Debug)]
pub struct StoreError {
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// What was tried, as a verb: "read", "list", "create".
    pub operation: &'static str,
    /// The file or directory, or the server.
    pub subject: String,
    /// What the system or the server said.
    pub detail: String,
    /// The cause, where there is one.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// A failure with what was said about it.
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        operation: &'static str,
        subject: impl fmt::Display,
        detail: impl fmt::Display,
    ) -> Self {
        Self { kind, operation, subject: subject.to_string(), detail: detail.to_string(), source: None }
    }

    /// The same failure once more, for another who asks; without its cause, which cannot be copied.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self {
            kind: self.kind,
            operation: self.operation,
            subject: self.subject.clone(),
            detail: self.detail.clone(),
            source: None,
        }
    }

    /// An operating system error.
    #[must_use]
    pub fn from_io(operation: &'static str, subject: impl fmt::Display, error: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match error.kind() {
            // Where a directory of its path is none, a file is not there: servers say so, too.
            Io::NotFound | Io::NotADirectory => ErrorKind::NotFound,
            Io::AlreadyExists => ErrorKind::Exists,
            Io::StorageFull | Io::QuotaExceeded => ErrorKind::NoSpace,
            Io::PermissionDenied | Io::ReadOnlyFilesystem => ErrorKind::Denied,
            Io::UnexpectedEof => ErrorKind::Truncated,
            _ => ErrorKind::Other,
        };
        Self {
            kind,
            operation,
            subject: subject.to_string(),
            detail: system(&error),
            source: Some(Box::new(error)),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.operation, self.subject, self.detail)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}
