//! Runs that outlive what happens to the line, the server, the disk and the program itself: the real program, over a real
//! `sshd` behind a relay that cuts and blackholes. Whatever happened, at the end `fsck` finds nothing and the restored tree
//! is the saved one.
//!
//! `KITBAG_TEST_LONG=1 cargo nextest run --profile long --test resilience` runs the long forms.

#![expect(clippy::expect_used, reason = "a test says so by failing")]
#![expect(clippy::print_stdout, reason = "what was measured is shown with the test")]

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod cuts;
mod disk;
mod killed;
mod servers;
