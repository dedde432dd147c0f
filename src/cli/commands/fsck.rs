//! `kitbag fsck`

use std::sync::Arc;

use serde::Serialize;

use crate::base::time::{Clock as _, SystemClock};
use crate::cli::Context;
use crate::cli::args::Fsck;
use crate::cli::error::{Exit, Failure};
use crate::cli::human;
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::report::{TrafficReport, traffic_line};
use crate::cli::settings::Verbosity;
use crate::fsck::{self, Options, Summary};
use crate::monitor::Monitor;
use crate::store::Traffic;

#[derive(Serialize)]
struct Report {
    sound: bool,
    damaged: u64,
    generations: u64,
    bags: u64,
    objects: u64,
    bytes_read: u64,
    segments_written: u64,
    segments_removed: u64,
    traffic: TrafficReport,
    seconds: f64,
}

/// Checks the repository; what is damaged is told as it is found.
///
/// # Errors
/// When it cannot be checked. That it is damaged shows in the exit code.
pub fn run(context: &Context, args: &Fsck) -> Result<Exit, Failure> {
    let clock = SystemClock::new();
    let store = context.store()?;
    // What is kept of it here proves nothing.
    let repository = context.open_bare(store.clone())?;
    let options = Options {
        read_data: args.read_data,
        rebuild_index: args.rebuild_index,
        client: context.settings.client.clone(),
    };
    let progress = Arc::new(Progress::begin(Job::Check, &context.screen, context.settings.verbosity));
    let monitor: Arc<dyn Monitor> = progress.clone();
    let outcome = fsck::run(&repository, &options, &monitor, &clock, &context.cancel);
    progress.end();
    let (summary, traffic, time) = (outcome?, store.traffic(), clock.monotonic());
    let mut output = Output::new();
    if context.settings.json {
        output.json(&report(&summary, traffic, time.as_secs_f64()))?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        for line in lines(&summary, traffic, &human::duration(time)) {
            output.line(line)?;
        }
    }
    output.finish()?;
    Ok(if summary.damages > 0 { Exit::Damaged } else { super::outcome(&progress) })
}

fn report(summary: &Summary, traffic: Traffic, seconds: f64) -> Report {
    let Summary { generations, bags, objects, bytes, damages, notes: _, segments_written, segments_removed } =
        *summary;
    Report {
        sound: damages == 0,
        damaged: damages,
        generations,
        bags,
        objects,
        bytes_read: bytes,
        segments_written,
        segments_removed,
        traffic: traffic.into(),
        seconds,
    }
}

fn lines(summary: &Summary, traffic: Traffic, time: &str) -> Vec<String> {
    let verdict = match summary.damages {
        0 => "the repository is sound".to_owned(),
        damages => format!("the repository is damaged: {}", human::counted(damages, "file", "files")),
    };
    let mut lines = vec![format!(
        "{verdict}; {}, {}, {}; {} read and verified, {time}",
        human::counted(summary.generations, "generation", "generations"),
        human::counted(summary.bags, "bag", "bags"),
        human::counted(summary.objects, "object", "objects"),
        human::bytes(summary.bytes)
    )];
    if summary.segments_written > 0 || summary.segments_removed > 0 {
        lines.push(format!(
            "made the index anew: {} written, {} removed",
            human::counted(summary.segments_written, "segment", "segments"),
            human::counted(summary.segments_removed, "segment", "segments")
        ));
    }
    lines.extend(traffic_line(traffic));
    lines
}
