//! `kitbag serve`: what an ordinary client does through it, and what a hostile one cannot.

#![expect(clippy::expect_used, reason = "a test says so by failing")]
#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

#[path = "../common/mod.rs"]
mod common;

mod attack;
mod client;
mod future;
mod hostile;
mod ordinary;
mod trouble;
