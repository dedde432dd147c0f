//! An SFTP v3 client that knows nothing of backups, and the packets of the other side.
//!
//! From the wire up: [`link`] is one connection that carries byte streams, made by one of the [`transport`]s;
//! [`packet`], [`attrs`] and [`reply`] turn bytes into packets and back; [`session`] is the state of one channel; the
//! [`driver`] thread owns the link and works through the requests that [`client`]s queue; a [`handle`] stays on its
//! channel. [`asked`] and [`encode`] are what a server needs: requests taken apart, and answers put together.

pub mod asked;
pub mod attrs;
pub mod client;
pub mod driver;
pub mod encode;
pub mod error;
mod fields;
pub mod handle;
pub mod link;
pub mod packet;
mod queue;
pub mod reply;
pub mod session;
pub mod tasks;
#[cfg(test)]
pub(crate) mod testing;
pub mod transfer;
pub mod transport;

pub use client::{Answer, Client};
pub use driver::Settings;
pub use error::RequestError;
pub use fields::Malformed;
pub use handle::Handle;
pub use queue::{Counts, Outcome, Place, Target, Value};
