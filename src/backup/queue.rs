//! What is to be done of a walk, for all its workers: last in, first out, so that few directories are open at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::live::LiveDir;

use super::node::{Former, Node, Outcome, Parent};

/// The stack of what is to be done.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    more: Condvar,
    stopped: AtomicBool,
}

#[derive(Default)]
struct State {
    stack: Vec<Work>,
    /// Roots that are not done.
    roots: usize,
    outcomes: Vec<(usize, Outcome)>,
}

enum Work {
    Root(usize, Arc<LiveDir>, Former),
    Subdirs(Arc<Node>),
    Finish(Arc<Node>),
}

/// What a worker does next.
pub enum Step {
    /// Looks what is in a directory.
    Enter(Arc<LiveDir>, Former, Parent),
    /// Opens this one of a directory's subdirectories.
    Open(Arc<Node>, usize),
    /// Makes the pages of a directory whose subdirectories are done.
    Finish(Arc<Node>),
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a root.
    pub fn add_root(&self, number: usize, dir: Arc<LiveDir>, former: Former) {
        let mut state = self.lock();
        state.roots += 1;
        state.stack.push(Work::Root(number, dir, former));
    }

    /// What became of the roots that are done, and the directories that are waited for.
    pub fn look(&self) -> (Vec<(usize, Outcome)>, Vec<Arc<Node>>) {
        let state = self.lock();
        let nodes = state.stack.iter().filter_map(|work| match work {
            Work::Subdirs(node) | Work::Finish(node) => Some(Arc::clone(node)),
            Work::Root(..) => None,
        });
        (state.outcomes.clone(), nodes.collect())
    }

    /// What became of the roots.
    pub fn outcomes(&self) -> Vec<(usize, Outcome)> {
        std::mem::take(&mut self.lock().outcomes)
    }

    /// Queues a directory's subdirectories.
    pub fn add_subdirs(&self, node: Arc<Node>) {
        self.push(Work::Subdirs(node));
    }

    fn push(&self, work: Work) {
        self.lock().stack.push(work);
        self.more.notify_one();
    }

    /// Makes all workers stop soon.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _state = self.lock();
        self.more.notify_all();
    }

    /// The next step; `None` when all is done, or nothing shall be.
    pub fn next(&self) -> Option<Step> {
        let mut state = self.lock();
        loop {
            if self.stopped.load(Ordering::Relaxed) || (state.roots == 0 && state.stack.is_empty()) {
                self.more.notify_all();
                return None;
            }
            match state.stack.pop() {
                Some(Work::Finish(node)) => return Some(Step::Finish(node)),
                Some(Work::Root(number, dir, former)) => {
                    return Some(Step::Enter(dir, former, Parent::Root(number)));
                }
                Some(Work::Subdirs(node)) => {
                    if let Some((number, is_last)) = node.begin_subdir() {
                        if !is_last {
                            state.stack.push(Work::Subdirs(Arc::clone(&node)));
                            self.more.notify_one();
                        }
                        return Some(Step::Open(node, number));
                    }
                }
                None => state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// A directory is done.
    pub fn complete(&self, parent: &Parent, outcome: Outcome) {
        match parent {
            Parent::Root(number) => {
                let mut state = self.lock();
                state.outcomes.push((*number, outcome));
                state.roots -= 1;
                self.more.notify_all();
            }
            Parent::Node(node, number) => {
                if node.end_subdir(*number, outcome) {
                    self.push(Work::Finish(Arc::clone(node)));
                }
            }
        }
    }
}

impl Step {
    /// The directory that it is about.
    pub fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Enter(_, _, Parent::Node(node, _)) | Self::Open(node, _) | Self::Finish(node) => Some(node),
            Self::Enter(_, _, Parent::Root(_)) => None,
        }
    }
}
