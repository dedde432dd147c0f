//! DIR objects: a directory as pages, however many entries it has.
//!
//! A directory's entries, ascending by name, are cut into leaf pages; index pages name the pages below them, as many levels as it takes
//! until one top page is left, which stands for the directory. Where a page ends is decided by a keyed hash of its last entry's
//! name ([`paging`]), so that one change rewrites one page and the path above it. Long chunk lists are cut in the same way
//! by the hash of the chunk's id.

pub mod format;
pub mod lookup;
pub mod paging;
pub mod places;
pub mod reader;
pub mod walk;

pub use format::{Child, FormatError, List, Page};
