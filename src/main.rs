//! The `kitbag` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    kitbag::cli::run()
}
