//! Choosing at random from a stream of unknown length.

use crate::base::random_bytes;

/// Keeps so many of what it is offered, each with the same probability (algorithm R of Vitter, 1985).
pub struct Reservoir<T> {
    most: usize,
    offered: u64,
    kept: Vec<T>,
    state: u64,
}

impl<T> Reservoir<T> {
    /// Will keep at most this many.
    pub fn new(most: usize) -> Self {
        Self { most, offered: 0, kept: Vec::new(), state: u64::from_le_bytes(random_bytes()) }
    }

    /// Offers one more, which is made only if it is kept.
    pub fn offer(&mut self, make: impl FnOnce() -> T) {
        self.offered = self.offered.saturating_add(1);
        if self.kept.len() < self.most {
            return self.kept.push(make());
        }
        let at = self.next() % self.offered;
        if let Some(place) = usize::try_from(at).ok().and_then(|at| self.kept.get_mut(at)) {
            *place = make();
        }
    }

    /// Those that were kept.
    pub fn chosen(self) -> Vec<T> {
        self.kept
    }

    /// `SplitMix64`: nothing secret depends on it.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_chosen_about_as_often() {
        let mut times = [0u32; 20];
        for _ in 0..4000 {
            let mut reservoir = Reservoir::new(5);
            (0..20).for_each(|number| reservoir.offer(|| number));
            let chosen = reservoir.chosen();
            assert_eq!(chosen.len(), 5);
            chosen.into_iter().for_each(|number: usize| times[number] += 1);
        }
        // A thousand each is expected; this is more than eight standard deviations from it.
        assert!(times.iter().all(|times| (750..1250).contains(times)), "{times:?}");
    }

    #[test]
    fn few_are_all_kept() {
        let mut reservoir = Reservoir::new(5);
        (0..3).for_each(|number| reservoir.offer(|| number));
        assert_eq!(reservoir.chosen(), [0, 1, 2]);
    }
}
