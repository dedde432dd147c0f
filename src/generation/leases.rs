//! The sessions of a repository, as their lease files show them.

use std::collections::BTreeMap;

use crate::base::id::{ClientId, GenerationId};
use crate::store::{ErrorKind, Listed, Name, Store, StoreError, layout};

/// A session and its leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Whose it is.
    pub client: ClientId,
    /// The session, and the generation that it may become.
    pub id: GenerationId,
    /// When its own lease was last written to, by the server's clock, in seconds since 1970: it is empty until the generation is published, so this is when it was
    /// created. Of a session whose own lease is gone, that of the oldest other one.
    pub since: i64,
    /// Whether its own lease is there. If not, it was revoked, or came to its end while they were listed.
    pub is_whole: bool,
    /// Its other leases: what else it may publish.
    pub others: usize,
}

/// A time of the server's clock, in seconds since 1970, for people: `2026-11-30T22:15:02Z`. A time that no calendar has is shown as it is.
#[must_use]
pub fn moment(secs: i64) -> String {
    jiff::Timestamp::from_second(secs).map_or_else(|_| format!("second {secs}"), |time| time.to_string())
}

/// A lease's name taken apart: client, session, and what else it is the lease of.
#[must_use]
pub fn parse(name: &str) -> Option<(ClientId, GenerationId, Option<&str>)> {
    let (client, rest) = name.split_once('.')?;
    let (id, other) = rest.split_once('.').map_or((rest, None), |(id, other)| (id, Some(other)));
    Some((client.parse().ok()?, id.parse().ok()?, other))
}

/// The sessions that a listing of `sessions/` shows, oldest first.
#[must_use]
pub fn of(listed: &[Listed]) -> Vec<Held> {
    let mut found: BTreeMap<(ClientId, GenerationId), Held> = BTreeMap::new();
    for file in listed {
        let Some((client, id, other)) = parse(&file.name) else { continue };
        let fresh = Held { client, id, since: file.modified, is_whole: false, others: 0 };
        let held = found.entry((client, id)).or_insert(fresh);
        match other {
            None => (held.is_whole, held.since) = (true, file.modified),
            Some(_) => {
                held.others = held.others.saturating_add(1);
                if !held.is_whole {
                    held.since = held.since.min(file.modified);
                }
            }
        }
    }
    let mut all: Vec<_> = found.into_values().collect();
    all.sort_by_key(|held| (held.since, held.id));
    all
}

/// Takes a session's leases away, so that it can publish nothing any more; whether one was there. Its own lease goes first, and those that it has then are
/// looked for afterwards: one that comes later is not used (see [`super::session`]). Three flights.
///
/// # Errors
/// What the store says. The session may still hold leases then.
pub fn revoke(store: &dyn Store, client: ClientId, id: GenerationId) -> Result<bool, StoreError> {
    let own = removed(store.remove(&layout::session(client, id)).wait())?;
    let listed = store.list(&layout::directory("sessions")).wait()?;
    let is_its =
        |file: &&Listed| parse(&file.name).is_some_and(|(whose, which, _)| (whose, which) == (client, id));
    let names = listed.iter().filter(is_its).filter_map(|file| Name::new(&format!("sessions/{}", file.name)));
    let removals: Vec<_> = names.map(|name| store.remove(&name)).collect();
    let mut any = own;
    for removal in removals {
        any |= removed(removal.wait())?;
    }
    Ok(any)
}

fn removed(outcome: Result<(), StoreError>) -> Result<bool, StoreError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bag::Sealing;
    use crate::base::id::RepositoryId;
    use crate::base::secret::Key32;
    use crate::crypto::{Keys, MasterKey};
    use crate::generation::{Session, SessionError};
    use crate::store::SharedStore;
    use crate::store::testing::{CallLog, MemoryStore};

    const CLIENT: ClientId = ClientId([7; 16]);

    fn begin(store: &SharedStore) -> Session {
        let keys = Keys::derive(&MasterKey::new(Key32::new([1; 32])));
        let mut session =
            Session::begin(store, &Sealing { keys, repository: RepositoryId([5; 16]) }, CLIENT).session;
        session.created().unwrap();
        session
    }

    fn held(store: &MemoryStore) -> Vec<Held> {
        of(&store.list(&layout::directory("sessions")).wait().unwrap())
    }

    #[test]
    fn a_session_is_seen_with_all_its_leases() {
        let memory = MemoryStore::new();
        memory.set_clock(1000);
        let store: SharedStore = Arc::new(memory.clone());
        let session = begin(&store);
        let _lease = session.segment();
        memory.set_clock(900);
        let earlier = begin(&store);
        memory.put(&Name::join(&["sessions/stray"]), Vec::new());
        let found = held(&memory);
        let seen: Vec<_> = found.iter().map(|one| (one.id, one.since, one.is_whole, one.others)).collect();
        assert_eq!(seen, [(earlier.id(), 900, true, 0), (session.id(), 1000, true, 1)]);
        assert_eq!(found[0].client, CLIENT);
    }

    #[test]
    fn moments() {
        assert_eq!(moment(1_796_080_574), "2026-11-30T23:16:14Z");
        assert_eq!(moment(i64::MAX), format!("second {}", i64::MAX));
    }

    #[test]
    fn who_is_revoked_publishes_nothing() {
        let memory = MemoryStore::new();
        let log = CallLog::new(Arc::new(memory.clone()));
        let store: SharedStore = Arc::new(log.clone());
        let session = begin(&store);
        let mut early = session.segment();
        log.clear();
        assert!(revoke(&*store, CLIENT, session.id()).unwrap());
        assert_eq!(log.serial_round_trips(), 3, "{:#?}", log.lines());
        assert!(!revoke(&*store, CLIENT, session.id()).unwrap());
        assert_eq!(memory.names(), []);
        early.fill(b"early").unwrap();
        assert!(matches!(early.publish().wait(), Err(SessionError::Revoked(id)) if id == session.id()));
        // A lease that comes into being afterwards is none.
        assert!(matches!(session.publish_segment(b"late").wait(), Err(SessionError::Revoked(_))));
        assert!(memory.names_below("index").is_empty(), "{memory:?}");
        assert!(memory.names_below("sessions").is_empty(), "{memory:?}");
    }

    #[test]
    fn many_segments_are_published_in_two_round_trips() {
        let memory = MemoryStore::new();
        let log = CallLog::new(Arc::new(memory.clone()));
        let session = begin(&(Arc::new(log.clone()) as SharedStore));
        log.clear();
        let segments = (0..10u8).map(|number| session.publish_segment(&[number])).collect();
        crate::generation::session::PublishedSegment::wait_for_all(segments).unwrap();
        assert_eq!(memory.names_below("index").len(), 10);
        assert!(log.serial_round_trips() <= 3, "{}", log.serial_round_trips());
    }
}
