//! The command line: the only place that prints, reads the environment or knows a flag.

use std::process::ExitCode;

/// Runs the program with the arguments of the process.
#[must_use]
pub fn run() -> ExitCode {
    ExitCode::SUCCESS
}
