//! `kitbag ls`: one entry a line, like `ls -l`.

use crate::cli::args::Ls;
use crate::cli::error::{Exit, Failure};
use crate::cli::lines::Job;
use crate::cli::listing::{EntryLine, EntryReport};
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::select::{self, Start};
use crate::cli::{Context, catalog, connect};
use crate::dir::walk::{Visit, WalkError, walk};
use crate::generation::trees;
use crate::monitor::{Monitor as _, Problem, Severity};

/// Lists files of a generation.
///
/// # Errors
/// When they cannot be read, or a path is not there.
pub fn run(context: &Context, args: &Ls) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let (generation, found) = catalog::one(context, &repository, &args.generation)?;
    let source = connect::source(&repository);
    if args.paths.is_empty() || trees::are_cheap(&generation) {
        trees::fetch_ahead(&source, &generation)?;
    }
    let (starts, missing) = select::starts(&source, &generation, &args.paths)?;
    // Lines would be written through a live display.
    let progress = Progress::begin(Job::Check, &context.screen.without_display(), context.settings.verbosity);
    let mut output = Output::new();
    for Start { path, entry, .. } in starts {
        for visit in walk(&source, path, entry) {
            if context.cancel.is_cancelled() {
                return Err(Failure::interrupted());
            }
            match visit {
                Ok(Visit { path, entry, .. }) if context.settings.json => {
                    output.json(&EntryReport::new(&path, &entry))?;
                }
                Ok(Visit { path, entry, .. }) => {
                    output.line(EntryLine { path: &path, entry: &entry, is_long: args.long })?;
                }
                Err(WalkError { path, source }) if source.is_damage() => {
                    progress.problem(Problem::new(Severity::Damage, &path, source));
                }
                Err(WalkError { source, .. }) => return Err(source.into()),
            }
        }
    }
    output.finish()?;
    match missing {
        Some(failure) => Err(failure),
        None => Ok(super::worse(found, super::outcome(&progress))),
    }
}
