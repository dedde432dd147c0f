//! Numbers that look random, by a seed.

/// A generator of them.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// One of them, if there is any.
    pub fn choose<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let len = u64::try_from(among.len()).unwrap();
        (len > 0).then(|| &among[usize::try_from(self.roll(len)).unwrap()])
    }
}
