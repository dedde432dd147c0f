//! Many requests under way at once, answered in order, with a bound on what they bring.

use std::collections::VecDeque;

use super::FsckError;
use crate::store::{Pending, StoreError};

/// Bytes that answers under way may bring together.
pub const WINDOW: u64 = 32 << 20;

/// A flight that has taken off: what fits the window was asked for, and nothing waited for yet.
pub struct Flight<K, T, I, A> {
    keys: I,
    ask: A,
    under_way: VecDeque<(K, u64, Pending<T>)>,
    bytes: u64,
}

impl<K, T, I, A> Flight<K, T, I, A>
where
    I: Iterator<Item = K>,
    A: FnMut(&K) -> (u64, Pending<T>),
{
    /// Asks for as many of `keys` as fit the window. `ask` starts a request and says how many bytes its answer may have.
    pub fn take_off(keys: impl IntoIterator<Item = K, IntoIter = I>, ask: A) -> Self {
        let mut flight = Self { keys: keys.into_iter(), ask, under_way: VecDeque::new(), bytes: 0 };
        while flight.bytes <= WINDOW && flight.ask_next() {}
        flight
    }

    fn ask_next(&mut self) -> bool {
        let Some(key) = self.keys.next() else { return false };
        let (len, pending) = (self.ask)(&key);
        self.under_way.push_back((key, len, pending));
        self.bytes = self.bytes.saturating_add(len);
        true
    }

    /// Hands out the answers in the order of the keys, and asks for the rest meanwhile.
    ///
    /// # Errors
    /// The first that `answered` returns.
    pub fn land(
        mut self,
        mut answered: impl FnMut(K, Result<T, StoreError>) -> Result<(), FsckError>,
    ) -> Result<(), FsckError> {
        loop {
            while (self.bytes <= WINDOW || self.under_way.is_empty()) && self.ask_next() {}
            let Some((key, len, pending)) = self.under_way.pop_front() else { return Ok(()) };
            self.bytes = self.bytes.saturating_sub(len);
            answered(key, pending.wait())?;
        }
    }
}

/// Takes off and lands at once: asks for each of `keys`, about [`WINDOW`] bytes ahead, and hands out the answers in the order of the keys. One serial wait when they all
/// fit the window; else the link is kept busy.
///
/// # Errors
/// The first that `answered` returns.
pub fn fly<K, T>(
    keys: impl IntoIterator<Item = K>,
    ask: impl FnMut(&K) -> (u64, Pending<T>),
    answered: impl FnMut(K, Result<T, StoreError>) -> Result<(), FsckError>,
) -> Result<(), FsckError> {
    Flight::take_off(keys, ask).land(answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_order_and_few_are_ahead() {
        let (mut asked, mut heard) = (0u64, Vec::new());
        let ahead = std::cell::Cell::new(0u64);
        let ask = |key: &u64| {
            asked += 1;
            ahead.set(ahead.get() + 1);
            assert!(ahead.get() <= 6);
            (WINDOW / 4, Pending::ready(Ok(*key)))
        };
        let answered = |key, answer: Result<u64, StoreError>| {
            ahead.set(ahead.get() - 1);
            assert_eq!(answer.unwrap(), key);
            heard.push(key);
            Ok(())
        };
        fly(0..20, ask, answered).unwrap();
        assert_eq!((asked, heard), (20, (0..20).collect()));
    }
}
