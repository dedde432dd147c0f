//! A monitor that remembers, for summaries and tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::{Change, Counter, Monitor, Problem, Severity};

/// Remembers counts and problems, and (when asked to) changes.
#[derive(Debug, Default)]
pub struct Collect {
    inner: Mutex<Inner>,
    keep_changes: bool,
}

#[derive(Debug, Default)]
struct Inner {
    counts: BTreeMap<Counter, u64>,
    problems: Vec<Problem>,
    changes: Vec<(Vec<u8>, Change)>,
}

impl Collect {
    /// Remembers counts and problems.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers changes too.
    #[must_use]
    pub fn with_changes() -> Self {
        Self { keep_changes: true, ..Self::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much of `counter` there was.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.lock().counts.get(&counter).copied().unwrap_or(0)
    }

    /// The problems so far, as lines of text.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.lock().problems.iter().map(ToString::to_string).collect()
    }

    /// How many problems of at least this severity there were.
    #[must_use]
    pub fn problems_of(&self, severity: Severity) -> usize {
        self.lock().problems.iter().filter(|problem| problem.severity == severity).count()
    }

    /// The changes so far.
    #[must_use]
    pub fn changes(&self) -> Vec<(Vec<u8>, Change)> {
        self.lock().changes.clone()
    }
}

impl Monitor for Collect {
    fn count(&self, counter: Counter, amount: u64) {
        let mut inner = self.lock();
        let sum = inner.counts.entry(counter).or_default();
        *sum = sum.saturating_add(amount);
    }

    fn phase(&self, _name: &'static str) {}

    fn path(&self, _path: &[u8]) {}

    fn change(&self, path: &[u8], change: Change) {
        if self.keep_changes {
            self.lock().changes.push((path.to_vec(), change));
        }
    }

    fn follows_changes(&self) -> bool {
        self.keep_changes
    }

    fn problem(&self, problem: Problem) {
        self.lock().problems.push(problem);
    }
}
