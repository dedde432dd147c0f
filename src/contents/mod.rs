//! The contents of files, by the references that their entries have.
//!
//! [`plan`] decides in which order wanted chunks are fetched, and which are fetched together; [`stream`] gives a file's contents from its beginning to its
//! end, with reads running ahead; [`blocks`] keeps opened blocks for who reads here and there; [`compare`] says whether a live file has the contents that were
//! saved, without fetching them. All are of use to several operations, and none knows one.

pub mod blocks;
pub mod compare;
pub mod plan;
pub mod stream;

pub use blocks::{Blocks, Slot};
pub use compare::has_contents;
pub use stream::{Section, Stream, StreamError};
