//! What clients and the driver thread share: the queue of requests, and what became known of the server.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::attrs::Attrs;
use super::error::RequestError;
use super::handle::Handle;
use super::link::ChannelId;
use super::packet::{Kind, MAX_PAYLOAD, Request, SAFE_PAYLOAD};
use super::reply::{DirEntry, Hello, Limits};

/// The least that is asked for in one READ, however little a server gives.
const LEAST_READ: u32 = 4096;

/// A channel of one of the connections, as they follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which connection.
    pub epoch: u64,
    /// Which channel of it.
    pub channel: ChannelId,
}

/// Where a request is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The control channel, behind all that went there before.
    Control,
    /// The least loaded bulk channel; waits until there is one.
    Bulk,
    /// A bulk channel, or the control channel as long as no other is open. So many bytes are expected to be read.
    Anywhere {
        /// Bytes of the range to be read.
        bytes: u64,
    },
    /// The channel that a handle belongs to.
    At(Place),
}

/// A successful answer.
#[derive(Debug)]
pub enum Value {
    /// Done.
    Done,
    /// Something is open.
    Handle(Handle),
    /// Bytes of a file.
    Data(Bytes),
    /// Entries of a directory, or a path.
    Names(Vec<DirEntry>),
    /// Attributes.
    Attrs(Attrs),
    /// The answer to an extension.
    Extended(Bytes),
}

/// An answer, and whether the request was sent more than once because a connection was lost: a server may then have done
/// it the first time, and fail the second.
#[derive(Debug)]
pub struct Outcome {
    /// The answer.
    pub result: Result<Value, RequestError>,
    /// Whether it was sent again.
    pub resent: bool,
    /// Which channel answered, so that what must follow it in order can go there too.
    pub place: Option<Place>,
    /// The handle that a request [behind an opening one](Request::read_opened) was sent on.
    pub foretold: Option<Bytes>,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) target: Target,
    pub(super) request: Request,
    /// Who waits for the answer; nobody for a CLOSE that nobody asked for.
    pub(super) answer: Option<oneshot::Sender<Outcome>>,
    /// Its place among all, so that what is sent again keeps its order.
    pub(super) number: u64,
    /// Whether it was sent before, on a connection that was lost.
    pub(super) resent: bool,
    /// Whether it belongs on the channel of the one queued before, which it was submitted with.
    pub(super) follows: bool,
    /// The handle that it was sent on, as foretold.
    pub(super) foretold: Option<Bytes>,
}

impl Submission {
    pub(super) fn new(target: Target, request: Request, answer: Option<oneshot::Sender<Outcome>>) -> Self {
        Self { target, request, answer, number: 0, resent: false, follows: false, foretold: None }
    }

    /// Hands a server's answer over. One that nobody takes is dropped, and a handle in it is closed.
    pub(super) fn answer(self, place: Place, result: Result<Value, RequestError>) {
        if let Some(answer) = self.answer {
            let (resent, place, foretold) = (self.resent, Some(place), self.foretold);
            drop(answer.send(Outcome { result, resent, place, foretold }));
        }
    }

    /// Tells that there is no answer.
    pub(super) fn fail(self, error: RequestError) {
        if let Some(answer) = self.answer {
            let (result, resent) = (Err(error), self.resent);
            drop(answer.send(Outcome { result, resent, place: None, foretold: None }));
        }
    }

    /// Whether it can be sent on another connection: what names a path can, what names a handle cannot.
    pub(super) fn survives(&self) -> bool {
        !matches!(self.target, Target::At(_))
    }

    /// Whether it works on what the one before it opens.
    pub(super) fn is_ahead(&self) -> bool {
        self.survives() && matches!(self.request.kind(), Kind::Read | Kind::ReadDir)
    }
}

/// What went over the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests sent.
    pub requests: u64,
    /// Requests sent when none was outstanding on any channel.
    pub serial_waits: u64,
    /// Bytes of SFTP sent.
    pub bytes_up: u64,
    /// Bytes of SFTP received.
    pub bytes_down: u64,
    /// Connections made.
    pub connections: u64,
}

/// Counts as they are kept.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) serial_waits: AtomicU64,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
    pub(super) connections: AtomicU64,
}

/// Adds to a count.
pub(super) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(u64::try_from(amount).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl Counters {
    pub(super) fn get(&self) -> Counts {
        Counts {
            requests: self.requests.load(Ordering::Relaxed),
            serial_waits: self.serial_waits.load(Ordering::Relaxed),
            bytes_up: self.bytes_up.load(Ordering::Relaxed),
            bytes_down: self.bytes_down.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    queue: Mutex<Queue>,
    /// An eventfd. It is written and read with the queue locked, when that becomes non-empty and when it is emptied: so it
    /// is readable whenever a request waits, and no order of threads can leave the one without the other.
    waker: OwnedFd,
    pub(super) counters: Counters,
    read_size: AtomicU32,
    write_size: AtomicU32,
    /// The most for either, so that no request is long on the way.
    piece: AtomicU32,
    lanes: AtomicUsize,
    hello: Mutex<Option<Arc<Hello>>>,
    log: Option<Mutex<Vec<(ChannelId, Kind)>>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Submission>,
    submitted: u64,
    stopping: bool,
    is_standing: bool,
    is_silent: bool,
    closed: Option<RequestError>,
    /// How often requests were found that nobody had been woken for. Never, if all is well.
    missed: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(keep_log: bool) -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self {
            queue: Mutex::default(),
            waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            counters: Counters::default(),
            read_size: AtomicU32::new(SAFE_PAYLOAD),
            write_size: AtomicU32::new(SAFE_PAYLOAD),
            piece: AtomicU32::new(MAX_PAYLOAD),
            lanes: AtomicUsize::new(0),
            hello: Mutex::default(),
            log: keep_log.then(Mutex::default),
        })
    }

    /// Queues requests so that none of another thread comes between them, and all of them reach one channel; answered at once when there is no
    /// connection and will be none.
    pub(super) fn submit(&self, submissions: impl IntoIterator<Item = Submission>) {
        let mut refused = Vec::new();
        let closed = {
            let mut queue = lock(&self.queue);
            let closed = queue.closed.clone();
            let was_empty = queue.waiting.is_empty();
            for (place, mut submission) in submissions.into_iter().enumerate() {
                submission.follows = place > 0;
                submission.number = queue.submitted;
                queue.submitted = queue.submitted.saturating_add(1);
                match closed {
                    None => queue.waiting.push_back(submission),
                    Some(_) => refused.push(submission),
                }
            }
            if was_empty && !queue.waiting.is_empty() {
                self.wake();
            }
            closed
        };
        if let Some(error) = closed {
            for submission in refused {
                submission.fail(error.clone());
            }
        }
    }

    /// Makes the waker readable. Called with the queue locked.
    fn wake(&self) {
        // It can only fail when the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    /// What was queued since the last call, and whether the client wants to stop.
    pub(super) fn take(&self) -> (VecDeque<Submission>, bool) {
        let mut queue = lock(&self.queue);
        let mut count = [0; 8];
        let woken = rustix::io::read(&self.waker, &mut count).is_ok();
        let waiting = std::mem::take(&mut queue.waiting);
        if !woken && !waiting.is_empty() {
            queue.missed = queue.missed.saturating_add(1);
            tracing::debug!(
                requests = waiting.len(),
                times = queue.missed,
                "requests waited without a wake-up"
            );
        }
        (waiting, queue.stopping)
    }

    /// Notes whether there is a connection that has answered.
    pub(super) fn set_standing(&self, is_standing: bool) {
        lock(&self.queue).is_standing = is_standing;
    }

    /// Notes whether the server has owed answers for some seconds.
    pub(super) fn set_silent(&self, is_silent: bool) {
        lock(&self.queue).is_silent = is_silent;
    }

    /// Lets requests that nobody could answer yet wait here again, before all others.
    pub(super) fn put_back(&self, submissions: VecDeque<Submission>) {
        if submissions.is_empty() {
            return;
        }
        let mut queue = lock(&self.queue);
        if let Some(error) = queue.closed.clone() {
            drop(queue);
            submissions.into_iter().for_each(|submission| submission.fail(error.clone()));
            return;
        }
        let later = std::mem::replace(&mut queue.waiting, submissions);
        queue.waiting.extend(later);
        self.wake();
    }

    /// Ends the queue and asks the driver to end: where no connection stands, or where `or_if` says so of one that is silent or not.
    pub(super) fn give_up(&self, or_if: impl FnOnce(bool) -> bool) {
        let mut queue = lock(&self.queue);
        if queue.is_standing && !or_if(queue.is_silent) {
            return;
        }
        queue.stopping = true;
        self.wake();
        drop(queue);
        self.close(&RequestError::Stopped);
    }

    /// Asks the driver to end.
    pub(super) fn stop(&self) {
        let mut queue = lock(&self.queue);
        queue.stopping = true;
        self.wake();
    }

    /// Ends the queue: what waits and what comes later is answered by `error`.
    pub(super) fn close(&self, error: &RequestError) {
        let waiting = {
            let mut queue = lock(&self.queue);
            queue.closed.get_or_insert_with(|| error.clone());
            std::mem::take(&mut queue.waiting)
        };
        for submission in waiting {
            submission.fail(error.clone());
        }
    }

    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    pub(super) fn learn_limits(&self, limits: Limits) {
        let size = |limit: u64| match u32::try_from(limit) {
            Ok(0) => SAFE_PAYLOAD,
            Ok(limit) => limit.min(MAX_PAYLOAD),
            Err(_large) => MAX_PAYLOAD,
        };
        self.read_size.store(size(limits.read), Ordering::Relaxed);
        self.write_size.store(size(limits.write), Ordering::Relaxed);
    }

    pub(super) fn learn_hello(&self, hello: &Hello) {
        let mut known = lock(&self.hello);
        if known.as_deref() != Some(hello) {
            *known = Some(Arc::new(hello.clone()));
        }
    }

    /// What was learnt belongs to the server that was connected; the next one may be another.
    pub(super) fn forget(&self) {
        self.read_size.store(SAFE_PAYLOAD, Ordering::Relaxed);
        self.write_size.store(SAFE_PAYLOAD, Ordering::Relaxed);
        *lock(&self.hello) = None;
    }

    pub(super) fn read_size(&self) -> u32 {
        self.read_size.load(Ordering::Relaxed).min(self.piece.load(Ordering::Relaxed))
    }

    /// The line is so slow, or so fast, that requests should not be longer than this.
    pub(super) fn set_pieces(&self, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(MAX_PAYLOAD);
        self.piece.store(bytes.clamp(SAFE_PAYLOAD, MAX_PAYLOAD), Ordering::Relaxed);
    }

    /// A server that gave less than asked for, though it had more, is asked for less.
    pub(super) fn learn_read_size(&self, size: u32) {
        self.read_size.fetch_min(size.max(LEAST_READ), Ordering::Relaxed);
    }

    /// How many bulk channels there are when all are needed.
    pub(super) fn learn_lanes(&self, lanes: usize) {
        self.lanes.store(lanes, Ordering::Relaxed);
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.load(Ordering::Relaxed)
    }

    pub(super) fn write_size(&self) -> u32 {
        self.write_size.load(Ordering::Relaxed).min(self.piece.load(Ordering::Relaxed))
    }

    pub(super) fn hello(&self) -> Option<Arc<Hello>> {
        lock(&self.hello).clone()
    }

    pub(super) fn note(&self, channel: ChannelId, kind: Kind) {
        if let Some(log) = &self.log {
            lock(log).push((channel, kind));
        }
    }

    pub(super) fn log(&self) -> Vec<(ChannelId, Kind)> {
        self.log.as_ref().map(|log| lock(log).clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn nobody_waits() -> Submission {
        let request = Request::Close { handle: Bytes::new() };
        Submission::new(Target::Control, request, None)
    }

    /// Whether the driver would be woken within this time.
    fn wakes(shared: &Shared, millis: i64) -> bool {
        let patience = Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
        poll(&mut [PollFd::from_borrowed_fd(shared.waker(), PollFlags::IN)], Some(&patience)).unwrap() > 0
    }

    #[test]
    fn the_waker_is_readable_as_long_as_something_waits() {
        let shared = Shared::new(false).unwrap();
        assert!(!wakes(&shared, 0));
        shared.submit([]);
        assert!(!wakes(&shared, 0), "nothing was queued");
        for _ in 0..3 {
            shared.submit([nobody_waits()]);
            shared.submit([nobody_waits()]);
            assert!(wakes(&shared, 0));
            assert_eq!(shared.take().0.len(), 2);
            assert!(!wakes(&shared, 0));
        }
        shared.stop();
        assert!(wakes(&shared, 0));
        assert!(shared.take().1);
        assert!(!wakes(&shared, 0));
    }

    /// A client that submits while the driver is taking, and nothing that would wake the driver later: a wake-up that
    /// is lost once leaves it waiting.
    #[test]
    fn no_order_of_threads_loses_a_wake_up() {
        const REQUESTS: usize = 200_000;
        let shared = Shared::new(false).unwrap();
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                for _ in 0..REQUESTS {
                    shared.submit([nobody_waits()]);
                }
            });
            let mut taken = 0;
            while taken < REQUESTS {
                // Looked at before: whatever is to be woken for after its end has been.
                let ended = client.is_finished();
                if wakes(&shared, 20) {
                    taken += shared.take().0.len();
                } else {
                    assert!(!ended, "asleep after {taken}");
                }
            }
        });
        assert_eq!(lock(&shared.queue).missed, 0);
    }

    #[test]
    fn a_wake_up_that_is_lost_is_counted() {
        let shared = Shared::new(false).unwrap();
        shared.submit([nobody_waits()]);
        rustix::io::read(&shared.waker, &mut [0; 8]).unwrap();
        assert_eq!(shared.take().0.len(), 1);
        assert_eq!(lock(&shared.queue).missed, 1);
        shared.submit([nobody_waits()]);
        assert_eq!((shared.take().0.len(), shared.take().0.len()), (1, 0));
        assert_eq!(lock(&shared.queue).missed, 1);
    }
}
