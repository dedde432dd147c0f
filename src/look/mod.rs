//! Looking at generations without mounting them.
//!
//! [`versions`] walks several generations at once: what they share, which is most of it, is read once, so that looking through a year of nights costs
//! little more than looking through one. [`find`] looks for files in it, [`diff`] compares two of them. [`live`] compares one with the live data, which needs
//! its directories and no contents; [`export`] writes one as a tar archive.

pub mod acl;
pub mod diff;
pub mod export;
pub mod feed;
pub mod find;
pub mod live;
pub mod tar;
pub mod versions;

pub use diff::{Aspect, Change, Difference};
pub use export::ExportError;
pub use find::{Query, Version};
pub use versions::{Met, Set, Start, Versions};
