//! What makes a backup something that runs by itself, every night, for years.
//!
//! Around the backup there are questions and companions, each in a file of its own, and [`night`] puts them in their order:
//!
//! 1. Is this the time? Not on [`battery`], not on a [`metered`] line, where that was said; and not while another run of
//!    the same client to the same repository has its [`turn`]. Whoever is skipped says so in a line and ends with 0:
//!    nothing is wrong.
//! 2. The machine is kept from falling asleep ([`inhibit`]) for as long as the process lives, and not a moment longer.
//! 3. The [`hook`]s run before and after, with what was decided and what came of it on their standard input.
//! 4. What came of it is left for a collector of [`metrics`].
//!
//! [`age`] is the other side: it judges, for a monitor, how old the last backup is.
//!
//! None of this costs a request: all of it is between kitbag and its own machine.

pub mod age;
pub mod battery;
pub mod hook;
pub mod inhibit;
pub mod metered;
pub mod metrics;
pub mod night;
pub mod turn;
