//! Removing files, many at once.

use std::collections::VecDeque;

use super::Amount;
use crate::monitor::{Monitor, Problem, Severity};
use crate::store::{ErrorKind, Name, Pending, Store, StoreError};

/// Removals under way at once.
const AT_ONCE: usize = 512;

/// Removes files, asking for many at once and in order.
pub struct Sweep<'a> {
    store: &'a dyn Store,
    monitor: &'a dyn Monitor,
    under_way: VecDeque<(Name, Option<u64>, Pending<()>)>,
    removed: Amount,
    failed: u64,
    error: Option<StoreError>,
}

/// What came of it.
pub struct Swept {
    /// The files that counted, removed.
    pub removed: Amount,
    /// Files that could not be removed.
    pub failed: u64,
}

impl<'a> Sweep<'a> {
    /// Nothing yet.
    pub fn new(store: &'a dyn Store, monitor: &'a dyn Monitor) -> Self {
        Self {
            store,
            monitor,
            under_way: VecDeque::new(),
            removed: Amount::default(),
            failed: 0,
            error: None,
        }
    }

    /// Removes a file, which counts with so many bytes, or not at all.
    pub fn remove(&mut self, name: Name, counts: Option<u64>) {
        let pending = self.store.remove(&name);
        self.under_way.push_back((name, counts, pending));
        while self.under_way.len() > AT_ONCE {
            self.land();
        }
    }

    fn land(&mut self) {
        let Some((name, counts, pending)) = self.under_way.pop_front() else { return };
        match (pending.wait(), counts) {
            (Ok(()), Some(bytes)) => self.removed.add(bytes),
            (Ok(()), None) => {}
            // Somebody else was faster.
            (Err(error), _) if error.kind == ErrorKind::NotFound => {}
            (Err(error), _) => {
                self.failed = self.failed.saturating_add(1);
                if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Refused | ErrorKind::Cancelled) {
                    self.error.get_or_insert(error);
                } else {
                    let text = format!("it could not be removed ({})", error.detail);
                    self.monitor.problem(Problem::new(Severity::Lost, name.as_str().as_bytes(), text));
                }
            }
        }
    }

    /// Waits for all of it.
    ///
    /// # Errors
    /// When the store is out of reach.
    pub fn finish(mut self) -> Result<Swept, StoreError> {
        while !self.under_way.is_empty() {
            self.land();
        }
        match self.error {
            Some(error) => Err(error),
            None => Ok(Swept { removed: self.removed, failed: self.failed }),
        }
    }
}
