//! The one place that reads the clock: a benchmark is about real time, so there is nothing to inject.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic time.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub fn now() -> Instant {
    Instant::now()
}

/// Calls `ready` every few milliseconds until it says yes or `limit` has passed; the last answer.
pub fn wait_until(limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let end = now() + limit;
    loop {
        if ready() {
            return true;
        }
        if now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The time since this machine started: the same clock for every process on it.
#[must_use]
pub fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Seconds since 1970, to say when something was measured.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a benchmark says when it ran")]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
