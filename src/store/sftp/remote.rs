//! What all operations share: the client, the paths, the directories known to exist, and what the server's answers mean.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::{ErrorKind, Name, StoreError, layout};
use crate::base::text::escape;
use crate::sftp::link::ConnectErrorKind;
use crate::sftp::packet::{OpenMode, Request, extension};
use crate::sftp::reply::Code;
use crate::sftp::{Answer, Client, Outcome, RequestError, Target};

/// Files are for their owner alone, as in a local repository.
const FILE: u32 = 0o600;

/// Directories likewise.
const DIRECTORY: u32 = 0o700;

/// How often an operation is begun again because channels were lost while the connection stood, before it gets on.
const TRIES: u32 = 5;

/// How often one that loses its connection each time: by then it is what breaks the connection. (A new connection is waited
/// for as long as the client does.)
const LOSSES: u32 = 50;

/// Room below which a failure without a reason is taken for a full disk: what failed needed more than that.
const FULL: u64 = 1 << 20;

/// The server, as the store sees it.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) client: Client,
    root: Vec<u8>,
    known: Mutex<HashSet<Name>>,
}

/// Counts attempts that were lost one after another, without a step forward.
#[derive(Debug, Default)]
pub(super) struct Tries {
    channels: u32,
    links: u32,
}

impl Tries {
    /// Whether to begin again after this failure.
    pub(super) fn again(&mut self, error: &RequestError) -> bool {
        match error {
            RequestError::LinkLost(_) => {
                self.links = self.links.saturating_add(1);
                self.links <= LOSSES
            }
            RequestError::ChannelLost(_) => {
                self.channels = self.channels.saturating_add(1);
                self.channels <= TRIES
            }
            _ => false,
        }
    }

    /// The same after an attempt that may have brought something.
    pub(super) fn again_after(&mut self, has_progress: bool, error: &RequestError) -> bool {
        if has_progress {
            self.forget();
        }
        self.again(error)
    }

    /// Notes a step forward.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Remote {
    /// The files below `root`, a path of the server; relative ones count from the user's home directory.
    pub(super) fn new(client: Client, root: Vec<u8>) -> Self {
        // They are made when the repository is; the first use finds out if not.
        let known = layout::DIRECTORIES.into_iter().map(layout::directory).chain([Name::top()]);
        Self { client, root, known: Mutex::new(known.collect()) }
    }

    pub(super) fn path(&self, name: &Name) -> Vec<u8> {
        if *name == Name::top() {
            return if self.root.is_empty() { b".".to_vec() } else { self.root.clone() };
        }
        let mut path = self.root.clone();
        if path.last().is_some_and(|last| *last != b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_str().as_bytes());
        path
    }

    /// How files are named in messages.
    pub(super) fn subject(&self, name: &Name) -> String {
        escape(&self.path(name))
    }

    fn known(&self) -> MutexGuard<'_, HashSet<Name>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the directory of a file exists.
    pub(super) fn learn_parent(&self, name: &Name) {
        if let Some(parent) = name.parent() {
            let mut known = self.known();
            if !known.contains(&parent) {
                known.insert(parent);
            }
        }
    }

    /// Notes that a directory exists.
    pub(super) fn learn_dir(&self, dir: &Name) {
        self.known().insert(dir.clone());
    }

    /// Notes that a directory does not exist, whatever was believed.
    pub(super) fn forget_parent(&self, name: &Name) {
        let mut known = self.known();
        let mut parent = name.parent();
        while let Some(dir) = parent {
            known.remove(&dir);
            parent = dir.parent();
        }
    }

    /// Whether the directory of a file is known to exist.
    pub(super) fn knows_parent(&self, name: &Name) -> bool {
        name.parent().is_none_or(|parent| self.known().contains(&parent))
    }

    /// Requests that make the directories above a file, the outermost first, without the store's own.
    pub(super) fn make_parents(&self, name: &Name) -> Vec<Request> {
        let mut requests = Vec::new();
        let mut parent = name.parent();
        while let Some(dir) = parent {
            parent = dir.parent();
            requests.push(self.make(&dir));
        }
        requests.reverse();
        requests
    }

    pub(super) fn make(&self, dir: &Name) -> Request {
        Request::MakeDir { path: self.path(dir), permissions: DIRECTORY }
    }

    pub(super) fn open(&self, name: &Name, mode: OpenMode) -> Request {
        Request::Open { path: self.path(name), mode }
    }

    /// How a new file is opened.
    pub(super) fn create_new() -> OpenMode {
        OpenMode::CreateNew { permissions: FILE }
    }

    /// A failed request as a failure of the store.
    pub(super) fn error(&self, operation: &'static str, name: &Name, error: RequestError) -> StoreError {
        let kind = match &error {
            RequestError::Status(status) => match status.code {
                Code::NoSuchFile => ErrorKind::NotFound,
                Code::PermissionDenied if self.client.offers(extension::APPEND_ONLY) => ErrorKind::AppendOnly,
                Code::PermissionDenied if self.client.offers(extension::READ_ONLY) => ErrorKind::ReadOnly,
                Code::PermissionDenied => ErrorKind::Denied,
                Code::Eof => ErrorKind::Truncated,
                Code::BadMessage | Code::Unsupported | Code::Ok => ErrorKind::Protocol,
                Code::Failure | Code::Other(_) => ErrorKind::Other,
            },
            RequestError::LinkLost(_) | RequestError::ChannelLost(_) | RequestError::Stopped => {
                ErrorKind::Unreachable
            }
            RequestError::Malformed(_) => ErrorKind::Protocol,
            RequestError::Down(down) => match down.kind {
                ConnectErrorKind::NameNotFound
                | ConnectErrorKind::ConnectionRefused
                | ConnectErrorKind::TimedOut
                | ConnectErrorKind::Unreachable => ErrorKind::Unreachable,
                ConnectErrorKind::HostKeyUnknown
                | ConnectErrorKind::HostKeyChanged
                | ConnectErrorKind::HostKeyRevoked
                | ConnectErrorKind::AuthRefused => ErrorKind::Refused,
                ConnectErrorKind::NoSftp | ConnectErrorKind::Protocol => ErrorKind::Protocol,
                ConnectErrorKind::Cancelled => ErrorKind::Cancelled,
                ConnectErrorKind::LocalConfig => ErrorKind::Other,
            },
        };
        let failure = StoreError::new(kind, operation, self.subject(name), &error);
        StoreError { source: Some(Box::new(error)), ..failure }
    }

    /// A failed request that needed room: where the server gives no reason, the room left is looked at.
    pub(super) async fn error_of_writing(
        &self,
        operation: &'static str,
        name: &Name,
        error: RequestError,
    ) -> StoreError {
        let no_reason = matches!(error.code(), Some(Code::Failure | Code::Other(_)));
        let failure = self.error(operation, name, error);
        if !no_reason || !self.client.offers(extension::STATVFS) {
            return failure;
        }
        let path = self.path(&Name::top());
        match self.client.submit(Target::Control, Request::StatVfs { path }).await.room() {
            Ok(room) if room.bytes < FULL || room.files == 0 => {
                let detail = "the server's disk is full";
                StoreError { kind: ErrorKind::NoSpace, detail: detail.to_owned(), ..failure }
            }
            Ok(_) => {
                let detail = format!("{}; a used-up quota looks like this", failure.detail);
                StoreError { detail, ..failure }
            }
            Err(_) => failure,
        }
    }

    /// Whether something has this name; the request is sent with others by the caller.
    pub(super) fn look(&self, name: &Name) -> Answer {
        self.client.submit(Target::Control, Request::Lstat { path: self.path(name) })
    }

    fn rename_request(&self, from: &Name, to: &Name) -> Request {
        Request::Rename { from: self.path(from), to: self.path(to) }
    }

    /// Renames without overwriting. `first` is the answer to [`Remote::start_rename`].
    ///
    /// A RENAME that was sent twice because the connection was lost may have been done the first time; then the old
    /// name is gone and the new one there. Names are never used twice, so that is proof.
    pub(super) async fn rename(&self, from: &Name, to: &Name, first: Answer) -> Result<(), StoreError> {
        let mut outcome = first.await;
        let mut resent = outcome.resent;
        if is_missing(&outcome) && !self.knows_parent(to) {
            let mut requests = self.make_parents(to);
            requests.push(self.rename_request(from, to));
            let mut answers = self.client.submit_many(Target::Control, requests);
            if let Some(last) = answers.pop() {
                outcome = last.await;
                resent |= outcome.resent;
            }
        }
        let error = match outcome.done() {
            Ok(()) => {
                self.learn_parent(to);
                return Ok(());
            }
            Err(error) => error,
        };
        if error.code().is_none() {
            return Err(self.error("rename", from, error));
        }
        let [old, new] = [self.look(from), self.look(to)];
        let is_there = |outcome: Outcome| outcome.attrs().is_ok();
        match (is_there(old.await), is_there(new.await)) {
            (false, true) if resent => Ok(()),
            (false, _) => Err(StoreError::new(
                ErrorKind::NotFound,
                "rename",
                self.subject(from),
                "no such file or directory",
            )),
            (true, true) => {
                let detail = "a file of that name exists";
                Err(StoreError::new(ErrorKind::Exists, "rename to", self.subject(to), detail))
            }
            (true, false) => {
                self.forget_parent(to);
                Err(self.error_of_writing("rename", from, error).await)
            }
        }
    }

    /// Sends the first request of a renaming.
    pub(super) fn start_rename(&self, from: &Name, to: &Name) -> Answer {
        self.client.submit(Target::Control, self.rename_request(from, to))
    }
}

/// Whether the server says that something does not exist.
pub(super) fn is_missing(outcome: &Outcome) -> bool {
    outcome.result.as_ref().is_err_and(|error| error.code() == Some(Code::NoSuchFile))
}
