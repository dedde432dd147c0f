//! The client: hands requests to the driver thread.
//!
//! Each call queues its request before it returns, whether or not the future it gives is ever awaited; so calls made
//! one after another reach the channel in that order, and what is called together is under way together.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::Receiver;
use tokio::sync::oneshot;

use super::attrs::Attrs;
use super::driver::{Driver, Settings};
use super::error::RequestError;
use super::fields::Malformed;
use super::handle::Handle;
use super::link::{ChannelId, Connector};
use super::packet::{Kind, OpenMode, Request, extension};
use super::queue::{Counts, Outcome, Shared, Submission, Target, Value};
use super::reply::{DirEntry, Room};
use crate::base::time::Clock;

/// How long the end of the driver thread is waited for, beyond its own time to linger: it may be in the middle of
/// connecting, which nobody needs to see the end of.
const END: Duration = Duration::from_secs(1);

/// A client. Clones share the connection, which ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Client(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    ended: Receiver<()>,
    patience: Duration,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop();
        // Its sender is dropped when the thread ends.
        let _ = self.ended.recv_timeout(self.patience);
    }
}

/// An answer to come. Dropping it does not take the request back.
#[derive(Debug)]
pub struct Answer(oneshot::Receiver<Outcome>);

impl Future for Answer {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|answer| answer.unwrap_or_else(|_gone| Outcome::unanswered(RequestError::Stopped)))
    }
}

impl Client {
    /// Starts the driver thread, which connects. Requests may be made at once.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn start(
        connector: Box<dyn Connector>,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(settings.keep_log)?);
        let (end, ended) = crossbeam_channel::bounded(0);
        let patience = settings.linger.saturating_add(END);
        let driver = Driver::new(shared.clone(), connector, clock, settings);
        thread::Builder::new().name("ssh-io".to_owned()).spawn(move || {
            driver.run();
            drop(end);
        })?;
        Ok(Self(Arc::new(Owner { shared, ended, patience })))
    }

    /// Queues a request.
    pub fn submit(&self, target: Target, request: Request) -> Answer {
        let [answer] = self.submit_all(target, [request]);
        answer
    }

    /// Queues requests that are sent together.
    pub fn submit_all<const N: usize>(&self, target: Target, requests: [Request; N]) -> [Answer; N] {
        self.submit_with(target, requests, []).0
    }

    /// Queues requests that are sent together, and any number of others behind them.
    pub fn submit_with<const N: usize>(
        &self,
        target: Target,
        first: [Request; N],
        others: impl IntoIterator<Item = Request>,
    ) -> ([Answer; N], Vec<Answer>) {
        let mut submissions = Vec::with_capacity(N);
        let mut queue = |request| {
            let (sender, receiver) = oneshot::channel();
            submissions.push(Submission::new(target, request, Some(sender)));
            Answer(receiver)
        };
        let first = first.map(&mut queue);
        let others = others.into_iter().map(queue).collect();
        self.0.shared.submit(submissions);
        (first, others)
    }

    /// Queues any number of requests that are sent together.
    pub fn submit_many(&self, target: Target, requests: impl IntoIterator<Item = Request>) -> Vec<Answer> {
        self.submit_with(target, [], requests).1
    }

    /// Lets all that waits for an answer fail, and all that comes later: where no connection stands at the moment, or where `or_if` says so when it is told
    /// whether the server has owed answers for some seconds.
    pub fn give_up(&self, or_if: impl FnOnce(bool) -> bool) {
        self.0.shared.give_up(or_if);
    }

    /// The request that closes a handle, for [`Client::submit_all`] together with the last requests on it.
    #[must_use]
    pub fn closing(handle: Handle) -> Request {
        handle.into_close().1
    }

    /// What went over the wire so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.shared.counters.get()
    }

    /// Kinds of the requests so far and their channels, if [`Settings::keep_log`] is set.
    #[must_use]
    pub fn log(&self) -> Vec<(ChannelId, Kind)> {
        self.0.shared.log()
    }

    /// The payload to ask for in one READ.
    #[must_use]
    pub fn read_size(&self) -> u32 {
        self.0.shared.read_size()
    }

    /// Notes that the server gave only so many bytes to a READ that could have had more.
    pub fn learn_read_size(&self, size: usize) {
        self.0.shared.learn_read_size(u32::try_from(size).unwrap_or(u32::MAX));
    }

    /// The payload to send in one WRITE.
    #[must_use]
    pub fn write_size(&self) -> u32 {
        self.0.shared.write_size()
    }

    /// How many files should be written at once to make full use of the line, as far as is known by now; 0 at the very beginning.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.0.shared.lanes()
    }

    /// Whether the server offers an extension. Known once anything was answered.
    #[must_use]
    pub fn offers(&self, extension: &str) -> bool {
        self.0.shared.hello().is_some_and(|hello| hello.offers(extension))
    }

    /// Whether the server is one that works on requests of one file in order, so that an FSYNC may follow WRITEs which
    /// are not acknowledged yet. OpenSSH does; of servers that hand requests to several workers this is not certain.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        self.offers(extension::LIMITS)
    }
}

/// What an [`Outcome`] holds, as the type that was asked for.
impl Outcome {
    /// No answer came.
    #[must_use]
    pub fn unanswered(error: RequestError) -> Self {
        Self { result: Err(error), resent: false, place: None, foretold: None }
    }

    /// Whether this is the answer to a request on this handle, though it was sent before the handle was known.
    #[must_use]
    pub fn is_on(&self, handle: &Handle) -> bool {
        self.place == Some(handle.place()) && self.foretold.as_ref() == Some(&handle.bytes())
    }

    /// Nothing but success.
    ///
    /// # Errors
    /// The request's failure.
    pub fn done(self) -> Result<(), RequestError> {
        match self.result? {
            Value::Done => Ok(()),
            _ => Err(Malformed("not a status").into()),
        }
    }

    /// A handle.
    ///
    /// # Errors
    /// The request's failure.
    pub fn handle(self) -> Result<Handle, RequestError> {
        match self.result? {
            Value::Handle(handle) => Ok(handle),
            _ => Err(Malformed("not a handle").into()),
        }
    }

    /// Bytes; `None` at the end of the file.
    ///
    /// # Errors
    /// The request's failure.
    pub fn data(self) -> Result<Option<Bytes>, RequestError> {
        match self.result {
            Ok(Value::Data(data)) => Ok(Some(data)),
            Ok(_) => Err(Malformed("not data").into()),
            Err(error) if error.code() == Some(super::reply::Code::Eof) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Entries of a directory; `None` when there are no more.
    ///
    /// # Errors
    /// The request's failure.
    pub fn names(self) -> Result<Option<Vec<DirEntry>>, RequestError> {
        match self.result {
            Ok(Value::Names(names)) => Ok(Some(names)),
            Ok(_) => Err(Malformed("not names").into()),
            Err(error) if error.code() == Some(super::reply::Code::Eof) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Attributes.
    ///
    /// # Errors
    /// The request's failure.
    pub fn attrs(self) -> Result<Attrs, RequestError> {
        match self.result? {
            Value::Attrs(attrs) => Ok(attrs),
            _ => Err(Malformed("not attributes").into()),
        }
    }

    /// The room on a file system.
    ///
    /// # Errors
    /// The request's failure.
    pub fn room(self) -> Result<Room, RequestError> {
        match self.result? {
            Value::Extended(answer) => Ok(Room::decode(answer)?),
            _ => Err(Malformed("not an extension's answer").into()),
        }
    }
}

impl Request {
    /// Opens a file.
    #[must_use]
    pub fn open(path: &[u8], mode: OpenMode) -> Self {
        Self::Open { path: path.to_vec(), mode }
    }

    /// Reads from what the request submitted just before opens, on the control channel. See [`Outcome::is_on`]: where the handle could not be
    /// foretold, the request was not made, or on another one.
    #[must_use]
    pub fn read_opened(offset: u64, len: u32) -> Self {
        Self::Read { handle: Bytes::new(), offset, len }
    }

    /// Lists what the request submitted just before opens; as [`Request::read_opened`].
    #[must_use]
    pub fn list_opened() -> Self {
        Self::ReadDir { handle: Bytes::new() }
    }
}
