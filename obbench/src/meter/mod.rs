//! What a client asks of an SFTP server, counted between `sshd` and `sftp-server`.
//!
//! `sshd` starts one `obbench meter` for each channel in the place of the SFTP server ([`tap`]). It passes the bytes
//! on as they come, looks at nothing but the packets' heads, and reports each request and each answer with its time
//! to the [`Meter`], which lives in the process that measures. From the events of all channels together [`Counts`]
//! are made when the client has ended.
//!
//! A **serial wait** is a request that arrives when none is outstanding on any channel, and not sooner after the last
//! answer than 0.8 of the link's round trip: one that arrives sooner was sent before the client could know the answer,
//! so it did not wait for it. The first request, which is each client's `init`, counts. It is exact for a client that
//! sends one flight at a time; streams show as bursts, so hold a client to this number where there is little data.

mod collector;
mod count;
mod event;
mod frame;
pub mod tap;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use collector::{Meter, MeterError};

/// What one client did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests, the opening `init` of each channel included.
    pub requests: u64,
    /// Answers.
    pub answers: u64,
    /// Requests by the names of the protocol (`open`, `write`, `fsync@openssh.com`).
    pub by_type: BTreeMap<String, u64>,
    /// Bytes of SFTP packets to the server.
    pub bytes_up: u64,
    /// Bytes of SFTP packets from the server.
    pub bytes_down: u64,
    /// The greatest number of requests that were on their way or not yet answered, as the client sees it: half a
    /// round trip before a request arrives, until half a round trip after its answer leaves.
    pub most_outstanding: u64,
    /// Serial waits; see above.
    pub serial_waits: u64,
    /// Channels that were opened.
    pub channels: u64,
}
