//! `kitbag find`: each state of each file that fits, and the generations that have it.

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::base::time::{Clock as _, SystemClock, Timestamp};
use crate::cli::args::{FileKind, Find};
use crate::cli::error::{Exit, Failure};
use crate::cli::human::{self, local_time};
use crate::cli::lines::Job;
use crate::cli::listing::{EntryLine, EntryReport};
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::{Context, catalog, connect, together};
use crate::dir::walk::WalkError;
use crate::entry::Kind;
use crate::generation::{Generation, trees};
use crate::look::{Query, Version, Versions};
use crate::monitor::{Monitor as _, Problem, Severity};

/// Looks for files.
///
/// # Errors
/// When generations cannot be read.
pub fn run(context: &Context, args: &Find) -> Result<Exit, Failure> {
    let query = query(args)?;
    let repository = context.open(context.store()?)?;
    let all = catalog::all(context, &repository)?;
    let (generations, found) = match args.generations.is_empty() {
        true => all,
        false => {
            let (mut chosen, mut exit) = (Vec::new(), Exit::Done);
            for spec in &args.generations {
                let (generation, found) = catalog::choose(context, &all, spec)?;
                exit = super::worse(exit, found);
                chosen.push(generation);
            }
            chosen.sort_by_key(|generation| (generation.started, generation.id));
            chosen.dedup_by_key(|generation| generation.id);
            (chosen, exit)
        }
    };
    let source = connect::source(&repository);
    let refer: Vec<_> = generations.iter().collect();
    trees::fetch_into_cache(&source, &refer, repository.cache())?;
    let starts = together::starts(&source, &refer, &args.paths)?;
    let progress = Progress::begin(Job::Check, &context.screen.without_display(), context.settings.verbosity);
    let mut output = Output::new();
    let mut any = false;
    for met in Versions::new(&source, starts) {
        if context.cancel.is_cancelled() {
            return Err(Failure::interrupted());
        }
        let met = match met {
            Ok(met) => met,
            Err(WalkError { path, source }) if source.is_damage() => {
                progress.problem(Problem::new(Severity::Damage, &path, source));
                continue;
            }
            Err(WalkError { source, .. }) => return Err(source.into()),
        };
        let path = met.path.clone();
        for version in query.versions(met) {
            any = true;
            let has = |number: &usize| generations.get(*number);
            let has: Vec<&Generation> = version.set.iter().filter_map(has).collect();
            if context.settings.json {
                output.json(&Report::new(&path, &version, &has))?;
            } else {
                output.line(EntryLine { path: &path, entry: &version.entry, is_long: false })?;
                output.line(Where(&has, generations.len()))?;
            }
        }
    }
    output.finish()?;
    if !any {
        let looked =
            human::counted(u64::try_from(generations.len()).unwrap_or(0), "generation", "generations");
        context.say_why_empty(&format!("nothing in {looked} is meant by that"));
    }
    Ok(super::worse(found, super::outcome(&progress)))
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    entry: EntryReport,
    generations: Vec<String>,
}

impl Report {
    fn new(path: &[u8], version: &Version, has: &[&Generation]) -> Self {
        Self {
            entry: EntryReport::new(path, &version.entry),
            generations: has.iter().map(|generation| generation.id.to_string()).collect(),
        }
    }
}

/// Which of so many generations have it.
struct Where<'a>(&'a [&'a Generation], usize);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one =
            |generation: &Generation| format!("{} of {}", generation.id, local_time(generation.started));
        match self.0 {
            [] => Ok(()),
            [only] => write!(f, "    in {}", one(only)),
            [first, .., last] => {
                let count = human::count(u64::try_from(self.0.len()).unwrap_or(u64::MAX));
                let all = human::count(u64::try_from(self.1).unwrap_or(u64::MAX));
                write!(f, "    in {count} of {all} generations, from {} to {}", one(first), one(last))
            }
        }
    }
}

fn query(args: &Find) -> Result<Query, Failure> {
    let mut query = Query::default();
    query.min_size = args.min_size.as_deref().map(|text| size("min-size", text)).transpose()?;
    query.max_size = args.max_size.as_deref().map(|text| size("max-size", text)).transpose()?;
    query.after = args.newer.as_deref().map(|text| when("newer", text)).transpose()?;
    query.before = args.older.as_deref().map(|text| when("older", text)).transpose()?;
    query.kinds = args.kinds.iter().flat_map(|kind| kinds(*kind)).copied().collect();
    args.patterns.iter().try_for_each(|pattern| query.add_name(pattern, args.ignore_case))?;
    Ok(query)
}

/// `--min-size` or `--max-size`, in bytes.
///
/// # Errors
/// Usage: it is no size.
pub fn size(option: &str, text: &str) -> Result<u64, Failure> {
    human::parse_bytes(text).ok_or_else(|| {
        Failure::usage(format!("--{option} {text:?} is no size"))
            .about(option)
            .hint("write it as in 500K or 10M")
    })
}

/// `--newer` or `--older`.
///
/// # Errors
/// Usage: it is no time.
pub fn when(option: &str, text: &str) -> Result<Timestamp, Failure> {
    time(text, SystemClock::new().now()).ok_or_else(|| {
        Failure::usage(format!("--{option} {text:?} is no time"))
            .about(option)
            .hint("write a date, as in 2026-11-30 or \"2026-11-30 14:00\", or how long ago, as in 7d")
    })
}

fn kinds(kind: FileKind) -> &'static [Kind] {
    match kind {
        FileKind::File => &[Kind::File],
        FileKind::Directory => &[Kind::Directory],
        FileKind::Symlink => &[Kind::Symlink],
        FileKind::Fifo => &[Kind::Fifo],
        FileKind::Socket => &[Kind::Socket],
        FileKind::Device => &[Kind::CharDevice, Kind::BlockDevice],
    }
}

/// A local date (its beginning) or time, or how long before `now`.
fn time(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Some(ago) = human::parse_time(text) {
        let secs = now.secs.saturating_sub(i64::try_from(ago.as_secs()).unwrap_or(i64::MAX));
        return Some(Timestamp { secs, ..now });
    }
    let zoned = text.parse::<DateTime>().ok()?.to_zoned(TimeZone::system()).ok()?;
    let stamp = zoned.timestamp();
    let nanos = u32::try_from(stamp.subsec_nanosecond()).unwrap_or(0);
    Some(Timestamp { secs: stamp.as_second(), nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_people_write() {
        let now = Timestamp { secs: 1_000_000, nanos: 7 };
        assert_eq!(time("2h", now), Some(Timestamp { secs: 1_000_000 - 7200, nanos: 7 }));
        assert!(time("2026-11-30", now) < time("2026-11-30 14:00", now));
        assert!(time("2026-11-30", now).is_some());
        assert_eq!(time("yesterday", now), None);
    }
}
