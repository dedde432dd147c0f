//! Keeps the list of generations fresh.
//!
//! It is looked up when somebody looks at what stands above the generations and it is old. Whoever looks waits for that, but not for long: a line that is down
//! must not hide what is known.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::base::time::Clock;

/// How long to wait for a new list.
const PATIENCE: Duration = Duration::from_secs(3);

/// Says when to look again.
pub struct Refresh {
    clock: Arc<dyn Clock>,
    max_age: Duration,
    state: Mutex<State>,
    done: Condvar,
    wake: Sender<()>,
}

struct State {
    /// When the list was last looked up, or began to be.
    looked: Duration,
    is_looking: bool,
}

impl Refresh {
    /// A list that is fresh now, and is looked up by `look` when it is older than `max_age`, on a thread of its own that lives as long as this does.
    ///
    /// # Errors
    /// When that thread cannot be started.
    pub fn start(
        clock: Arc<dyn Clock>,
        max_age: Duration,
        look: impl Fn() + Send + 'static,
    ) -> std::io::Result<Arc<Self>> {
        let (wake, woken): (_, Receiver<()>) = bounded(1);
        let state = Mutex::new(State { looked: clock.monotonic(), is_looking: false });
        let refresh = Arc::new(Self { clock, max_age, state, done: Condvar::new(), wake });
        let weak = Arc::downgrade(&refresh);
        thread::Builder::new().name("refresh".to_owned()).spawn(move || {
            for () in woken {
                look();
                let Some(refresh) = weak.upgrade() else { return };
                refresh.lock().is_looking = false;
                refresh.done.notify_all();
            }
        })?;
        Ok(refresh)
    }

    /// Sees to it that the list is fresh, as far as that is quickly done.
    pub fn see_to_it(&self) {
        let mut state = self.lock();
        let now = self.clock.monotonic();
        if !state.is_looking {
            if now.saturating_sub(state.looked) < self.max_age {
                return;
            }
            (state.looked, state.is_looking) = (now, true);
            // It is empty: whoever looks has taken what was there.
            let _ = self.wake.try_send(());
        } else if now.saturating_sub(state.looked) >= PATIENCE {
            // It takes long, and somebody has waited already.
            return;
        }
        let waited = self.done.wait_timeout_while(state, PATIENCE, |state| state.is_looking);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    use super::*;
    use crate::base::time::Timestamp;

    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn looks_when_it_is_old() {
        let clock = Arc::new(Hand::default());
        let looked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&looked);
        let look = move || {
            count.fetch_add(1, Ordering::SeqCst);
        };
        let refresh = Refresh::start(clock.clone(), Duration::from_secs(60), look).unwrap();
        let mut seen = Vec::new();
        for second in [0, 59, 60, 61, 119, 120, 500, 500] {
            clock.0.store(second, Ordering::SeqCst);
            refresh.see_to_it();
            seen.push(looked.load(Ordering::SeqCst));
        }
        assert_eq!(seen, [0, 0, 1, 1, 1, 2, 3, 3]);
    }
}
