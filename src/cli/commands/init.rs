//! `kitbag init`

use serde::Serialize;

use crate::cli::Context;
use crate::cli::args::{Encryption, Init};
use crate::cli::error::{Exit, Failure};
use crate::cli::output::Output;
use crate::cli::settings::Verbosity;

#[derive(Serialize)]
struct Report {
    repository: String,
    id: String,
}

/// Makes a repository.
///
/// # Errors
/// Why there is none.
pub fn run(context: &Context, args: &Init) -> Result<Exit, Failure> {
    let encrypted = args.encryption.unwrap_or_default() == Encryption::Passphrase;
    let repository = context.init(context.store()?, encrypted)?;
    let (at, id) = (repository.store().describe(), repository.id().to_string());
    let mut output = Output::new();
    if context.settings.json {
        output.json(&Report { repository: at, id })?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        output.line(format_args!("made the repository {id} at {at}"))?;
        if encrypted {
            output.line("Keep the passphrase in a safe place: without it nothing can be restored.")?;
        }
    }
    output.finish()?;
    Ok(Exit::Done)
}
