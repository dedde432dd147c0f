//! What the repository says, read while the walk has begun already.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::id::{ClientId, GenerationId, SegmentId};
use crate::cache;
use crate::crypto::Kind;
use crate::generation::{Catalog, Generation, Session, Started};
use crate::index::{FetchError, Index, IndexError, ListedSegment, Waiting};
use crate::monitor::{Monitor, Problem, Severity};
use crate::repo::Repository;
use crate::sealed;
use crate::store::{ErrorKind, Listed, layout};

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
    repository: &Repository,
    client: ClientId,
    begun: Started,
    options: &Options,
    monitor: &Arc<dyn Monitor>,
) -> Result<Remote, BackupError> {
    let Started { mut session, condemned, index, generations } = begun;
    let _condemned = condemned.wait()?;
    let segments = index.wait()?;
    let generations = generations.wait()?;
    session.created()?;
    let mut former = Vec::new();
    for (_, record) in repository.catalog().read(client, &Catalog::ids(&generations)) {
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
    let index = open_index(&segments, repository, options, monitor)?;
    Ok(Remote { session, former, index })
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
        let name = layout::segment(id);
        let pending = repository.cached().read_all(&name, u64::try_from(limit).unwrap_or(u64::MAX));
        let (keys, repository) = (repository.keys().clone(), repository.id());
        Box::new(move || match pending.wait() {
            Ok(bytes) => Ok(Some(sealed::decode(&keys, repository, Kind::Segment, &name, bytes, limit)?)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FetchError::from(error)),
        })
    };
    let index = match Index::open(options.index_dir.as_deref(), &segments, &mut fetch) {
        Err(IndexError::Local { dir: Some(dir), source }) => {
            let text = format!("the local index there cannot be used, so it is made in memory ({source})");
            monitor.problem(Problem::new(Severity::Note, dir.as_os_str().as_encoded_bytes(), text));
            Index::open(None, &segments, &mut fetch)?
        }
        other => other?,
    };
    for (segment, error) in &index.synced().unreadable {
        let text = format!("this index segment is damaged, so what it lists may be stored again ({error})");
        let name = layout::segment(*segment);
        monitor.problem(Problem::new(Severity::Damage, name.as_str().as_bytes(), text));
    }
    Ok(index)
}
