//! An answer that is under way.

use crossbeam_channel::{Receiver, Sender, bounded};

use super::error::{ErrorKind, StoreError};

/// The result of a request that was started: wait for it when it is needed. Dropping it does not cancel the request.
#[must_use = "a failure would go unnoticed"]
pub struct Pending<T>(Inner<T>);

enum Inner<T> {
    Ready(Result<T, StoreError>),
    Later(Receiver<Result<T, StoreError>>),
    Then(Box<dyn FnOnce() -> Result<T, StoreError> + Send>),
}

/// The other end of a [`Pending`].
#[derive(Debug)]
pub struct Completer<T>(Sender<Result<T, StoreError>>);

impl<T> Completer<T> {
    /// Hands the result over.
    pub fn complete(self, result: Result<T, StoreError>) {
        // Nobody waiting any more is no failure of the request.
        let _ = self.0.send(result);
    }
}

impl<T> Pending<T> {
    /// A result that is there.
    pub fn ready(result: Result<T, StoreError>) -> Self {
        Self(Inner::Ready(result))
    }

    /// A result to come, and who brings it.
    pub fn later() -> (Completer<T>, Self) {
        let (sender, receiver) = bounded(1);
        (Completer(sender), Self(Inner::Later(receiver)))
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// The request's failure; `Unreachable` when whoever was to answer is gone.
    pub fn wait(self) -> Result<T, StoreError> {
        match self.0 {
            Inner::Ready(result) => result,
            Inner::Later(receiver) => receiver.recv().unwrap_or_else(|_| {
                Err(StoreError::new(
                    ErrorKind::Unreachable,
                    "reach",
                    "the repository",
                    "the connection was closed",
                ))
            }),
            Inner::Then(wait) => wait(),
        }
    }

    /// Whether waiting would not block.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Inner::Ready(_) => true,
            Inner::Later(receiver) => !receiver.is_empty(),
            Inner::Then(_) => false,
        }
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Applies `then` to the result when it is waited for.
    pub fn and_then<U: 'static>(
        self,
        then: impl FnOnce(T) -> Result<U, StoreError> + Send + 'static,
    ) -> Pending<U> {
        Pending(Inner::Then(Box::new(move || self.wait().and_then(then))))
    }
}
