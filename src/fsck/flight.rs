//! Many requests under way at once, answered in order, with a bound on what they bring.

use std::collections::VecDeque;

use super::FsckError;
use crate::store::{Pending, StoreError};

/// Bytes that answers under way may bring together.
pub const WINDOW: u64 = 32 << 20;

/// Asks for each of `keys`, at most [`WINDOW`] bytes ahead, and hands out the answers in the order of the keys. One serial wait when they all
/// fit the window; else the link is kept busy.
///
/// `ask` starts a request and says how many bytes its answer may have.
///
/// # Errors
/// The first that `answered` returns.
pub fn fly<K, T>(
    keys: impl IntoIterator<Item = K>,
    mut ask: impl FnMut(&K) -> (u64, Pending<T>),
    mut answered: impl FnMut(K, Result<T, StoreError>) -> Result<(), FsckError>,
) -> Result<(), FsckError> {
    let mut under_way: VecDeque<(K, u64, Pending<T>)> = VecDeque::new();
    let mut bytes = 0u64;
    let mut land = |under_way: &mut VecDeque<(K, u64, Pending<T>)>, bytes: &mut u64| {
        let Some((key, len, pending)) = under_way.pop_front() else { return Ok(()) };
        *bytes = bytes.saturating_sub(len);
        answered(key, pending.wait())
    };
    for key in keys {
        let (len, pending) = ask(&key);
        under_way.push_back((key, len, pending));
        bytes = bytes.saturating_add(len);
        while bytes > WINDOW && under_way.len() > 1 {
            land(&mut under_way, &mut bytes)?;
        }
    }
    while !under_way.is_empty() {
        land(&mut under_way, &mut bytes)?;
    }
    Ok(())
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
            assert!(ahead.get() <= 5);
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
