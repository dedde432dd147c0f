//! An answer that is under way.

use crossbeam_channel::{Receiver, Sender, bounded};

use super::error::{ErrorKind, StoreError};

/// The result of a request that was started: wait for it when it is needed. Dropping it does not cancel the request.
#[must_use = "a failure would go unnoticed"]
pub struct Pending<T>(Inner<T>);

enum Inner<T> {
    Ready(Result<T, StoreError>),
    Later(Receiver<Result<T, StoreError>>),
    Then(Box<dyn Derived<T>>),
}

/// A result made from another one when it is waited for.
trait Derived<T>: Send {
    fn wait(self: Box<Self>) -> Result<T, StoreError>;
    fn is_ready(&self) -> bool;
}

struct Then<T, F> {
    first: Pending<T>,
    then: F,
}

impl<T: Send, U, F> Derived<U> for Then<T, F>
where
    F: FnOnce(Result<T, StoreError>) -> Result<U, StoreError> + Send,
{
    fn wait(self: Box<Self>) -> Result<U, StoreError> {
        (self.then)(self.first.wait())
    }

    fn is_ready(&self) -> bool {
        self.first.is_ready()
    }
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
            Inner::Then(derived) => derived.wait(),
        }
    }

    /// Whether waiting would not block.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Inner::Ready(_) => true,
            Inner::Later(receiver) => !receiver.is_empty(),
            Inner::Then(derived) => derived.is_ready(),
        }
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Applies `then` to a success when it is waited for.
    pub fn and_then<U: 'static>(
        self,
        then: impl FnOnce(T) -> Result<U, StoreError> + Send + 'static,
    ) -> Pending<U> {
        self.then(move |result| result.and_then(then))
    }

    /// Applies `then` to the result, be it a failure, when it is waited for; never if nobody waits.
    pub fn then<U: 'static>(
        self,
        then: impl FnOnce(Result<T, StoreError>) -> Result<U, StoreError> + Send + 'static,
    ) -> Pending<U> {
        Pending(Inner::Then(Box::new(Then { first: self, then })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_derived_is_ready_when_its_origin_is() {
        let (completer, pending) = Pending::<u8>::later();
        let derived = pending.and_then(|number| Ok(number + 1));
        assert!(!derived.is_ready());
        completer.complete(Ok(1));
        assert!(derived.is_ready());
        assert_eq!(derived.wait().unwrap(), 2);
    }

    #[test]
    fn whoever_goes_away_without_an_answer_is_unreachable() {
        let (completer, pending) = Pending::<u8>::later();
        drop(completer);
        let kind = pending.then(|result| Ok(result.unwrap_err().kind)).wait();
        assert_eq!(kind.unwrap(), ErrorKind::Unreachable);
    }
}
