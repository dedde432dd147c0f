//! Which channel a request goes to, and how many channels there are.

use std::collections::VecDeque;
use std::time::Duration;

use super::channel::Channel;
use super::pulse::Pulse;
use super::{Driver, Standing};
use crate::sftp::error::RequestError;
use crate::sftp::link::{CONTROL, ChannelId};
use crate::sftp::queue::{Submission, Target};

/// Bytes to be read anywhere that are worth a channel.
const WORTH_A_CHANNEL: u64 = 1 << 20;

/// Bytes that may be outstanding on the control channel before a large read waits for another channel.
const CONTROL_CAN_HELP: u64 = 512 << 10;

/// How long all bulk channels must have been full before another one is opened.
const FULL_FOR: Duration = Duration::from_millis(300);

impl Driver {
    /// Takes a request from the queue: those on handles to their channel, the others behind all that came before.
    pub(super) fn accept(&mut self, standing: &mut Standing, submission: Submission) {
        let Target::At(place) = submission.target else {
            self.backlog.push_back(submission);
            return;
        };
        let channel = standing.channels.get_mut(&place.channel);
        match channel.filter(|_| place.epoch == self.epoch) {
            Some(channel) => channel.push(submission),
            None if place.epoch == self.epoch => {
                submission.fail(RequestError::ChannelLost("it was closed".to_owned()));
            }
            None => submission.fail(RequestError::LinkLost("connected again since".to_owned())),
        }
    }

    /// Gives requests on paths a channel, as far as there is one. What was submitted together stays together.
    pub(super) fn place(&mut self, standing: &mut Standing) {
        let mut left = VecDeque::new();
        let mut before = None;
        for submission in self.backlog.drain(..) {
            let chosen = match submission.target {
                _ if submission.follows => before,
                Target::Control | Target::At(_) => Some(CONTROL),
                Target::Bulk if standing.cap == 0 => Some(CONTROL),
                Target::Bulk => bulk(standing, self.settings.files_per_channel),
                Target::Anywhere { .. } => bulk(standing, self.settings.files_per_channel).or_else(|| {
                    let helps = standing.cap == 0
                        || standing.channels.get(&CONTROL).is_some_and(|control| {
                            let (files, bytes, _) = control.load();
                            files < self.settings.files_per_channel / 2 && bytes < CONTROL_CAN_HELP
                        });
                    helps.then_some(CONTROL)
                }),
            };
            before = chosen;
            match chosen.and_then(|id| standing.channels.get_mut(&id)) {
                Some(channel) => channel.push(submission),
                None => left.push_back(submission),
            }
        }
        self.backlog = left;
    }

    /// Opens bulk channels: one for each file to be sent and each megabyte to be read, up to the number that
    /// the distance asks for; and one more whenever all have been full for a while although more waits.
    pub(super) fn open_channels(&self, standing: &mut Standing, now: Duration) {
        let bulks = || standing.channels.values().filter(|channel| channel.id != CONTROL);
        let count = bulks().count();
        let files: usize = bulks().map(Channel::files).sum();
        let (mut uploads, mut bytes) = (0usize, 0u64);
        for submission in self.backlog.iter().filter(|submission| !submission.follows) {
            match submission.target {
                Target::Anywhere { bytes: more } => bytes = bytes.saturating_add(more),
                Target::Bulk => uploads = uploads.saturating_add(1),
                Target::Control | Target::At(_) => {}
            }
        }
        bytes = standing.channels.values().map(Channel::reading).fold(bytes, u64::saturating_add);
        let reads = usize::try_from(bytes / WORTH_A_CHANNEL).unwrap_or(usize::MAX);
        let usual = standing.distance.channels(self.settings.bulk_channels, self.settings.most_bulk_channels);
        self.shared.learn_lanes(usual.min(standing.cap).max(1));
        let mut wanted = files.saturating_add(uploads).max(reads).min(usual);

        let full = count > 0
            && bulks().all(|channel| channel.open && (channel.blocked || channel.is_waiting()))
            && bulks().any(Channel::is_waiting)
            && files > count;
        standing.full_since = full.then(|| standing.full_since.unwrap_or(now));
        if standing.full_since.is_some_and(|since| now.saturating_sub(since) >= FULL_FOR) {
            standing.full_since = None;
            wanted = wanted.max(count.saturating_add(1)).min(self.settings.most_bulk_channels);
        }
        let wanted = wanted.min(standing.cap);
        if wanted > count && !standing.is_busy() && !standing.is_opening() {
            (standing.pulse, standing.answers) = (Pulse::new(now), Pulse::new(now));
        }
        for _ in count..wanted {
            let id = ChannelId(standing.next_channel);
            standing.next_channel = standing.next_channel.saturating_add(1);
            standing.channels.insert(id, Channel::new(id, now));
            standing.link.open_channel(id);
        }
    }
}

/// The least loaded bulk channel that is open and has room for another file. A file stays where it is put: so as long
/// as more channels are about to open, each gets only one.
fn bulk(standing: &Standing, files: usize) -> Option<ChannelId> {
    let bulks = || standing.channels.values().filter(|channel| channel.id != CONTROL);
    let files = if bulks().all(|channel| channel.open) { files } else { 1 };
    let least = bulks().filter(|channel| channel.open).min_by_key(|channel| channel.load())?;
    (least.files() < files).then_some(least.id)
}
