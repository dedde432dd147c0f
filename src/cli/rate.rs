//! How fast something grows, over the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

/// How far back the rate looks.
const WINDOW: Duration = Duration::from_secs(10);

/// A rate over a sliding window.
#[derive(Debug, Default)]
pub struct Rate(VecDeque<(Duration, u64)>);

impl Rate {
    /// At `now` the total was `total`.
    pub fn sample(&mut self, now: Duration, total: u64) {
        while self.0.len() > 2 && self.0.front().is_some_and(|(then, _)| now.saturating_sub(*then) > WINDOW) {
            self.0.pop_front();
        }
        self.0.push_back((now, total));
    }

    /// Units per second; `None` before there is anything to tell.
    #[must_use]
    pub fn per_second(&self) -> Option<u64> {
        let ((first, low), (last, high)) = (self.0.front()?, self.0.back()?);
        let millis = last.saturating_sub(*first).as_millis();
        let grown = u128::from(high.saturating_sub(*low));
        (millis >= 500).then(|| u64::try_from(grown * 1000 / millis).unwrap_or(u64::MAX))
    }

    /// How long `rest` more units take at this rate; `None` when it cannot be told, or is beyond a week.
    #[must_use]
    pub fn time_for(&self, rest: u64) -> Option<Duration> {
        let seconds = rest.checked_div(self.per_second()?)?;
        (seconds < 7 * 24 * 3600).then(|| Duration::from_secs(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_seconds_count() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(), None);
        for second in 0..60 {
            let total = if second < 30 { 0 } else { (second - 30) * 100 };
            rate.sample(Duration::from_secs(second), total);
        }
        assert_eq!(rate.per_second(), Some(100));
        assert_eq!(rate.time_for(1000), Some(Duration::from_secs(10)));
    }

    #[test]
    fn no_time_is_told_when_nothing_moves() {
        let mut rate = Rate::default();
        rate.sample(Duration::ZERO, 5);
        rate.sample(Duration::from_secs(3), 5);
        assert_eq!(rate.per_second(), Some(0));
        assert_eq!(rate.time_for(1), None);
    }
}
