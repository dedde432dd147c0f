//! Generations as a file system.
//!
//! ```text
//! kernel ──> fuse.rs: one function for each request
//!              │ names, inodes, attributes                  │ bytes
//!              v                                            v
//!        tree.rs ── upper.rs: clients, dates, links    file.rs ── extents.rs: what lies where
//!           │  └── dirs.rs: numbers of inodes             │  └── ahead.rs: how far to read ahead
//!           v                                             v
//!        pages.rs: decoded pages and lists             contents::blocks: opened ones, within a budget
//!           └───────────> tree bags, from the cache       └───────────> data bags
//! ```
//!
//! What was saved never changes, so the kernel may keep what it is told of it for ever: names, attributes, contents. Only what stands above the generations is
//! asked for again.
//!
//! **Waits.** A generation's tree bags are fetched when somebody first looks into it, in two or three flights, and kept in the local cache. From then on names and attributes
//! cost no round trip, however many are asked for. Contents are read ahead along the file's chunk list, neighbours together; several readers do not
//! wait for each other.
//!
//! **Memory** is bounded: opened blocks have a budget, decoded pages too; what grows is a record for each directory that was looked into, and one for each
//! file with several names that was met.
//!
//! **What cannot be read** is an I/O error to whoever reads, and told to the monitor. A store that has given up is the end: the file system is unmounted, so that
//! nobody waits for ever.

mod ahead;
mod clients;
mod dirs;
mod extents;
mod file;
mod fuse;
mod node;
mod opened;
mod pages;
mod place;
mod readers;
mod refresh;
mod roots;
#[cfg(test)]
mod testing;
mod tree;
mod trouble;
mod upper;

use std::path::PathBuf;
use std::time::Duration;

use crate::base::id::GenerationId;

pub use clients::Clients;
pub use fuse::session::{Ended, MountError, Mounted, mount};
pub use place::PlaceError;
pub use upper::Client;

/// Bytes of opened tree blocks that are kept.
const OPENED: usize = 16 << 20;

/// What to show, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory to mount on.
    pub at: PathBuf,
    /// The one generation to show, directly below `at`; clients and generations if there is none.
    pub generation: Option<GenerationId>,
    /// The client whose latest generation the top's link `latest` leads to.
    pub client: String,
    /// Whether other users may look, too. Then permissions count as they were saved; else whoever mounts may read everything.
    pub allow_other: bool,
    /// Bytes of opened blocks to keep.
    pub memory: usize,
    /// How old the list of generations may be.
    pub refresh: Duration,
}
