//! `kitbag clients`

use serde::Serialize;

use crate::base::text::escape;
use crate::cli::Context;
use crate::cli::catalog;
use crate::cli::error::{Exit, Failure};
use crate::cli::output::Output;

#[derive(Serialize)]
struct Report {
    client: String,
    generations: usize,
}

/// Lists the clients of the repository, by name.
///
/// # Errors
/// When they cannot be read.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let (clients, exit) = catalog::clients(context, &repository)?;
    let mut output = Output::new();
    for (client, generations) in clients {
        let client = escape(client.as_bytes());
        if context.settings.json {
            output.json(&Report { client, generations })?;
        } else {
            output.line(client)?;
        }
    }
    output.finish()?;
    Ok(exit)
}
