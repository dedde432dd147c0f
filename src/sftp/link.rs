//! One connection that carries several byte streams, each to its own SFTP server process.
//!
//! A [`Connector`] makes a [`Link`]; the driver thread owns the link, calls it from that one thread only, and is the
//! only one that waits. A link never blocks outside [`Link::poll`], and never loses or reorders bytes of a channel.

use std::error::Error;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A channel of one link. Chosen by the driver, 0 is the control channel; never used twice on one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

/// The control channel.
pub const CONTROL: ChannelId = ChannelId(0);

/// One connection that carries SFTP channels. Dropping it ends the connection without waiting for the peer.
pub trait Link: Send {
    /// Begins to open a channel to the server's SFTP subsystem. The outcome comes as [`LinkEvent::Opened`] or
    /// [`LinkEvent::Refused`]; several may be under way at once (a link that can only open one at a time queues them).
    fn open_channel(&mut self, channel: ChannelId);

    /// Takes as many of `bytes` as there is room for, and says how many: 0 when the channel is full, is not open
    /// yet, or is unknown. Never blocks, and need not do any I/O. The driver calls it for the control channel
    /// first; a link keeps little buffered (about 128 KiB in all), so that control bytes do not queue behind bulk.
    fn send(&mut self, channel: ChannelId, bytes: &[u8]) -> usize;

    /// Does all I/O: writes what was taken, reads what is there, and adds to `events` what happened. Returns
    /// when there is an event, when a channel that took less than it was offered since the last `poll` has room
    /// again, when `waker` is readable (it is not read from), or when `timeout` has passed; spurious returns are allowed.
    ///
    /// # Errors
    /// When the whole connection is lost; the link is of no use then. Events added in the same call are valid.
    fn poll(
        &mut self,
        waker: BorrowedFd<'_>,
        timeout: Duration,
        events: &mut Vec<LinkEvent>,
    ) -> Result<(), LinkError>;

    /// Gives a channel up: nothing is sent or reported for it any more. Does not wait.
    fn close_channel(&mut self, channel: ChannelId);

    /// Asks the peer for a sign of life, if the transport has a way to (an SSH keepalive), and tells whether it has.
    /// Called when nothing was heard for a while although something is outstanding; the answer shows as
    /// [`LinkEvent::Heard`].
    fn probe(&mut self) -> bool {
        false
    }

    /// What it is, for messages: "ssh2 to user@host:22".
    fn describe(&self) -> String;
}

/// What a [`Link`] reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// The channel is open: bytes may be sent.
    Opened(ChannelId),
    /// The channel could not be opened, and why. No failure of the connection: a server allows only so many.
    Refused(ChannelId, String),
    /// Bytes of an open channel, in order.
    Data(ChannelId, Vec<u8>),
    /// The peer closed an open channel, and what it said (its standard error, its exit status).
    Closed(ChannelId, String),
    /// The peer gave a sign of life that is none of the above (a window adjustment, the answer to a probe).
    Heard,
}

/// Why a connection that stood is lost.
#[derive(Debug)]
pub struct LinkError {
    /// What kind of loss it is.
    pub kind: LinkErrorKind,
    /// What the system or the peer said, as part of a sentence: "connection reset by peer".
    pub detail: String,
}

/// How a connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkErrorKind {
    /// The peer or the network ended it.
    Closed,
    /// Nothing was heard for too long.
    Silent,
    /// The peer broke the protocol below SFTP.
    Protocol,
    /// Something on this side failed.
    Local,
}

impl LinkError {
    /// A loss with what was said about it.
    #[must_use]
    pub fn new(kind: LinkErrorKind, detail: impl fmt::Display) -> Self {
        Self { kind, detail: detail.to_string() }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection was lost: {}", self.detail)
    }
}

impl Error for LinkError {}

/// Makes links: called in the driver thread at its start and for each reconnect.
pub trait Connector: Send {
    /// Connects and authenticates; returns when channels can be opened. May block, but not for ever.
    ///
    /// # Errors
    /// Why not, classified: see [`ConnectErrorKind`].
    fn connect(&mut self) -> Result<Box<dyn Link>, ConnectError>;

    /// Where it connects to, for messages: "host", "user@host:2222".
    fn describe(&self) -> String;
}

/// Why no connection could be made.
#[derive(Debug)]
pub struct ConnectError {
    /// What kind of failure it is.
    pub kind: ConnectErrorKind,
    /// One sentence for people, without a full stop: what happened, to which host or file.
    pub sentence: String,
    /// The cause, where there is one.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// What kept a connection from being made; [`ConnectErrorKind::is_temporary`] says whether to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectErrorKind {
    /// The host's name is not known (or the name service did not answer).
    NameNotFound,
    /// The host answered that nothing listens on that port.
    ConnectionRefused,
    /// Nothing answered in time.
    TimedOut,
    /// The network or the host cannot be reached, or the connection broke while it was set up.
    Unreachable,
    /// The host's key is not in `known_hosts`.
    HostKeyUnknown,
    /// The host's key is another than the one in `known_hosts`.
    HostKeyChanged,
    /// The host's key is marked as revoked.
    HostKeyRevoked,
    /// The server accepted none of the user's keys or passwords.
    AuthRefused,
    /// The server let the user in but gave no SFTP subsystem.
    NoSftp,
    /// No common algorithm, or the peer does not speak SSH.
    Protocol,
    /// Something on this side: a key file, an option, a program that is missing.
    LocalConfig,
    /// The user asked to stop.
    Cancelled,
}

impl ConnectErrorKind {
    /// Whether trying again later may help; the others need a person.
    #[must_use]
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::NameNotFound | Self::ConnectionRefused | Self::TimedOut | Self::Unreachable)
    }
}

impl ConnectError {
    /// A failure, as a sentence.
    #[must_use]
    pub fn new(kind: ConnectErrorKind, sentence: impl fmt::Display) -> Self {
        Self { kind, sentence: sentence.to_string(), source: None }
    }

    /// The same with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}
