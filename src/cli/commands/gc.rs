//! `kitbag gc`

use std::sync::Arc;

use serde::Serialize;

use crate::base::time::{Clock as _, SystemClock};
use crate::cli::Context;
use crate::cli::args::Gc;
use crate::cli::error::{Exit, Failure};
use crate::cli::human;
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::report::{TrafficReport, traffic_line};
use crate::cli::settings::Verbosity;
use crate::gc::{self, Amount, GcError, Options, Summary};
use crate::monitor::Monitor;
use crate::repo::OpenError;
use crate::store::Traffic;

#[derive(Serialize)]
struct Report {
    dry_run: bool,
    generations: u64,
    bags: u64,
    bytes: u64,
    bags_removed: u64,
    bytes_removed: u64,
    bags_waiting: u64,
    bytes_waiting: u64,
    remains_removed: u64,
    remains_bytes: u64,
    bags_repacked: u64,
    bytes_repacked: u64,
    bags_written: u64,
    bytes_written: u64,
    segments_written: u64,
    segments_removed: u64,
    sessions: u64,
    sessions_revoked: u64,
    traffic: TrafficReport,
    seconds: f64,
}

/// `--max-repack`, in bytes.
///
/// # Errors
/// Usage: it is no size.
pub fn max_repack(text: &str) -> Result<u64, Failure> {
    human::parse_bytes(text).ok_or_else(|| {
        Failure::usage(format!("--max-repack {text:?} is not a size such as 500M")).about("max-repack")
    })
}

/// Collects garbage.
///
/// # Errors
/// When it could not be collected.
pub fn run(context: &Context, args: &Gc) -> Result<Exit, Failure> {
    let clock = SystemClock::new();
    let mut options = Options { dry_run: args.dry_run, ..Options::new(&context.settings.client) };
    if let Some(text) = &args.max_repack {
        options.repack.most = max_repack(text)?;
    }
    let store = context.store()?;
    let repository = context.open(store.clone())?;
    let progress = Arc::new(Progress::begin(Job::Check, &context.screen, context.settings.verbosity));
    let monitor: Arc<dyn Monitor> = progress.clone();
    let outcome = gc::run(&repository, &options, &monitor, &context.cancel);
    progress.end();
    if let Err(GcError::Open(error)) = &outcome
        && !matches!(error, OpenError::Store(_))
    {
        context.forget();
    }
    let (summary, traffic, time) = (outcome?, store.traffic(), clock.monotonic());
    let mut output = Output::new();
    if context.settings.json {
        output.json(&report(&options, &summary, traffic, time.as_secs_f64()))?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        let first = format!(
            "{} in {}, {}",
            human::counted(summary.generations, "generation", "generations"),
            amount(summary.bags),
            human::duration(time)
        );
        for line in [first].into_iter().chain(lines(&options, &summary)).chain(traffic_line(traffic)) {
            output.line(line)?;
        }
    }
    output.finish()?;
    Ok(super::outcome(&progress))
}

fn report(options: &Options, summary: &Summary, traffic: Traffic, seconds: f64) -> Report {
    Report {
        dry_run: options.dry_run,
        generations: summary.generations,
        bags: summary.bags.files,
        bytes: summary.bags.bytes,
        bags_removed: summary.removed.files,
        bytes_removed: summary.removed.bytes,
        bags_waiting: summary.waiting.files,
        bytes_waiting: summary.waiting.bytes,
        remains_removed: summary.remains.files,
        remains_bytes: summary.remains.bytes,
        bags_repacked: summary.repacked.files,
        bytes_repacked: summary.repacked.bytes,
        bags_written: summary.written.files,
        bytes_written: summary.written.bytes,
        segments_written: summary.segments_written,
        segments_removed: summary.segments_removed,
        sessions: summary.sessions,
        sessions_revoked: summary.revoked,
        traffic: traffic.into(),
        seconds,
    }
}

fn amount(amount: Amount) -> String {
    format!("{} of {}", human::counted(amount.files, "bag", "bags"), human::bytes(amount.bytes))
}

/// What was done, or would be.
pub(super) fn lines(options: &Options, summary: &Summary) -> Vec<String> {
    let (removed, remains) = match options.dry_run {
        true => ("would be removed", "would go, too"),
        false => ("removed", "are gone, too"),
    };
    let mut lines = Vec::new();
    if summary.repacked.files > 0 {
        lines.push(match options.dry_run {
            true => format!(
                "{} would be looked through, and what is needed of them copied",
                amount(summary.repacked)
            ),
            false => format!("{} repacked into {}", amount(summary.repacked), amount(summary.written)),
        });
    }
    match summary.removed.files {
        0 => lines.push("nothing to remove now".to_owned()),
        _ => lines.push(format!("{} {removed}", amount(summary.removed))),
    }
    if summary.remains.files > 0 {
        lines.push(format!(
            "{} of {} that dead uploads have left {remains}",
            human::counted(summary.remains.files, "file", "files"),
            human::bytes(summary.remains.bytes)
        ));
    }
    if summary.waiting.files > 0 {
        lines.push(format!(
            "{} that {} might still refer to: a later run removes them",
            amount(summary.waiting),
            human::counted(summary.sessions, "session that is writing", "sessions that are writing")
        ));
    }
    if summary.segments_written > 0 || summary.segments_removed > 0 {
        lines.push(format!(
            "made {} of {}",
            human::counted(summary.segments_written, "index segment", "index segments"),
            summary.segments_removed
        ));
    }
    lines
}
