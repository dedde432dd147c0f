//! Stores for tests: one in memory that can be copied and damaged.
//!
//! They are part of the library so that the tests of every layer, and those in `tests/`, can use them; no operation does.
//! What a test asks of them and cannot be done (damaging a file that is not there) panics: such a test tests nothing.

pub mod memory;

pub use memory::MemoryStore;
