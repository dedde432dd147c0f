//! Workers stand still while a checkpoint is made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::bag::Placing;
use crate::entry::Entry;

use super::node::Node;
use super::tree::DraftChild;

/// What is done of a directory that a worker is at.
#[derive(Clone)]
pub struct Snapshot {
    /// The directory.
    pub node: Arc<Node>,
    /// Place of the first name that is not done.
    pub next: usize,
    /// Leaf pages that are complete.
    pub leaves: Vec<DraftChild>,
    /// Entries of the page that is not.
    pub entries: Vec<Entry<Placing>>,
}

impl Snapshot {
    /// A directory of which nothing is done but some subdirectories.
    pub fn empty(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node), next: 0, leaves: Vec::new(), entries: Vec::new() }
    }
}

/// Lets workers run, or stand still between two steps of their work.
#[derive(Default)]
pub struct Pause {
    wanted: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Workers in the middle of something.
    working: usize,
    /// Those of them that stand still.
    standing: usize,
    snapshots: Vec<Snapshot>,
}

impl Pause {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker has taken something up (or is done with it).
    pub fn working(&self, begins: bool) {
        let mut state = self.lock();
        state.working = if begins { state.working + 1 } else { state.working.saturating_sub(1) };
        self.changed.notify_all();
    }

    /// Whether workers are asked to stand still; they should come to a [`point`](Self::point) then.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Where a worker can stand still: leaves what it has done so far, and waits as long as it is asked to.
    pub fn point(&self, snapshot: impl FnOnce() -> Option<Snapshot>) {
        if !self.is_wanted() {
            return;
        }
        let mut state = self.lock();
        if !self.is_wanted() {
            return;
        }
        state.snapshots.extend(snapshot());
        state.standing += 1;
        self.changed.notify_all();
        while self.is_wanted() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.standing -= 1;
    }

    /// Waits until all workers stand still; gives what they have done. [`go_on`](Self::go_on) must follow.
    pub fn stop(&self) -> Vec<Snapshot> {
        let mut state = self.lock();
        self.wanted.store(true, Ordering::Relaxed);
        while state.standing < state.working {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut state.snapshots)
    }

    /// Lets the workers go on.
    pub fn go_on(&self) {
        let mut state = self.lock();
        state.snapshots.clear();
        self.wanted.store(false, Ordering::Relaxed);
        self.changed.notify_all();
    }
}
