//! Where composed operations run: tasks that follow one answer with the next request.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// How long the end of tasks is waited for when their owner goes: they may still have a file to remove.
const END: Duration = Duration::from_secs(1);

/// Runs tasks on a thread of its own.
#[derive(Debug)]
pub struct Tasks {
    runtime: Option<Runtime>,
    running: Arc<Running>,
}

#[derive(Debug, Default)]
struct Running {
    count: Mutex<usize>,
    ended: Condvar,
}

/// Counts a task while it lives, even if it is dropped halfway.
struct Counted(Arc<Running>);

impl Counted {
    fn new(running: &Arc<Running>) -> Self {
        let mut count = running.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_add(1);
        Self(running.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_sub(1);
        self.0.ended.notify_all();
    }
}

impl Tasks {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives none.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("sftp-tasks").build()?;
        Ok(Self { runtime: Some(runtime), running: Arc::default() })
    }

    /// Starts a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            let counted = Counted::new(&self.running);
            runtime.spawn(async move {
                task.await;
                drop(counted);
            });
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        let count = self.running.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.running.ended.wait_timeout_while(count, END, |count| *count > 0);
        drop(waited);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END);
        }
    }
}

/// Sends messages to a task, from any thread.
#[derive(Debug)]
pub struct Outbox<T>(mpsc::UnboundedSender<T>);

/// Receives a task's messages.
#[derive(Debug)]
pub struct Inbox<T>(mpsc::UnboundedReceiver<T>);

/// A way for messages; what bounds them is up to the sender.
#[must_use]
pub fn mailbox<T>() -> (Outbox<T>, Inbox<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Outbox(sender), Inbox(receiver))
}

impl<T> Outbox<T> {
    /// Sends a message. When the task has ended the message is dropped.
    pub fn send(&self, message: T) {
        drop(self.0.send(message));
    }
}

/// What came first.
#[derive(Debug)]
pub enum First<T, A> {
    /// A message; `None` when the sender is gone.
    Message(Option<T>),
    /// The answer.
    Answer(A),
}

impl<T> Inbox<T> {
    /// The next message; `None` when the sender is gone and all were received.
    pub async fn next(&mut self) -> Option<T> {
        self.0.recv().await
    }

    /// The next message, or `answer` if that comes first.
    pub async fn next_or<A>(&mut self, answer: &mut (impl Future<Output = A> + Unpin)) -> First<T, A> {
        poll_fn(|context| {
            if let Poll::Ready(answer) = Pin::new(&mut *answer).poll(context) {
                return Poll::Ready(First::Answer(answer));
            }
            self.0.poll_recv(context).map(First::Message)
        })
        .await
    }
}
