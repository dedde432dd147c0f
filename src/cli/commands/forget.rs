//! `kitbag forget`: a line for each generation that is forgotten, and why; of a dry run for each that is kept, too.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde::Serialize;

use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock, Timestamp};
use crate::cli::args::Forget;
use crate::cli::catalog::{self, Seen, Whose};
use crate::cli::error::{Exit, Failure};
use crate::cli::output::Output;
use crate::cli::report::{GenerationReport, TrafficReport, roots, traffic_line};
use crate::cli::settings::Verbosity;
use crate::cli::{Context, human};
use crate::forget::{self, Options, Plan, What, Why};
use crate::generation::{Found, Spec};
use crate::repo::Repository;
use crate::store::Traffic;

/// Forgets generations.
///
/// # Errors
/// Why nothing was forgotten, or not all.
pub fn run(context: &Context, args: &Forget) -> Result<Exit, Failure> {
    let clock = SystemClock::new();
    let options = Options { what: what(args)?, allow_empty: args.allow_empty, zone: TimeZone::system() };
    let whose = if args.all_clients { Whose::All } else { Whose::Of(&context.settings.client) };
    let store = context.store()?;
    let repository = context.open(store.clone())?;
    let done = forget(context, &repository, whose, &options, (clock.now(), args.dry_run))?;
    done.tell(context, clock.now(), (store.traffic(), clock.monotonic()))?;
    Ok(done.seen.exit)
}

/// What a policy keeps, written as the value of `option`.
///
/// # Errors
/// Usage: it is none.
pub fn policy(option: &str, text: &str) -> Result<What, Failure> {
    let policy = text.parse().map(What::Policy);
    policy.map_err(|error: forget::BadPolicy| Failure::usage(error.to_string()).about(option))
}

fn what(args: &Forget) -> Result<What, Failure> {
    if let Some(text) = &args.keep {
        return policy("keep", text);
    }
    let specs: Result<Vec<Spec>, _> = args.generations.iter().map(|spec| spec.parse()).collect();
    Ok(What::Named(specs?))
}

/// What became of all generations.
pub struct Done {
    /// The generations.
    pub seen: Seen,
    plan: Plan,
    dry_run: bool,
}

/// Looks, decides, and removes unless it is a dry run.
///
/// # Errors
/// Why nothing was forgotten, or not all.
pub fn forget(
    context: &Context,
    repository: &Repository,
    whose: Whose<'_>,
    options: &Options,
    (now, dry_run): (Timestamp, bool),
) -> Result<Done, Failure> {
    let seen = catalog::look(context, repository, whose)?;
    let plan = forget::plan(&seen.found, options, now)?;
    if !dry_run {
        let strays: Vec<_> =
            seen.listed.iter().flat_map(|(client, files)| forget::stray_tags(*client, files)).collect();
        forget::carry_out(&**repository.cached(), &seen.found, &plan, &strays)?;
    }
    Ok(Done { seen, plan, dry_run })
}

#[derive(Serialize)]
struct Report {
    dry_run: bool,
    forgotten: u64,
    kept: u64,
    generations: Vec<OneReport>,
    traffic: TrafficReport,
    seconds: f64,
}

#[derive(Serialize)]
struct OneReport {
    id: String,
    generation: Option<GenerationReport>,
    forgotten: bool,
    reason: String,
}

impl Done {
    /// Each generation and what became of it: by client, oldest first.
    fn each(&self) -> Vec<(&Found, &Why)> {
        let mut each: Vec<_> = self.seen.found.iter().zip(&self.plan.0).collect();
        each.sort_by_key(|(one, _)| {
            let record = one.record.as_ref().ok();
            (record.map(|record| &record.client), record.map(|record| record.started), one.id)
        });
        each
    }

    /// How many were (or would be) forgotten, and how many kept.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let Plan(whys) = &self.plan;
        let forgotten = u64::try_from(whys.iter().filter(|why| why.forgets()).count()).unwrap_or(u64::MAX);
        (forgotten, u64::try_from(whys.len()).unwrap_or(u64::MAX).saturating_sub(forgotten))
    }

    fn tell(
        &self,
        context: &Context,
        now: Timestamp,
        (traffic, time): (Traffic, Duration),
    ) -> Result<(), Failure> {
        let mut output = Output::new();
        let (forgotten, kept) = self.counts();
        let verbosity = context.settings.verbosity;
        if context.settings.json {
            let report = |(one, why): (&Found, &Why)| OneReport {
                id: one.id.to_string(),
                generation: one.record.as_ref().ok().map(|record| GenerationReport::new(record, now, true)),
                forgotten: why.forgets(),
                reason: why.to_string(),
            };
            output.json(&Report {
                dry_run: self.dry_run,
                forgotten,
                kept,
                generations: self.each().into_iter().map(report).collect(),
                traffic: traffic.into(),
                seconds: time.as_secs_f64(),
            })?;
        } else if verbosity > Verbosity::Quiet {
            let all = self.dry_run || verbosity > Verbosity::Normal;
            self.lines(all).iter().try_for_each(|line| output.line(line))?;
            let verb = if self.dry_run { "would forget" } else { "forgot" };
            let generations = human::counted(forgotten, "generation", "generations");
            output.line(format_args!(
                "{verb} {generations}, {} kept, {}",
                human::count(kept),
                human::duration(time)
            ))?;
            traffic_line(traffic).map_or(Ok(()), |line| output.line(line))?;
        }
        output.finish()
    }

    /// A line for each that is forgotten, or for all.
    #[must_use]
    pub fn lines(&self, all: bool) -> Vec<String> {
        let line = |(one, why): (&Found, &Why)| {
            let verb = if why.forgets() { "forget" } else { "keep" };
            let (client, started, roots) = match &one.record {
                Ok(record) => (
                    escape(record.client.as_bytes()),
                    human::local_time(record.started),
                    roots(record, false),
                ),
                Err(_) => (one.client.to_string(), "?".to_owned(), "?".to_owned()),
            };
            format!("{verb}\t{}\t{client}\t{started}\t{roots}\t{why}", one.id)
        };
        self.each().into_iter().filter(|(_, why)| all || why.forgets()).map(line).collect()
    }
}
