//! A file being written in the background.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Advice, OFlags};

use super::pool::Pool;
use super::{Shared, flags, show};
use crate::base::budget::Permit;
use crate::store::{Completer, Name, Pending, StoreError, Upload};

/// After so many bytes the disk is told to begin writing, so that the fsync at the end finds little left to do.
const WRITE_BACK: u64 = 8 << 20;

/// The writing end that the caller holds.
pub(super) struct LocalUpload {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    file: Result<Arc<Writing>, StoreError>,
    committed: bool,
}

/// What the caller and the threads share of one file: the steps to do, done in order by one thread at a time.
struct Writing {
    path: PathBuf,
    queue: Mutex<Queue>,
}

struct Queue {
    steps: VecDeque<Step>,
    /// Present while no thread works on the file.
    idle: Option<Progress>,
    failed: Option<StoreError>,
}

struct Progress {
    file: File,
    written: u64,
    /// How far the disk was told to write.
    pushed: u64,
}

enum Step {
    Append(Vec<u8>, Permit),
    Commit(PathBuf, Completer<()>),
    Abandon,
}

impl LocalUpload {
    /// Creates the file.
    pub(super) fn new(shared: &Arc<Shared>, pool: &Arc<Pool>, name: &Name) -> Self {
        let path = shared.path(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).custom_flags(flags(OFlags::NOFOLLOW));
        let opened = shared.with_parent(&path, || options.open(&path));
        let file = match opened {
            Ok(file) => {
                let idle = Some(Progress { file, written: 0, pushed: 0 });
                let queue = Mutex::new(Queue { steps: VecDeque::new(), idle, failed: None });
                Ok(Arc::new(Writing { path, queue }))
            }
            Err(error) => Err(shared.error("create", name, error)),
        };
        Self { shared: Arc::clone(shared), pool: Arc::clone(pool), file, committed: false }
    }

    fn file(&self) -> Result<&Arc<Writing>, StoreError> {
        self.file.as_ref().map_err(StoreError::duplicate)
    }

    fn push(&self, file: &Arc<Writing>, step: Step) {
        let mut queue = file.lock();
        queue.steps.push_back(step);
        // Not idle: the thread at work will find it.
        if let Some(progress) = queue.idle.take() {
            let (file, shared) = (Arc::clone(file), Arc::clone(&self.shared));
            self.pool.run(move || file.work(progress, &shared));
        }
    }
}

impl Upload for LocalUpload {
    fn created(&mut self) -> Result<(), StoreError> {
        self.file().map(drop)
    }

    fn append(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        let file = self.file()?;
        if let Some(failed) = &file.lock().failed {
            return Err(failed.duplicate());
        }
        let permit = self.shared.budget.take(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.push(file, Step::Append(bytes, permit));
        Ok(())
    }

    fn commit(mut self: Box<Self>, name: &Name) -> Pending<()> {
        self.committed = true;
        match self.file() {
            Ok(file) => {
                let (completer, pending) = Pending::later();
                self.push(file, Step::Commit(self.shared.path(name), completer));
                pending
            }
            Err(error) => Pending::ready(Err(error)),
        }
    }
}

impl Drop for LocalUpload {
    fn drop(&mut self) {
        if let (Ok(file), false) = (&self.file, self.committed) {
            self.push(file, Step::Abandon);
        }
    }
}

impl Writing {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the steps that are there, and those that come meanwhile.
    fn work(&self, mut progress: Progress, shared: &Shared) {
        loop {
            let mut queue = self.lock();
            let Some(step) = queue.steps.pop_front() else {
                queue.idle = Some(progress);
                return;
            };
            let failed = queue.failed.as_ref().map(StoreError::duplicate);
            drop(queue);
            match (step, failed) {
                (Step::Append(bytes, permit), None) => {
                    let outcome = progress.append(&bytes);
                    drop((bytes, permit));
                    if let Err(error) = outcome {
                        let error = StoreError::from_io("write", show(&self.path), error);
                        self.lock().failed = Some(error);
                    }
                }
                (Step::Append(..), Some(_)) => {}
                (Step::Commit(to, completer), None) => {
                    let outcome = self.publish(&progress.file, &to, shared);
                    if outcome.is_err() {
                        self.remove();
                    }
                    completer.complete(outcome);
                }
                (Step::Commit(_, completer), Some(error)) => {
                    self.remove();
                    completer.complete(Err(error));
                }
                (Step::Abandon, _) => self.remove(),
            }
        }
    }

    fn publish(&self, file: &File, to: &Path, shared: &Shared) -> Result<(), StoreError> {
        let written = |error| StoreError::from_io("write", show(&self.path), error);
        let stored = |error| StoreError::from_io("store", show(to), error);
        file.sync_all().map_err(written)?;
        shared.rename(&self.path, to).map_err(stored)?;
        let ticket = shared.dirs.ticket();
        for dir in Shared::touched(&self.path, to) {
            shared.dirs.sync(&dir, ticket).map_err(stored)?;
            shared.dirs.sync_above(&dir, &shared.root).map_err(stored)?;
        }
        Ok(())
    }

    /// It may have been removed by another; and what cannot be removed is left for the collection of garbage.
    fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Progress {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.written = self.written.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let behind = self.written.saturating_sub(self.pushed);
        if behind >= WRITE_BACK {
            // Pages that are not needed are written out at once, without waiting; a file system that takes no advice does no harm.
            let _ = rustix::fs::fadvise(
                &self.file,
                self.pushed,
                std::num::NonZeroU64::new(behind),
                Advice::DontNeed,
            );
            self.pushed = self.written;
        }
        Ok(())
    }
}
