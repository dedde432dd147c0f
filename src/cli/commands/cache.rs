//! `kitbag cache`: what is kept here of the repositories. Neither asks a repository, nor needs one to be there.

use serde::Serialize;

use crate::base::id::RepositoryId;
use crate::base::text::escape;
use crate::cache::known::CacheHome;
use crate::cache::{Cache, Kind, Usage};
use crate::cli::args;
use crate::cli::error::{Exit, Failure};
use crate::cli::nightly::turn::Turns;
use crate::cli::output::Output;
use crate::cli::settings::Verbosity;
use crate::cli::{Context, human};

/// Looks at the caches, or clears them.
///
/// # Errors
/// When there is no cache, or it cannot be removed.
pub fn run(context: &Context, what: &args::Cache) -> Result<Exit, Failure> {
    let Some(settings) = &context.settings.cache else {
        return Err(Failure::usage("there is no local cache").hint("name its directory with --cache-dir"));
    };
    let home = CacheHome::open(&settings.dir).map_err(|error| Failure::failed(error.to_string()))?;
    let mut output = Output::new();
    match what {
        args::Cache::Info => info(context, &home, settings.limit, &mut output)?,
        args::Cache::Clear { repositories } => clear(context, &home, repositories, &mut output)?,
    }
    output.finish()?;
    Ok(Exit::Done)
}

/// The cache of one repository.
#[derive(Serialize)]
struct Report {
    repository: String,
    directory: String,
    limit: u64,
    files: u64,
    bytes: u64,
    bag_bytes: u64,
    segment_bytes: u64,
    record_bytes: u64,
    listing_bytes: u64,
    chunk_index_bytes: u64,
}

impl Report {
    fn new(home: &CacheHome, id: RepositoryId, limit: u64) -> Result<Self, Failure> {
        let cache = open(home, id)?;
        let chunk_index = cache.chunk_index();
        let usages = cache.info();
        let of = |kind| usages.iter().filter(|usage| usage.kind == Some(kind)).map(|usage| usage.bytes).sum();
        let all = |number: fn(&Usage) -> u64| -> u64 {
            usages.iter().map(number).fold(number(&chunk_index), u64::saturating_add)
        };
        Ok(Self {
            repository: id.to_string(),
            directory: escape(home.directory(id).as_os_str().as_encoded_bytes()),
            limit,
            files: all(|usage| usage.files),
            bytes: all(|usage| usage.bytes),
            bag_bytes: of(Kind::Bag),
            segment_bytes: of(Kind::Segment),
            record_bytes: of(Kind::Record),
            listing_bytes: of(Kind::Listing),
            chunk_index_bytes: chunk_index.bytes,
        })
    }

    fn line(&self) -> String {
        let parts = [
            ("directories", self.bag_bytes),
            ("index segments", self.segment_bytes),
            ("records", self.record_bytes),
            ("listings", self.listing_bytes),
            ("chunk index", self.chunk_index_bytes),
        ];
        let parts = parts.map(|(what, bytes)| format!("{what} {}", human::bytes(bytes)));
        let files = human::counted(self.files, "file", "files");
        format!("{}\t{} in {files}\t{}", self.repository, human::bytes(self.bytes), parts.join(", "))
    }
}

fn info(context: &Context, home: &CacheHome, limit: u64, output: &mut Output) -> Result<(), Failure> {
    for id in home.repositories() {
        let report = Report::new(home, id, limit)?;
        match context.settings.json {
            true => output.json(&report)?,
            false => output.line(report.line())?,
        }
    }
    Ok(())
}

/// A cache that was removed.
#[derive(Serialize)]
struct Cleared {
    repository: String,
    bytes: u64,
}

fn clear(
    context: &Context,
    home: &CacheHome,
    named: &[RepositoryId],
    output: &mut Output,
) -> Result<(), Failure> {
    let there = home.repositories();
    if let Some(id) = named.iter().find(|id| !there.contains(id)) {
        return Err(Failure::failed(format!("there is no cache of a repository {id}"))
            .hint("`kitbag cache info` lists those that have one"));
    }
    if named.is_empty() {
        home.forget_all().map_err(|error| cannot(&error))?;
        if let Some(settings) = &context.settings.cache {
            Turns::new([settings.dir.clone()]).clear();
        }
    }
    for id in if named.is_empty() { &there } else { named } {
        let Report { repository, bytes, .. } = Report::new(home, *id, 0)?;
        home.clear(*id).map_err(|error| cannot(&error))?;
        if context.settings.json {
            output.json(&Cleared { repository, bytes })?;
        } else if context.settings.verbosity > Verbosity::Quiet {
            let freed = human::bytes(bytes);
            output.line(format_args!("removed the cache of the repository {repository}: {freed}"))?;
        }
    }
    if named.is_empty() {
        home.leave();
    }
    Ok(())
}

fn open(home: &CacheHome, id: RepositoryId) -> Result<Cache, Failure> {
    // Nothing is written, so that no limit applies.
    home.repository(id, u64::MAX).map_err(|error| Failure::failed(error.to_string()))
}

fn cannot(error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot clear the cache: {error}"))
}
