//! Garbage collection: what it costs, what it leaves, and that whatever happens at whatever moment takes nothing that a generation needs.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]
#![expect(clippy::print_stdout, reason = "what was explored is shown with the test")]
#![expect(clippy::disallowed_methods, reason = "how much is tried, the environment says")]

mod bench;
mod collects;
mod dice;
mod explore;
mod full;
mod killed;
mod many;
mod repacks;
mod sequences;
