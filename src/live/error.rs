//! Why something could not be done with a live file.

use std::io;

use rustix::io::Errno;

use crate::base::text::system;

/// A failure with one live file or directory. Says what happened, not to which file: the caller knows the path.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// It was there when its directory was listed, and is not there any more. Nothing to worry about in a backup.
    #[error("it vanished meanwhile")]
    Vanished,
    /// Something else stands under its name now.
    #[error("it was replaced by something else meanwhile")]
    Replaced,
    /// The names in one directory need more than 4 GiB.
    #[error("the directory has more names than can be held in memory")]
    TooManyNames,
    /// The system refused.
    #[error("cannot {action}: {}", system(source))]
    System {
        /// What was tried: "open it", "read its extended attributes".
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What operations on live files give.
pub type Result<T> = std::result::Result<T, LiveError>;

impl LiveError {
    /// Classifies what the system said when `action` was tried.
    #[must_use]
    pub fn new(action: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::STALE => Self::Vanished,
            other => Self::System { action, source: other.into() },
        }
    }

    /// As [`new`](Self::new), where the kind of file was known: `O_NOFOLLOW` and `O_DIRECTORY` refuse another kind.
    pub(super) fn opening(action: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::LOOP | Errno::NOTDIR | Errno::NXIO => Self::Replaced,
            other => Self::new(action, other),
        }
    }

    /// Whether the disk or the quota is full: going on is of no use then.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::System { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// What the system said, where it said something.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }
}
