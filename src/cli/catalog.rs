//! The generations that a command line can mean.

use std::collections::{BTreeMap, BTreeSet};

use super::Context;
use super::error::{Exit, Failure};
use super::nearest::nearest;
use super::select::is_at_or_below;
use crate::base::id::ClientId;
use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock, Timestamp};
use crate::generation::spec::is_ordinary;
use crate::generation::{Catalog, CatalogError, Found, Generation, Spec};
use crate::repo::Repository;
use crate::store::{ErrorKind, Listed};

/// Names told at most in one sentence.
const NAMED: usize = 12;

/// Why there is nothing to list.
pub const NOTHING_YET: &str = "there are no generations in the repository";

/// Whose generations.
#[derive(Debug, Clone, Copy)]
pub enum Whose<'a> {
    /// Those of the client of this name.
    Of(&'a str),
    /// Those of all clients.
    All,
}

/// Generations as the repository shows them.
pub struct Seen {
    /// Each generation, readable or not.
    pub found: Vec<Found>,
    /// The clients' directories.
    pub listed: Vec<(ClientId, Vec<Listed>)>,
    /// `Damaged` when something could not be read; it was told.
    pub exit: Exit,
}

/// Looks at generations: one flight for the names (two for those of all clients), one for what is in them. What is damaged is told.
///
/// # Errors
/// When the store does not answer; that the client is not known, though others are.
pub fn look(context: &Context, repository: &Repository, whose: Whose<'_>) -> Result<Seen, Failure> {
    let catalog = repository.catalog();
    let listed = match whose {
        Whose::Of(name) => {
            let client = repository.keys().names().client_id(name.as_bytes());
            let listed = catalog.list(client).wait();
            context.confirm(repository)?;
            vec![(client, listed?)]
        }
        Whose::All => {
            let clients = catalog.clients();
            context.confirm(repository)?;
            let asked: Vec<_> = clients?.into_iter().map(|client| (client, catalog.list(client))).collect();
            asked
                .into_iter()
                .map(|(client, list)| Ok((client, list.wait()?)))
                .collect::<Result<_, Failure>>()?
        }
    };
    let (found, exit) = read(context, &catalog, &listed)?;
    if let (Whose::Of(name), true) = (whose, found.is_empty()) {
        known(context, &catalog, name)?;
    }
    Ok(Seen { found, listed, exit })
}

/// Reads what was listed, and tells what is damaged of it.
fn read(
    context: &Context,
    catalog: &Catalog,
    listed: &[(ClientId, Vec<Listed>)],
) -> Result<(Vec<Found>, Exit), Failure> {
    let mut found = catalog.find(listed);
    let mut exit = Exit::Done;
    // What is not there any more was forgotten since it was listed.
    found.retain(|one| !matches!(&one.record, Err(error) if error.is_gone()));
    for one in &found {
        let tags = one.tag_files.iter().filter_map(|file| file.tags.as_ref().err());
        for error in one.record.as_ref().err().into_iter().chain(tags.filter(|error| !error.is_gone())) {
            match error {
                CatalogError::Store(error)
                    if !matches!(error.kind, ErrorKind::Truncated | ErrorKind::TooLong) =>
                {
                    return Err(error.duplicate().into());
                }
                error => {
                    context.screen.say(&format!("kitbag: {error}"));
                    exit = Exit::Damaged;
                }
            }
        }
    }
    Ok((found, exit))
}

/// Nothing if no client is known at all, or this one, of which nothing could be read.
fn known(context: &Context, catalog: &Catalog, name: &str) -> Result<(), Failure> {
    let mut clients: Vec<_> = names(context, catalog, &catalog.clients()?)?.into_values().collect();
    clients.sort_unstable();
    if clients.is_empty() {
        return Ok(());
    }
    let shown = escape(name.as_bytes());
    let failure = Failure::failed(format!("the client {shown} has no generations here"));
    Err(match nearest(name, clients.iter().map(String::as_str)) {
        Some(near) => failure.hint(format!("did you mean --client-name {}?", escape(near.as_bytes()))),
        None => {
            let mut some: Vec<_> = clients.iter().take(NAMED).map(|name| escape(name.as_bytes())).collect();
            if clients.len() > NAMED {
                some.push(format!("{} more", clients.len() - NAMED));
            }
            failure.hint(format!("--client-name chooses one of those that have: {}", some.join(", ")))
        }
    })
}

/// The names of clients, as far as a record can be read that knows it: one flight for the lists, and mostly one for the records.
///
/// # Errors
/// When the store does not answer.
pub fn names(
    context: &Context,
    catalog: &Catalog,
    clients: &[ClientId],
) -> Result<BTreeMap<ClientId, String>, Failure> {
    let asked: Vec<_> = clients.iter().map(|client| (*client, catalog.list(*client))).collect();
    let mut open = Vec::new();
    for (client, list) in asked {
        open.push((client, list.wait()?));
    }
    let mut names = BTreeMap::new();
    // Any record of a client will do, so the second is read only where the first is damaged.
    while !open.is_empty() {
        let mut next = Vec::new();
        for (client, files) in &mut open {
            let is_record = |file: &Listed| !Catalog::ids(std::slice::from_ref(file)).is_empty();
            while let Some(file) = files.pop() {
                if is_record(&file) {
                    next.push((*client, vec![file]));
                    break;
                }
            }
        }
        let (found, _) = read(context, catalog, &next)?;
        names.extend(found.into_iter().filter_map(|one| Some((one.client, one.record.ok()?.client))));
        open.retain(|(client, files)| !files.is_empty() && !names.contains_key(client));
    }
    Ok(names)
}

/// The generations of the client, oldest first. A record that is damaged is told and left out; the exit code says so.
///
/// # Errors
/// As [`look`].
pub fn all(context: &Context, repository: &Repository) -> Result<(Vec<Generation>, Exit), Failure> {
    let Seen { found, exit, .. } = look(context, repository, Whose::Of(&context.settings.client))?;
    let mut generations: Vec<_> = found.into_iter().filter_map(|one| one.record.ok()).collect();
    generations.sort_by_key(|generation| (generation.started, generation.id));
    Ok((generations, exit))
}

/// The generation of the client that `spec` means. The exit code says whether a damaged one was passed over, which may be the one
/// that was meant.
///
/// # Errors
/// When there is none, or several.
pub fn one(context: &Context, repository: &Repository, spec: &str) -> Result<(Generation, Exit), Failure> {
    // That it makes no sense is told before anything is asked.
    let _: Spec = spec.parse()?;
    choose(context, &all(context, repository)?, spec)
}

/// The newest generations of other roots than those of `chosen`, which somebody who says `latest` may have in mind, too: one of each set of roots that
/// lies not wholly in what was chosen, the newest first.
#[must_use]
pub fn beside<'a>(generations: &'a [Generation], chosen: &Generation, now: Timestamp) -> Vec<&'a Generation> {
    let paths = |one: &'a Generation| one.roots.iter().map(|root| &root.path[..]).collect::<Vec<_>>();
    let is_chosen = |path: &[u8]| chosen.roots.iter().any(|root| is_at_or_below(path, &root.path));
    let mut seen = BTreeSet::new();
    let ordinary = generations.iter().rev().filter(|one| is_ordinary(one, now));
    ordinary
        .filter(|one| !paths(one).into_iter().all(is_chosen))
        .filter(|one| seen.insert(paths(one)))
        .collect()
}

/// The same, of generations that were read already.
///
/// # Errors
/// When there is none, or several.
pub fn choose(
    context: &Context,
    (generations, exit): &(Vec<Generation>, Exit),
    spec: &str,
) -> Result<(Generation, Exit), Failure> {
    let (spec, exit) = (spec.parse::<Spec>()?, *exit);
    if generations.is_empty() {
        if exit == Exit::Damaged {
            return Err(Failure::new(exit, "no generation of this client can be read")
                .hint("`kitbag fsck` says what else is damaged"));
        }
        let client = &context.settings.client;
        return Err(Failure::failed(format!("the client {client} has no generations"))
            .hint("`kitbag backup` makes one, and --client-name chooses another client"));
    }
    let found = spec.find(generations, SystemClock::new().now()).map_err(|error| {
        let mut failure = Failure::from(error);
        if exit == Exit::Damaged {
            // It may be the one that is damaged.
            failure.exit = exit;
        }
        failure
    })?;
    if exit == Exit::Damaged && !matches!(spec, Spec::Id(_)) {
        context.screen.say(&format!("kitbag: of those that are not damaged, {} is meant", found.id));
        return Ok((found.clone(), exit));
    }
    Ok((found.clone(), Exit::Done))
}
