//! The file system that is backed up, and restored to.
//!
//! Everything here goes through file descriptors of directories ([`LiveDir`]), one name at a time and never
//! following a symbolic link, so that a tree may be deeper than `PATH_MAX`, and so that nobody who swaps a directory
//! for a link while we work can lead us out of the tree. Paths exist for messages only.
//!
//! A backup lists ([`LiveDir::names`]), looks ([`stat::stat_child`]: one system call per entry, nothing allocated)
//! and reads ([`read::LiveFile`]); what has changed on the way is told, not hidden. A restore writes through
//! [`apply::Target`], which knows the order in which metadata sticks.
//!
//! Nothing here prints, and nothing is fatal: a file that cannot be read or made is a [`LiveError`], which the caller
//! reports with the path and goes on.

pub mod apply;
pub mod dirs;
mod error;
pub mod exclude;
mod fds;
pub mod flags;
pub mod names;
pub mod own;
pub mod owners;
pub mod read;
pub mod stat;
#[cfg(test)]
mod testing;
pub mod xattrs;

pub use apply::{NewFile, OwnerBy, Target};
pub use dirs::{DirFd, LiveDir};
pub use error::{LiveError, Result};
pub use exclude::Exclude;
pub use fds::raise_open_file_limit;
pub use names::NameList;
pub use own::{Own, OwnNames, OwnPlaces};
pub use owners::Owners;
pub use read::{Alteration, Finished, LiveFile, Segment, read_link, read_small};
pub use stat::Stat;
pub use xattrs::RawXattr;
