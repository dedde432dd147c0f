//! From a passphrase to a key: Argon2id, which makes every guess cost memory and time.

use std::time::Duration;

use argon2::{Algorithm, Argon2, Params, Version};
use zeroize::Zeroize as _;

use crate::base::secret::{Key32, Passphrase};
use crate::base::time::Clock;

/// Bytes of a salt.
pub const SALT_LEN: usize = 16;

/// The most memory that a key slot may ask for, in KiB: 1 GiB.
pub const MAX_MEMORY_KIB: u32 = 1 << 20;
/// The most passes over it.
pub const MAX_PASSES: u32 = 32;
/// The most lanes.
pub const MAX_LANES: u32 = 16;

/// What a guess costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

/// A cost that would take all memory, or next to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "Argon2id with {memory_kib} KiB, {passes} passes and {lanes} lanes is out of bounds: \
     1 pass and lane and 8 KiB per lane at least, {MAX_MEMORY_KIB} KiB, {MAX_PASSES} passes and {MAX_LANES} lanes at most"
)]
pub struct CostOutOfBounds {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

impl Cost {
    /// For tests: no protection, and no time.
    #[cfg(test)]
    pub(crate) const TRIFLE: Self = Self { memory_kib: 8, passes: 1, lanes: 1 };

    /// A cost that is within bounds. The lanes are worked on one after another.
    ///
    /// # Errors
    /// When it is not.
    pub fn new(memory_kib: u32, passes: u32, lanes: u32) -> Result<Self, CostOutOfBounds> {
        let lanes_fit = (1..=MAX_LANES).contains(&lanes) && memory_kib / 8 >= lanes;
        if lanes_fit && memory_kib <= MAX_MEMORY_KIB && (1..=MAX_PASSES).contains(&passes) {
            Ok(Self { memory_kib, passes, lanes })
        } else {
            Err(CostOutOfBounds { memory_kib, passes, lanes })
        }
    }

    /// Memory, in KiB.
    #[must_use]
    pub fn memory_kib(self) -> u32 {
        self.memory_kib
    }

    /// Passes over the memory.
    #[must_use]
    pub fn passes(self) -> u32 {
        self.passes
    }

    /// Lanes the memory is divided into.
    #[must_use]
    pub fn lanes(self) -> u32 {
        self.lanes
    }
}

/// How long opening a slot shall take on the machine that makes it.
const WANTED: Duration = Duration::from_millis(250);

impl Cost {
    /// A cost that takes this machine about a quarter of a second, and never less than the default: 64 MiB, and as many passes as that allows. Measuring takes a pass or two.
    #[must_use]
    pub fn calibrated(clock: &dyn Clock) -> Self {
        let one = Self { passes: 1, ..Self::default() };
        let measure = || {
            let begun = clock.monotonic();
            derive(&Passphrase::new(b"how long does it take?".to_vec()), &[0; SALT_LEN], one)?;
            Some(clock.monotonic().saturating_sub(begun))
        };
        // The first one also asks the system for the memory.
        let (Some(first), Some(second)) = (measure(), measure()) else { return Self::default() };
        let passes = WANTED.as_micros() / first.min(second).as_micros().max(1);
        let most = u128::from(MAX_PASSES);
        let passes = u32::try_from(passes.min(most)).unwrap_or(MAX_PASSES).max(Self::default().passes);
        Self { passes, ..one }
    }
}

impl Default for Cost {
    /// 64 MiB, three passes, one lane: about a tenth of a second, and what RFC 9106 recommends where memory is short.
    fn default() -> Self {
        Self { memory_kib: 64 << 10, passes: 3, lanes: 1 }
    }
}

/// The key of a passphrase: Argon2id, version 1.3, 32 bytes, no secret and no associated data. `None` when there is not that much memory.
pub(super) fn derive(passphrase: &Passphrase, salt: &[u8; SALT_LEN], cost: Cost) -> Option<Key32> {
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).ok()?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let mut key = [0; 32];
    argon2.hash_password_into(passphrase.expose(), salt, &mut key).ok()?;
    let derived = Key32::new(key);
    key.zeroize();
    Some(derived)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::base::time::Timestamp;

    #[test]
    fn no_bomb_and_no_trifle() {
        assert!(Cost::new(8, 1, 1).is_ok());
        assert!(Cost::new(MAX_MEMORY_KIB, MAX_PASSES, MAX_LANES).is_ok());
        let default = Cost::default();
        assert_eq!(Cost::new(default.memory_kib, default.passes, default.lanes), Ok(default));
        for (memory, passes, lanes) in [
            (MAX_MEMORY_KIB + 1, 1, 1),
            (u32::MAX, 1, 1),
            (8, MAX_PASSES + 1, 1),
            (1024, 1, MAX_LANES + 1),
            (8, 0, 1),
            (8, 1, 0),
            (7, 1, 1),
            (8, 1, 2),
            (0, 0, 0),
        ] {
            assert!(Cost::new(memory, passes, lanes).is_err(), "{memory} {passes} {lanes}");
        }
    }

    /// A clock on which so much time passes at each look.
    struct Steps(AtomicU64, u64);

    impl Clock for Steps {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(self.1, Ordering::Relaxed))
        }
    }

    #[test]
    fn the_cost_fits_the_machine() {
        let passes = |millis| Cost::calibrated(&Steps(AtomicU64::new(0), millis)).passes;
        assert_eq!([0, 1, 10, 50, 200, 10_000].map(passes), [32, 32, 25, 5, 3, 3]);
        assert_eq!(Cost::calibrated(&Steps(AtomicU64::new(0), 1)).memory_kib, Cost::default().memory_kib);
    }

    #[test]
    fn the_salt_and_every_cost_count() {
        let passphrase = Passphrase::new(b"correct horse".to_vec());
        let key = |salt: u8, cost: Cost| *derive(&passphrase, &[salt; SALT_LEN], cost).unwrap().expose();
        let trifle = Cost { memory_kib: 16, passes: 1, lanes: 1 };
        let mut keys = vec![
            key(1, trifle),
            key(2, trifle),
            key(1, Cost { memory_kib: 24, ..trifle }),
            key(1, Cost { passes: 2, ..trifle }),
            key(1, Cost { lanes: 2, ..trifle }),
        ];
        assert_eq!(key(1, trifle), keys[0]);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 5);
    }
}
