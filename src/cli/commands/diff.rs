//! `kitbag diff`: what differs between two generations, or between one and the live data.

use serde::Serialize;

use clap::Parser as _;

use super::backup;
use crate::base::text::escape;
use crate::cli::args::{Args, Command, Diff};
use crate::cli::error::{Exit, Failure};
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::select::{self, Start};
use crate::cli::{Context, catalog, connect, together};
use crate::dir::walk::WalkError;
use crate::generation::{Generation, trees};
use crate::live::exclude::Rules;
use crate::live::{Exclude, LiveError};
use crate::look::diff::difference;
use crate::look::live::{Comparison, Hears};
use crate::look::{Aspect, Change, Versions};
use crate::monitor::{Monitor as _, Problem, Severity};
use crate::repo::Repository;

/// What stands for the live data.
const LIVE: &str = "live";

/// Compares.
///
/// # Errors
/// When something cannot be read, or a path is not there.
pub fn run(context: &Context, args: &Diff) -> Result<Exit, Failure> {
    no_path(args)?;
    let repository = context.open(context.store()?)?;
    let all = catalog::all(context, &repository)?;
    let (old, mut exit) = catalog::choose(context, &all, &args.old)?;
    let screen = context.screen.without_display();
    let progress = Progress::begin(Job::Check, &screen, context.settings.verbosity);
    let mut told = Told { output: Output::new(), json: context.settings.json, any: false, failure: None };
    if args.new == LIVE {
        live(context, &repository, args, &old, &progress, &mut told)?;
    } else {
        let (new, found) = catalog::choose(context, &all, &args.new)?;
        exit = super::worse(exit, found);
        generations(context, &repository, args, [&old, &new], &progress, &mut told)?;
    }
    if let Some(failure) = told.failure {
        return Err(failure);
    }
    told.output.finish()?;
    Ok(match super::worse(exit, super::outcome(&progress)) {
        // As diff(1) does.
        Exit::Done if told.any => Exit::Failed,
        exit => exit,
    })
}

/// A path where a generation belongs, which has no slash in it.
fn no_path(args: &Diff) -> Result<(), Failure> {
    let (old, path) = match (args.old.contains('/'), args.new.contains('/')) {
        (true, _) => ("latest", &args.old),
        (false, true) => (args.old.as_str(), &args.new),
        (false, false) => return Ok(()),
    };
    let path = escape(path.as_bytes());
    let hint = format!("paths come third: kitbag diff {} {LIVE} {path}", escape(old.as_bytes()));
    Err(Failure::usage(format!("{path} does not name a generation")).hint(hint))
}

fn generations(
    context: &Context,
    repository: &Repository,
    args: &Diff,
    pair: [&Generation; 2],
    progress: &Progress,
    told: &mut Told,
) -> Result<(), Failure> {
    let source = connect::source(repository);
    trees::fetch_into_cache(&source, &pair, repository.cache())?;
    let mut versions = Versions::new(&source, together::starts(&source, &pair, &args.paths)?);
    while let Some(met) = versions.next() {
        if context.cancel.is_cancelled() {
            return Err(Failure::interrupted());
        }
        match met {
            Ok(met) => {
                let (change, goes_on) = difference(&met);
                if let Some(change) = change {
                    told.tell(&met.path, change);
                }
                if !goes_on {
                    versions.pass_by();
                }
            }
            Err(WalkError { path, source }) if source.is_damage() => {
                progress.problem(Problem::new(Severity::Damage, &path, source));
            }
            Err(WalkError { source, .. }) => return Err(source.into()),
        }
    }
    Ok(())
}

fn live(
    context: &Context,
    repository: &Repository,
    args: &Diff,
    old: &Generation,
    progress: &Progress,
    told: &mut Told,
) -> Result<(), Failure> {
    let source = connect::source(repository);
    if args.paths.is_empty() || trees::are_cheap(old) {
        trees::fetch_into_cache(&source, &[old], repository.cache())?;
    }
    let (starts, missing) = select::starts(&source, old, &args.paths)?;
    if let Some(missing) = missing {
        return Err(missing);
    }
    let exclude = left_out(old)?.with_own(context.own_places());
    let hears = Heard { told, progress };
    let mut comparison = Comparison::new(&source, &exclude, args.reread, hears, &context.cancel);
    for Start { root, path, entry } in starts {
        comparison.compare(&root, &path, &entry)?;
    }
    Ok(())
}

/// What the backup was told to leave out: it is not missed.
fn left_out(generation: &Generation) -> Result<Exclude, Failure> {
    let words = ["kitbag", "backup", "."].into_iter().chain(generation.options.iter().map(String::as_str));
    let rules = match Args::try_parse_from(words).map(|args| args.command) {
        Ok(Command::Backup(args)) => backup::rules(&args)?,
        // Made by a kitbag with other options: then nothing is left out.
        _ => Rules::default(),
    };
    Ok(rules.build()?)
}

struct Heard<'a> {
    told: &'a mut Told,
    progress: &'a Progress,
}

impl Hears for Heard<'_> {
    fn differs(&mut self, path: &[u8], change: Change) {
        self.told.tell(path, change);
    }

    fn unreadable(&mut self, path: &[u8], error: &LiveError) {
        self.progress.problem(Problem::new(Severity::Lost, path, format!("not compared: {error}")));
    }

    fn passed_by(&mut self, path: &[u8], why: &'static str) {
        self.progress.problem(Problem::new(Severity::Note, path, why));
    }
}

/// What was told.
struct Told {
    output: Output,
    json: bool,
    any: bool,
    failure: Option<Failure>,
}

#[derive(Serialize)]
struct Report {
    path: String,
    change: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    what: Vec<&'static str>,
}

impl Told {
    fn tell(&mut self, path: &[u8], change: Change) {
        self.any = true;
        let (letter, word, aspects) = match change {
            Change::Added => ('+', "added", Vec::new()),
            Change::Removed => ('-', "removed", Vec::new()),
            Change::Changed(aspects) => ('*', "changed", aspects),
        };
        let what: Vec<_> = aspects.into_iter().map(Aspect::name).collect();
        let path = escape(path);
        let told = match self.json {
            true => self.output.json(&Report { path, change: word, what }),
            false if what.is_empty() => self.output.line(format_args!("{letter} {path}")),
            false => self.output.line(format_args!("{letter} {path}: {}", what.join(", "))),
        };
        if let Err(failure) = told {
            self.failure.get_or_insert(failure);
        }
    }
}
