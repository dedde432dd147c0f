//! `kitbag remove-client`: all generations of a client.

use serde::Serialize;

use crate::base::text::escape;
use crate::cli::args::RemoveClient;
use crate::cli::catalog::{self, Whose};
use crate::cli::error::{Exit, Failure};
use crate::cli::output::Output;
use crate::cli::settings::Verbosity;
use crate::cli::{Context, ask, human};
use crate::forget;
use crate::generation::{Found, leases};
use crate::store::layout;

#[derive(Serialize)]
struct Report {
    client: String,
    generations: u64,
}

/// Forgets all generations of a client, whatever their tags, when a person says so.
///
/// # Errors
/// That there is no such client, or nobody said so.
pub fn run(context: &Context, args: &RemoveClient) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let sessions = repository.store().list(&layout::directory("sessions"));
    let seen = catalog::look(context, &repository, Whose::Of(&args.client))?;
    let client = escape(args.client.as_bytes());
    if seen.found.is_empty() {
        return Err(Failure::failed(format!("the client {client} has no generations")));
    }
    let count = u64::try_from(seen.found.len()).unwrap_or(u64::MAX);
    let generations = human::counted(count, "generation", "generations");
    if !args.yes {
        let is_tagged = |one: &&Found| one.record.as_ref().is_ok_and(|record| !record.tags.is_empty());
        let tagged = match seen.found.iter().filter(is_tagged).count() {
            0 => String::new(),
            tagged => format!(", {tagged} of them tagged"),
        };
        let question = format!("Forget {generations} of client {client}{tagged}? (yes or no) ");
        let is_meant = ask::yes_or_no(&context.screen, &question).map_err(|_no_terminal| {
            Failure::failed("there is nobody to ask").hint("say --yes if that is meant")
        })?;
        if !is_meant {
            return Err(Failure::failed("nothing was forgotten"));
        }
    }
    let whose = repository.keys().names().client_id(args.client.as_bytes());
    for held in leases::of(&sessions.wait()?).iter().filter(|held| held.client == whose) {
        context.screen.say(&format!(
            "kitbag: the session {} of this client is not at its end, and may yet make a generation; `kitbag sessions revoke {}` keeps it from that",
            held.id, held.id
        ));
    }
    let strays: Vec<_> =
        seen.listed.iter().flat_map(|(client, files)| forget::stray_tags(*client, files)).collect();
    forget::remove(&**repository.cached(), &seen.found, &strays)?;
    let mut output = Output::new();
    if context.settings.json {
        output.json(&Report { client, generations: count })?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        output.line(format_args!("forgot {generations} of client {client}"))?;
    }
    output.finish()?;
    // What could not be read is gone now.
    Ok(Exit::Done)
}
