//! Reading a part of all data, and the next part another time.
//!
//! Bags are read in the order of their ids, which are random, and each run goes on behind the bag that was read last: after twenty runs of five per cent everything was read once, and whatever was added meanwhile
//! comes in its turn.

use std::time::Duration;

use super::bags::{BagNo, Bags};
use crate::base::id::BagId;

/// Parts of a million.
const WHOLE: u64 = 1_000_000;

/// How much of the data to read. By default all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Portion {
    /// Begin behind this bag, in the order of ids, and go on from the first one after the last.
    pub after: Option<BagId>,
    /// Read about so many millionths of the bytes.
    pub share: Option<u32>,
    /// Begin no further bag after this time.
    pub time: Option<Duration>,
}

impl Portion {
    /// These bags in the order in which they are to be read.
    pub fn ordered(&self, bags: &Bags, mut numbers: Vec<BagNo>) -> Vec<BagNo> {
        if let Some(after) = self.after {
            // Numbers are in the order of ids.
            let first = numbers.partition_point(|number| bags.id_of(*number).is_some_and(|id| id <= after));
            numbers.rotate_left(first);
        }
        numbers
    }

    /// Whether no further bag shall be begun, `read` of `total` bytes being read and so much time having passed.
    #[must_use]
    pub fn is_enough(&self, read: u64, total: u64, time: Duration) -> bool {
        let wanted = self.share.map(|share| u128::from(total) * u128::from(share) / u128::from(WHOLE));
        wanted.is_some_and(|wanted| u128::from(read) >= wanted.max(1))
            || self.time.is_some_and(|most| time >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_is_a_share_or_a_time() {
        let second = Duration::from_secs(1);
        assert!(!Portion::default().is_enough(u64::MAX, 1, second));
        let share = Portion { share: Some(50_000), ..Portion::default() };
        assert_eq!(
            [0, 49, 50, 1000].map(|read| share.is_enough(read, 1000, second)),
            [false, false, true, true]
        );
        // At least one bag, however little the share.
        assert!(!share.is_enough(0, 1, second));
        let time = Portion { time: Some(second), ..Portion::default() };
        assert_eq!([0, 1, 2].map(|secs| time.is_enough(0, 9, secs * second)), [false, true, true]);
    }
}
