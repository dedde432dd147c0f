//! `kitbag clients`: who backs up to the repository, how many generations each has, and the last of them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::id::ClientId;
use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock, Timestamp};
use crate::cli::Context;
use crate::cli::catalog::{self, NOTHING_YET, Seen, Whose};
use crate::cli::error::{Exit, Failure};
use crate::cli::human::{counted, local_time, rfc3339};
use crate::cli::output::Output;
use crate::generation::Generation;
use crate::generation::spec::is_ordinary;

#[derive(Serialize)]
struct Report {
    client: String,
    generations: u64,
    last: Option<String>,
    last_started: Option<String>,
}

/// What is known of a client.
#[derive(Default)]
struct Known {
    name: Option<String>,
    /// Its generations, be they readable or not.
    generations: u64,
    /// The last one that is complete and not dated in the future.
    last: Option<Generation>,
}

/// Lists the clients of the repository, by name. Three flights.
///
/// # Errors
/// When they cannot be read.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let Seen { found, exit, .. } = catalog::look(context, &repository, Whose::All)?;
    let now = SystemClock::new().now();
    let mut clients: BTreeMap<ClientId, Known> = BTreeMap::new();
    for one in found {
        let known = clients.entry(one.client).or_default();
        known.generations = known.generations.saturating_add(1);
        let Ok(record) = one.record else { continue };
        known.name.get_or_insert_with(|| record.client.clone());
        let order = |one: &Generation| (one.started, one.id);
        if is_ordinary(&record, now) && known.last.as_ref().is_none_or(|last| order(last) < order(&record)) {
            known.last = Some(record);
        }
    }
    let mut named: Vec<_> = clients
        .into_iter()
        // Of a client whose records are all damaged not even the name is known.
        .map(|(id, known)| {
            (known.name.clone().map_or_else(|| id.to_string(), |name| escape(name.as_bytes())), known)
        })
        .collect();
    if named.is_empty() {
        context.say_why_empty(NOTHING_YET);
    }
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut output = Output::new();
    for (client, Known { generations, last, .. }) in named {
        if context.settings.json {
            let last_started = last.as_ref().map(|last| rfc3339(last.started));
            let last = last.map(|last| last.id.to_string());
            output.json(&Report { client, generations, last, last_started })?;
        } else {
            let last = last.map_or_else(|| "none is complete".to_owned(), |last| line(last.id, last.started));
            output.line(format_args!(
                "{client}\t{}\t{last}",
                counted(generations, "generation", "generations")
            ))?;
        }
    }
    output.finish()?;
    Ok(exit)
}

fn line(id: crate::base::id::GenerationId, started: Timestamp) -> String {
    format!("last {} ({id})", local_time(started))
}
