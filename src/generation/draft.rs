//! Files that a session publishes: written well before, published when it is time.

use super::Session;
use super::session::{SessionError, revoked};
use crate::bag::Sealing;
use crate::base::id::GenerationId;
use crate::crypto::Kind;
use crate::sealed;
use crate::store::{Class, ErrorKind, Name, Pending, SharedStore, StoreError, Upload, layout};

/// A file that lies, whole, in a lease of the session and is published by being renamed. Dropping it takes the lease away again.
///
/// A draft proves nothing of itself: a session that was revoked long ago can still write one. Whoever publishes it must have
/// [asked](Session::still_held) whether the session is still there *after* the draft was written: whoever revokes removes the session's own lease
/// first and then looks for the others, so either the draft is found and removed, or the session is found gone.
pub struct Draft {
    store: SharedStore,
    session: GenerationId,
    lease: Name,
    name: Name,
    written: Option<Pending<()>>,
    is_published: bool,
}

/// A draft that nothing is written in yet. Dropping it takes it away again.
pub struct Blank {
    store: SharedStore,
    sealing: Sealing,
    session: GenerationId,
    lease: Name,
    name: Name,
    kind: Kind,
    upload: Box<dyn Upload>,
}

impl Session {
    /// Creates the draft of a file that is to be called `name`, ahead of need. Nothing is waited for.
    #[must_use]
    pub fn blank(&self, kind: Kind, name: Name) -> Blank {
        let lease = layout::draft_lease(self.client, self.id, &name);
        let upload = self.store.create(&lease.with_suffix(".part"), Class::Control);
        let (store, sealing, session) = (self.store.clone(), self.sealing.clone(), self.id);
        Blank { store, sealing, session, lease, name, kind, upload }
    }

    /// [Creates](Self::blank) a draft and begins to write it.
    #[must_use]
    pub fn draft(&self, kind: Kind, name: Name, plaintext: &[u8]) -> Draft {
        self.blank(kind, name).write(plaintext)
    }

    /// Asks whether the session's own lease is still there.
    pub fn still_held(&self) -> Pending<()> {
        self.store.read_tail(&layout::session(self.client, self.id), 0).and_then(|_| Ok(()))
    }

    /// The failure of this session that an answer to [`still_held`](Self::still_held), or the publishing of a draft, means.
    #[must_use]
    pub fn failure(&self, error: StoreError) -> SessionError {
        revoked(self.id, error)
    }
}

impl Blank {
    /// Begins to write it. Two serial round trips until it is [written](Draft::written), and one more if it was created only now.
    #[must_use]
    pub fn write(self, plaintext: &[u8]) -> Draft {
        let Self { store, sealing, session, lease, name, kind, mut upload } = self;
        let bytes = sealed::encode(&sealing.keys, sealing.repository, kind, &name, plaintext);
        let written = match upload.append(bytes).and_then(|()| upload.finish()) {
            Ok(()) => upload.commit(&lease),
            Err(error) => Pending::ready(Err(error)),
        };
        Draft { store, session, lease, name, written: Some(written), is_published: false }
    }
}

impl Draft {
    /// What it is to be called.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Waits until it is written, durably.
    ///
    /// # Errors
    /// What the store says.
    pub fn written(&mut self) -> Result<(), SessionError> {
        match self.written.take() {
            Some(written) => written.wait().map_err(|error| revoked(self.session, error)),
            None => Ok(()),
        }
    }

    /// Publishes it; it must be [written](Self::written). Whether it was: not, if another has published a file of this name. One serial round trip.
    ///
    /// # Errors
    /// `Revoked` when the lease is gone.
    pub fn publish(self) -> Publishing {
        let rename = self.store.rename(&self.lease, &self.name);
        Publishing { draft: self, rename }
    }
}

/// A draft whose publishing is under way.
#[must_use = "it may fail"]
pub struct Publishing {
    draft: Draft,
    rename: Pending<()>,
}

impl Publishing {
    /// Waits for it; see [`Draft::publish`].
    ///
    /// # Errors
    /// `Revoked` when the lease is gone.
    pub fn wait(mut self) -> Result<bool, SessionError> {
        match self.rename.wait() {
            Ok(()) => {
                self.draft.is_published = true;
                Ok(true)
            }
            Err(error) if error.kind == ErrorKind::Exists => Ok(false),
            Err(error) => Err(revoked(self.draft.session, error)),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_published {
            // It does no harm where it is; whoever cleans up after dead sessions takes it away.
            drop(self.written.take().map(Pending::wait));
            drop(self.store.remove(&self.lease).wait());
        }
    }
}
