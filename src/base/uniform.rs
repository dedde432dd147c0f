//! Hash maps whose keys are uniform already: random ids, and keyed hashes, which nobody without the key can make collide. Hashing them again is waste.

use std::hash::{BuildHasherDefault, Hasher};

/// For `HashMap` and `HashSet` of such keys.
pub type Uniform = BuildHasherDefault<AsItIs>;

/// Hashes a key by its last eight bytes: those that are looked at together often begin alike.
#[derive(Debug, Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        match bytes.last_chunk() {
            Some(last) => self.0 ^= u64::from_le_bytes(*last),
            None => bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte)),
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }

    /// A length tells nothing of keys that all have the same.
    fn write_usize(&mut self, _len: usize) {}
}
