//! The `obbench` program.

#![expect(clippy::print_stderr, clippy::print_stdout, reason = "the program's own words to the user")]

mod orders;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use orders::Failure;

/// Measures backup programs over the links that people have.
#[derive(Parser)]
#[command(version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Order,
}

#[derive(Subcommand)]
enum Order {
    /// Measures what must hold everywhere, prints each figure with its limit, and fails where one does not hold.
    Smoke(orders::smoke::Smoke),

    /// Measures kitbag's local index with made-up chunks, and prints each figure with its limit.
    #[cfg(feature = "index")]
    Index(orders::index::Measure),

    /// Runs the benchmarks of specs and writes results, one JSON object a line.
    Run(orders::run::Run),

    /// Makes one HTML page of all results in a directory.
    Report(orders::report::Report),

    /// Compares two directories of results, and fails where the second is worse than wanted.
    Compare(orders::compare::Compare),

    /// Passes an SFTP server's input and output through and reports every packet (started by sshd).
    #[command(hide = true)]
    Meter {
        /// Where the meter listens.
        #[arg(long)]
        socket: PathBuf,
        /// The SFTP server.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Order::Smoke(order) => order.run(),
        #[cfg(feature = "index")]
        Order::Index(order) => order.run(),
        Order::Run(order) => order.run(),
        Order::Report(order) => order.run(),
        Order::Compare(order) => order.run(),
        Order::Meter { socket, command } => obbench::meter::tap::run(&socket, &command)
            .map(|status| ExitCode::from(u8::try_from(status.code().unwrap_or(255)).unwrap_or(255)))
            .map_err(Failure::from),
    };
    result.unwrap_or_else(|error| {
        eprintln!("obbench: {error}");
        ExitCode::FAILURE
    })
}
