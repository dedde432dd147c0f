//! `kitbag last-backup-age`: a plugin for Nagios and its kin.
//!
//! Whatever happens, a monitor reads one line on standard output and an exit code of its own kind; so this command's failures do not go the way of
//! the others'. Of [`Exit`] only the numbers count here.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::id::ClientId;
use crate::base::time::{Clock as _, SystemClock, Timestamp};
use crate::cli::args::LastBackupAge;
use crate::cli::catalog::{self, Whose};
use crate::cli::config::definition::Typed;
use crate::cli::error::{Exit, Failure};
use crate::cli::nightly::age::{Client, Judgement, Limits, State, line, worst};
use crate::cli::output::Output;
use crate::cli::{Context, human};
use crate::generation::Found;
use crate::generation::spec::{is_from_future, is_ordinary};

/// Its name on the command line.
const NAME: &str = "last-backup-age";

/// Judges, and says so.
#[must_use]
pub fn run(context: &Context, args: &LastBackupAge) -> Exit {
    match judge(context, args).and_then(|judged| say(context, &judged)) {
        Ok(state) => exit(state),
        Err(failure) => unknown(&failure.to_string(), context.settings.json),
    }
}

/// Whether this command was typed, though the line may make no sense: its word is the first that names a command, or none does and it stands somewhere.
#[must_use]
pub fn is_meant(typed: &Typed) -> bool {
    match typed.command.first() {
        Some(command) => command == NAME,
        None => typed.words.iter().any(|word| word == NAME),
    }
}

/// Says that nothing can be said.
#[must_use]
pub fn unknown(why: &str, json: bool) -> Exit {
    // What comes before an empty line has it; the rest is of use to people who type.
    let said = why.lines().map(str::trim).take_while(|line| !line.is_empty());
    let why = said.collect::<Vec<_>>().join(" ");
    let why = why.trim_start_matches("error: ");
    let mut output = Output::new();
    let said = match json {
        true => output.json(&serde_json::json!({ "state": State::Unknown, "error": why })),
        false => output.line(format_args!("{} - {}", State::Unknown.word(), why.replace('|', "_"))),
    };
    // There is nobody left to tell.
    let _ = said.and_then(|()| output.finish());
    exit(State::Unknown)
}

fn exit(state: State) -> Exit {
    match state {
        State::Ok => Exit::Done,
        State::Warning => Exit::Failed,
        State::Critical => Exit::Usage,
        State::Unknown => Exit::Incomplete,
    }
}

fn say(context: &Context, judged: &[Judgement]) -> Result<State, Failure> {
    let mut output = Output::new();
    match context.settings.json {
        true => judged.iter().try_for_each(|one| output.json(one))?,
        false => output.line(line(judged))?,
    }
    output.finish()?;
    Ok(worst(judged))
}

/// As many waits as `generations` for one client, or as `clients` for all.
fn judge(context: &Context, args: &LastBackupAge) -> Result<Vec<Judgement>, Failure> {
    let limits = limits(args)?;
    let repository = context.open(context.store()?)?;
    let now = SystemClock::new().now();
    let name = args.client.as_ref().unwrap_or(&context.settings.client);
    let whose = if args.all_clients { Whose::All } else { Whose::Of(name) };
    let mut clients: BTreeMap<ClientId, Vec<Found>> = BTreeMap::new();
    let found = catalog::look(context, &repository, whose)?.found;
    found.into_iter().for_each(|one| clients.entry(one.client).or_default().push(one));
    if !args.all_clients {
        // One without generations is judged, too.
        clients.entry(repository.keys().names().client_id(name.as_bytes())).or_default();
    }
    let only = (!args.all_clients).then_some(name.as_str());
    let clients = clients.into_iter().map(|(id, found)| client(only, id, found, now));
    let mut clients: Vec<_> = clients.collect();
    clients.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(clients.iter().map(|client| client.judge(limits, now)).collect())
}

/// What is known of a client by its generations.
fn client(name: Option<&str>, id: ClientId, found: Vec<Found>, now: Timestamp) -> Client {
    let mut client = Client { name: name.unwrap_or_default().to_owned(), ..Client::default() };
    for one in found {
        let Ok(record) = one.record else {
            client.unreadable = client.unreadable.saturating_add(1);
            continue;
        };
        if client.name.is_empty() {
            client.name.clone_from(&record.client);
        }
        if is_from_future(&record, now) {
            client.future = client.future.saturating_add(1);
        }
        let is_newer = client.newest.is_none_or(|(id, started)| (started, id) < (record.started, record.id));
        if is_ordinary(&record, now) && is_newer {
            client.newest = Some((record.id, record.started));
        }
    }
    if client.name.is_empty() {
        client.name = id.to_string();
    }
    client
}

/// `--warn` or `--critical`.
///
/// # Errors
/// Usage: it is no time.
pub fn age(option: &str, text: &str) -> Result<Duration, Failure> {
    human::parse_time(text).ok_or_else(|| {
        Failure::usage(format!("--{option} {text:?} is no time")).hint("write it as in 90m, 26h or 2d")
    })
}

fn limits(args: &LastBackupAge) -> Result<Limits, Failure> {
    let limits = Limits { warn: age("warn", &args.warn)?, critical: age("critical", &args.critical)? };
    if limits.warn > limits.critical {
        return Err(Failure::usage("--warn is more than --critical").hint("a warning comes first"));
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::args::Args;
    use crate::cli::config::definition::Definition;

    #[test]
    fn it_is_meant_by_its_word_in_the_place_of_a_command() {
        let is_ours = |line: &str| {
            let words = line.split(' ').map(Into::into).collect();
            is_meant(&Definition::new(Args::command()).typed(words).expect("no help is wanted"))
        };
        assert!(is_ours("kitbag last-backup-age --typo") && is_ours("kitbag -q last-backup-age"));
        assert!(is_ours("kitbag --typo last-backup-age --warn 1h"), "nothing else is a command there");
        assert!(!is_ours("kitbag backup last-backup-age --typo") && !is_ours("kitbag generations"));
    }

    #[test]
    fn the_numbers_are_those_of_plugins() {
        let states = [State::Ok, State::Warning, State::Critical, State::Unknown];
        assert_eq!(states.map(|state| exit(state).code()), [0, 1, 2, 3]);
    }
}
