//! Sets of bag numbers.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A set as a bit for each number.
#[derive(Debug, Clone, Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// Adds numbers.
    pub(super) fn insert(&mut self, numbers: Range<u32>) {
        for number in numbers {
            let (word, mask) = place(number);
            if self.0.len() <= word {
                self.0.resize(word + 1, 0);
            }
            self.0[word] |= mask;
        }
    }

    /// Whether a number is in the set.
    #[inline]
    pub(super) fn contains(&self, number: u32) -> bool {
        let (word, mask) = place(number);
        self.0.get(word).is_some_and(|bits| bits & mask != 0)
    }
}

/// Gives each number of a set its place in it: how a table is numbered anew without its dead bags.
#[derive(Debug)]
pub(super) struct Ranks {
    bits: Bits,
    /// How many of the set come before each word.
    before: Vec<u32>,
}

impl Ranks {
    /// The places in this set.
    pub(super) fn of(bits: Bits) -> Self {
        let mut count = 0_u32;
        let before = bits
            .0
            .iter()
            .map(|word| {
                let so_far = count;
                count = count.saturating_add(word.count_ones());
                so_far
            })
            .collect();
        Self { bits, before }
    }

    /// The place of a number; `None` when it is not in the set.
    pub(super) fn rank(&self, number: u32) -> Option<u32> {
        let (at, mask) = place(number);
        let word = self.bits.0.get(at)?;
        (word & mask != 0)
            .then(|| self.before.get(at).copied().unwrap_or(0) + (word & (mask - 1)).count_ones())
    }
}

fn place(number: u32) -> (usize, u64) {
    (usize::try_from(number / 64).unwrap_or(usize::MAX), 1 << (number % 64))
}

/// A set as a list of runs (first, how many), in the order in which numbers were added: short where neighbours were added
/// one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Runs(Vec<(u32, u32)>);

impl Runs {
    /// Adds a number.
    pub(super) fn push(&mut self, number: u32) {
        match self.0.last_mut() {
            Some((first, count)) if first.checked_add(*count) == Some(number) => *count += 1,
            _ => self.0.push((number, 1)),
        }
    }

    /// The same set in new numbers; those without one are left out.
    pub(super) fn renumbered(&self, ranks: &Ranks) -> Self {
        let mut renumbered = Self::default();
        self.ranges()
            .flatten()
            .filter_map(|number| ranks.rank(number))
            .for_each(|number| renumbered.push(number));
        renumbered
    }

    /// The runs.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.0.iter().map(|&(first, count)| first..first.saturating_add(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_and_bits_remember() {
        let mut runs = Runs::default();
        for number in [5, 6, 7, 100, 8, 9] {
            runs.push(number);
        }
        assert_eq!(runs.ranges().collect::<Vec<_>>(), [5..8, 100..101, 8..10]);
        let mut bits = Bits::default();
        runs.ranges().for_each(|range| bits.insert(range));
        let held: Vec<u32> = (0..200).filter(|&number| bits.contains(number)).collect();
        assert_eq!(held, [5, 6, 7, 8, 9, 100]);
        let ranks = Ranks::of(bits);
        assert_eq!(runs.renumbered(&ranks).ranges().collect::<Vec<_>>(), [0..3, 5..6, 3..5]);
        assert_eq!(ranks.rank(99), None);
    }
}
