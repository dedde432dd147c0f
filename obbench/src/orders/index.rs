//! `obbench index`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use obbench::index;

use super::Failure;

/// The arguments of `obbench index`.
#[derive(Args)]
pub struct Measure {
    /// How many chunks the index has; may be repeated
    #[arg(long, value_name = "NUMBER", default_value = "10000000", value_parser = clap::value_parser!(u64).range(1..=4_000_000_000))]
    chunks: Vec<u64>,

    /// Where it is made: 12 to 25 bytes for each chunk [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

impl Measure {
    /// Measures; a failure where a figure does not hold.
    ///
    /// # Errors
    /// When the index cannot be made.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let scratch = self.scratch.unwrap_or_else(std::env::temp_dir);
        let mut good = true;
        for chunks in self.chunks {
            for figure in index::measure(chunks, &scratch)? {
                good &= figure.holds();
                println!("{figure}");
            }
        }
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
