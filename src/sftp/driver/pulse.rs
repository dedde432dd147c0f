//! Whether the peer is alive.

use std::time::Duration;

use super::channel::{Channel, Ticket};
use super::{Driver, Standing};
use crate::sftp::link::{CONTROL, LinkError, LinkErrorKind};
use crate::sftp::packet::{Kind, Request};

/// What is read so soon after the machine woke may have come before it slept.
const LEFT_OVER: Duration = Duration::from_millis(500);

/// How much longer than a silent peer one may take whose SFTP programs answer nothing, though it is there: a disk may be slow.
const PATIENCE: u32 = 2;

/// How much longer one channel may take when others answer, and all of them while the disk is being flushed for the control channel.
const MORE_PATIENCE: u32 = 10;

/// Answers that have been owed for so long are not waited for by whoever wants to stop.
const OWED: Duration = Duration::from_secs(3);

/// When the peer was heard and asked.
#[derive(Debug)]
pub(super) struct Pulse {
    heard: Duration,
    asked: Option<Duration>,
    /// Since when it is in doubt, after a sleep.
    doubted: Option<Duration>,
}

/// What to do about a peer that owes an answer.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Wait,
    Ask,
    GiveUp(Duration),
}

impl Pulse {
    pub(super) fn new(now: Duration) -> Self {
        Self { heard: now, asked: None, doubted: None }
    }

    /// It gave a sign of life.
    pub(super) fn hear(&mut self, now: Duration) {
        self.heard = now;
        self.doubted = self.doubted.filter(|since| now.saturating_sub(*since) < LEFT_OVER);
    }

    /// What is to be done when it may be silent for so long, usually and after a sleep: it is asked after a third of that,
    /// and once more.
    fn next(&mut self, now: Duration, usual: Duration, after_sleep: Duration) -> Next {
        let (since, limit) = match self.doubted {
            Some(since) => (since, usual.min(after_sleep)),
            None => (self.heard, usual),
        };
        let silent = now.saturating_sub(since);
        if silent >= limit {
            return Next::GiveUp(silent);
        }
        let quiet_since = match (self.doubted, self.asked) {
            (Some(_), None) => return self.ask(now),
            (_, asked) => asked.unwrap_or(since).max(since),
        };
        if now.saturating_sub(quiet_since) >= limit / 3 { self.ask(now) } else { Next::Wait }
    }

    fn ask(&mut self, now: Duration) -> Next {
        self.asked = Some(now);
        Next::Ask
    }
}

impl Driver {
    /// After a sleep the connection may be gone, whether or not anything is outstanding: it is asked at once, and given
    /// little time.
    pub(super) fn doubt(&self, standing: &mut Standing, now: Duration) {
        tracing::info!("the machine was suspended: is the server still there?");
        standing.pulse = Pulse { heard: now, asked: None, doubted: Some(now) };
        standing.answers = Pulse::new(now);
        self.ask_by_sftp(standing);
    }

    /// Asks a silent peer for a sign of life, and gives it up after a while. Likewise one that is there but answers nothing, and a channel that alone
    /// answers nothing.
    pub(super) fn check_alive(&mut self, standing: &mut Standing, now: Duration) -> Result<(), LinkError> {
        match standing.pulse.next(now, self.settings.silent_after, self.settings.silent_after_sleep) {
            Next::Wait => {}
            Next::Ask => {
                if !standing.link.probe() {
                    self.ask_by_sftp(standing);
                }
            }
            Next::GiveUp(silent) => {
                let detail = format!("nothing was heard from the server for {} s", silent.as_secs());
                return Err(LinkError::new(LinkErrorKind::Silent, detail));
            }
        }
        let patience = if is_flushing(standing) { MORE_PATIENCE } else { PATIENCE };
        let limit = self.settings.silent_after.saturating_mul(patience);
        match standing.answers.next(now, limit, limit) {
            Next::Wait => {}
            Next::Ask => self.ask_by_sftp(standing),
            Next::GiveUp(silent) => {
                let detail =
                    format!("the server is there, but has answered nothing for {} s", silent.as_secs());
                return Err(LinkError::new(LinkErrorKind::Silent, detail));
            }
        }
        self.check_channels(standing, now)
    }

    /// Gives up channels that answer nothing while others do; and the connection, when that has gone on for as long as is waited for any server: a
    /// disk that hangs does not stop a program that has no need of it.
    fn check_channels(&mut self, standing: &mut Standing, now: Duration) -> Result<(), LinkError> {
        let limit = self.settings.silent_after.saturating_mul(MORE_PATIENCE);
        let is_stuck = |channel: &&Channel| {
            let owes = !channel.open || channel.session.outstanding() > 0;
            owes && now.saturating_sub(channel.heard) >= limit
        };
        let stuck: Vec<_> =
            standing.bulk().filter(is_stuck).map(|channel| (channel.id, channel.heard)).collect();
        for (id, heard) in stuck {
            let since = *self.trouble.get_or_insert(heard);
            let silent = now.saturating_sub(since);
            if silent >= self.settings.give_up_after {
                let detail =
                    format!("the server has answered nothing that matters for {} s", silent.as_secs());
                return Err(LinkError::new(LinkErrorKind::Silent, detail));
            }
            self.lose_channel(standing, id, "it answered nothing for too long");
        }
        Ok(())
    }

    /// Tells whoever may want to stop whether answers have been owed for some seconds.
    pub(super) fn tell_silence(&self, standing: &mut Standing, is_owed: bool, now: Duration) {
        let is_silent = is_owed && now.saturating_sub(standing.answers.heard) >= OWED;
        if is_silent != standing.is_silent {
            standing.is_silent = is_silent;
            self.shared.set_silent(is_silent);
        }
    }

    /// A request whose answer nobody needs. On the control channel, whose server is never busy for long; one at a time.
    fn ask_by_sftp(&self, standing: &mut Standing) {
        if standing.is_asked {
            return;
        }
        if let Some(control) = standing.channels.get_mut(&CONTROL) {
            standing.is_asked = true;
            if control.session.greet() {
                self.count(CONTROL, Kind::Init);
            }
            self.count(CONTROL, Kind::RealPath);
            control.session.send(&Request::RealPath { path: b".".to_vec() }, Ticket::Pulse);
        }
    }
}

/// Whether the control channel waits for a disk to be flushed: all that is asked there waits with it.
fn is_flushing(standing: &Standing) -> bool {
    let is_flush = |ticket: &Ticket| match ticket {
        Ticket::Request(submission) => submission.request.kind() == Kind::Fsync,
        Ticket::Limits | Ticket::Pulse => false,
    };
    standing.channels.get(&CONTROL).is_some_and(|control| control.session.tickets().any(is_flush))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const LIMIT: Duration = ms(30_000);
    const SHORT: Duration = ms(5_000);

    #[test]
    fn a_silent_peer_is_asked_twice_and_given_up() {
        let mut pulse = Pulse::new(ms(0));
        assert_eq!(pulse.next(ms(9_999), LIMIT, SHORT), Next::Wait);
        assert_eq!(pulse.next(ms(10_000), LIMIT, SHORT), Next::Ask);
        assert_eq!(pulse.next(ms(10_500), LIMIT, SHORT), Next::Wait);
        assert_eq!(pulse.next(ms(20_000), LIMIT, SHORT), Next::Ask);
        assert_eq!(pulse.next(ms(29_999), LIMIT, SHORT), Next::Wait);
        assert_eq!(pulse.next(LIMIT, LIMIT, SHORT), Next::GiveUp(LIMIT));
        pulse.hear(ms(30_001));
        assert_eq!(pulse.next(ms(35_000), LIMIT, SHORT), Next::Wait);
    }

    #[test]
    fn after_a_sleep_it_has_five_seconds() {
        let doubted = || Pulse { heard: ms(1000), asked: None, doubted: Some(ms(1000)) };
        let mut pulse = doubted();
        assert_eq!(pulse.next(ms(1000), LIMIT, SHORT), Next::Ask);
        // What had come before the sleep proves nothing.
        pulse.hear(ms(1010));
        assert_eq!(pulse.next(ms(2000), LIMIT, SHORT), Next::Wait);
        assert_eq!(pulse.next(ms(2700), LIMIT, SHORT), Next::Ask);
        assert_eq!(pulse.next(ms(6000), LIMIT, SHORT), Next::GiveUp(ms(5000)));

        let mut pulse = doubted();
        pulse.hear(ms(1500));
        assert_eq!(pulse.next(ms(6000), LIMIT, SHORT), Next::Wait);
        assert_eq!(
            doubted().next(ms(2500), ms(1200), SHORT),
            Next::GiveUp(ms(1500)),
            "never longer than the limit"
        );
    }
}
