//! obbench: the instrument that measures backup programs over the links that people have.
//!
//! Of use to anybody's tests as well as to the benchmarks are:
//!
//! * [`sshd`]: an OpenSSH server of one's own on loopback, with its keys and a ready client configuration;
//! * [`relay`]: a slow, distant or failing line to it;
//! * [`manifest`]: all that can be said of a tree, to compare it before and after;
//! * [`meter`]: what a client asks of it;
//! * [`need`]: whether a program that a test needs is there, and whether the test may be skipped without it;
//! * [`process`]: finding, stopping and killing the processes that a child has started.
//!
//! Everything here talks to 127.0.0.1 only and removes what it made when it is dropped.

pub mod clock;
pub mod compare;
#[cfg(feature = "index")]
pub mod index;
pub mod interrupt;
pub mod manifest;
pub mod measure;
pub mod meter;
pub mod need;
pub mod process;
pub mod random;
pub mod relay;
pub mod report;
pub mod result;
pub mod run;
pub mod smoke;
pub mod spec;
pub mod sshd;
pub mod tool;
pub mod workload;
