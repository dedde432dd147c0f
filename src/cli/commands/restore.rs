//! `kitbag restore`

use std::sync::Arc;

use serde::Serialize;

use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock};
use crate::cli::args::Restore;
use crate::cli::error::{Exit, Failure};
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::report::{TrafficReport, roots, traffic_line};
use crate::cli::select::named;
use crate::cli::settings::Verbosity;
use crate::cli::{Context, catalog, human};
use crate::generation::{Generation, Spec};
use crate::live::OwnerBy;
use crate::monitor::Monitor;
use crate::restore::{self, Options};

#[derive(Serialize)]
struct Report {
    generation: String,
    to: String,
    entries: u64,
    files: u64,
    kept: u64,
    links: u64,
    bytes: u64,
    problems: u64,
    traffic: TrafficReport,
    seconds: f64,
}

/// Brings files of a generation back.
///
/// # Errors
/// Why it came to no end. What could not be restored on the way shows in the exit code.
pub fn run(context: &Context, args: &Restore) -> Result<Exit, Failure> {
    let clock = SystemClock::new();
    let store = context.store()?;
    let repository = context.open(store.clone())?;
    // That it makes no sense is told before anything is asked.
    let spec: Spec = args.generation.parse()?;
    let all = catalog::all(context, &repository)?;
    let (generation, found) = catalog::choose(context, &all, &args.generation)?;
    if spec == Spec::Latest(0) && args.paths.is_empty() {
        tell_of_others(context, &all.0, &generation);
    }
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let options = Options {
        paths: args.paths.iter().map(|path| named(path)).collect(),
        to: args.to.clone(),
        strip_root: args.strip_root,
        owner_by: if args.owners_by_name { OwnerBy::Name } else { OwnerBy::Number },
        workers: processors.clamp(2, 8),
    };
    let progress = Arc::new(Progress::begin(Job::Restore, &context.screen, context.settings.verbosity));
    let monitor: Arc<dyn Monitor> = progress.clone();
    let outcome = restore::run(&repository, &generation, &options, &monitor, &context.cancel);
    progress.end();
    let (summary, traffic, time) = (outcome?, store.traffic(), clock.monotonic());
    let mut output = Output::new();
    if context.settings.json {
        output.json(&Report {
            generation: generation.id.to_string(),
            to: escape(args.to.as_os_str().as_encoded_bytes()),
            entries: summary.entries,
            files: summary.files,
            kept: summary.kept,
            links: summary.links,
            bytes: summary.bytes,
            problems: summary.failed,
            traffic: traffic.into(),
            seconds: time.as_secs_f64(),
        })?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        let problems = match summary.failed {
            0 => String::new(),
            failed => format!("; {} could not be restored", human::count(failed)),
        };
        output.line(format_args!(
            "restored {} of generation {} below {}: {} written, {} there already, {}{problems}",
            human::counted(summary.entries, "entry", "entries"),
            generation.id,
            escape(args.to.as_os_str().as_encoded_bytes()),
            human::bytes(summary.bytes),
            human::count(summary.kept),
            human::duration(time)
        ))?;
        traffic_line(traffic).map_or(Ok(()), |line| output.line(line))?;
    }
    output.finish()?;
    Ok(match super::worse(found, super::outcome(&progress)) {
        Exit::Done if summary.failed > 0 => Exit::Incomplete,
        exit => exit,
    })
}

/// Other sets of roots told of at most.
const TOLD: usize = 3;

/// Says what `latest` does not bring back, where other roots are backed up by runs of their own.
fn tell_of_others(context: &Context, all: &[Generation], latest: &Generation) {
    if context.settings.verbosity == Verbosity::Quiet {
        return;
    }
    let only = roots(latest, false);
    for other in catalog::beside(all, latest, SystemClock::new().now()).into_iter().take(TOLD) {
        let (roots, id) = (roots(other, false), other.id);
        context
            .screen
            .say(&format!("kitbag: latest is of {only} only; {roots} was saved by itself: -g {id}"));
    }
}
