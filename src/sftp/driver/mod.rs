//! The one thread that owns the connection.
//!
//! It takes requests from the queue, gives each its channel, moves them into the channels' sessions as the budgets
//! allow, hands bytes to the link (the control channel first, the others in turn), and delivers replies. It is the
//! only one that waits for the network.
//!
//! A lost connection is an event: what names a path is sent again on the next one, in its old order, together with what was to read
//! behind it; what names a handle fails as lost, since the handle is gone, and whoever owns the file opens it again. Waits between
//! attempts grow; when nothing was answered for [`Settings::give_up_after`], all that waits fails and the thread ends. A
//! connection that is lost while nobody wants anything is made again when somebody does.
//!
//! A machine that was suspended wakes with connections of which most are gone without a word, so they are tested at once.

mod channel;
mod distance;
mod outage;
mod pace;
mod placing;
mod pulse;
mod replies;
mod slots;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use channel::{Channel, Ticket};
use distance::Distance;
use pace::Pace;
use pulse::Pulse;

use super::error::RequestError;
use super::link::{CONTROL, ChannelId, ConnectError, Connector, Link, LinkError, LinkErrorKind, LinkEvent};
use super::packet::{Kind, Request, extension};
use super::queue::{Shared, Submission, add};
use crate::base::time::{Clock, Sleep};

/// How the driver works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many bulk channels are opened as soon as there are as many files to send or fetch, unless the server is far away.
    pub bulk_channels: usize,
    /// How many there may be when all of them are full, or the server is far away.
    pub most_bulk_channels: usize,
    /// Bytes that may be outstanding on one channel: twice the window that OpenSSH gives.
    pub channel_budget: u64,
    /// Bytes that may be outstanding on all of them.
    pub link_budget: u64,
    /// Files that may be open on one channel.
    pub files_per_channel: usize,
    /// With something outstanding, a peer that says nothing for so long, though it is asked, is taken for gone.
    pub silent_after: Duration,
    /// The same after the machine was suspended: most connections do not outlive that.
    pub silent_after_sleep: Duration,
    /// How long to try to connect again, and to get an answer, after a connection was lost.
    pub give_up_after: Duration,
    /// Whether the very first connection is tried for so long, too, where trying again may help. Else its failure is told at once.
    pub wait_for_first: bool,
    /// The first wait between attempts to connect; each is twice the one before.
    pub first_wait: Duration,
    /// How long to go on at the end with what is outstanding.
    pub linger: Duration,
    /// Whether to remember the kind and channel of each request, for tests.
    pub keep_log: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bulk_channels: 4,
            most_bulk_channels: 8,
            channel_budget: 4 << 20,
            link_budget: 24 << 20,
            files_per_channel: 64,
            silent_after: Duration::from_secs(30),
            silent_after_sleep: Duration::from_secs(5),
            give_up_after: Duration::from_secs(15 * 60),
            wait_for_first: false,
            first_wait: Duration::from_secs(1),
            linger: Duration::from_secs(3),
            keep_log: false,
        }
    }
}

/// Bytes handed to the link at a time, so that channels share it evenly: what libssh2 puts into one SSH packet. A little more would
/// become a whole packet and a tiny one.
const PIECE: usize = 32_700;

/// Into how many requests what may be under way is cut at least, so that none of them alone is long on the way.
const PIECES: u64 = 4;

/// How long to wait when nothing is to be done; the waker ends it. Short enough that whatever else wants to be seen, a
/// suspended machine or a wake-up that did not come, is seen soon.
const IDLE: Duration = Duration::from_secs(1);

/// How often to look after a link with something outstanding.
const BUSY: Duration = Duration::from_millis(500);

/// A connection that stands.
struct Standing {
    link: Box<dyn Link>,
    channels: BTreeMap<ChannelId, Channel>,
    next_channel: u32,
    /// How many bulk channels the server allows, as far as is known.
    cap: usize,
    /// Which bulk channel is served first next time.
    turn: usize,
    /// Which bulk channel's request is sent first next time.
    next: usize,
    /// Since when it stands.
    since: Duration,
    pulse: Pulse,
    /// The pulse of what answers behind it, the server's SFTP programs: they may hang while the server itself lives.
    answers: Pulse,
    /// Whether it was told that answers have been owed for some seconds.
    is_silent: bool,
    distance: Distance,
    pace: Pace,
    /// Whether a question that only asks for a sign of life is under way.
    is_asked: bool,
    /// Since when all bulk channels have been full.
    full_since: Option<Duration>,
}

impl Standing {
    /// Whether the server owes an answer to a request.
    fn is_busy(&self) -> bool {
        self.channels.values().any(|channel| channel.session.outstanding() > 0)
    }

    fn bulk(&self) -> impl Iterator<Item = &Channel> {
        self.channels.values().filter(|channel| channel.id != CONTROL)
    }

    /// Bytes under way on the bulk channels.
    fn under_way(&self) -> u64 {
        self.bulk().map(|channel| channel.session.cost()).sum()
    }

    /// Whether the server owes a channel.
    fn is_opening(&self) -> bool {
        self.channels.values().any(|channel| !channel.open)
    }
}

/// The state of the thread.
pub(super) struct Driver {
    shared: Arc<Shared>,
    connector: Box<dyn Connector>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    epoch: u64,
    /// Requests on paths that have no channel yet, in order.
    backlog: VecDeque<Submission>,
    /// Whether the connection that stands has answered a request.
    answered: bool,
    /// Since when there was no answer, after a connection was lost.
    trouble: Option<Duration>,
    /// Notices that the machine was suspended.
    sleep: Sleep,
    /// Whether any server ever answered.
    greeted: bool,
}

/// Why the work on one connection ended.
enum End {
    Lost(LinkError),
    Stopped,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        connector: Box<dyn Connector>,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> Self {
        let sleep = Sleep::new(&*clock);
        Self {
            shared,
            connector,
            clock,
            settings,
            epoch: 0,
            backlog: VecDeque::new(),
            answered: false,
            trouble: None,
            sleep,
            greeted: false,
        }
    }

    /// The thread: returns when the client is closed or there is no hope of a connection.
    pub(super) fn run(mut self) {
        let first = self.connect_first();
        let error = match first.and_then(|link| link.map_or(Ok(()), |link| self.connections(link))) {
            Ok(()) => RequestError::Stopped,
            Err(error) => RequestError::Down(Arc::new(error)),
        };
        self.shared.close(&error);
        for submission in self.backlog.drain(..) {
            submission.fail(error.clone());
        }
    }

    /// Works on one connection after the other.
    fn connections(&mut self, first: Box<dyn Link>) -> Result<(), ConnectError> {
        let mut link = first;
        loop {
            self.epoch = self.epoch.saturating_add(1);
            add(&self.shared.counters.connections, 1);
            self.answered = false;
            let mut standing = self.begin(link);
            match self.work(&mut standing) {
                End::Stopped => return Ok(()),
                End::Lost(error) => {
                    tracing::info!(%error, "link lost");
                    let stood = self.clock.monotonic().saturating_sub(standing.since);
                    self.give_up_link(standing, &error);
                    match self.reconnect(&error, stood)? {
                        Some(next) => link = next,
                        None => return Ok(()),
                    }
                }
            }
        }
    }

    fn begin(&self, mut link: Box<dyn Link>) -> Standing {
        link.open_channel(CONTROL);
        let now = self.clock.monotonic();
        Standing {
            link,
            channels: BTreeMap::from([(CONTROL, Channel::new(CONTROL, now))]),
            next_channel: 1,
            cap: self.settings.most_bulk_channels,
            turn: 0,
            next: 0,
            since: now,
            pulse: Pulse::new(now),
            answers: Pulse::new(now),
            is_silent: false,
            distance: Distance::default(),
            pace: Pace::default(),
            is_asked: false,
            full_since: None,
        }
    }

    /// Works on a connection until it ends.
    fn work(&mut self, standing: &mut Standing) -> End {
        let mut events = Vec::new();
        let mut stop_at = None;
        loop {
            let (submissions, stopping) = self.shared.take();
            for submission in submissions {
                self.accept(standing, submission);
            }
            let now = self.clock.monotonic();
            if self.sleep.is_over(&*self.clock) {
                self.doubt(standing, now);
            }
            self.open_channels(standing, now);
            self.place(standing);
            self.fill(standing, now);
            self.write(standing, now);

            let busy = standing.is_busy();
            if stopping {
                let at = *stop_at.get_or_insert(now.saturating_add(self.settings.linger));
                if !busy || now >= at {
                    return End::Stopped;
                }
            }
            let owed = busy || standing.is_opening();
            let timeout = if owed || stopping { BUSY.min(self.settings.silent_after / 4) } else { IDLE };
            let polled = standing.link.poll(self.shared.waker(), timeout, &mut events);
            for event in events.drain(..) {
                if let Err(error) = self.handle(standing, event) {
                    return End::Lost(error);
                }
            }
            if let Err(error) = polled {
                return End::Lost(error);
            }
            // As of before the link was looked at: a thread that was stopped for long must not take what it did not read for silence.
            if owed && let Err(error) = self.check_alive(standing, now) {
                return End::Lost(error);
            }
            self.tell_silence(standing, owed, now);
        }
    }

    /// Moves requests into the sessions as far as the budgets allow: those of the control channel, and of the others one at a time in turn,
    /// so that no file waits for all of another.
    fn fill(&self, standing: &mut Standing, now: Duration) {
        while self.send_next(standing, CONTROL, now) {}
        let mut bulk: Vec<ChannelId> =
            standing.channels.keys().copied().filter(|id| *id != CONTROL).collect();
        if bulk.is_empty() {
            return;
        }
        let mut used = standing.under_way();
        let budget = standing.pace.room(standing.distance.nearest()).min(self.settings.link_budget);
        self.shared.set_pieces(budget / PIECES);
        let first = standing.next % bulk.len();
        bulk.rotate_left(first);
        while !bulk.is_empty() && used < budget {
            bulk.retain(|id| {
                let is_sent = used < budget && self.send_next(standing, *id, now);
                if is_sent {
                    standing.next = standing.next.wrapping_add(1);
                    used = standing.under_way();
                }
                is_sent
            });
        }
        if used >= budget && standing.bulk().any(Channel::is_waiting) {
            standing.pace.limits();
        }
    }

    /// Moves the next request of a channel into its session; whether there was one for which the channel has room.
    fn send_next(&self, standing: &mut Standing, id: ChannelId, now: Duration) -> bool {
        let is_idle = !standing.is_busy();
        let Some(channel) = standing.channels.get_mut(&id) else { return false };
        let cost = channel.session.cost();
        // A request larger than any budget still goes when it is alone.
        let room = if cost == 0 { u64::MAX } else { self.settings.channel_budget.saturating_sub(cost) };
        let Some(mut submission) = channel.next(room, &self.settings) else { return false };
        if !channel.foretell(&mut submission) {
            submission.fail(RequestError::ChannelLost("the handle is not known yet".to_owned()));
            return true;
        }
        if is_idle {
            add(&self.shared.counters.serial_waits, 1);
            tracing::trace!("a serial wait");
            (standing.pulse, standing.answers) = (Pulse::new(now), Pulse::new(now));
            standing.pace.begins(now);
            if channel.open {
                standing.distance.asks(now);
            }
        }
        if channel.session.outstanding() == 0 {
            channel.heard = now;
        }
        if channel.session.greet() {
            self.count(id, Kind::Init);
            // Many small files need no limits, but a channel for bulk will carry large ones.
            if id != CONTROL && !self.lacks(extension::LIMITS) {
                self.count(id, Kind::Limits);
                channel.session.send(&Request::Limits, Ticket::Limits);
            }
        }
        self.count(id, submission.request.kind());
        tracing::trace!(channel = id.0, number = submission.number, kind = ?submission.request.kind(), "sent");
        let request = submission.request.clone();
        channel.session.send(&request, Ticket::Request(submission));
        true
    }

    /// Whether the server is known not to offer an extension.
    fn lacks(&self, extension: &str) -> bool {
        self.shared.hello().is_some_and(|hello| !hello.offers(extension))
    }

    fn count(&self, channel: ChannelId, kind: Kind) {
        add(&self.shared.counters.requests, 1);
        self.shared.note(channel, kind);
    }

    /// Hands bytes to the link: all of the control channel's first, then a piece of each other in turn.
    fn write(&self, standing: &mut Standing, now: Duration) {
        let Standing { link, channels, turn, answers, .. } = standing;
        let up = &self.shared.counters.bytes_up;
        let mut send = |channel: &mut Channel| {
            let Some(bytes) = channel.session.outgoing().filter(|_| channel.open) else {
                return false;
            };
            let piece = bytes.get(..PIECE).unwrap_or(bytes);
            let offered = piece.len();
            let taken = link.send(channel.id, piece);
            channel.session.advance(taken);
            add(up, taken);
            if taken > 0 {
                // Answers can only come to what has been sent.
                channel.heard = now;
                answers.hear(now);
            }
            channel.blocked = taken < offered;
            !channel.blocked
        };
        if let Some(control) = channels.get_mut(&CONTROL) {
            while send(control) {}
        }
        let mut bulk: Vec<&mut Channel> =
            channels.values_mut().filter(|channel| channel.id != CONTROL).collect();
        if bulk.is_empty() {
            return;
        }
        let first = *turn % bulk.len();
        bulk.rotate_left(first);
        *turn = turn.wrapping_add(1);
        while !bulk.is_empty() {
            bulk.retain_mut(|channel| send(channel));
        }
    }

    fn handle(&mut self, standing: &mut Standing, event: LinkEvent) -> Result<(), LinkError> {
        let now = self.clock.monotonic();
        standing.pulse.hear(now);
        if !matches!(event, LinkEvent::Heard) {
            standing.answers.hear(now);
        }
        match event {
            LinkEvent::Heard => Ok(()),
            LinkEvent::Opened(id) => {
                if id == CONTROL {
                    standing.distance.asks(now);
                }
                if let Some(channel) = standing.channels.get_mut(&id) {
                    channel.open = true;
                }
                Ok(())
            }
            LinkEvent::Refused(CONTROL, why) | LinkEvent::Closed(CONTROL, why) => {
                Err(LinkError::new(LinkErrorKind::Closed, why))
            }
            LinkEvent::Refused(id, why) => {
                let others = standing.channels.len().saturating_sub(2);
                tracing::debug!(channel = id.0, why, "channel refused; {others} bulk channels are enough");
                standing.cap = standing.cap.min(others);
                self.lose_channel(standing, id, &why);
                Ok(())
            }
            LinkEvent::Closed(id, why) => {
                // A server that keeps closing channels ends up with the control channel alone.
                standing.cap = standing.cap.saturating_sub(1);
                self.lose_channel(standing, id, &why);
                Ok(())
            }
            LinkEvent::Data(id, bytes) => {
                standing.distance.hears(now);
                self.receive(standing, id, (&bytes, now))
            }
        }
    }
}
