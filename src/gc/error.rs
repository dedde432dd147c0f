//! Why garbage could not be collected.

use crate::condemned::CondemnedError;
use crate::generation::SessionError;
use crate::repo::OpenError;
use crate::store::StoreError;

/// Why a collection came to no end.
#[derive(Debug, thiserror::Error)]
pub enum GcError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The repository is gone, or another stands in its place.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The lease is lost, or the store failed while publishing.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A list of an earlier collection is damaged.
    #[error(transparent)]
    Condemned(#[from] CondemnedError),
    /// What a generation needs cannot be read.
    #[error(
        "nothing was collected, because it cannot be told what {name} needs: {reason}; `kitbag fsck` says more"
    )]
    Unreadable {
        /// The generation record.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}
