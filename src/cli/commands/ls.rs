//! `kitbag ls`: one entry a line, like `ls -l`.

use std::fmt;

use serde::Serialize;

use crate::base::text::escape;
use crate::cli::args::Ls;
use crate::cli::error::{Exit, Failure};
use crate::cli::human::{local_time, rfc3339};
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::select::{self, Start};
use crate::cli::{Context, catalog, connect};
use crate::dir::walk::{Visit, WalkError, walk};
use crate::entry::{Content, Entry, Kind};
use crate::generation::trees;
use crate::monitor::{Monitor as _, Problem, Severity};

/// Lists files of a generation.
///
/// # Errors
/// When they cannot be read, or a path is not there.
pub fn run(context: &Context, args: &Ls) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let (generation, found) = catalog::one(context, &repository, &args.generation)?;
    let source = connect::source(&repository);
    if args.paths.is_empty() || trees::are_cheap(&generation) {
        trees::fetch_ahead(&source, &generation)?;
    }
    let (starts, missing) = select::starts(&source, &generation, &args.paths)?;
    // Lines would be written through a live display.
    let progress = Progress::begin(Job::Check, &context.screen.without_display(), context.settings.verbosity);
    let mut output = Output::new();
    for Start { path, entry, .. } in starts {
        for visit in walk(&source, path, entry) {
            if context.cancel.is_cancelled() {
                return Err(Failure::interrupted());
            }
            match visit {
                Ok(Visit { path, entry, .. }) if context.settings.json => {
                    output.json(&Report::new(&path, &entry))?;
                }
                Ok(Visit { path, entry, .. }) => output.line(Line(&path, &entry))?,
                Err(WalkError { path, source }) if source.is_damage() => {
                    progress.problem(Problem::new(Severity::Damage, &path, source));
                }
                Err(WalkError { source, .. }) => return Err(source.into()),
            }
        }
    }
    output.finish()?;
    match missing {
        Some(failure) => Err(failure),
        None => Ok(super::worse(found, super::outcome(&progress))),
    }
}

#[derive(Serialize)]
struct Report {
    path: String,
    kind: &'static str,
    mode: String,
    uid: u32,
    gid: u32,
    user: String,
    group: String,
    size: u64,
    mtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Report {
    fn new(path: &[u8], entry: &Entry) -> Self {
        let metadata = &entry.metadata;
        Self {
            path: escape(path),
            kind: match metadata.kind {
                Kind::File => "file",
                Kind::Directory => "directory",
                Kind::Symlink => "symlink",
                Kind::Fifo => "fifo",
                Kind::Socket => "socket",
                Kind::CharDevice => "char",
                Kind::BlockDevice => "block",
            },
            mode: format!("{:04o}", metadata.mode),
            uid: metadata.owner.uid,
            gid: metadata.owner.gid,
            user: escape(&metadata.owner.user),
            group: escape(&metadata.owner.group),
            size: metadata.size,
            mtime: rfc3339(metadata.mtime),
            target: target(entry).map(escape),
        }
    }
}

fn target(entry: &Entry) -> Option<&[u8]> {
    match &entry.content {
        Content::Target(target) => Some(target),
        _ => None,
    }
}

struct Line<'a>(&'a [u8], &'a Entry);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(path, entry) = self;
        let metadata = &entry.metadata;
        let owner = &metadata.owner;
        let named =
            |name: &[u8], number: u32| if name.is_empty() { number.to_string() } else { escape(name) };
        let (user, group) = (named(&owner.user, owner.uid), named(&owner.group, owner.gid));
        let size = match metadata.kind {
            Kind::CharDevice | Kind::BlockDevice => format!("{},{}", metadata.rdev.0, metadata.rdev.1),
            _ => metadata.size.to_string(),
        };
        let (mode, time) = (mode(metadata.kind, metadata.mode), local_time(metadata.mtime));
        write!(f, "{mode} {user:8} {group:8} {size:>12} {time} {}", escape(path))?;
        match target(entry) {
            Some(target) => write!(f, " -> {}", escape(target)),
            None => Ok(()),
        }
    }
}

/// `drwxr-sr-t` and its like.
fn mode(kind: Kind, mode: u16) -> String {
    let kind = match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special == 0, bits & 1 == 0) {
            (true, true) => '-',
            (true, false) => 'x',
            (false, true) => letter.to_ascii_uppercase(),
            (false, false) => letter,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_as_ls_shows_them() {
        assert_eq!(mode(Kind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(Kind::File, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode(Kind::File, 0o6644), "-rwSr-Sr--");
        assert_eq!(mode(Kind::Symlink, 0o777), "lrwxrwxrwx");
    }
}
