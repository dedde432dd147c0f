//! A connection of libssh2 that carries channels.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ::ssh2::{Channel, ExtendedData};

use super::libssh2::{Engine, Fault, Ready, fault, wait};
use super::proxy::ProxyChild;
use crate::base::time::{Clock as _, SystemClock};
use crate::sftp::link::{CONTROL, ChannelId, Link, LinkError, LinkErrorKind, LinkEvent};

/// How much a server may send on one channel before it is taken note of.
const WINDOW: u32 = 4 << 20;

/// The largest packet that may be sent to us.
const PACKET: u32 = 32 << 10;

/// The portion in which channels are read.
const READ: usize = 32 << 10;

/// No more is taken from channels while so much waits for the socket.
const UNSENT: usize = 128 << 10;

/// The control channel may add this on top, so that it never waits for the others.
const UNSENT_CONTROL: usize = UNSENT + (64 << 10);

/// How long a channel that said its last byte is waited for to be closed: how its program ended comes in between.
const FAREWELL: Duration = Duration::from_secs(1);

/// What libssh2 puts into one packet.
const PORTION: usize = 32_700;

/// The connection. Channels come before the engine: they are dropped first.
pub(super) struct SshLink {
    channels: BTreeMap<ChannelId, Open>,
    /// To be opened, in order. libssh2 opens one at a time.
    wanted: VecDeque<ChannelId>,
    /// Opened, and asked to start SFTP.
    starting: Vec<(ChannelId, Channel)>,
    /// Closed on this side; kept until the server has closed them too.
    closing: Vec<Channel>,
    /// The front of `wanted` is being opened, which must be finished even if it was abandoned meanwhile.
    opening: bool,
    abandoned: bool,
    buffer: Vec<u8>,
    engine: Engine,
    proxy: Option<ProxyChild>,
    server: String,
    /// The connection is lost; told at the next `poll`.
    failure: Option<LinkError>,
    clock: SystemClock,
}

struct Open {
    channel: Channel,
    /// It took less than it was offered.
    hungry: bool,
    /// Since when nothing more can come but how the program ended.
    ended: Option<Duration>,
}

impl Open {
    fn new(channel: Channel) -> Self {
        Self { channel, hungry: false, ended: None }
    }
}

impl SshLink {
    /// Takes over a connection that is logged in.
    pub(super) fn new(engine: Engine, proxy: Option<ProxyChild>, server: String) -> Self {
        Self {
            channels: BTreeMap::new(),
            wanted: VecDeque::new(),
            starting: Vec::new(),
            closing: Vec::new(),
            opening: false,
            abandoned: false,
            buffer: vec![0; READ],
            engine,
            proxy,
            server,
            failure: None,
            clock: SystemClock::new(),
        }
    }

    /// Lets libssh2 work on what came in until nothing is left to do. Any call on any channel may take in packets of
    /// the others, or go on with an exchange of keys that held them up, so one pass over them is not enough: the last
    /// one must have taken in nothing and given nothing.
    fn advance(&mut self, events: &mut Vec<LinkEvent>) -> Result<(), LinkError> {
        loop {
            let before = (self.engine.swallowed(), self.engine.packets(), events.len());
            self.advance_opening(events)?;
            self.advance_starting(events)?;
            self.read_channels(events)?;
            self.closing.retain_mut(|channel| match channel.close() {
                Err(error) => fault(&error) == Fault::Again,
                Ok(()) => false,
            });
            if before == (self.engine.swallowed(), self.engine.packets(), events.len()) {
                return Ok(());
            }
        }
    }

    /// Reads each channel until it gives no more, and ends those that are closed.
    fn read_channels(&mut self, events: &mut Vec<LinkEvent>) -> Result<(), LinkError> {
        let mut closed = Vec::new();
        let buffer = &mut self.buffer[..];
        for (id, open) in &mut self.channels {
            while open.ended.is_none() {
                match open.channel.read(buffer) {
                    Ok(0) => open.ended = Some(self.clock.monotonic()),
                    Ok(count) => {
                        events.push(LinkEvent::Data(*id, buffer.get(..count).unwrap_or_default().to_vec()));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(broken(&error)),
                }
            }
            // The exit status follows the end of the data, and goes before the close.
            if let Some(since) = open.ended
                && match open.channel.wait_close() {
                    Err(error) if fault(&error) == Fault::Again => {
                        self.clock.monotonic().saturating_sub(since) >= FAREWELL
                    }
                    Ok(()) | Err(_) => true,
                }
            {
                closed.push(*id);
            }
        }
        for id in closed {
            if let Some(open) = self.channels.remove(&id) {
                events.push(LinkEvent::Closed(id, last_words(&open)));
                self.closing.push(open.channel);
            }
        }
        Ok(())
    }

    fn advance_opening(&mut self, events: &mut Vec<LinkEvent>) -> Result<(), LinkError> {
        while let Some(id) = self.wanted.front().copied() {
            self.opening = true;
            match self.engine.session().channel_open("session", WINDOW, PACKET, None) {
                Ok(channel) if self.abandoned => self.closing.push(channel),
                Ok(mut channel) => {
                    // OpenSSH keeps a subsystem's standard error to itself; nobody here waits for that of others.
                    let _ = channel.handle_extended_data(ExtendedData::Ignore);
                    self.starting.push((id, channel));
                }
                Err(error) => match fault(&error) {
                    Fault::Again => return Ok(()),
                    Fault::ChannelRefused if self.abandoned => {}
                    Fault::ChannelRefused => {
                        events.push(LinkEvent::Refused(id, "the server opens no more channels".to_owned()));
                    }
                    _ => return Err(broken(&error.into())),
                },
            }
            (self.opening, self.abandoned) = (false, false);
            self.wanted.pop_front();
        }
        Ok(())
    }

    fn advance_starting(&mut self, events: &mut Vec<LinkEvent>) -> Result<(), LinkError> {
        let mut waiting = Vec::with_capacity(self.starting.len());
        for (id, mut channel) in self.starting.drain(..) {
            match channel.subsystem("sftp") {
                Ok(()) => {
                    events.push(LinkEvent::Opened(id));
                    self.channels.insert(id, Open::new(channel));
                }
                Err(error) => match fault(&error) {
                    Fault::Again => waiting.push((id, channel)),
                    Fault::Other | Fault::ChannelRefused => {
                        events.push(LinkEvent::Refused(id, "the server does not offer SFTP".to_owned()));
                        self.closing.push(channel);
                    }
                    _ => return Err(broken(&error.into())),
                },
            }
        }
        self.starting = waiting;
        Ok(())
    }

    /// Whether a channel that could not take all has room again.
    fn has_room(&self) -> bool {
        let unsent = self.engine.unsent();
        self.channels
            .iter()
            .any(|(id, open)| open.hungry && unsent < limit(*id) && open.channel.write_window().remaining > 0)
    }

    /// How long to wait at most, so that channels that are not closed in time are told of.
    fn patience(&self) -> Duration {
        let now = self.clock.monotonic();
        let left = |since: Duration| FAREWELL.saturating_sub(now.saturating_sub(since));
        self.channels.values().filter_map(|open| open.ended).map(left).min().unwrap_or(Duration::MAX)
    }

    /// One round of I/O; whether bytes came in.
    fn exchange(&mut self, events: &mut Vec<LinkEvent>) -> Result<bool, LinkError> {
        let sent = self.engine.flush();
        let received = self.engine.fill();
        // What came before the end is delivered before the end is told.
        let advanced = self.advance(events);
        let (Ok(()), Ok(received)) = (&sent, &received) else {
            let error = sent.err().or(received.err()).unwrap_or(rustix::io::Errno::PIPE);
            let kind = match error {
                rustix::io::Errno::TIMEDOUT => LinkErrorKind::Silent,
                _ => LinkErrorKind::Closed,
            };
            return Err(LinkError::new(kind, error));
        };
        if self.engine.ended() {
            let said =
                self.engine.farewell().or_else(|| self.proxy.as_mut().and_then(ProxyChild::last_words));
            let said = said.unwrap_or_else(|| "the server closed it".to_owned());
            return Err(LinkError::new(LinkErrorKind::Closed, said));
        }
        advanced?;
        self.engine.flush().map_err(|error| LinkError::new(LinkErrorKind::Closed, error))?;
        Ok(*received > 0)
    }
}

impl Link for SshLink {
    fn open_channel(&mut self, channel: ChannelId) {
        self.wanted.push_back(channel);
    }

    fn send(&mut self, channel: ChannelId, bytes: &[u8]) -> usize {
        let Some(open) = self.channels.get_mut(&channel) else { return 0 };
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            if self.failure.is_some() || self.engine.unsent() >= limit(channel) {
                break;
            }
            match open.channel.write(rest.get(..PORTION).unwrap_or(rest)) {
                Ok(0) => break,
                Ok(count) => taken = taken.saturating_add(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The channel may just have been closed by the server, which reading it will tell; anything worse is
                // told by the next `poll`.
                Err(error) => {
                    let said = ssh2::Error::last_session_error(self.engine.session());
                    if said.is_some_and(|said| fault(&said) == Fault::Protocol) {
                        self.failure = Some(broken(&error));
                    }
                    break;
                }
            }
        }
        open.hungry = taken < bytes.len();
        taken
    }

    fn poll(
        &mut self,
        waker: BorrowedFd<'_>,
        timeout: Duration,
        events: &mut Vec<LinkEvent>,
    ) -> Result<(), LinkError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let start = self.clock.monotonic();
        let before = events.len();
        loop {
            let heard = self.exchange(events)?;
            if events.len() > before || self.has_room() {
                break;
            }
            if heard {
                events.push(LinkEvent::Heard);
                break;
            }
            let Some(left) = timeout.checked_sub(self.clock.monotonic().saturating_sub(start)) else { break };
            let unsent = self.engine.unsent() > 0;
            let failed = |error| LinkError::new(LinkErrorKind::Local, error);
            match wait(self.engine.socket(), unsent, Some(waker), left.min(self.patience()))
                .map_err(failed)?
            {
                Ready::Socket => {}
                Ready::Nothing | Ready::Waker => break,
            }
        }
        for open in self.channels.values_mut() {
            open.hungry = false;
        }
        Ok(())
    }

    fn close_channel(&mut self, channel: ChannelId) {
        // The one that is being opened has to be finished first: libssh2 has one state for all openings.
        let first = usize::from(self.opening);
        self.abandoned |= self.opening && self.wanted.front() == Some(&channel);
        if let Some(place) = self.wanted.iter().skip(first).position(|wanted| *wanted == channel) {
            self.wanted.remove(place.saturating_add(first));
        }
        if let Some(place) = self.starting.iter().position(|(starting, _)| *starting == channel) {
            self.closing.push(self.starting.remove(place).1);
        }
        if let Some(open) = self.channels.remove(&channel) {
            self.closing.push(open.channel);
        }
    }

    fn probe(&mut self) -> bool {
        let session = self.engine.session();
        session.set_keepalive(true, 1);
        // Never partial, since the engine takes every packet whole.
        let _ = session.keepalive_send();
        true
    }

    fn describe(&self) -> String {
        format!("ssh2 to {}", self.server)
    }
}

fn limit(channel: ChannelId) -> usize {
    if channel == CONTROL { UNSENT_CONTROL } else { UNSENT }
}

/// How the server's SFTP program ended.
fn last_words(open: &Open) -> String {
    match open.channel.exit_status() {
        Ok(code) if code != 0 => format!("the SFTP server ended with exit status {code}"),
        _ => "the SFTP server ended".to_owned(),
    }
}

fn broken(error: &io::Error) -> LinkError {
    LinkError::new(LinkErrorKind::Protocol, error)
}
