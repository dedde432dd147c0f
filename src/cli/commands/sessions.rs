//! `kitbag sessions`: who is writing to the repository, and since when by the server's clock; and putting an end to it.

use serde::Serialize;

use crate::base::text::escape;
use crate::base::time::Timestamp;
use crate::cli::args::Sessions;
use crate::cli::error::{Exit, Failure};
use crate::cli::human::{local_time, rfc3339};
use crate::cli::output::Output;
use crate::cli::settings::Verbosity;
use crate::cli::{Context, catalog};
use crate::generation::leases::{self, Held};
use crate::repo::Repository;
use crate::store::layout;

#[derive(Serialize)]
struct Report {
    session: String,
    client: Option<String>,
    client_id: String,
    since: String,
    revoked: bool,
}

/// Lists the sessions, or revokes one.
///
/// # Errors
/// When they cannot be read, or there is no such session.
pub fn run(context: &Context, what: Option<&Sessions>) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let listed = repository.store().list(&layout::directory("sessions")).wait();
    context.confirm(&repository)?;
    let all = leases::of(&listed?);
    match what {
        None => list(context, &repository, &all),
        Some(Sessions::Revoke { session }) => revoke(context, &repository, &all, session),
    }
}

fn list(context: &Context, repository: &Repository, all: &[Held]) -> Result<Exit, Failure> {
    let mut clients: Vec<_> = all.iter().map(|held| held.client).collect();
    clients.sort_unstable();
    clients.dedup();
    let mut names = catalog::names(context, &repository.catalog(), &clients)?;
    // This client is known without a record of it.
    let own = &context.settings.client;
    names.entry(repository.keys().names().client_id(own.as_bytes())).or_insert_with(|| own.clone());
    let mut output = Output::new();
    for held in all {
        let name = names.get(&held.client).map(|name| escape(name.as_bytes()));
        let since = Timestamp { secs: held.since, nanos: 0 };
        if context.settings.json {
            output.json(&Report {
                session: held.id.to_string(),
                client: name,
                client_id: held.client.to_string(),
                since: rfc3339(since),
                revoked: !held.is_whole,
            })?;
        } else {
            let name = name.unwrap_or_else(|| format!("{} (a client without generations)", held.client));
            let end = if held.is_whole { "" } else { "\t(revoked, or just at its end)" };
            output.line(format_args!(
                "{}\t{name}\tsince {} by the server's clock{end}",
                held.id,
                local_time(since)
            ))?;
        }
    }
    output.finish()?;
    if all.is_empty() {
        context.say_why_empty("nobody is writing to the repository");
    }
    Ok(Exit::Done)
}

fn revoke(context: &Context, repository: &Repository, all: &[Held], session: &str) -> Result<Exit, Failure> {
    let fitting: Vec<_> = all.iter().filter(|held| held.id.to_string().starts_with(session)).collect();
    let held = match fitting[..] {
        [held] if !session.is_empty() => held,
        [] => {
            return Err(Failure::failed(format!("there is no session {}", escape(session.as_bytes())))
                .hint("`kitbag sessions` lists them"));
        }
        _ => {
            let ids: Vec<_> = fitting.iter().map(|held| held.id.to_string()).collect();
            return Err(Failure::usage(format!(
                "{session:?} is the beginning of several sessions ({})",
                ids.join(", ")
            ))
            .hint("give more of the id"));
        }
    };
    if !leases::revoke(&**repository.store(), held.client, held.id)? {
        return Err(Failure::failed(format!("the session {} has just come to its end", held.id)));
    }
    let mut output = Output::new();
    if context.settings.json {
        output.json(&Report {
            session: held.id.to_string(),
            client: None,
            client_id: held.client.to_string(),
            since: rfc3339(Timestamp { secs: held.since, nanos: 0 }),
            revoked: true,
        })?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        output.line(format_args!("the session {} was revoked: it can publish nothing any more", held.id))?;
    }
    output.finish()?;
    Ok(Exit::Done)
}
