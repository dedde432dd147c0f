//! The lease: a writing command in progress, as others see it.
//!
//! A session is the file `sessions/<client>.<id>`, created exclusively before anything is read. What others act on is published only by renaming a
//! lease file of the session to its final name, so publishing and still holding the lease are one atomic step: whoever removes the lease
//! files has revoked the session, and its renames fail. The session file itself becomes the generation record.
//!
//! Lease files of segments are created late, when there is something to publish. Behind the creation of each it is asked whether the session file is still there, and
//! nothing is published with a lease that came into being after that was gone: else a session that was revoked long ago could have the index name bags that are collected
//! by now. Whoever revokes removes the session file first and looks for the others then ([`super::leases::revoke`]), so each of them was either there to be found, or came too late.

use super::format::{self, Generation};
use crate::bag::Sealing;
use crate::base::id::{ClientId, GenerationId, SegmentId};
use crate::crypto::Kind;
use crate::sealed;
use crate::store::{Class, ErrorKind, Listed, Name, Pending, SharedStore, StoreError, Upload, layout};

/// A session that holds its lease, as far as it knows.
pub struct Session {
    pub(super) store: SharedStore,
    pub(super) sealing: Sealing,
    pub(super) client: ClientId,
    pub(super) id: GenerationId,
    lease: Box<dyn Upload>,
}

/// What was read, in this order, behind the creation of the session.
pub struct Started {
    /// The session.
    pub session: Session,
    /// `condemned/`.
    pub condemned: Pending<Vec<Listed>>,
    /// `index/`.
    pub index: Pending<Vec<Listed>>,
    /// `generations/<client>/`.
    pub generations: Pending<Vec<Listed>>,
}

/// Why something could not be published.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Somebody removed the lease files.
    #[error("the session {0} was revoked (its lease is gone from the repository), so nothing was published")]
    Revoked(GenerationId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Session {
    /// Begins a session: one flight, whose answers are waited for later.
    pub fn begin(store: &SharedStore, sealing: &Sealing, client: ClientId) -> Started {
        let id = GenerationId::random();
        let lease = store.create(&layout::session(client, id), Class::Control);
        let condemned = store.list(&layout::directory("condemned"));
        let index = store.list(&layout::directory("index"));
        let generations = store.list(&layout::generations(client));
        let session = Self { store: store.clone(), sealing: sealing.clone(), client, id, lease };
        Started { session, condemned, index, generations }
    }

    /// The id of the session, and of the generation that it becomes.
    #[must_use]
    pub fn id(&self) -> GenerationId {
        self.id
    }

    /// Waits until the lease is held.
    ///
    /// # Errors
    /// What the store says.
    pub fn created(&mut self) -> Result<(), StoreError> {
        self.lease.created()
    }

    /// Creates the lease file of an index segment, ahead of need.
    #[must_use]
    pub fn segment(&self) -> SegmentLease {
        let id = SegmentId::random();
        let lease = self.store.create(&layout::segment_lease(self.client, self.id, id), Class::Control);
        let held = self.store.read_tail(&layout::session(self.client, self.id), 0).and_then(|_| Ok(()));
        let sealing = self.sealing.clone();
        SegmentLease { session: self.id, id, name: layout::segment(id), sealing, lease, held }
    }

    /// Begins to publish an index segment with this plaintext. All bags that it names must be acknowledged.
    pub fn publish_segment(&self, plaintext: &[u8]) -> PublishedSegment {
        let mut segment = self.segment();
        match segment.fill(plaintext) {
            Ok(()) => segment.publish(),
            Err(error) => PublishedSegment { session: self.id, state: State::Failed(error) },
        }
    }

    /// Writes the generation's record into the lease file, in one flight that is not waited for.
    ///
    /// # Errors
    /// `Revoked` when the lease is gone.
    pub fn fill(&mut self, generation: &Generation) -> Result<(), SessionError> {
        let name = layout::generation(self.client, self.id);
        let bytes = seal(&self.sealing, Kind::Generation, &name, &format::encode_record(generation));
        let filled = self.lease.append(bytes).and_then(|()| self.lease.finish());
        filled.map_err(|error| revoked(self.id, error))
    }

    /// Publishes the generation that was [filled](Self::fill) in, and ends the session. All bags and segments that it needs must be acknowledged. One serial
    /// round trip when the record is acknowledged already.
    ///
    /// # Errors
    /// `Revoked` when the lease is gone.
    pub fn publish(self) -> Result<(), SessionError> {
        let name = layout::generation(self.client, self.id);
        self.lease.commit(&name).wait().map_err(|error| revoked(self.id, error))
    }
}

fn seal(sealing: &Sealing, kind: Kind, name: &Name, plaintext: &[u8]) -> Vec<u8> {
    sealed::encode(&sealing.keys, sealing.repository, kind, name, plaintext)
}

/// The lease file of a segment.
pub struct SegmentLease {
    session: GenerationId,
    id: SegmentId,
    name: Name,
    sealing: Sealing,
    lease: Box<dyn Upload>,
    held: Pending<()>,
}

impl SegmentLease {
    /// The id of the segment that it becomes.
    #[must_use]
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Writes the segment's plaintext into it, in one flight that is not waited for.
    ///
    /// # Errors
    /// `Revoked` when the lease is gone.
    pub fn fill(&mut self, plaintext: &[u8]) -> Result<(), SessionError> {
        let filled = self.lease.append(seal(&self.sealing, Kind::Segment, &self.name, plaintext));
        filled.and_then(|()| self.lease.finish()).map_err(|error| revoked(self.session, error))
    }

    /// Publishes it as soon as it is known that the session was still there when this lease came. All bags that it names must be acknowledged.
    pub fn publish(self) -> PublishedSegment {
        let Self { session, name, lease, held, .. } = self;
        PublishedSegment { session, state: State::Asked { held, lease, name } }
    }
}

/// A segment whose publishing is under way.
#[must_use = "a generation may be published only after its segments"]
pub struct PublishedSegment {
    session: GenerationId,
    state: State,
}

enum State {
    /// Whether the session was still there when the lease came is not known yet.
    Asked { held: Pending<()>, lease: Box<dyn Upload>, name: Name },
    /// It was.
    Renaming(Pending<()>),
    /// It was not, or something else failed.
    Failed(SessionError),
}

impl PublishedSegment {
    /// Renames the lease, if it is one.
    fn go_on(&mut self) {
        let given_up = StoreError::new(ErrorKind::Other, "publish", "a segment", "it was given up");
        self.state = match std::mem::replace(&mut self.state, State::Failed(given_up.into())) {
            State::Asked { held, lease, name } => match held.wait() {
                Ok(()) => State::Renaming(lease.commit(&name)),
                Err(error) => State::Failed(revoked(self.session, error)),
            },
            state => state,
        };
    }

    /// Waits until it is published.
    ///
    /// # Errors
    /// `Revoked` when the lease is gone.
    pub fn wait(mut self) -> Result<(), SessionError> {
        self.go_on();
        match self.state {
            State::Renaming(commit) => commit.wait().map_err(|error| revoked(self.session, error)),
            State::Failed(error) => Err(error),
            State::Asked { name, .. } => {
                let detail = "nobody has asked for its renaming";
                Err(StoreError::new(ErrorKind::Other, "publish", name, detail).into())
            }
        }
    }

    /// Waits until all of these are published: two serial round trips, however many they are.
    ///
    /// # Errors
    /// `Revoked` when a lease is gone.
    pub fn wait_for_all(mut segments: Vec<Self>) -> Result<(), SessionError> {
        segments.iter_mut().for_each(Self::go_on);
        segments.into_iter().try_for_each(Self::wait)
    }
}

pub(super) fn revoked(id: GenerationId, error: StoreError) -> SessionError {
    if error.kind == ErrorKind::NotFound { SessionError::Revoked(id) } else { SessionError::Store(error) }
}
