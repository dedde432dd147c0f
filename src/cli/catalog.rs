//! The generations that a command line can mean.

use std::collections::BTreeMap;

use super::Context;
use super::error::{Exit, Failure};
use crate::base::id::{ClientId, GenerationId};
use crate::base::time::{Clock as _, SystemClock};
use crate::generation::{Catalog, CatalogError, Generation, Spec};
use crate::repo::Repository;
use crate::store::ErrorKind;

/// The generations of the client, oldest first. A record that is damaged is told and left out; the exit code says so.
///
/// # Errors
/// When the store does not answer.
pub fn all(context: &Context, repository: &Repository) -> Result<(Vec<Generation>, Exit), Failure> {
    let catalog = repository.catalog();
    let client = repository.keys().names().client_id(context.settings.client.as_bytes());
    let listed = catalog.list(client).wait();
    context.confirm(repository)?;
    let ids = Catalog::ids(&listed?);
    let mut exit = Exit::Done;
    let mut generations = Vec::with_capacity(ids.len());
    for (_, read) in catalog.read(client, &ids) {
        generations.extend(told(context, read, &mut exit)?);
    }
    generations.sort_by_key(|generation| (generation.started, generation.id));
    Ok((generations, exit))
}

/// The generation of the client that `spec` means. The exit code says whether a damaged one was passed over, which may be the one
/// that was meant.
///
/// # Errors
/// When there is none, or several.
pub fn one(context: &Context, repository: &Repository, spec: &str) -> Result<(Generation, Exit), Failure> {
    let spec: Spec = spec.parse()?;
    let (generations, exit) = all(context, repository)?;
    if generations.is_empty() {
        if exit == Exit::Damaged {
            return Err(Failure::new(exit, "no generation of this client can be read")
                .hint("`kitbag fsck` says what else is damaged"));
        }
        let client = &context.settings.client;
        return Err(Failure::failed(format!("the client {client} has no generations"))
            .hint("`kitbag clients` lists those that have, and --client-name chooses one"));
    }
    let found = spec.find(&generations, SystemClock::new().now()).map_err(|error| {
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

/// The clients by name, and how many generations each has: one flight for the lists, one for a record of each.
///
/// # Errors
/// When the store does not answer.
pub fn clients(
    context: &Context,
    repository: &Repository,
) -> Result<(BTreeMap<String, usize>, Exit), Failure> {
    let catalog = repository.catalog();
    let clients = catalog.clients();
    context.confirm(repository)?;
    let lists: Vec<_> = clients?.into_iter().map(|client| (client, catalog.list(client))).collect();
    let mut exit = Exit::Done;
    let mut names = BTreeMap::new();
    for (client, list) in lists {
        let ids = Catalog::ids(&list.wait()?);
        if let Some(name) = name(context, &catalog, client, &ids, &mut exit)? {
            names.insert(name, ids.len());
        }
    }
    Ok((names, exit))
}

/// Any record that can be read knows the client's name.
fn name(
    context: &Context,
    catalog: &Catalog,
    client: ClientId,
    ids: &[GenerationId],
    exit: &mut Exit,
) -> Result<Option<String>, Failure> {
    for id in ids {
        for (_, read) in catalog.read(client, &[*id]) {
            if let Some(generation) = told(context, read, exit)? {
                return Ok(Some(generation.client));
            }
        }
    }
    Ok(None)
}

/// The record, or none of a damaged one, which is told.
fn told(
    context: &Context,
    read: Result<Generation, CatalogError>,
    exit: &mut Exit,
) -> Result<Option<Generation>, Failure> {
    match read {
        Ok(generation) => Ok(Some(generation)),
        // Forgotten since it was listed.
        Err(CatalogError::Store(error)) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(CatalogError::Store(error))
            if !matches!(error.kind, ErrorKind::Truncated | ErrorKind::TooLong) =>
        {
            Err(error.into())
        }
        Err(error) => {
            context.screen.say(&format!("kitbag: {error}"));
            *exit = Exit::Damaged;
            Ok(None)
        }
    }
}
