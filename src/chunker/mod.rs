//! FastCDC over pushed bytes, with a gear table that depends on the repository.
//!
//! A [`Cutter`] says where the next chunk ends; it has no state and is shared by all threads. A [`Chunker`] collects what
//! is read from a file, in pieces of any size, and hands out chunks; a thread keeps one and uses it for file after file.
//!
//! Where chunks end depends on the contents and the repository's key alone, never on how the bytes arrived.

mod buffer;
mod cutter;
mod limits;

pub use buffer::Chunker;
pub use cutter::Cutter;
pub use limits::{BadLimits, Limits};
