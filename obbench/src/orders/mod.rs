//! The program's commands.

pub mod compare;
#[cfg(feature = "index")]
pub mod index;
pub mod report;
pub mod run;
pub mod smoke;

/// Why a command did not do what it was to do; the sentence is all that is wanted of it.
pub type Failure = Box<dyn std::error::Error>;
