//! Files being written: the caller's end, and the task that follows the server's answers.

use std::future::{self, Future};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::super::{Class, Completer, Name, Pending, StoreError, Upload};
use super::remote::Remote;
use super::writer::Writer;
use crate::base::budget::{Budget, Permit};
use crate::sftp::tasks::{First, Inbox, Outbox, Tasks, mailbox};
use crate::sftp::{Answer, Target};

/// Bytes of one file that may be on their way: twice the window that OpenSSH gives a channel. Whoever writes several files sees by waiting
/// which of them are slow, and gives the next bytes to another.
const ONE_FILE: u64 = 4 << 20;

/// Appends of small files up to this length do not wait for the budget that bags share.
const SMALL: usize = 64 << 10;

/// The shares that some bytes have of the budget of their file, and of that of all.
pub(super) struct Permits {
    _own: Permit,
    _all: Permit,
}

/// What the caller tells the task. The end of messages without a commit abandons the file.
enum Message {
    Append(Vec<u8>, Option<Permits>),
    Finish,
    Commit(Name, Completer<()>),
}

/// What the task tells the caller.
#[derive(Debug, Default)]
struct State {
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Told {
    created: bool,
    failed: Option<StoreError>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// The caller's end of an upload.
pub(super) struct SftpUpload {
    outbox: Outbox<Message>,
    state: Arc<State>,
    budget: Budget,
    own: Budget,
    class: Class,
}

impl SftpUpload {
    /// Sends the request that creates the file, and starts the task that goes on from there.
    pub(super) fn start(
        remote: &Arc<Remote>,
        tasks: &Tasks,
        budget: &Budget,
        name: &Name,
        class: Class,
    ) -> Self {
        let target = match class {
            Class::Control => Target::Control,
            Class::Bulk => Target::Bulk,
        };
        let writer = Writer::new(remote.clone(), name.clone(), target);
        let first = writer.start_create();
        let (outbox, inbox) = mailbox();
        let state = Arc::new(State::default());
        let told = state.clone();
        tasks.spawn(async move { write(writer, first, inbox, &told).await });
        Self { outbox, state, budget: budget.clone(), own: Budget::new(ONE_FILE), class }
    }

    fn check(&self) -> Result<(), StoreError> {
        self.state.lock().failed.as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }
}

impl Upload for SftpUpload {
    fn created(&mut self) -> Result<(), StoreError> {
        let told = self.state.lock();
        let waiting = |told: &mut Told| !told.created && told.failed.is_none();
        let told = self.state.changed.wait_while(told, waiting).unwrap_or_else(PoisonError::into_inner);
        told.failed.as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }

    fn append(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.check()?;
        let free = self.class == Class::Control && bytes.len() <= SMALL;
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        // First the file's own, so that no bytes of all are held while others could use them.
        let permits = (!free).then(|| {
            let own = self.own.take(len);
            Permits { _own: own, _all: self.budget.take(len) }
        });
        self.outbox.send(Message::Append(bytes, permits));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        self.check()?;
        self.outbox.send(Message::Finish);
        Ok(())
    }

    fn commit(self: Box<Self>, name: &Name) -> Pending<()> {
        let (completer, pending) = Pending::later();
        self.outbox.send(Message::Commit(name.clone(), completer));
        pending
    }
}

/// If the task is dropped halfway, whoever waits for its news is told.
struct Ending<'a>(&'a State);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        use super::super::ErrorKind;
        let gone =
            || StoreError::new(ErrorKind::Unreachable, "write", "the file", "the connection was closed");
        self.0.tell(|told| {
            told.failed.get_or_insert_with(gone);
        });
    }
}

/// The task: creates the file, writes what comes, and commits or abandons it.
async fn write(mut writer: Writer, first: Vec<Answer>, mut inbox: Inbox<Message>, state: &State) {
    let _ending = Ending(state);
    let (failed, created) = match writer.create(first).await {
        Ok(()) => {
            state.tell(|told| told.created = true);
            match append_all(&mut writer, &mut inbox).await {
                Ok(Some((name, completer))) => {
                    let committed = writer.commit(&name).await;
                    if committed.is_err() {
                        writer.remove().await;
                    }
                    completer.complete(committed);
                    return;
                }
                Ok(None) => {
                    writer.remove().await;
                    return;
                }
                Err(error) => (error, true),
            }
        }
        Err(error) => (error, false),
    };
    // The caller may be waiting for the room that bytes of this very file take, and nobody else would give that back.
    writer.forget();
    // It hears of the failure when the name is free again.
    let commit = match created {
        true => pass(&mut inbox, writer.remove()).await,
        false => None,
    };
    state.tell(|told| told.failed = Some(failed.duplicate()));
    // Or it may be on its way to commit: take all it sends, and tell it there.
    let commit = match commit {
        Some(completer) => Some(completer),
        None => pass(&mut inbox, future::pending()).await,
    };
    if let Some(completer) = commit {
        completer.complete(Err(failed));
    }
}

/// Lets messages pass until `end`, or until no more will come; whom to tell, if there was a commit.
async fn pass(inbox: &mut Inbox<Message>, end: impl Future<Output = ()>) -> Option<Completer<()>> {
    let (mut end, mut commit) = (pin!(end), None);
    loop {
        match inbox.next_or(&mut end).await {
            First::Message(Some(Message::Commit(_, completer))) => commit = Some(completer),
            First::Message(Some(_)) => {}
            First::Message(None) | First::Answer(()) => return commit,
        }
    }
}

/// Writes what comes until the file is to be committed (`Some`) or abandoned.
async fn append_all(
    writer: &mut Writer,
    inbox: &mut Inbox<Message>,
) -> Result<Option<(Name, Completer<()>)>, StoreError> {
    loop {
        let message = match writer.oldest() {
            None => inbox.next().await,
            Some(answer) => match inbox.next_or(answer).await {
                First::Message(message) => message,
                First::Answer(outcome) => {
                    writer.acknowledge(outcome).await?;
                    continue;
                }
            },
        };
        match message {
            Some(Message::Append(bytes, permits)) => writer.append(bytes, permits),
            Some(Message::Finish) => writer.close().await?,
            Some(Message::Commit(name, completer)) => return Ok(Some((name, completer))),
            None => return Ok(None),
        }
    }
}
