//! Garbage collection: what it costs, what it leaves, and that whatever happens at whatever moment takes nothing that a generation needs.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

mod bench;
mod collects;
mod explore;
mod killed;
mod repacks;
mod sequences;
