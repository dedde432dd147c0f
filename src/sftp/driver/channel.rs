//! One channel as the driver sees it: its session, and the requests that wait for room in it.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::Settings;
use super::slots::Slots;
use crate::sftp::link::{CONTROL, ChannelId};
use crate::sftp::packet::{Kind, Request};
use crate::sftp::queue::{Submission, Target};
use crate::sftp::session::Session;

/// Handles that are to be closed are closed when so many wait for it: a run that ends before needs no CLOSE.
const LAZY_CLOSES: usize = 16;

/// What is behind an outstanding request.
#[derive(Debug)]
pub(super) enum Ticket {
    /// A client's request.
    Request(Submission),
    /// The driver's own question for the server's limits.
    Limits,
    /// The driver's own question for a sign of life.
    Pulse,
}

/// A channel, opening or open.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) id: ChannelId,
    pub(super) session: Session<Ticket>,
    pub(super) open: bool,
    /// When it last answered, or took bytes, or was asked after it owed nothing; before that, when it was to be opened.
    pub(super) heard: Duration,
    /// Requests on handles; they go before all but the opening of the next file, since they finish what was begun.
    on_handles: VecDeque<Submission>,
    /// Requests on paths, and those behind an OPEN, in order.
    on_paths: VecDeque<Submission>,
    lazy: VecDeque<Bytes>,
    open_files: usize,
    expected: u64,
    /// Which handles the server gives.
    pub(super) slots: Slots,
    /// Whether the link took less than it was offered.
    pub(super) blocked: bool,
}

impl Channel {
    pub(super) fn new(id: ChannelId, now: Duration) -> Self {
        Self {
            id,
            session: Session::default(),
            open: false,
            heard: now,
            on_handles: VecDeque::new(),
            on_paths: VecDeque::new(),
            lazy: VecDeque::new(),
            open_files: 0,
            expected: 0,
            slots: Slots::default(),
            blocked: false,
        }
    }

    /// Queues a request for this channel.
    pub(super) fn push(&mut self, submission: Submission) {
        match (&submission.request, &submission.answer) {
            (Request::Close { handle }, None) => self.lazy.push_back(handle.clone()),
            _ if submission.survives() => {
                if let Target::Anywhere { bytes } = submission.target {
                    self.expected = self.expected.saturating_add(bytes);
                }
                self.on_paths.push_back(submission);
            }
            _ => self.on_handles.push_back(submission),
        }
    }

    /// Files that are open or about to be.
    pub(super) fn files(&self) -> usize {
        self.open_files.saturating_add(self.on_paths.len())
    }

    /// How busy it is: files first, since each brings more requests; then bytes.
    pub(super) fn load(&self) -> (usize, u64, ChannelId) {
        (self.files(), self.session.cost().saturating_add(self.expected), self.id)
    }

    /// Bytes of large reads that are to come or under way.
    pub(super) fn reading(&self) -> u64 {
        let under_way = if self.id == CONTROL { 0 } else { self.session.cost() };
        self.expected.saturating_add(under_way)
    }

    /// Whether requests wait for room.
    pub(super) fn is_waiting(&self) -> bool {
        !self.on_handles.is_empty() || !self.on_paths.is_empty()
    }

    /// The next request that may be sent when so many bytes may be outstanding on the channel.
    pub(super) fn next(&mut self, room: u64, settings: &Settings) -> Option<Submission> {
        let fits = |submission: &Submission| submission.request.cost() <= room;
        if self.lazy.len() > LAZY_CLOSES
            || (self.files() >= settings.files_per_channel && !self.lazy.is_empty())
        {
            let close = |handle| Submission::new(Target::Control, Request::Close { handle }, None);
            let closes = self.lazy.drain(..).map(close);
            self.on_handles.extend(closes);
        }
        let path = self.on_paths.front().filter(|submission| {
            fits(submission)
                && (self.open_files < settings.files_per_channel || !opens(submission.request.kind()))
        });
        // The bytes of one file leave time to open the next one.
        let is_ahead = self.id != CONTROL && path.is_some();
        let next = if !is_ahead && self.on_handles.front().is_some_and(fits) {
            self.on_handles.pop_front()
        } else if path.is_some() {
            self.on_paths.pop_front()
        } else {
            None
        }?;
        match next.request.kind() {
            Kind::Close => self.open_files = self.open_files.saturating_sub(1),
            kind if opens(kind) => self.open_files = self.open_files.saturating_add(1),
            _ => {}
        }
        if let Target::Anywhere { bytes } = next.target {
            self.expected = self.expected.saturating_sub(bytes);
        }
        Some(next)
    }

    /// Keeps count of handles, and gives a request behind an OPEN the one that this will bring. `false`: that cannot be told, and the
    /// request is not to be sent.
    pub(super) fn foretell(&mut self, submission: &mut Submission) -> bool {
        let is_ahead = submission.is_ahead();
        match &mut submission.request {
            Request::Close { handle } => self.slots.closes(handle),
            Request::Open { .. } | Request::OpenDir { .. } => self.slots.opens(),
            Request::Read { handle, .. } | Request::ReadDir { handle } if is_ahead => {
                let Some(foretold) = self.slots.foretell() else { return false };
                handle.clone_from(&foretold);
                submission.foretold = Some(foretold);
            }
            _ => {}
        }
        true
    }

    /// Notes that something could not be opened.
    pub(super) fn not_opened(&mut self) {
        self.open_files = self.open_files.saturating_sub(1);
    }

    /// Ends the channel. What had been sent, in order, and what was not.
    pub(super) fn into_submissions(self) -> (Vec<Submission>, Vec<Submission>) {
        let sent = self.session.into_tickets().into_iter().filter_map(|ticket| match ticket {
            Ticket::Request(submission) => Some(submission),
            Ticket::Limits | Ticket::Pulse => None,
        });
        (sent.collect(), self.on_handles.into_iter().chain(self.on_paths).collect())
    }
}

/// Whether the answer to such a request is a handle.
pub(super) fn opens(kind: Kind) -> bool {
    matches!(kind, Kind::Open | Kind::OpenDir)
}
