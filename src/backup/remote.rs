//! What the repository says, read while the walk has begun already.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::bag::source::Source;
use crate::base::id::{ClientId, GenerationId, SegmentId};
use crate::cache;
use crate::condemned::reading::{self, Names};
use crate::crypto::Kind;
use crate::generation::{Catalog, Generation, Session, Started};
use crate::index::{FetchError, FetchSegment, Files, Index, IndexError, ListedSegment, Waiting};
use crate::monitor::{Monitor, Problem, Severity};
use crate::reach::Custody;
use crate::repo::Repository;
use crate::sealed;
use crate::store::{ErrorKind, Listed, Name, SharedStore, layout};

use super::{BackupError, Options};

/// The state of the repository when the session began.
pub struct Remote {
    /// The lease.
    pub session: Session,
    /// The client's generations.
    pub former: Vec<Generation>,
    /// The index.
    pub index: Index,
}

/// Waits for what was asked for when the session began, and reads what the cache lacks of it.
pub fn read(
    (repository, source): (&Repository, &Source),
    (client, guess): (ClientId, &[Generation]),
    begun: Started,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
) -> Result<Remote, BackupError> {
    let Started { mut session, condemned, index, generations } = begun;
    let condemned = condemned.wait()?;
    let names = Names::of(&condemned);
    let segments = index.wait()?;
    let generations = generations.wait()?;
    let ids = Catalog::ids(&generations);
    // Nothing may be published where no such repository is; a generation of its own is proof enough that it is the one, unless what opened it may have
    // been taken away from it.
    if !guess.iter().any(|one| ids.contains(&one.id)) || !repository.has_its_keys(&condemned) {
        repository.confirm()?;
    }
    recognise(repository, client, guess, &ids, monitor);
    session.created()?;
    if ids.is_empty() {
        // Nobody waits for that: should it be missing at the end, it is made then.
        drop(repository.store().make_dir(&layout::generations(client)));
    }
    // Records, segments and lists in one flight.
    let lists = reading::ask(repository.cached(), &repository.sealing(), &names);
    let records = repository.catalog().ask(ids.iter().map(|id| (client, *id)));
    let mut index = open_index(&segments, repository, options, monitor)?;
    let mut former = Vec::new();
    for (_, _, record) in records.wait() {
        match record {
            Ok(generation) => former.push(generation),
            // A record that is gone was forgotten meanwhile.
            Err(error) if error.is_gone() => {}
            Err(error) if error.is_damage() => {
                monitor.problem(Problem::new(Severity::Damage, b"", error));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let custody = Custody(lists.wait()?);
    let former = custody.clean(source, former, &**monitor)?;
    index.exclude(&custody.forbidden());
    Ok(Remote { session, former, index })
}

/// Tells when the repository lacks what was its newest generation, and forgets what it lacks.
fn recognise(
    repository: &Repository,
    client: ClientId,
    guess: &[Generation],
    listed: &[GenerationId],
    monitor: &Arc<dyn Monitor>,
) {
    let (there, gone): (Vec<_>, Vec<_>) = guess.iter().partition(|one| listed.contains(&one.id));
    if let Some(newest) = gone.iter().max_by_key(|one| (one.started, one.id))
        && there.iter().all(|one| one.started < newest.started)
    {
        let text = format!(
            "the repository no longer has generation {}, which was the newest here: it was forgotten, or the repository was set back to an older copy",
            newest.id
        );
        monitor.problem(Problem::new(Severity::Note, b"", text));
        for one in gone {
            repository.cached().forget(&layout::generation(client, one.id));
        }
    }
}

/// The client's generations as far as the cache has them: what a walk may begin with before the repository has answered.
pub fn guess(repository: &Repository, client: ClientId) -> Vec<Generation> {
    let directory = layout::generations(client);
    let prefix = format!("{}+", directory.as_str().replace('/', "+"));
    let names = repository.cache().names(cache::Kind::Record);
    let ids = names.iter().filter_map(|name| name.strip_prefix(&prefix)?.parse().ok());
    let open = |id: GenerationId| {
        let name = layout::generation(client, id).as_str().replace('/', "+");
        let bytes = repository.cache().get(cache::Kind::Record, &name)?;
        repository.catalog().open(client, id, bytes).ok()
    };
    ids.filter_map(open).collect()
}

/// Whether all of these generations are there.
pub fn are_there(ids: &BTreeSet<GenerationId>, former: &[Generation]) -> bool {
    ids.iter().all(|id| former.iter().any(|one| one.id == *id))
}

/// The index where it is kept, else in the first directory that takes it, else in memory.
fn make_index(
    segments: &[ListedSegment],
    options: &Options,
    monitor: &Arc<dyn Monitor>,
    fetch: &mut FetchSegment<'_>,
) -> Result<Index, IndexError> {
    let kept = options.index_dir.as_deref().map(|dir| (Files::Kept(dir), dir));
    let passing = options.scratch.iter().map(|dir| (Files::Passing(dir), dir.as_path()));
    for (files, dir) in kept.into_iter().chain(passing) {
        match Index::open(files, segments, fetch) {
            Err(IndexError::Local { source, .. }) => {
                let text = format!(
                    "the local index cannot be made there, so it is made elsewhere for this run ({source})"
                );
                monitor.problem(Problem::new(Severity::Note, dir.as_os_str().as_encoded_bytes(), text));
            }
            other => return other,
        }
    }
    Index::open(Files::Held, segments, fetch)
}

fn open_index(
    listed: &[Listed],
    repository: &Repository,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
) -> Result<Index, BackupError> {
    let segments: Vec<_> = listed
        .iter()
        .filter_map(|file| Some(ListedSegment { id: file.name.parse().ok()?, size: file.size }))
        .collect();
    let limit = crate::index::format::MAX_SEGMENT;
    let mut fetch = |id: SegmentId| -> Waiting<Vec<u8>> {
        let (name, repository) = (layout::segment(id), repository.clone());
        let (store, monitor) = (repository.cached().clone(), Arc::clone(monitor));
        let read = move |store: &SharedStore, name: &Name| {
            store.read_all(name, u64::try_from(limit).unwrap_or(u64::MAX))
        };
        let pending = read(&store, &name);
        Box::new(move || {
            let open = |bytes: Vec<u8>| {
                sealed::decode(repository.keys(), repository.id(), Kind::Segment, &name, bytes, limit)
            };
            let opened = pending.wait().map(open).and_then(|opened| match opened {
                // Should a copy in the local cache be what is damaged, the store has a better one.
                Err(_) => {
                    store.forget(&name);
                    read(&store, &name).wait().map(open)
                }
                opened => Ok(opened),
            });
            match opened {
                Ok(Ok(bytes)) => Ok(Some(bytes)),
                Ok(Err(error)) => {
                    let text = format!("what this index segment lists may be stored again ({error})");
                    let name = name.as_str().as_bytes();
                    monitor.problem(Problem::new(Severity::Damage, name, text));
                    Ok(None)
                }
                Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(FetchError::from(error)),
            }
        })
    };
    let index = make_index(&segments, options, monitor, &mut fetch)?;
    for (segment, error) in &index.synced().unreadable {
        let text = format!("this index segment is damaged, so what it lists may be stored again ({error})");
        let name = layout::segment(*segment);
        monitor.problem(Problem::new(Severity::Damage, name.as_str().as_bytes(), text));
    }
    Ok(index)
}
