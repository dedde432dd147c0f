//! Real mounts: what is saved is what is seen, whoever looks and however the line is.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test says so by failing")]

#[path = "../resilience/bench.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod bench;
#[path = "../common/mod.rs"]
mod common;

mod contents;
mod life;
mod line;
mod looks;
mod mounted;
mod own;
mod tree;
