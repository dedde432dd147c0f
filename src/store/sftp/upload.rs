//! Files being written: the caller's end, and the task that follows the server's answers.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::super::{Class, Completer, Name, Pending, StoreError, Upload};
use super::remote::Remote;
use super::writer::Writer;
use crate::base::budget::{Budget, Permit};
use crate::sftp::tasks::{First, Inbox, Outbox, Tasks, mailbox};
use crate::sftp::{Answer, Target};

/// Appends of small files up to this length do not wait for the budget that bags share.
const SMALL: usize = 64 << 10;

/// What the caller tells the task. The end of messages without a commit abandons the file.
enum Message {
    Append(Vec<u8>, Option<Permit>),
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
        Self { outbox, state, budget: budget.clone(), class }
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
        let permit = (!free).then(|| self.budget.take(u64::try_from(bytes.len()).unwrap_or(u64::MAX)));
        self.outbox.send(Message::Append(bytes, permit));
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
    if created {
        writer.remove().await;
    }
    state.tell(|told| told.failed = Some(failed.duplicate()));
    // The caller may be waiting for room or on its way to commit: take all it sends, and tell it there.
    while let Some(message) = inbox.next().await {
        if let Message::Commit(_, completer) = message {
            completer.complete(Err(failed));
            return;
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
            Some(Message::Append(bytes, permit)) => writer.append(&bytes, permit),
            Some(Message::Finish) => writer.close().await?,
            Some(Message::Commit(name, completer)) => return Ok(Some((name, completer))),
            None => return Ok(None),
        }
    }
}
