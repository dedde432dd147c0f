//! `kitbag tag`: labels of generations, which pin them.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock};
use crate::cli::Context;
use crate::cli::args::Tag;
use crate::cli::catalog::{self, Seen, Whose};
use crate::cli::error::{Exit, Failure};
use crate::cli::output::Output;
use crate::cli::settings::Verbosity;
use crate::generation::tags::{self, Change};
use crate::generation::{Found, Generation, Spec};
use crate::repo::Repository;

#[derive(Serialize)]
struct Report {
    id: String,
    tags: Vec<String>,
}

/// Adds, removes or lists tags.
///
/// # Errors
/// When there is no such generation, or a text is no tag.
pub fn run(context: &Context, what: &Tag) -> Result<Exit, Failure> {
    if let Tag::Add { tags: given, .. } = what {
        given.iter().try_for_each(|tag| tags::check(tag))?;
    }
    let repository = context.open(context.store()?)?;
    let Seen { found, exit, .. } = catalog::look(context, &repository, Whose::Of(&context.settings.client))?;
    match what {
        Tag::List => list(context, &found)?,
        Tag::Add { generation, tags } => {
            change(context, &repository, &found, generation, &|all| all.extend(tags.iter().cloned()))?;
        }
        Tag::Remove { generation, tags } => {
            change(context, &repository, &found, generation, &|all| all.retain(|tag| !tags.contains(tag)))?;
        }
    }
    Ok(exit)
}

fn list(context: &Context, found: &[Found]) -> Result<(), Failure> {
    let mut tagged: Vec<_> = found.iter().filter_map(|one| one.record.as_ref().ok()).collect();
    tagged.retain(|record| !record.tags.is_empty());
    tagged.sort_by_key(|record| (record.started, record.id));
    let mut output = Output::new();
    for record in tagged {
        if context.settings.json {
            output.json(&Report { id: record.id.to_string(), tags: shown(&record.tags) })?;
        } else {
            output.line(format_args!("{}\t{}", record.id, shown(&record.tags).join(", ")))?;
        }
    }
    output.finish()
}

fn change(
    context: &Context,
    repository: &Repository,
    found: &[Found],
    spec: &str,
    change: &dyn Fn(&mut BTreeSet<String>),
) -> Result<(), Failure> {
    let readable: Vec<Generation> =
        found.iter().filter_map(|one| one.record.as_ref().ok()).cloned().collect();
    let record = spec.parse::<Spec>()?.find(&readable, SystemClock::new().now())?;
    let Some(one) = found.iter().find(|one| one.id == record.id) else {
        return Err(Failure::failed(format!("there is no generation {}", record.id)));
    };
    let mut wanted: BTreeSet<String> = record.tags.iter().cloned().collect();
    let before = wanted.clone();
    change(&mut wanted);
    if wanted != before {
        let old: Vec<_> = one.tag_files.iter().map(|file| file.id).collect();
        let store = repository.cached();
        match tags::replace(&**store, &repository.sealing(), (one.client, one.id), &wanted, &old)? {
            Change::Done => {}
            Change::Gone => {
                return Err(Failure::failed(format!("the generation {} was forgotten meanwhile", one.id)));
            }
        }
    }
    let tags: Vec<_> = wanted.into_iter().collect();
    let mut output = Output::new();
    if context.settings.json {
        output.json(&Report { id: one.id.to_string(), tags: shown(&tags) })?;
    } else if context.settings.verbosity > Verbosity::Quiet {
        let tags = if tags.is_empty() { "no tags".to_owned() } else { shown(&tags).join(", ") };
        output.line(format_args!("{}\t{tags}", one.id))?;
    }
    output.finish()
}

fn shown(tags: &[String]) -> Vec<String> {
    tags.iter().map(|tag| escape(tag.as_bytes())).collect()
}
