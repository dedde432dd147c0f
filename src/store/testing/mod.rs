//! Stores for tests: one in memory that can be copied and damaged, and wrappers that count calls and fail on purpose.
//!
//! They are part of the library so that the tests of every layer, and those in `tests/`, can use them; no operation does.
//! What a test asks of them and cannot be done (damaging a file that is not there, a fault that never fires) panics: such a test tests nothing.

pub mod call_log;
pub mod faults;
pub mod memory;

pub use call_log::CallLog;
pub use faults::{Fault, FaultyStore};
pub use memory::MemoryStore;

/// The calls of [`Store`](super::Store) and [`Upload`](super::Upload).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// `Store::list`
    List,
    /// `Store::read`
    Read,
    /// `Store::read_tail`
    ReadTail,
    /// `Store::read_all`
    ReadAll,
    /// `Store::create`
    Create,
    /// `Upload::append`
    Append,
    /// `Upload::commit`
    Commit,
    /// Dropping an upload without committing it.
    Abandon,
    /// `Store::remove`
    Remove,
    /// `Store::rename`
    Rename,
    /// `Store::make_dir`
    MakeDir,
}

impl Op {
    /// Whether it changes what is stored.
    #[must_use]
    pub fn mutates(self) -> bool {
        !matches!(self, Self::List | Self::Read | Self::ReadTail | Self::ReadAll)
    }
}
