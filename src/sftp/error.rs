//! Why a request brought no answer, or an unwelcome one.

use std::sync::Arc;

use super::fields::Malformed;
use super::link::ConnectError;
use super::reply::{Code, Status};

/// The failure of one request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The server says so.
    #[error("{0}")]
    Status(Status),
    /// The connection was lost before the answer came: whether the server did it is unknown. The client is
    /// connecting again; what is asked now waits for that.
    #[error("the connection was lost ({0})")]
    LinkLost(String),
    /// The channel was lost, or the handle's channel was; the others stand.
    #[error("a channel of the connection was lost ({0})")]
    ChannelLost(String),
    /// There is no connection, and there will be none.
    #[error("{0}")]
    Down(Arc<ConnectError>),
    /// The server's answer is not one to this request.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// The client was closed.
    #[error("the connection was closed")]
    Stopped,
}

impl RequestError {
    /// The server's code, if this is an answer of the server.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Status(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether the outcome is unknown and the same may be asked again.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::LinkLost(_) | Self::ChannelLost(_))
    }
}
