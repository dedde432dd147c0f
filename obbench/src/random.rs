//! Random numbers that are the same for the same seed, in every version of this program: results of different
//! commits are only comparable over the same trees.

/// `SplitMix64`: one state word, good enough for sizes, choices and data that does not compress.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence of its own for each part of a workload, so that a change of one does not move the others.
    #[must_use]
    pub fn part(seed: u64, part: u64) -> Self {
        let mut mixed = Self(seed ^ part.wrapping_mul(0xd134_2543_de82_ef95));
        Self(mixed.word())
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is taken for 1 when it is 0. Uniform but for one part in 2⁶⁴ / `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.word()) * u128::from(limit.max(1));
        u64::try_from(product >> 64).unwrap_or_default()
    }

    /// True in so many of a million cases.
    pub fn chance(&mut self, per_million: u64) -> bool {
        self.below(1_000_000) < per_million
    }

    /// Fills the buffer with bytes that do not compress.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for piece in buffer.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            piece.copy_from_slice(word.get(..piece.len()).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut random = Random::new(1);
        assert_eq!(random.word(), 0x910a_2dec_8902_5cc1);
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| random.below(7) < 7));
        let mut bytes = [0; 13];
        random.fill(&mut bytes);
        assert_ne!(bytes, [0; 13]);
    }
}
