//! Where the next chunk ends.

use std::fmt;
use std::sync::Arc;

use fastcdc::v2020::{MASKS, cut_gear};

use super::limits::Limits;

/// Finds the ends of chunks; clones share its tables.
#[derive(Clone)]
pub struct Cutter {
    limits: Limits,
    min: usize,
    avg: usize,
    max: usize,
    /// For the first part of a chunk, up to the average: one bit more than the average's, so that few end there.
    mask_small: u64,
    /// For what follows: one bit less.
    mask_large: u64,
    gear: Arc<Gear>,
}

/// The numbers that the rolling hash adds for each byte, and their doubles (two bytes are rolled at a time).
struct Gear {
    once: [u64; 256],
    twice: [u64; 256],
}

impl Cutter {
    /// A cutter for `limits` (that were [`checked`](Limits::checked)) and a gear table, which is secret.
    #[must_use]
    pub fn new(limits: Limits, gear: [u64; 256]) -> Self {
        let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        let bits = limits.avg.max(256).ilog2();
        let mask = |bits: u32| {
            let index = usize::try_from(bits).unwrap_or_default();
            MASKS.get(index).copied().unwrap_or(u64::MAX)
        };
        Self {
            limits,
            min: size(limits.min),
            avg: size(limits.avg),
            max: size(limits.max),
            mask_small: mask(bits + 1),
            mask_large: mask(bits - 1),
            gear: Arc::new(Gear { twice: gear.map(|number| number << 1), once: gear }),
        }
    }

    /// The sizes it keeps.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The length of the largest chunk: with so many bytes at hand the next end is always found.
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// The length of the first chunk of `bytes`; `None` when more bytes are needed to tell. `last` says that
    /// no more will come: then it is `None` only when nothing is left.
    #[must_use]
    pub fn cut(&self, bytes: &[u8], last: bool) -> Option<usize> {
        if bytes.is_empty() || (!last && bytes.len() < self.max) {
            return None;
        }
        let (_, end) = cut_gear(
            bytes,
            self.min,
            self.avg,
            self.max,
            self.mask_small,
            self.mask_large,
            self.mask_small << 1,
            self.mask_large << 1,
            &self.gear.once,
            &self.gear.twice,
        );
        Some(end)
    }
}

impl fmt::Debug for Cutter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cutter").field("limits", &self.limits).finish_non_exhaustive()
    }
}
