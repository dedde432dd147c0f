//! `kitbag mount`

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock};
use crate::cli::args::Mount;
use crate::cli::error::{Exit, Failure};
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::report::{TrafficReport, traffic_line};
use crate::cli::settings::Verbosity;
use crate::cli::{Context, daemon, human, select};
use crate::generation::Spec;
use crate::monitor::Monitor;
use crate::mount::{self, Client, Clients, Ended, Options};
use crate::store::SharedStore;
use crate::store::open::Location;

/// Bytes of contents that are kept unless said otherwise.
const MEMORY: u64 = 64 << 20;

/// How old the list of generations may be unless said otherwise.
const REFRESH: Duration = Duration::from_secs(60);

/// When it is mounted.
#[derive(Serialize)]
struct Began {
    mounted: String,
    generations: usize,
    traffic: TrafficReport,
    seconds: f64,
}

/// When it is unmounted.
#[derive(Serialize)]
struct Over {
    unmounted: String,
    problems: u64,
    traffic: TrafficReport,
    seconds: f64,
}

/// Mounts, and waits until it is unmounted.
///
/// # Errors
/// Why it cannot be mounted, or had to be unmounted.
pub fn run(context: &Context, args: &Mount) -> Result<Exit, Failure> {
    let is_behind = context.settings.in_background;
    if args.daemon && !is_behind {
        return in_background(context, args);
    }
    let clock = SystemClock::new();
    let store = context.store()?;
    let repository = context.open(store.clone())?;
    let own = args.client.as_ref().unwrap_or(&context.settings.client);
    let only = args.client.as_ref().or(args.generation.is_some().then_some(own));
    let clients = Clients::new(&repository, only.map(String::as_str));
    let screen = context.screen.without_progress();
    let progress = Arc::new(Progress::begin(Job::Check, &screen, context.settings.verbosity));
    let monitor: Arc<dyn Monitor> = progress.clone();
    let found = clients.read(&*monitor);
    context.confirm(&repository)?;
    let found = found?;
    let options = Options {
        at: args.at.clone(),
        generation: args.generation.as_deref().map(|spec| generation(spec, &found, own)).transpose()?,
        client: own.clone(),
        allow_other: args.allow_other,
        memory: usize::try_from(args.memory.as_deref().map_or(Ok(MEMORY), memory)?).unwrap_or(usize::MAX),
        refresh: args.refresh.as_deref().map_or(Ok(REFRESH), refresh)?,
    };
    let repository_dir = match context.location()? {
        Location::Local(path) => Some(path),
        Location::Sftp(_) => None,
    };
    let cache_dir = context.settings.cache.as_ref().map(|cache| cache.dir.clone());
    let mut taken: Vec<(&Path, &'static str)> = Vec::new();
    taken.extend(repository_dir.iter().map(|path| (&**path, "the repository")));
    taken.extend(cache_dir.iter().map(|path| (&**path, "the local cache")));
    let mounted = mount::mount(&repository, clients, &found, &options, &taken, monitor)?;
    let at = escape(mounted.at().as_os_str().as_encoded_bytes());
    if is_behind {
        daemon::ready(&context.screen)?;
    } else {
        let generations = found.iter().map(|client| client.generations.len()).sum();
        began(context, &at, generations, &store, clock)?;
    }
    drop(found);
    let ended = mounted.wait(&context.cancel);
    progress.end();
    if !is_behind {
        over(context, &at, &progress, &store, clock)?;
    }
    match ended {
        Ended::Unmounted | Ended::Cancelled => Ok(super::outcome(&progress)),
        Ended::Gone(error) => Err(error.into()),
    }
}

fn began(
    context: &Context,
    at: &str,
    generations: usize,
    store: &SharedStore,
    clock: SystemClock,
) -> Result<(), Failure> {
    let mut output = Output::new();
    if context.settings.json {
        let (traffic, seconds) = (store.traffic().into(), clock.monotonic().as_secs_f64());
        output.json(&Began { mounted: at.to_owned(), generations, traffic, seconds })?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        let count = u64::try_from(generations).unwrap_or(u64::MAX);
        output.line(format_args!(
            "{} on {at} until it is unmounted (fusermount3 -u) or Ctrl-C is pressed",
            human::counted(count, "generation", "generations")
        ))?;
    }
    output.finish()
}

fn over(
    context: &Context,
    at: &str,
    progress: &Progress,
    store: &SharedStore,
    clock: SystemClock,
) -> Result<(), Failure> {
    let mut output = Output::new();
    let traffic = store.traffic();
    if context.settings.json {
        let problems = progress.damage().saturating_add(progress.lost());
        let seconds = clock.monotonic().as_secs_f64();
        output.json(&Over { unmounted: at.to_owned(), problems, traffic: traffic.into(), seconds })?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        output.line(format_args!("unmounted {at}"))?;
        traffic_line(traffic).map_or(Ok(()), |line| output.line(line))?;
    }
    output.finish()
}

/// Has it done by another process, and waits until it is mounted.
fn in_background(context: &Context, args: &Mount) -> Result<Exit, Failure> {
    if let Err(status) = daemon::start()? {
        // It has said why.
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        let exit = code.and_then(Exit::from_code).unwrap_or(Exit::Failed);
        return Err(Failure::new(exit, ""));
    }
    let at = escape(&select::absolute(&args.at, &context.here()?));
    let mut output = Output::new();
    if context.settings.json {
        output.json(&serde_json::json!({ "mounted": at }))?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        output.line(format_args!("mounted on {at} until fusermount3 -u {at}"))?;
    }
    output.finish()?;
    Ok(Exit::Done)
}

fn generation(spec: &str, found: &[Client], client: &str) -> Result<crate::base::id::GenerationId, Failure> {
    let spec: Spec = spec.parse()?;
    let all: Vec<_> =
        found.iter().flat_map(|client| &client.generations).map(|opened| opened.record.clone()).collect();
    if all.is_empty() {
        return Err(Failure::failed(format!("the client {client} has no generations"))
            .hint("`kitbag clients` lists those that have, and --client chooses one"));
    }
    Ok(spec.find(&all, SystemClock::new().now())?.id)
}

/// `--memory`, in bytes.
///
/// # Errors
/// Usage: it is no size.
pub fn memory(text: &str) -> Result<u64, Failure> {
    human::parse_bytes(text).filter(|size| *size > 0).ok_or_else(|| {
        Failure::usage(format!("--memory {text:?} is no size"))
            .about("memory")
            .hint("write it as in 64M or 1G")
    })
}

/// `--refresh`
///
/// # Errors
/// Usage: it is no time.
pub fn refresh(text: &str) -> Result<Duration, Failure> {
    human::parse_time(text).ok_or_else(|| {
        Failure::usage(format!("--refresh {text:?} is no time"))
            .about("refresh")
            .hint("write it as in 10s or 5m")
    })
}
