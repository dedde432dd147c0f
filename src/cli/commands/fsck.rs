//! `kitbag fsck`

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::base::id::BagId;
use crate::base::time::{Clock as _, SystemClock};
use crate::cache::Kind;
use crate::cli::Context;
use crate::cli::args::Fsck;
use crate::cli::error::{Exit, Failure};
use crate::cli::human;
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::report::{TrafficReport, traffic_line};
use crate::cli::settings::Verbosity;
use crate::fsck::{self, FsckError, Options, Portion, Summary};
use crate::monitor::Monitor;
use crate::repo::Repository;
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
    bytes_left_out: u64,
    quarantined: u64,
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
    // What is kept of it here proves nothing: it only opens the repository, and says where the last reading of a part of the data ended.
    let repository = context.open(store.clone())?;
    let portion = portion(args, &repository)?;
    let options = Options {
        read_data: portion,
        rebuild_index: args.rebuild_index,
        repair: args.repair,
        client: context.settings.client.clone(),
    };
    let progress = Arc::new(Progress::begin(Job::Check, &context.screen, context.settings.verbosity));
    let monitor: Arc<dyn Monitor> = progress.clone();
    let outcome = fsck::run(&repository, &options, &monitor, &clock, &context.cancel);
    progress.end();
    if let Err(FsckError::Open(_)) = &outcome {
        context.forget();
    }
    let read_up_to = match &outcome {
        Ok(summary) => summary.read_up_to,
        Err(FsckError::Interrupted { read_up_to, .. }) => *read_up_to,
        Err(_) => None,
    };
    if portion.is_some() {
        remember(&repository, read_up_to);
    }
    let (summary, traffic, time) = (outcome?, store.traffic(), clock.monotonic());
    let mut output = Output::new();
    if context.settings.json {
        output.json(&report(&summary, traffic, time.as_secs_f64()))?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        for line in lines(&summary, args.read_data, traffic, &human::duration(time)) {
            output.line(line)?;
        }
    }
    output.finish()?;
    Ok(if summary.damages > 0 { Exit::Damaged } else { super::outcome(&progress) })
}

/// `--sample`
///
/// # Errors
/// Usage: it is no share.
pub fn share(text: &str) -> Result<u32, Failure> {
    human::parse_share(text).ok_or_else(|| {
        Failure::usage(format!("--sample {text:?} is no share"))
            .about("sample")
            .hint("write it as in 5% or 0.5%")
    })
}

/// `--time-budget`
///
/// # Errors
/// Usage: it is no time.
pub fn time_budget(text: &str) -> Result<Duration, Failure> {
    human::parse_time(text).ok_or_else(|| {
        Failure::usage(format!("--time-budget {text:?} is no time"))
            .about("time-budget")
            .hint("write it as in 90s, 15m or 2h")
    })
}

/// How much of the data to read, and from where.
fn portion(args: &Fsck, repository: &Repository) -> Result<Option<Portion>, Failure> {
    if !args.read_data {
        return Ok(None);
    }
    let mut portion = Portion {
        share: args.sample.as_deref().map(share).transpose()?,
        time: args.time_budget.as_deref().map(time_budget).transpose()?,
        ..Portion::default()
    };
    if portion != Portion::default() {
        let kept = repository.cache().get(Kind::Listing, SCRUBBED);
        // Without a memory it begins anywhere, so that each part is read now and then.
        portion.after = Some(kept.and_then(|bytes| BagId::from_slice(&bytes)).unwrap_or_else(BagId::random));
    }
    Ok(Some(portion))
}

/// The name in the cache of what was read last of the data.
const SCRUBBED: &str = "scrubbed";

/// Keeps where the next reading of a part goes on.
fn remember(repository: &Repository, last: Option<BagId>) {
    if let Some(last) = last {
        repository.cache().put(Kind::Listing, SCRUBBED, last.as_bytes());
    }
}

fn report(summary: &Summary, traffic: Traffic, seconds: f64) -> Report {
    let Summary { generations, bags, objects, bytes, damages, segments_written, segments_removed, .. } =
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
        bytes_left_out: summary.left_out,
        quarantined: summary.quarantined,
        traffic: traffic.into(),
        seconds,
    }
}

fn lines(summary: &Summary, read_data: bool, traffic: Traffic, time: &str) -> Vec<String> {
    let verdict = match summary.damages {
        0 if read_data => "the repository is sound".to_owned(),
        0 => {
            "the repository is sound, as far as it shows without the files' contents, which --read-data reads"
                .to_owned()
        }
        damages => format!("the repository is damaged: {}", human::counted(damages, "file", "files")),
    };
    let mut lines = vec![format!(
        "{verdict}; {}, {}, {}; {} read and verified, {time}",
        human::counted(summary.generations, "generation", "generations"),
        human::counted(summary.bags, "bag", "bags"),
        human::counted(summary.objects, "object", "objects"),
        human::bytes(summary.bytes)
    )];
    if summary.left_out > 0 {
        let left = human::bytes(summary.left_out);
        lines.push(format!(
            "{left} of data were left out; the next run with --sample or --time-budget goes on there"
        ));
    }
    if summary.quarantined > 0 {
        let files = human::counted(
            summary.quarantined,
            "file that cannot be read is",
            "files that cannot be read are",
        );
        lines.push(format!("{files} in the repository's directory quarantine now"));
    }
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
