//! How many bytes may be under way at once: as many as the line carries in a round trip, and a little more.
//!
//! What is sent beyond that waits in some queue on the way, and everything that is asked later waits behind it: on a line of
//! 5 Mbit/s a few megabytes are many seconds. So the driver learns what the line carries from how fast answers come, and keeps
//! the queue at [`QUEUE`] of time. The idea is that of BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14, 2016),
//! which takes the greatest rate and the shortest round trip that were seen lately for those of the line.

use std::collections::VecDeque;
use std::time::Duration;

/// What may wait on the way, as a time. It keeps the line full when answers come unevenly.
const QUEUE: Duration = Duration::from_millis(150);

/// How long answers are counted at least until that tells a rate.
const SPAN: Duration = Duration::from_millis(100);

/// How long nothing is owed before that is a pause.
const PAUSE: Duration = Duration::from_millis(10);

/// How many rates are looked back on.
const LATELY: usize = 10;

/// Bytes under way while no rate is known: four pieces of which each is answered in time, were the line one of 64 kbit/s.
const FIRST: u64 = 256 << 10;

/// Bytes under way on the slowest of lines: three of the smallest pieces.
const LEAST: u64 = 96 << 10;

/// How often the rate may fail to grow by a quarter until it is taken for that of the line.
const FLAT: u8 = 3;

/// What is known of the rate of a connection.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Since when bytes are counted.
    since: Duration,
    /// When something was last answered.
    last: Duration,
    bytes: u64,
    /// Whether there would have been more to send meanwhile.
    is_limited: bool,
    /// Bytes a second, the newest last.
    rates: VecDeque<u64>,
    flat: u8,
}

impl Pace {
    /// Something is sent to a server that owed no answer. If it has owed some until just now, that was no pause: all that was under way may be answered
    /// at once.
    pub(super) fn begins(&mut self, now: Duration) {
        if now.saturating_sub(self.last) >= PAUSE {
            self.count_from(now);
        }
    }

    fn count_from(&mut self, now: Duration) {
        (self.since, self.bytes, self.is_limited) = (now, 0, false);
    }

    /// There is more to send than may be under way.
    pub(super) fn limits(&mut self) {
        self.is_limited = true;
    }

    /// So many bytes have been answered. `nearest` is the shortest round trip.
    pub(super) fn answered(&mut self, bytes: u64, now: Duration, nearest: Duration) {
        self.last = now;
        self.bytes = self.bytes.saturating_add(bytes);
        let took = now.saturating_sub(self.since);
        if took < SPAN.max(nearest) {
            return;
        }
        let rate = u128::from(self.bytes) * 1_000_000 / took.as_micros().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let known = self.greatest();
        let greatest = known.unwrap_or(0);
        // What was asked for slowly says nothing of how fast the line is, but that it is no slower than that.
        if self.is_limited || known.is_some_and(|known| rate > known) {
            let has_grown = rate > greatest.saturating_add(greatest / 4);
            self.flat = if has_grown { 0 } else { self.flat.saturating_add(1) };
            self.rates.push_back(rate);
            if self.rates.len() > LATELY {
                self.rates.pop_front();
            }
        }
        self.count_from(now);
    }

    fn greatest(&self) -> Option<u64> {
        self.rates.iter().copied().max()
    }

    /// How many bytes may be under way.
    pub(super) fn room(&self, nearest: Duration) -> u64 {
        let Some(rate) = self.greatest() else { return FIRST };
        // Nobody knows yet whether it could be faster: then so much that the rate could double.
        let round_trips = if self.flat < FLAT { 2 } else { 1 };
        let time = nearest.saturating_mul(round_trips).saturating_add(QUEUE);
        let bytes = u128::from(rate) * time.as_micros() / 1_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A line that answers pieces of 32 KiB at this rate, so far away; what it is given is all that it may have. The room at the end, and the
    /// longest that a piece waited in the queue in the last second.
    fn full_line(rate: u64, distance: Duration, seconds: u64) -> (u64, Duration) {
        const PIECE: u64 = 32 << 10;
        let mut pace = Pace::default();
        let mut under_way = VecDeque::new();
        let (mut now, mut free) = (Duration::ZERO, Duration::ZERO);
        let mut longest = Duration::ZERO;
        pace.begins(now);
        while now < Duration::from_secs(seconds) {
            while (under_way.len() as u64 + 1) * PIECE <= pace.room(distance) {
                let waits = free.saturating_sub(now);
                free = free.max(now) + Duration::from_micros(PIECE * 1_000_000 / rate);
                under_way.push_back(free + distance);
                if now >= Duration::from_secs(seconds - 1) {
                    longest = longest.max(waits);
                }
            }
            pace.limits();
            now = under_way.pop_front().unwrap();
            pace.answered(PIECE, now, distance);
        }
        (pace.room(distance), longest)
    }

    #[test]
    fn the_line_is_full_and_its_queue_short() {
        for (rate, distance) in
            [(60_000, 50), (625_000, 50), (625_000, 300), (6_250_000, 20), (100_000_000, 200)]
        {
            let (room, waits) = full_line(rate, ms(distance), 20);
            let carried = rate * distance / 1000;
            assert!(room > carried, "{rate} at {distance} ms: {room}");
            let least = ms(LEAST * 1000 / rate);
            assert!(waits <= (QUEUE + ms(60)).max(least), "{rate} at {distance} ms: {waits:?}");
        }
    }

    #[test]
    fn it_is_learnt_within_a_few_round_trips() {
        let (room, _) = full_line(100_000_000, ms(200), 2);
        assert!(room >= 20_000_000, "{room}");
        let (room, _) = full_line(400_000_000, ms(0), 1);
        assert!(room >= 24 << 20, "{room}");
    }

    #[test]
    fn it_is_learnt_where_all_is_answered_at_once() {
        for distance in [ms(1), ms(50)] {
            let mut pace = Pace::default();
            let mut now = ms(10_000);
            for _ in 0..200 {
                pace.begins(now);
                let room = pace.room(distance);
                pace.limits();
                now += distance;
                pace.answered(room, now, distance);
            }
            assert!(pace.room(distance) > 16 << 20, "{}", pace.room(distance));
        }
    }

    #[test]
    fn small_things_alone_tell_no_rate() {
        let mut pace = Pace::default();
        pace.begins(ms(0));
        (1..20).for_each(|round| pace.answered(1000, ms(round * 100), ms(50)));
        assert_eq!(pace.room(ms(50)), FIRST, "nobody has tried yet what the line carries");
        pace.limits();
        pace.answered(FIRST, ms(2000), ms(50));
        assert!(pace.room(ms(50)) > FIRST);
    }

    #[test]
    fn a_line_that_becomes_slower_is_noticed_and_pauses_are_not_taken_for_it() {
        let mut pace = Pace::default();
        let mut now = ms(0);
        let mut pass = |pace: &mut Pace, bytes, is_limited| {
            now += ms(100);
            if is_limited {
                pace.limits();
            }
            pace.answered(bytes, now, ms(50));
        };
        (0..20).for_each(|_| pass(&mut pace, 1_000_000, true));
        assert_eq!(pace.room(ms(50)), 2_000_000);
        (0..50).for_each(|_| pass(&mut pace, 1_000, false));
        assert_eq!(pace.room(ms(50)), 2_000_000, "little was asked for");
        (0..LATELY).for_each(|_| pass(&mut pace, 100_000, true));
        assert_eq!(pace.room(ms(50)), 200_000);
    }
}
