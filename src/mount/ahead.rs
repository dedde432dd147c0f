//! How far to read ahead. Pure.

/// The first window of a reader who goes forward, in bytes.
const FIRST: u64 = 2 << 20;

/// The largest.
const MOST: u64 = 32 << 20;

/// How far beside the expected place a read may be and still follow: the kernel's own read-ahead comes out of order.
const SLACK: u64 = 1 << 20;

/// What is known of one open file's reader.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead {
    /// Where the next read is expected.
    next: u64,
    /// How far ahead is asked for now.
    window: u64,
    /// Up to where it was asked for.
    asked: u64,
}

impl Ahead {
    /// `offset..end` is being read. Returns what should be asked for beyond it: nothing for who jumps about; for who goes forward a window that doubles, up to
    /// `limit` bytes, topped up when half of it is used.
    pub fn read(&mut self, offset: u64, end: u64, limit: u64) -> Option<(u64, u64)> {
        let follows = offset.saturating_add(SLACK) >= self.next && offset <= self.next.saturating_add(SLACK);
        if !follows {
            *self = Self { next: end, window: 0, asked: end };
            return None;
        }
        self.next = self.next.max(end);
        let left = self.asked.saturating_sub(self.next);
        if self.window > 0 && left > self.window / 2 {
            return None;
        }
        let limit = limit.clamp(1, MOST);
        self.window = self.window.saturating_mul(2).clamp(FIRST.min(limit), limit);
        let from = self.asked.max(end);
        self.asked = self.next.saturating_add(self.window).max(from);
        (from < self.asked).then_some((from, self.asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 128 << 10;

    #[test]
    fn forward_in_growing_windows() {
        let mut ahead = Ahead::default();
        let mut asked = Vec::new();
        let mut reached = 0;
        for number in 0..1000 {
            if let Some((from, to)) = ahead.read(number * STEP, (number + 1) * STEP, u64::MAX) {
                assert!(from >= reached, "asked for twice");
                reached = to;
                asked.push((to - from) >> 20);
            }
            assert!(reached >= (number + 1) * STEP + FIRST / 2 || number == 0);
        }
        assert!(reached <= 1000 * STEP + MOST);
        assert!(asked.len() < 20, "{asked:?}");
    }

    #[test]
    fn no_further_than_the_limit() {
        let mut ahead = Ahead::default();
        for number in 0..100 {
            let end = (number + 1) * STEP;
            if let Some((_, to)) = ahead.read(number * STEP, end, 1 << 20) {
                assert!(to <= end + (1 << 20));
            }
        }
    }

    #[test]
    fn not_for_who_jumps_or_goes_backwards() {
        let mut ahead = Ahead::default();
        ahead.read(500 << 20, (500 << 20) + STEP, u64::MAX);
        for number in (1..50).rev() {
            assert_eq!(ahead.read(number << 22, (number << 22) + STEP, u64::MAX), None);
        }
        // Who then goes forward is believed at the second step.
        assert_eq!(ahead.read(700 << 20, (700 << 20) + STEP, u64::MAX), None);
        assert!(ahead.read((700 << 20) + STEP, (700 << 20) + 2 * STEP, u64::MAX).is_some());
    }
}
