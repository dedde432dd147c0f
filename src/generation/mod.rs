//! Generations: their records, the sessions that make them, and the bags they need.

pub mod baglist;
pub mod bucket;
pub mod catalog;
pub mod draft;
pub mod format;
pub mod leases;
pub mod locate;
pub mod session;
pub mod spec;
pub mod tags;
pub mod trees;

pub use baglist::BagCounter;
pub use catalog::{Catalog, CatalogError, Found, TagFile};
pub use draft::Draft;
pub use format::{BagListRef, BagUse, Counts, Generation, Root};
pub use session::{Session, SessionError, Started};
pub use spec::{Spec, SpecError};
