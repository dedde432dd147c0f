//! `kitbag cat`: a file's contents on standard output.

use crate::cli::args::Cat;
use crate::cli::error::{Exit, Failure};
use crate::cli::output::Output;
use crate::cli::select::named;
use crate::cli::{Context, catalog};
use crate::restore;

/// Writes the contents of a file.
///
/// # Errors
/// When it is not there, is no regular file, or cannot be read.
pub fn run(context: &Context, args: &Cat) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let (generation, found) = catalog::one(context, &repository, &args.generation)?;
    let mut output = Output::new();
    restore::cat(&repository, &generation, &named(&args.path), output.raw(), &context.cancel)?;
    output.finish()?;
    Ok(found)
}
