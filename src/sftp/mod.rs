//! An SFTP v3 client that knows nothing of backups.
//!
//! From the wire up: [`link`] is one connection that carries byte streams, made by one of the [`transport`]s.

pub mod link;
pub mod transport;
