//! Handles: something open on a server.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::packet::Request;
use super::queue::{Place, Shared, Submission, Target};

/// Something open on a server. It stays on the channel that opened it, and is of no use once that is lost.
/// Dropping it closes it some time later, with no one waiting; so an answer that nobody takes leaks nothing.
pub struct Handle {
    shared: Arc<Shared>,
    place: Place,
    bytes: Bytes,
    open: bool,
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>, place: Place, bytes: Bytes) -> Self {
        Self { shared, place, bytes, open: true }
    }

    /// Its channel.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// The server's name for it.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Takes the handle for a CLOSE that is sent by the caller.
    pub(super) fn into_close(mut self) -> (Place, Request) {
        self.open = false;
        (self.place, Request::Close { handle: self.bytes.clone() })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.open {
            let request = Request::Close { handle: self.bytes.clone() };
            let target = Target::At(self.place);
            self.shared.submit([Submission::new(target, request, None)]);
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("place", &self.place)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
