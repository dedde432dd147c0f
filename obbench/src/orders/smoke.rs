//! `obbench smoke`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use obbench::smoke::{self, Bench, Options, ROWS};
use obbench::tool;

use super::Failure;

/// The arguments of `obbench smoke`.
#[derive(Args)]
pub struct Smoke {
    /// The kitbag program to measure [default: the one beside this program, or in the path]
    #[arg(long, value_name = "PROGRAM")]
    kitbag: Option<PathBuf>,

    /// Measure another program, to see how it does
    #[arg(long, value_name = "NAME", default_value = "kitbag")]
    tool: String,

    /// Let kitbag use this transport
    #[arg(long, value_name = "WHICH")]
    transport: Option<String>,

    /// Measure only this row; may be repeated
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,

    /// The sizes that the promises were made for, which takes longer
    #[arg(long)]
    full: bool,

    /// Where trees and repositories are made [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Say which rows there are
    #[arg(long)]
    list: bool,
}

impl Smoke {
    /// Measures; a failure where a figure does not hold.
    ///
    /// # Errors
    /// When there is nothing to measure, or nowhere to do it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        if self.list {
            ROWS.iter().for_each(|row| {
                let long = if row.is_long { " (takes minutes: with --full, or named)" } else { "" };
                println!("{}: {}{long}", row.name, row.about);
            });
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(unknown) = self.only.iter().find(|name| ROWS.iter().all(|row| row.name != **name)) {
            return Err(format!("there is no row “{unknown}”; see obbench smoke --list").into());
        }
        let kitbag = self.kitbag.as_deref();
        let tool = match self.tool.as_str() {
            "kitbag" => tool::kitbag(kitbag, self.transport.as_deref()),
            name => tool::find(name, kitbag),
        };
        let tool = tool.ok_or_else(|| format!("{} is not installed, or not known", self.tool))?;
        obbench::interrupt::install()?;
        let options = if self.full { Options::full() } else { Options::quick() };
        let scratch = self.scratch.unwrap_or_else(std::env::temp_dir);
        let mut bench = Bench::new(tool, &scratch, options)?;
        let good = smoke::run(&mut bench, &self.only, |line| println!("{line}"));
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
