//! `obbench compare`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use obbench::compare::{Condition, compare};
use obbench::result;

use super::Failure;

/// The arguments of `obbench compare`.
#[derive(Args)]
pub struct Compare {
    /// Results to compare with: a directory or a file
    before: PathBuf,

    /// Results to compare
    after: PathBuf,

    /// Fail where this applies to the ratio of after to before, such as 'wall > 1.1'; may be repeated
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,
}

impl Compare {
    /// Prints the table; a failure where a condition applies, or where nothing could be compared.
    ///
    /// # Errors
    /// When results cannot be read, or have nothing in common.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let lines = compare(&result::read(&self.before)?, &result::read(&self.after)?);
        if lines.is_empty() {
            return Err("the two have no measurement in common".into());
        }
        let mut good = true;
        for line in &lines {
            let fails = self.fail_if.iter().any(|condition| condition.applies(line));
            good &= !fails;
            let [before, after] = line.values;
            let verdict = if fails { "  FAIL" } else { "" };
            println!(
                "{:60} {:10} {before:14.2} {after:14.2} {:7.2} ×{verdict}",
                line.what,
                line.metric,
                line.ratio()
            );
        }
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
