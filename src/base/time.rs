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
    /// Time since some fixed point, not counting sleep.
    fn monotonic(&self) -> Duration;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_1970() {
        let half_before = UNIX_EPOCH - Duration::from_millis(500);
        let expected = Timestamp { secs: -1, nanos: 500_000_000 };
        assert_eq!(Timestamp::from_system(half_before), expected);
    }
}
