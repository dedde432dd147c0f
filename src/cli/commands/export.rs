//! `kitbag export`: a tar archive on standard output.

use std::io::IsTerminal as _;

use crate::cli::args::Export;
use crate::cli::error::{Exit, Failure};
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::select::{self, Start};
use crate::cli::{Context, catalog, connect};
use crate::generation::trees;
use crate::look::export;

/// Writes an archive of a generation, or a part of it.
///
/// # Errors
/// When it cannot be read or written, or a path is not there.
pub fn run(context: &Context, args: &Export) -> Result<Exit, Failure> {
    if std::io::stdout().is_terminal() {
        return Err(Failure::usage("an archive is not written to a terminal")
            .hint("send it to a file or a program: kitbag export > files.tar"));
    }
    let repository = context.open(context.store()?)?;
    let (generation, found) = catalog::one(context, &repository, &args.generation)?;
    let source = connect::source(&repository);
    if args.paths.is_empty() || trees::are_cheap(&generation) {
        trees::fetch_ahead(&source, &generation)?;
    }
    let (starts, missing) = select::starts(&source, &generation, &args.paths)?;
    if let (Some(missing), true) = (missing, starts.is_empty() || !args.paths.is_empty()) {
        // Half an archive helps nobody.
        return Err(missing);
    }
    let starts = starts.into_iter().map(|Start { path, entry, .. }| (path, entry)).collect();
    let progress = Progress::begin(Job::Restore, &context.screen, context.settings.verbosity);
    let mut output = Output::new();
    let exported = export::export(&source, starts, output.raw(), &progress, &context.cancel);
    progress.end();
    exported?;
    output.finish()?;
    Ok(super::worse(found, super::outcome(&progress)))
}
