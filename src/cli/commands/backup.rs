//! `kitbag backup`

use std::collections::BTreeSet;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::nightly::{After, Plan};
use crate::backup::{self, BackupError, Options, Summary};
use crate::base::text::escape;
use crate::base::time::{Clock, SystemClock};
use crate::cli::Context;
use crate::cli::args::{Backup, Compression, Encryption};
use crate::cli::connect::place;
use crate::cli::error::{Exit, Failure};
use crate::cli::human;
use crate::cli::lines::{Job, Snapshot};
use crate::cli::log;
use crate::cli::nightly::metrics::Figures;
use crate::cli::nightly::night::{Made, Night, Planned};
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::report::{GenerationReport, TrafficReport, traffic_line};
use crate::cli::select::absolute;
use crate::cli::settings::{Verbosity, host_name};
use crate::compress::Level;
use crate::generation::tags;
use crate::live::exclude::Rules;
use crate::monitor::Monitor;
use crate::repo::{OpenError, Repository};
use crate::store::discard::Discard;
use crate::store::{SharedStore, Traffic};

/// Saves files as a new generation.
///
/// # Errors
/// Why there is none.
pub fn run(context: &Context, args: &Backup) -> Result<Exit, Failure> {
    let here = context.here()?;
    let planned = Planned {
        hook: "before",
        client: context.settings.client.clone(),
        repository: place(&context.location()?),
        roots: args.roots.iter().map(|root| escape(&absolute(root, &here))).collect(),
        dry_run: args.dry_run,
    };
    let prepare = || Ok((options(context, args)?, Plan::of(args)?));
    let night = Night::of(context, &args.nightly, planned)?;
    night.around(prepare, |(options, plan)| back_up(context, args, options, &plan))
}

/// The backup itself, and what is said of it.
fn back_up(context: &Context, args: &Backup, mut options: Options, plan: &Plan) -> Result<Made, Failure> {
    let clock = SystemClock::new();
    let mut store = context.store()?;
    if args.dry_run {
        store = Arc::new(Discard::new(store));
    }
    let mut repository = open(context, args, &store)?;
    // Not before all of it is there.
    options.exclude = options.exclude.with_own(context.own_places());
    let progress = Arc::new(Progress::begin(Job::Backup, &context.screen, context.settings.verbosity));
    let monitor: Arc<dyn Monitor> = progress.clone();
    let mut run = |repository: &Repository| {
        options.index_dir = repository.index_dir();
        backup::run(repository, &options, &monitor, &clock, &context.cancel)
    };
    let mut outcome = run(&repository);
    if let Err(BackupError::Open(
        OpenError::Replaced { .. } | OpenError::NoRepository { .. } | OpenError::MissingConfig { .. },
    )) = outcome
    {
        // What was kept of the repository was out of date, and nothing was published: once more, without it.
        if let Err(error) = &outcome {
            context.screen.say(&format!("kitbag: {error}; it is opened anew"));
        }
        context.forget();
        repository = open(context, args, &store)?;
        outcome = run(&repository);
    }
    let after = outcome.is_ok().then(|| plan.carry_out(context, &repository, &monitor));
    progress.end();
    let (summary, Some(after)) = (outcome?, after) else { return Err(Failure::failed("nothing was done")) };
    let exit = after.exit(super::outcome(&progress));
    let told = Told {
        summary: &summary,
        counts: progress.snapshot(),
        problems: progress.lost(),
        traffic: store.traffic(),
        time: clock.monotonic(),
        dry_run: args.dry_run,
        exit,
        after: &after,
    };
    let report = told.report(&clock);
    told.lines().iter().for_each(|line| context.screen.log(log::Level::Info, line));
    // The backup was made, whether anybody hears of it or not.
    let unheard = told.say(context, &report).err();
    let report = serde_json::to_value(&report).map_err(|error| Failure::output(&error.into()))?;
    let figures = told.figures();
    Ok(Made { report, figures, exit, failure: after.failure.or(unheard) })
}

/// Opens the repository (a dry run without the cache, which would keep what was never stored), or makes it where that was asked for and there is none.
fn open(context: &Context, args: &Backup, store: &SharedStore) -> Result<Repository, Failure> {
    let opened =
        if args.dry_run { context.open_bare(store.clone()) } else { context.open_unasked(store.clone()) };
    match opened {
        Err(failure) if args.init && failure.exit == Exit::NoRepository => {
            let encrypted = args.encryption.unwrap_or_default() == Encryption::Passphrase;
            match args.dry_run {
                true => context.init_bare(store.clone(), encrypted),
                false => context.init(store.clone(), encrypted),
            }
        }
        opened => opened,
    }
}

/// What is left out.
///
/// # Errors
/// When a file of patterns cannot be read.
pub fn rules(args: &Backup) -> Result<Rules, Failure> {
    let mut rules = Rules {
        caches: args.exclude_caches,
        if_present: args
            .exclude_if_present
            .iter()
            .map(|name| name.clone().into_os_string().into_vec())
            .collect(),
        one_file_system: args.one_file_system,
        ..Rules::default()
    };
    args.exclude_files.iter().try_for_each(|file| exclude_from(&mut rules, file))?;
    rules.globs.extend(args.excludes.iter().cloned());
    Ok(rules)
}

/// Adds the patterns of a file.
///
/// # Errors
/// Usage: it cannot be read, or is no text.
pub fn exclude_from(rules: &mut Rules, file: &Path) -> Result<(), Failure> {
    let text = std::fs::read(file).map_err(|error| {
        Failure::usage(format!("cannot read --exclude-from {}: {error}", file.display()))
            .about("exclude-from")
    })?;
    Ok(rules.add_lines(&text)?)
}

fn options(context: &Context, args: &Backup) -> Result<Options, Failure> {
    let here = context.here()?;
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    Ok(Options {
        roots: args.roots.iter().map(|root| absolute(root, &here)).collect(),
        client: context.settings.client.clone(),
        host: host_name()?,
        exclude: rules(args)?.build()?,
        level: match args.compression.unwrap_or_default() {
            Compression::Off => Level::Off,
            Compression::Fast => Level::Fast,
            Compression::Default => Level::Default,
            Compression::Max => Level::Max,
        },
        ignore_inode: args.ignore_inode,
        reread: args.reread,
        skip_if_unchanged: args.skip_if_unchanged,
        dry_run: args.dry_run,
        checkpoint: args.checkpoint.as_deref().map_or(Ok(backup::Every::default()), every)?,
        walkers: (processors * 2).clamp(4, 16),
        workers: processors.clamp(2, 16),
        words: words(args),
        tags: tags(args)?,
        index_dir: None,
        scratch: context.settings.scratch.clone(),
    })
}

/// The tags, each once, in order.
fn tags(args: &Backup) -> Result<Vec<String>, Failure> {
    args.tags.iter().try_for_each(|tag| tags::check(tag))?;
    let tags: BTreeSet<_> = args.tags.iter().cloned().collect();
    Ok(tags.into_iter().collect())
}

/// When checkpoints are made, by `--checkpoint`: every so many minutes, or bytes.
///
/// # Errors
/// Usage: it is neither.
pub fn every(text: &str) -> Result<backup::Every, Failure> {
    let mut every = backup::Every::default();
    let wrong = || {
        Failure::usage(format!("--checkpoint {text:?} is neither a time nor a size"))
            .about("checkpoint")
            .hint("write it as in 5m, 1h or 1G")
    };
    let is_time = text.ends_with(['s', 'm', 'h']);
    if is_time {
        let span: jiff::SignedDuration = text.parse().ok().ok_or_else(wrong)?;
        every.time = Duration::try_from(span).ok().ok_or_else(wrong)?;
    } else {
        every.bytes = human::parse_bytes(text).ok_or_else(wrong)?;
    }
    Ok(every)
}

/// What shaped the generation, as it could be typed again.
fn words(args: &Backup) -> Vec<String> {
    let mut words = Vec::new();
    let flags = [("--exclude-caches", args.exclude_caches), ("--one-file-system", args.one_file_system)];
    words.extend(flags.iter().filter(|(_, set)| *set).map(|(flag, _)| (*flag).to_owned()));
    words.extend(args.excludes.iter().map(|pattern| format!("--exclude={pattern}")));
    words.extend(args.exclude_files.iter().map(|file| format!("--exclude-from={}", file.display())));
    let names = args.exclude_if_present.iter().map(|name| escape(name.as_os_str().as_bytes()));
    words.extend(names.map(|name| format!("--exclude-if-present={name}")));
    words
}

/// What there is to tell at the end.
struct Told<'a> {
    summary: &'a Summary,
    counts: Snapshot,
    problems: u64,
    traffic: Traffic,
    time: Duration,
    dry_run: bool,
    exit: Exit,
    after: &'a After,
}

#[derive(Serialize)]
struct Report {
    generation: GenerationReport,
    dry_run: bool,
    exit: u8,
    problems: u64,
    files_read: u64,
    bytes_read: u64,
    bytes_stored: u64,
    forgotten: Option<u64>,
    bytes_removed: Option<u64>,
    traffic: TrafficReport,
    seconds: f64,
}

impl Told<'_> {
    fn say(&self, context: &Context, report: &Report) -> Result<(), Failure> {
        let mut output = Output::new();
        if context.settings.json {
            output.json(report)?;
        } else if context.settings.verbosity > Verbosity::Quiet {
            self.lines().iter().try_for_each(|line| output.line(line))?;
        }
        output.finish()
    }

    fn report(&self, clock: &dyn Clock) -> Report {
        let published = !self.summary.is_skipped;
        let (forgotten, bytes_removed) = self.after.counts();
        Report {
            generation: GenerationReport::new(&self.summary.generation, clock.now(), published),
            dry_run: self.dry_run,
            exit: self.exit.code(),
            problems: self.problems,
            files_read: self.counts.files_read,
            bytes_read: self.counts.bytes_read,
            bytes_stored: self.counts.stored,
            forgotten,
            bytes_removed,
            traffic: self.traffic.into(),
            seconds: self.time.as_secs_f64(),
        }
    }

    fn figures(&self) -> Figures {
        let counts = &self.summary.generation.counts;
        Figures {
            files: counts.files,
            bytes: counts.bytes,
            new_bytes: self.counts.new_bytes,
            stored_bytes: self.counts.stored,
            problems: self.problems,
            traffic: self.traffic,
        }
    }

    fn lines(&self) -> Vec<String> {
        let generation = &self.summary.generation;
        let counts = &generation.counts;
        let (id, files) = (generation.id, human::counted(counts.files, "file", "files"));
        let what = if self.dry_run {
            "would save".to_owned()
        } else if self.summary.is_skipped {
            "nothing has changed since the last generation:".to_owned()
        } else {
            format!("generation {id}:")
        };
        let problems = match self.problems {
            0 => String::new(),
            problems => format!("; {} could not be saved", human::count(problems)),
        };
        let read = human::counted(self.counts.files_read, "file", "files");
        let stored = if self.dry_run { "to be stored" } else { "stored" };
        let mut lines = vec![
            format!("{what} {files}, {}{problems}", human::bytes(counts.bytes)),
            format!(
                "{read} read ({}), {} new, {} {stored}, {}",
                human::bytes(self.counts.bytes_read),
                human::bytes(self.counts.new_bytes),
                human::bytes(self.counts.stored),
                human::duration(self.time)
            ),
        ];
        lines.extend(self.after.lines());
        lines.extend(traffic_line(self.traffic));
        lines
    }
}
