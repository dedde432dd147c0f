//! `obbench run`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use obbench::spec::Spec;
use obbench::{result, run, tool};

use super::Failure;

/// The arguments of `obbench run`.
#[derive(Args)]
pub struct Run {
    /// What to measure; obbench/README.md shows the form
    #[arg(required = true, value_name = "SPEC")]
    specs: Vec<PathBuf>,

    /// Where results go, one file for each spec
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// The kitbag program to measure [default: the one beside this program, or in the path]
    #[arg(long, value_name = "PROGRAM")]
    kitbag: Option<PathBuf>,

    /// Where trees and repositories are made [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

impl Run {
    /// Measures.
    ///
    /// # Errors
    /// A wrong spec, a broken bench, a disk that is full.
    pub fn run(self) -> Result<ExitCode, Failure> {
        // All specs are looked at before the first hour is spent.
        let specs = self.specs.iter().map(|path| Spec::read(path)).collect::<Result<Vec<_>, _>>()?;
        std::fs::create_dir_all(&self.out)?;
        obbench::interrupt::install()?;
        let scratch = self.scratch.unwrap_or_else(std::env::temp_dir);
        for (path, spec) in self.specs.iter().zip(&specs) {
            let mut tools = Vec::new();
            for name in &spec.tools {
                match tool::find(name, self.kitbag.as_deref()) {
                    Some(tool) => tools.push(tool),
                    None => eprintln!("left out: {name} is not installed, or not known"),
                }
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let file = self.out.join(format!("{name}-{}.jsonl", obbench::clock::unix_seconds()));
            run::run(spec, &tools, &scratch, |record| {
                println!(
                    "{} {} {} {}: {:.2} s, {} MB{}",
                    record.workload,
                    record.link,
                    record.tool,
                    record.step,
                    record.measured.wall_s,
                    record.measured.peak_rss_bytes / 1_000_000,
                    record.complaint.as_ref().map(|text| format!(" FAILED: {text}")).unwrap_or_default(),
                );
                result::append(&file, &record)
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
