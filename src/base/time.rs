//! Points in time, and the clock that code asks for them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A point in time: seconds since 1970 (negative before) and nanoseconds after that second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 00:00 UTC.
    pub secs: i64,
    /// Nanoseconds after `secs`, 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// From a system time.
    #[must_use]
    pub fn from_system(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => {
                Self { secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX), nanos: after.subsec_nanos() }
            }
            Err(before) => {
                let before = before.duration();
                let secs = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Self { secs: -secs, nanos: 0 },
                    nanos => Self { secs: (-secs).saturating_sub(1), nanos: 1_000_000_000 - nanos },
                }
            }
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.secs, self.nanos).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (secs, nanos) = <(i64, u32)>::deserialize(deserializer)?;
        if nanos >= 1_000_000_000 {
            return Err(serde::de::Error::custom("nanoseconds beyond a second"));
        }
        Ok(Self { secs, nanos })
    }
}

/// Where code gets the time from, so that tests can give it.
pub trait Clock: Send + Sync {
    /// The time of day.
    fn now(&self) -> Timestamp;
    /// Time since some fixed point, not counting the time that the machine was suspended.
    fn monotonic(&self) -> Duration;
    /// How long the machine was suspended since some fixed point. Two readings that differ by less than a moment mean
    /// that it was awake between them.
    fn suspended(&self) -> Duration {
        Duration::ZERO
    }
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The machine's clock; `monotonic` counts from here.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one clock that others are given")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one clock that others are given")]
    fn now(&self) -> Timestamp {
        Timestamp::from_system(SystemTime::now())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn suspended(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        // Both count from the start of the machine; only the first goes on in its sleep.
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        let awake = read(ClockId::Monotonic);
        read(ClockId::Boottime).saturating_sub(awake)
    }
}

/// Notices that the machine was suspended since it last looked.
#[derive(Debug)]
pub struct Sleep(Duration);

impl Sleep {
    /// The least that counts: what is shorter may be the time between two readings.
    const LEAST: Duration = Duration::from_secs(1);

    /// Looks from now on.
    #[must_use]
    pub fn new(clock: &dyn Clock) -> Self {
        Self(clock.suspended())
    }

    /// Whether the machine was suspended since this, or [`Self::new`], was last called.
    pub fn is_over(&mut self, clock: &dyn Clock) -> bool {
        let suspended = clock.suspended();
        let slept = suspended.saturating_sub(self.0);
        self.0 = suspended;
        slept >= Self::LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_awake_has_not_slept() {
        let clock = SystemClock::new();
        let mut sleep = Sleep::new(&clock);
        assert!(!(0..1000).any(|_| sleep.is_over(&clock)));
    }

    #[test]
    fn before_1970() {
        let half_before = UNIX_EPOCH - Duration::from_millis(500);
        let expected = Timestamp { secs: -1, nanos: 500_000_000 };
        assert_eq!(Timestamp::from_system(half_before), expected);
    }
}
