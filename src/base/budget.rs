//! A budget of bytes that bounds what a pipeline holds.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Bytes that may be in use at once; clones share it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// A share of a [`Budget`], given back when dropped.
#[derive(Debug)]
pub struct Permit {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Inner { limit, used: Mutex::new(0), freed: Condvar::new() }))
    }

    /// Takes `bytes`, waiting until they are there. More than the limit is given when nothing else is in use,
    /// so that a single large thing passes.
    #[must_use]
    pub fn take(&self, bytes: u64) -> Permit {
        let mut used = self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
        while *used > 0 && used.saturating_add(bytes) > self.0.limit {
            used = self.0.freed.wait(used).unwrap_or_else(PoisonError::into_inner);
        }
        *used = used.saturating_add(bytes);
        Permit { budget: self.clone(), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let inner = &self.budget.0;
        let mut used = inner.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = used.saturating_sub(self.bytes);
        inner.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn waits_until_bytes_are_given_back() {
        let budget = Budget::new(10);
        let first = budget.take(8);
        let (tell, told) = mpsc::channel();
        let other = budget.clone();
        let waiter = thread::spawn(move || {
            let _second = other.take(8);
            tell.send(()).ok();
        });
        assert!(told.try_recv().is_err());
        drop(first);
        assert!(told.recv().is_ok());
        assert!(waiter.join().is_ok());
    }

    #[test]
    fn a_single_large_thing_passes() {
        drop(Budget::new(10).take(100));
    }
}
