//! How many directories are open at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

use super::dirs::LiveDir;

/// Raises the number of files that this process may have open as far as it may do so itself. Call it once, early;
/// without it, deep trees cost some more reopening.
pub fn raise_open_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // A failure leaves things as they were, which is good enough.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The directories of one tree that hold a descriptor, oldest first; beyond the limit the oldest are closed, to be
/// opened again on demand.
#[derive(Debug)]
pub(super) struct OpenDirs {
    limit: usize,
    user: u32,
    queue: Mutex<VecDeque<Weak<LiveDir>>>,
}

impl OpenDirs {
    /// Room for a quarter of the descriptors that this process may have, at most 512.
    pub(super) fn from_limits() -> Self {
        let soft = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::with_limit(usize::try_from(soft / 4).unwrap_or(usize::MAX).clamp(16, 512))
    }

    pub(super) fn with_limit(limit: usize) -> Self {
        Self { limit, user: geteuid().as_raw(), queue: Mutex::new(VecDeque::new()) }
    }

    /// As whom this process works.
    pub(super) fn user(&self) -> u32 {
        self.user
    }

    /// `dir` has just been opened. Closes others where there are too many. Takes no lock of a directory while it
    /// holds its own.
    pub(super) fn opened(&self, dir: &Arc<LiveDir>) {
        let mut victims = Vec::new();
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push_back(Arc::downgrade(dir));
            let mut chances = queue.len();
            while queue.len() > self.limit {
                let Some(oldest) = queue.pop_front() else { break };
                match oldest.upgrade() {
                    // A second chance for what was used meanwhile: ancestors that serve as a way down.
                    Some(dir) if chances > 0 && dir.take_used() => queue.push_back(oldest),
                    Some(dir) => victims.push(dir),
                    None => {}
                }
                chances = chances.saturating_sub(1);
            }
        }
        for victim in victims {
            victim.close();
        }
    }
}
