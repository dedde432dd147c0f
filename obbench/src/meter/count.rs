//! From events to counts.

use std::time::Duration;

use super::Counts;
use super::event::{self, Event};

/// Counts what the events of all channels of a client say. `rtt` is the link's.
pub(super) fn count(mut events: Vec<Event>, channels: u64, rtt: Duration) -> Counts {
    events.sort_by_key(|event| (event.at, event.answer));
    let mut counts = Counts {
        channels,
        serial_waits: serial_waits(&events, rtt),
        most_outstanding: most_outstanding(&events, rtt),
        ..Counts::default()
    };
    for event in &events {
        let bytes = u64::from(event.bytes);
        if event.answer {
            counts.answers += 1;
            counts.bytes_down += bytes;
        } else {
            counts.requests += 1;
            counts.bytes_up += bytes;
            *counts.by_type.entry(event::name(event.kind).to_string()).or_default() += 1;
        }
    }
    counts
}

fn serial_waits(events: &[Event], rtt: Duration) -> u64 {
    let notice = rtt.mul_f64(0.8);
    let (mut waits, mut outstanding) = (0u64, 0u64);
    let mut last_answer: Option<Duration> = None;
    for event in events {
        if event.answer {
            outstanding = outstanding.saturating_sub(1);
            last_answer = Some(event.at);
            continue;
        }
        let knew = last_answer.is_none_or(|answer| event.at.saturating_sub(answer) >= notice);
        if outstanding == 0 && knew {
            waits += 1;
        }
        outstanding += 1;
    }
    waits
}

fn most_outstanding(events: &[Event], rtt: Duration) -> u64 {
    // As seen by the client, an answer comes a whole round trip later relative to the requests.
    let shift = |event: &Event| if event.answer { event.at + rtt } else { event.at };
    let mut times: Vec<(Duration, bool)> = events.iter().map(|event| (shift(event), event.answer)).collect();
    times.sort_unstable();
    let (mut now, mut most) = (0u64, 0u64);
    for (_, answer) in times {
        now = if answer { now.saturating_sub(1) } else { now + 1 };
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64, answer: bool) -> Event {
        Event {
            at: Duration::from_millis(milliseconds),
            answer,
            kind: if answer { 101 } else { 5 },
            bytes: 10,
        }
    }

    #[test]
    fn one_after_another() {
        let events = (0..5).flat_map(|turn| [at(turn * 100, false), at(turn * 100 + 1, true)]).collect();
        let counts = count(events, 1, Duration::from_millis(100));
        assert_eq!((counts.requests, counts.answers, counts.serial_waits), (5, 5, 5));
        assert_eq!((counts.bytes_up, counts.bytes_down, counts.most_outstanding), (50, 50, 2));
    }

    #[test]
    fn a_flight_is_one_wait_even_when_the_server_is_quick() {
        // Ten requests a millisecond apart, each answered before the next arrives; then one that waited for them.
        let mut events: Vec<Event> =
            (0..10).flat_map(|number| [at(number * 2, false), at(number * 2 + 1, true)]).collect();
        events.extend([at(119, false), at(120, true)]);
        let counts = count(events.clone(), 1, Duration::from_millis(100));
        assert_eq!((counts.serial_waits, counts.most_outstanding), (2, 10));
        // Without a delay each of them could have been an answer to the one before.
        assert_eq!(count(events, 1, Duration::ZERO).serial_waits, 11);
    }

    #[test]
    fn a_slow_answer_on_one_channel_hides_the_others() {
        let events =
            vec![at(0, false), at(50, false), at(51, true), at(80, false), at(81, true), at(300, true)];
        assert_eq!(count(events, 2, Duration::from_millis(10)).serial_waits, 1);
    }
}
