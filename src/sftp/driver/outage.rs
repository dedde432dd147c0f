//! Lost channels and connections, and the way back.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Driver, IDLE, Standing};
use crate::sftp::error::RequestError;
use crate::sftp::link::{ChannelId, ConnectError, ConnectErrorKind, Link, LinkError, LinkErrorKind};
use crate::sftp::queue::Submission;

/// The longest wait between attempts to connect.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How often to look, meanwhile, whether the machine was suspended: timers stand still then.
const LOOK: Duration = Duration::from_secs(1);

impl Driver {
    /// Gives a channel up. What names a path goes to another channel; what names a handle of it fails.
    pub(super) fn lose_channel(&mut self, standing: &mut Standing, id: ChannelId, why: &str) {
        standing.link.close_channel(id);
        let Some(channel) = standing.channels.remove(&id) else {
            return;
        };
        let (sent, unsent) = channel.into_submissions();
        self.keep(sent, unsent, &RequestError::ChannelLost(why.to_owned()));
    }

    /// Gives a connection up.
    pub(super) fn give_up_link(&mut self, standing: Standing, error: &LinkError) {
        let (mut sent, mut unsent) = (Vec::new(), Vec::new());
        for channel in standing.channels.into_values() {
            let (some_sent, some_unsent) = channel.into_submissions();
            sent.extend(some_sent);
            unsent.extend(some_unsent);
        }
        // What was learnt is forgotten before anybody hears of the loss and asks again.
        self.shared.forget();
        self.shared.set_standing(false);
        self.shared.set_silent(false);
        self.keep(sent, unsent, &RequestError::LinkLost(error.detail.clone()));
    }

    /// Keeps the requests on paths, in their old order and before those that never had a channel; the others fail.
    fn keep(&mut self, sent: Vec<Submission>, unsent: Vec<Submission>, error: &RequestError) {
        let sent = sent.into_iter().map(|mut submission| {
            submission.resent = true;
            submission
        });
        let (kept, mut lost): (Vec<_>, Vec<_>) = sent.chain(unsent).partition(Submission::survives);
        self.backlog.extend(kept);
        self.backlog.make_contiguous().sort_by_key(|submission| submission.number);
        // Whom they followed may be done; and what would work on a handle whose OPEN was answered would now work on another one.
        let mut before = None;
        let mut kept = VecDeque::with_capacity(self.backlog.len());
        for mut submission in self.backlog.drain(..) {
            submission.follows &= before == submission.number.checked_sub(1);
            if submission.is_ahead() && !submission.follows {
                lost.push(submission);
            } else {
                before = Some(submission.number);
                kept.push_back(submission);
            }
        }
        self.backlog = kept;
        for submission in lost {
            submission.fail(error.clone());
        }
    }

    /// Connects again as soon as somebody wants something, with waits that grow; `None` when the client is closed
    /// meanwhile. A connection that brought no answer counts as a failed attempt, and none follows another at once.
    pub(super) fn reconnect(
        &mut self,
        lost: &LinkError,
        stood: Duration,
    ) -> Result<Option<Box<dyn Link>>, ConnectError> {
        if !self.greeted {
            // The very first one: something is wrong that does not pass.
            let kind = match lost.kind {
                LinkErrorKind::Silent => ConnectErrorKind::TimedOut,
                LinkErrorKind::Protocol => ConnectErrorKind::Protocol,
                LinkErrorKind::Local => ConnectErrorKind::LocalConfig,
                LinkErrorKind::Closed => ConnectErrorKind::NoSftp,
            };
            let sentence = format!("{} gave no SFTP session: {}", self.connector.describe(), lost.detail);
            return Err(ConnectError::new(kind, sentence));
        }
        let first = self.settings.first_wait;
        let wait = if self.answered { first.saturating_sub(stood) } else { first };
        loop {
            match self.wait(None) {
                Waited::Stopped => return Ok(None),
                Waited::Woke => {}
                Waited::Passed => break,
            }
        }
        let now = self.clock.monotonic();
        let since = *self.trouble.get_or_insert(now);
        let tried = now.saturating_sub(since);
        if tried >= self.settings.give_up_after {
            // It lets us in each time, and answers nothing.
            let sentence = format!("{} answers nothing: {}", self.connector.describe(), lost.detail);
            return Err(ConnectError::new(ConnectErrorKind::TimedOut, sentence));
        }
        self.connect_until(since, wait)
    }

    /// Makes the very first connection; `None` when the client is closed meanwhile. A failure is final, unless the settings say that it is waited for.
    pub(super) fn connect_first(&mut self) -> Result<Option<Box<dyn Link>>, ConnectError> {
        let since = self.clock.monotonic();
        match self.connector.connect() {
            Ok(link) => Ok(Some(link)),
            Err(error) if self.settings.wait_for_first && error.kind.is_temporary() => {
                tracing::warn!("kitbag: {error}; it is tried again until it can be reached");
                self.connect_until(since, self.settings.first_wait)
            }
            Err(error) => Err(error),
        }
    }

    /// Connects after `wait`, and again after waits that grow, until [`give_up_after`](super::Settings::give_up_after) has passed since `since`.
    fn connect_until(
        &mut self,
        since: Duration,
        mut wait: Duration,
    ) -> Result<Option<Box<dyn Link>>, ConnectError> {
        let first = self.settings.first_wait;
        loop {
            match self.wait(Some(wait)) {
                Waited::Stopped => return Ok(None),
                // What was tried before the sleep says nothing of the network there is now.
                Waited::Woke => wait = Duration::ZERO,
                Waited::Passed => {}
            }
            // Whoever does not want to wait can then give them up meanwhile.
            self.shared.put_back(std::mem::take(&mut self.backlog));
            let error = match self.connector.connect() {
                Ok(link) => return Ok(Some(link)),
                Err(error) => error,
            };
            let tried = self.clock.monotonic().saturating_sub(since);
            if !error.kind.is_temporary() || tried >= self.settings.give_up_after {
                return Err(error);
            }
            let left = self.settings.give_up_after.saturating_sub(tried);
            wait = wait.saturating_mul(2).clamp(first, LONGEST_WAIT.max(first)).min(left);
            tracing::info!(%error, ?wait, "cannot connect again yet");
        }
    }

    /// Waits for a time, or until there is something to do. Requests that come meanwhile are kept, or fail with their
    /// handle.
    fn wait(&mut self, time: Option<Duration>) -> Waited {
        let end = time.map(|time| self.clock.monotonic().saturating_add(time));
        loop {
            let (submissions, stopping) = self.shared.take();
            if stopping {
                return Waited::Stopped;
            }
            for submission in submissions {
                if submission.survives() {
                    self.backlog.push_back(submission);
                } else {
                    submission.fail(RequestError::LinkLost("not connected again yet".to_owned()));
                }
            }
            if self.sleep.is_over(&*self.clock) {
                return Waited::Woke;
            }
            let left = match end {
                Some(end) => end.saturating_sub(self.clock.monotonic()).min(LOOK),
                None if self.backlog.is_empty() => IDLE,
                None => Duration::ZERO,
            };
            if left.is_zero() {
                return Waited::Passed;
            }
            let left = rustix::event::Timespec::try_from(left).ok();
            let waker = self.shared.waker();
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(waker, rustix::event::PollFlags::IN)];
            // An interrupted wait is a short one.
            let _ = rustix::event::poll(&mut fds, left.as_ref());
        }
    }
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    /// There is something to do.
    Passed,
    /// The machine was suspended meanwhile.
    Woke,
    /// The client was closed.
    Stopped,
}
