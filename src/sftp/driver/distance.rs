//! How far away the server is, and how many channels that takes.
//!
//! A server gives each channel a window; when it is used up, the channel stands still until word comes back. So what one channel carries is
//! bounded by its window for each round trip, and the number of channels is what makes up for a long way.

use std::time::Duration;

/// A round trip that one more channel makes up for: OpenSSH's window of 2 MiB in that time is 80 MB/s.
const A_CHANNEL: Duration = Duration::from_millis(25);

/// The shortest round trip seen so far.
#[derive(Debug, Default)]
pub(super) struct Distance {
    asked: Option<Duration>,
    nearest: Option<Duration>,
}

impl Distance {
    /// Something is sent to a server that owes no answer.
    pub(super) fn asks(&mut self, now: Duration) {
        self.asked = Some(now);
    }

    /// Something came.
    pub(super) fn hears(&mut self, now: Duration) {
        if let Some(asked) = self.asked.take() {
            let took = now.saturating_sub(asked);
            self.nearest = Some(self.nearest.map_or(took, |nearest| nearest.min(took)));
        }
    }

    /// The shortest round trip seen, nothing while there was none.
    pub(super) fn nearest(&self) -> Duration {
        self.nearest.unwrap_or_default()
    }

    /// How many channels keep the line full, at least `few` and at most `many`.
    pub(super) fn channels(&self, few: usize, many: usize) -> usize {
        let nearest = self.nearest().as_micros();
        let wanted = nearest.div_ceil(A_CHANNEL.as_micros());
        usize::try_from(wanted).unwrap_or(many).clamp(few, many.max(few))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farther_the_more() {
        let channels = |milliseconds: u64| {
            let mut distance = Distance::default();
            distance.asks(Duration::from_secs(1));
            distance.hears(Duration::from_millis(1000 + milliseconds));
            // It stood in a queue.
            distance.asks(Duration::from_secs(2));
            distance.hears(Duration::from_secs(9));
            distance.hears(Duration::from_secs(9));
            distance.channels(4, 8)
        };
        assert_eq!([0, 50, 150, 200, 5000].map(channels), [4, 4, 6, 8, 8]);
        assert_eq!(Distance::default().channels(4, 8), 4);
        assert_eq!(Distance::default().channels(2, 1), 2);
    }
}
