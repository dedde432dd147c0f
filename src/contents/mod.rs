//! The contents of files, by the references that their entries have.
//!
//! [`plan`] decides in which order wanted chunks are fetched, and which are fetched together; [`stream`] gives a file's contents from its beginning to its
//! end, with reads running ahead. Both are of use to several operations, and neither knows one.

pub mod plan;
pub mod stream;

pub use stream::{Section, Stream, StreamError};
