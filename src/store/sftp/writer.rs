//! One file on its way to the server: what is sent, what is acknowledged, and how to go on after a lost connection.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::super::{ErrorKind, Name, StoreError};
use super::reading::length;
use super::remote::{Remote, Tries, is_missing};
use super::upload::Permits;
use crate::sftp::packet::{OpenMode, Request, extension};
use crate::sftp::reply::Code;
use crate::sftp::transfer::all_done;
use crate::sftp::{Answer, Client, Handle, Outcome, RequestError, Target};

/// How often a file that is said to exist is looked for in vain before the reason must be another one. Each time it may
/// have been another client's, created and renamed meanwhile: so many would have to do that at once.
const RACES: u32 = 8;

/// A WRITE of fewer bytes than this, where others follow, costs more than copying them.
const SHORT: usize = 32 << 10;

/// How often missing directories are made: the connection may be lost in between.
const MAKINGS: u32 = 3;

/// Bytes that were sent and are kept until the server has acknowledged them.
struct Piece {
    offset: u64,
    data: Bytes,
    answer: Answer,
    /// Gives the bytes back to the budgets when the last piece that has some of them is acknowledged.
    _permits: Option<Arc<Permits>>,
}

/// See the module.
pub(super) struct Writer {
    remote: Arc<Remote>,
    name: Name,
    target: Target,
    handle: Option<Handle>,
    /// Less than [`SHORT`]; sent when there is more or the file ends.
    tail: Vec<u8>,
    /// Where the tail goes.
    end: u64,
    pieces: VecDeque<Piece>,
    closed: bool,
    tries: Tries,
}

impl Writer {
    pub(super) fn new(remote: Arc<Remote>, name: Name, target: Target) -> Self {
        let pieces = VecDeque::new();
        Self {
            remote,
            name,
            target,
            handle: None,
            tail: Vec::new(),
            end: 0,
            pieces,
            closed: false,
            tries: Tries::default(),
        }
    }

    fn client(&self) -> &Client {
        &self.remote.client
    }

    /// Sends what creates the file; the last answer is that of the OPEN. A directory that is not known to exist (but probably the one above it does) is made first, in the same
    /// flight: on the control channel order counts, and elsewhere a wait is saved.
    pub(super) fn start_create(&self) -> Vec<Answer> {
        let mut requests = Vec::new();
        if !self.remote.knows_parent(&self.name) {
            requests.extend(self.name.parent().map(|parent| self.remote.make(&parent)));
        }
        requests.push(self.remote.open(&self.name, Remote::create_new()));
        self.client().submit_many(self.target, requests)
    }

    /// Waits until the file is created, and makes missing directories.
    pub(super) async fn create(&mut self, first: Vec<Answer>) -> Result<(), StoreError> {
        let (mut races, mut makings) = (0_u32, 0_u32);
        let mut outcome = last(first).await;
        loop {
            let (resent, place, missing) = (outcome.resent, outcome.place, is_missing(&outcome));
            let error = match outcome.handle() {
                Ok(handle) => {
                    self.handle = Some(handle);
                    self.remote.learn_parent(&self.name);
                    return Ok(());
                }
                Err(error) => error,
            };
            if missing && makings < MAKINGS {
                makings = makings.saturating_add(1);
                self.remote.forget_parent(&self.name);
                // On the channel that answered, where the OPEN comes after the MKDIRs.
                let target = place.map_or(self.target, Target::At);
                let mut requests = self.remote.make_parents(&self.name);
                requests.push(self.remote.open(&self.name, Remote::create_new()));
                outcome = last(self.client().submit_many(target, requests)).await;
                outcome.resent |= resent;
                continue;
            }
            if self.tries.again(&error) {
                outcome = last(self.start_create()).await;
                // The lost attempt may have created it.
                outcome.resent = true;
                continue;
            }
            if error.code() != Some(Code::Failure) {
                return Err(self.remote.error("create", &self.name, error));
            }
            // The server gives no reason; most likely the name is taken.
            match self.remote.look(&self.name).await.attrs() {
                Ok(attrs) if resent && attrs.size == Some(0) => return self.reopen().await,
                Ok(_) => return Err(self.failure(ErrorKind::Exists, "create", "a file of that name exists")),
                Err(_) => {}
            }
            // Or it was taken, and is free again by now.
            races = races.saturating_add(1);
            if races > RACES {
                return Err(self.remote.error_of_writing("create", &self.name, error).await);
            }
            outcome = last(self.start_create()).await;
            outcome.resent |= resent;
        }
    }

    /// Adds bytes, and sends WRITEs of them. Only a few bytes are copied: those that alone would make a short WRITE wait for the next.
    pub(super) fn append(&mut self, bytes: Vec<u8>, permits: Option<Permits>) {
        let permits = permits.map(Arc::new);
        let size = usize::try_from(self.client().write_size()).unwrap_or(usize::MAX);
        let short = size.min(SHORT);
        let mut rest = Bytes::from(bytes);
        while !rest.is_empty() {
            let data = if self.tail.is_empty() && rest.len() >= short {
                rest.split_to(rest.len().min(size))
            } else {
                let some = rest.split_to(rest.len().min(short.saturating_sub(self.tail.len())));
                self.tail.extend_from_slice(&some);
                if self.tail.len() < short {
                    return;
                }
                Bytes::from(std::mem::take(&mut self.tail))
            };
            let request = self.next(data);
            let [answer] = self.client().submit_all(self.place(), [request.clone()]);
            self.sent(request, answer, permits.clone());
        }
    }

    /// The tail as a WRITE, if there is one.
    fn cut(&mut self) -> Option<Request> {
        let tail = std::mem::take(&mut self.tail);
        (!tail.is_empty()).then(|| self.next(Bytes::from(tail)))
    }

    /// Bytes behind those before as a WRITE.
    fn next(&mut self, data: Bytes) -> Request {
        let offset = self.end;
        self.end = self.end.saturating_add(length(&data));
        self.write(offset, data)
    }

    fn write(&self, offset: u64, data: Bytes) -> Request {
        let handle = self.handle.as_ref().map(Handle::bytes).unwrap_or_default();
        Request::Write { handle, offset, data }
    }

    fn sent(&mut self, request: Request, answer: Answer, permits: Option<Arc<Permits>>) {
        if let Request::Write { offset, data, .. } = request {
            self.pieces.push_back(Piece { offset, data, answer, _permits: permits });
        }
    }

    /// Where requests on the handle go.
    fn place(&self) -> Target {
        self.handle.as_ref().map_or(self.target, |handle| Target::At(handle.place()))
    }

    /// The answer to the oldest WRITE that is not acknowledged.
    pub(super) fn oldest(&mut self) -> Option<&mut Answer> {
        self.pieces.front_mut().map(|piece| &mut piece.answer)
    }

    /// Takes the answer to the oldest WRITE.
    pub(super) async fn acknowledge(&mut self, outcome: Outcome) -> Result<(), StoreError> {
        match outcome.done() {
            Ok(()) => {
                self.pieces.pop_front();
                self.tries.forget();
                Ok(())
            }
            Err(error) => self.recover("write", error).await,
        }
    }

    /// Goes on after a lost connection or channel; any other failure is final.
    async fn recover(&mut self, operation: &'static str, error: RequestError) -> Result<(), StoreError> {
        if self.tries.again(&error) {
            return self.reopen().await;
        }
        Err(self.remote.error_of_writing(operation, &self.name, error).await)
    }

    /// Opens the file again and sends again what was not acknowledged. What was must still be there: a server
    /// that was itself restarted may have lost it.
    async fn reopen(&mut self) -> Result<(), StoreError> {
        loop {
            self.handle = None;
            let outcome =
                self.client().submit(self.target, self.remote.open(&self.name, OpenMode::Write)).await;
            let error = match outcome.handle() {
                Ok(handle) => {
                    let look = Request::Fstat { handle: handle.bytes() };
                    let look = self.client().submit(Target::At(handle.place()), look);
                    self.handle = Some(handle);
                    self.send_again();
                    match look.await.attrs() {
                        Ok(attrs) => return self.check_size(attrs.size),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if !self.tries.again(&error) {
                return Err(self.remote.error("continue", &self.name, error));
            }
        }
    }

    fn send_again(&mut self) {
        let requests: Vec<_> =
            self.pieces.iter().map(|piece| self.write(piece.offset, piece.data.clone())).collect();
        let answers = self.client().submit_many(self.place(), requests);
        for (piece, answer) in self.pieces.iter_mut().zip(answers) {
            piece.answer = answer;
        }
    }

    /// The size was taken before any WRITE on the new handle.
    fn check_size(&self, size: Option<u64>) -> Result<(), StoreError> {
        let acknowledged = self.pieces.front().map_or(self.end, |piece| piece.offset);
        match size {
            Some(size) if size < acknowledged => {
                let detail = format!(
                    "the server has lost what it had acknowledged: {size} of {acknowledged} bytes are left"
                );
                Err(self.failure(ErrorKind::Truncated, "continue", &detail))
            }
            _ => Ok(()),
        }
    }

    /// Renames the file when all of it is acknowledged.
    pub(super) async fn commit(&mut self, to: &Name) -> Result<(), StoreError> {
        if !self.closed {
            self.close().await?;
        }
        let first = self.remote.start_rename(&self.name, to);
        self.remote.rename(&self.name, to, first).await
    }

    /// Sends the rest, makes it durable and closes the file in one flight, and waits until all is acknowledged.
    pub(super) async fn close(&mut self) -> Result<(), StoreError> {
        let mut rest = self.cut();
        loop {
            let fsync = self.client().offers(extension::FSYNC);
            if fsync && !self.client().is_orderly() {
                // An FSYNC could overtake the WRITEs.
                if let Some(request) = rest.take()
                    && let [answer] = self.client().submit_all(self.place(), [request.clone()])
                {
                    self.sent(request, answer, None);
                }
                self.settle().await?;
            }
            let place = self.place();
            let Some(handle) = self.handle.take() else {
                return Err(self.failure(ErrorKind::Other, "write", "it is not open"));
            };
            let mut requests = Vec::new();
            requests.extend(rest.clone());
            if fsync {
                requests.push(Request::Fsync { handle: handle.bytes() });
            }
            requests.push(Client::closing(handle));
            let mut answers = self.client().submit_many(place, requests);
            if let Some(request) = rest.take() {
                let answer = answers.remove(0);
                self.sent(request, answer, None);
            }
            match self.finish(answers).await {
                Ok(()) => {
                    self.closed = true;
                    return Ok(());
                }
                Err(error) => self.recover("write", error).await?,
            }
        }
    }

    /// Waits until all that was sent is acknowledged, and what follows it.
    async fn finish(&mut self, after: Vec<Answer>) -> Result<(), RequestError> {
        while let Some(answer) = self.oldest() {
            answer.await.done()?;
            self.pieces.pop_front();
            self.tries.forget();
        }
        all_done(after).await
    }

    /// Waits until all that was sent is acknowledged, whatever becomes of the connection.
    async fn settle(&mut self) -> Result<(), StoreError> {
        while let Some(answer) = self.oldest() {
            let outcome = answer.await;
            self.acknowledge(outcome).await?;
        }
        Ok(())
    }

    /// Lets go of what was not acknowledged, and of its shares of the budgets: the file is given up.
    pub(super) fn forget(&mut self) {
        self.pieces.clear();
        self.tail = Vec::new();
    }

    /// Closes the file and removes it, as far as the server is there.
    pub(super) async fn remove(&mut self) {
        let remove = Request::Remove { path: self.remote.path(&self.name) };
        if let Some(handle) = self.handle.take() {
            let place = handle.place();
            let _sent = self.client().submit(Target::At(place), Client::closing(handle));
        }
        let removed = self.client().submit(Target::Control, remove).await;
        if let Err(error) = removed.done() {
            tracing::debug!(name = %self.name, %error, "what was not finished could not be removed");
        }
    }

    fn failure(&self, kind: ErrorKind, operation: &'static str, detail: &str) -> StoreError {
        StoreError::new(kind, operation, self.remote.subject(&self.name), detail)
    }
}

/// The last answer; those before are not waited for: they make directories that may be there already.
async fn last(mut answers: Vec<Answer>) -> Outcome {
    match answers.pop() {
        Some(answer) => answer.await,
        None => Outcome::unanswered(RequestError::Stopped),
    }
}
