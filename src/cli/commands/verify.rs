//! `kitbag verify`: a line for each path that differs, with what differs, and a summary.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock};
use crate::cli::args::Verify;
use crate::cli::error::{Exit, Failure};
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::report::{TrafficReport, traffic_line};
use crate::cli::select;
use crate::cli::settings::Verbosity;
use crate::cli::{Context, catalog, connect, human};
use crate::generation::trees;
use crate::monitor::Monitor;
use crate::verify::{self, Difference, Options, Start, What};

#[derive(Serialize)]
struct DifferenceReport {
    path: String,
    differs: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    generation: String,
    entries: u64,
    files_read: u64,
    bytes_read: u64,
    bytes_fetched: u64,
    different: u64,
    problems: u64,
    traffic: TrafficReport,
    seconds: f64,
}

/// Compares a generation with the live data.
///
/// # Errors
/// Why it came to no end. Differences show in the exit code.
pub fn run(context: &Context, args: &Verify) -> Result<Exit, Failure> {
    let clock = SystemClock::new();
    let store = context.store()?;
    let repository = context.open(store.clone())?;
    let (generation, found) = catalog::one(context, &repository, &args.generation)?;
    let source = connect::source(&repository);
    if args.paths.is_empty() || trees::are_cheap(&generation) {
        trees::fetch_ahead(&source, &generation)?;
    }
    let (starts, missing) = select::starts(&source, &generation, &args.paths)?;
    if let Some(failure) = missing {
        return Err(failure);
    }
    let starts = starts.into_iter().map(|start| {
        let select::Start { root, path, entry } = start;
        Start { root, path, entry }
    });
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let options = Options {
        starts: starts.collect(),
        random: args.random,
        read_data: args.read_data,
        own: Arc::new(context.own_places()),
        workers: processors.clamp(2, 16),
    };
    let progress = Arc::new(Progress::begin(Job::Verify, &context.screen, context.settings.verbosity));
    let monitor: Arc<dyn Monitor> = progress.clone();
    let output = Mutex::new((Output::new(), Ok(())));
    let tell = |difference: &Difference| {
        context.screen.pause(|| {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            let (output, outcome) = &mut *output;
            if outcome.is_ok() {
                *outcome = line(context, output, difference);
            }
        });
    };
    let outcome = verify::run(&source, &options, &tell, &monitor, &context.cancel);
    progress.end();
    let (mut output, told) = output.into_inner().unwrap_or_else(PoisonError::into_inner);
    told?;
    let (summary, traffic, time) = (outcome?, store.traffic(), clock.monotonic());
    if context.settings.json {
        output.json(&Report {
            generation: generation.id.to_string(),
            entries: summary.entries,
            files_read: summary.files,
            bytes_read: summary.bytes,
            bytes_fetched: summary.fetched,
            different: summary.different,
            problems: progress.lost().saturating_add(progress.damage()),
            traffic: traffic.into(),
            seconds: time.as_secs_f64(),
        })?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        let fetched = match args.read_data {
            true => format!(", {} fetched and verified", human::bytes(summary.fetched)),
            false => String::new(),
        };
        output.line(format_args!(
            "{} of generation {} compared, {} differ; {} ({}) read{fetched}, {}",
            human::counted(summary.entries, "entry", "entries"),
            generation.id,
            human::count(summary.different),
            human::counted(summary.files, "file", "files"),
            human::bytes(summary.bytes),
            human::duration(time)
        ))?;
        traffic_line(traffic).map_or(Ok(()), |line| output.line(line))?;
    }
    output.finish()?;
    Ok(match super::worse(found, super::outcome(&progress)) {
        Exit::Done if summary.different > 0 => Exit::Incomplete,
        exit => exit,
    })
}

fn line(context: &Context, output: &mut Output, difference: &Difference) -> Result<(), Failure> {
    let differs: Vec<String> = difference.what.iter().map(What::to_string).collect();
    let path = escape(&difference.path);
    if context.settings.json {
        output.json(&DifferenceReport { path, differs })
    } else {
        output.line(format_args!("{}\t{path}", differs.join(", ")))
    }
}
