//! `obbench report`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use obbench::{report, result};

use super::Failure;

/// The arguments of `obbench report`.
#[derive(Args)]
pub struct Report {
    /// Results: a directory or a file
    results: PathBuf,

    /// Where the page goes [default: report.html in the current directory]
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
}

impl Report {
    /// Writes the page.
    ///
    /// # Errors
    /// When results cannot be read, there are none, or the page cannot be written.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let records = result::read(&self.results)?;
        if records.is_empty() {
            return Err(format!("there are no results in {}", self.results.display()).into());
        }
        std::fs::write(&self.out, report::page(&records)?)?;
        println!("{}", self.out.display());
        Ok(ExitCode::SUCCESS)
    }
}
