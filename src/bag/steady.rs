//! An upload that begins again when the server has lost what it had taken.
//!
//! Somebody may clean up on the server, or the server crashes and comes back without what it had not yet put on its disk. The
//! objects of the bag have their places by then, so the same bytes must go there once more. They are kept in a local file
//! without a name until the bag is acknowledged: on a fast line that never reaches the disk, since the file is gone again
//! before the system writes it out; on a slow one it takes no more of the disk than of the line.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use crate::store::{Class, ErrorKind, Name, Pending, Store, StoreError, Upload};

/// How often one file is begun again: whatever takes it away each time is no accident.
const AGAIN: u32 = 3;

/// How much is sent again at once.
const PIECE: u64 = 1 << 20;

/// See the module.
pub(super) struct Steady<'a> {
    upload: Box<dyn Upload>,
    memory: Memory<'a>,
}

/// What it takes to begin again.
struct Memory<'a> {
    store: &'a dyn Store,
    part: Name,
    /// What was appended so far; `None` where it cannot be kept, and a lost file is a failure.
    kept: Option<File>,
    begun_again: u32,
}

impl<'a> Steady<'a> {
    /// Creates a file under the name `part`; what it holds is kept in `dir`.
    pub(super) fn create(store: &'a dyn Store, part: Name, dir: Option<&Path>) -> Self {
        let upload = store.create(&part, Class::Bulk);
        Self { upload, memory: Memory { store, part, kept: dir.and_then(nameless), begun_again: 0 } }
    }

    /// As [`Upload::append`].
    pub(super) fn append(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.memory.keep(&bytes);
        if let Err(error) = self.upload.append(bytes) {
            self.upload = self.memory.begin_again(error)?;
        }
        Ok(())
    }

    /// As [`Upload::commit`].
    pub(super) fn commit(self, name: &Name) -> Committing<'a> {
        Committing { commit: self.upload.commit(name), name: name.clone(), memory: self.memory }
    }
}

/// An upload of which all was sent.
pub(super) struct Committing<'a> {
    commit: Pending<()>,
    name: Name,
    memory: Memory<'a>,
}

impl Committing<'_> {
    /// Waits until it is acknowledged.
    pub(super) fn wait(self) -> Result<(), StoreError> {
        let Self { mut commit, name, mut memory } = self;
        while let Err(error) = commit.wait() {
            commit = memory.begin_again(error)?.commit(&name);
        }
        Ok(())
    }
}

impl Memory<'_> {
    fn keep(&mut self, bytes: &[u8]) {
        if let Some(Err(error)) = self.kept.as_mut().map(|kept| kept.write_all(bytes)) {
            tracing::debug!("what is sent cannot be kept here: {error}");
            self.kept = None;
        }
    }

    /// Another upload to which all was sent once more, if `error` says that the one before is lost.
    fn begin_again(&mut self, mut error: StoreError) -> Result<Box<dyn Upload>, StoreError> {
        while self.begun_again < AGAIN && is_lost(&error) {
            let Some(kept) = &mut self.kept else { break };
            self.begun_again = self.begun_again.saturating_add(1);
            tracing::warn!("{error}; it is sent once more");
            let mut upload = self.store.create(&self.part, Class::Bulk);
            match send(kept, &mut *upload) {
                Ok(Ok(())) => return Ok(upload),
                Ok(Err(again)) => error = again,
                Err(unread) => {
                    tracing::warn!("what was kept of it cannot be read: {unread}");
                    break;
                }
            }
        }
        if is_lost(&error) {
            // No damage: nothing that is published needs it.
            let detail = format!("it was lost there while it was written ({}); run this again", error.detail);
            error = StoreError { kind: ErrorKind::Other, detail, ..error };
        }
        Err(error)
    }
}

fn is_lost(error: &StoreError) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Truncated)
}

/// What is read here, and then what becomes of it there.
fn send(kept: &mut File, upload: &mut dyn Upload) -> io::Result<Result<(), StoreError>> {
    kept.rewind()?;
    loop {
        let mut piece = Vec::new();
        if (&*kept).take(PIECE).read_to_end(&mut piece)? == 0 {
            return Ok(Ok(()));
        }
        if let Err(error) = upload.append(piece) {
            // What is kept goes on to grow at its end.
            kept.seek(io::SeekFrom::End(0))?;
            return Ok(Err(error));
        }
    }
}

/// A file that nobody else can open; `None` on a file system that has none such.
fn nameless(dir: &Path) -> Option<File> {
    let flags = i32::try_from(OFlags::TMPFILE.bits()).ok()?;
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(dir).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{CallLog, MemoryStore, Op};

    /// Sends three pieces, and loses the file at the server before each step that is named.
    fn send(dir: Option<&Path>, losses: &[usize]) -> (Result<(), StoreError>, Vec<u8>, usize) {
        let memory = MemoryStore::new();
        let log = CallLog::new(std::sync::Arc::new(memory.clone()));
        let (part, name) = (Name::join(&["x.part"]), Name::join(&["x"]));
        let mut steady = Steady::create(&log, part.clone(), dir);
        let lose = |step| {
            if losses.contains(&step) {
                memory.remove(&part).wait().unwrap();
            }
        };
        let outcome = (0..3).try_for_each(|step| {
            lose(step);
            steady.append(vec![u8::try_from(step).unwrap(); 900_000])
        });
        lose(3);
        let outcome = outcome.and_then(|()| steady.commit(&name).wait());
        (outcome, memory.contents(&name).unwrap_or_default(), log.count(Op::Create))
    }

    fn whole() -> Vec<u8> {
        [vec![0; 900_000], vec![1; 900_000], vec![2; 900_000]].concat()
    }

    #[test]
    fn a_lost_file_is_sent_once_more() {
        let dir = tempfile::tempdir().unwrap();
        for losses in [&[][..], &[1], &[2], &[3]] {
            let (outcome, bytes, created) = send(Some(dir.path()), losses);
            assert!(outcome.is_ok() && bytes == whole(), "{losses:?}: {outcome:?}");
            assert_eq!(created, 1 + losses.len(), "{losses:?}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_kept_fails() {
        let (outcome, bytes, created) = send(None, &[2]);
        assert_eq!((outcome.unwrap_err().kind, bytes, created), (ErrorKind::Other, Vec::new(), 1));
    }
}
