//! Sizes of chunks.

use serde::{Deserialize, Serialize};

/// Sizes of chunks, in bytes; part of a repository's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// No chunk is smaller, except the last of a file.
    pub min: u32,
    /// About the mean; a power of two is best.
    pub avg: u32,
    /// No chunk is larger.
    pub max: u32,
}

impl Default for Limits {
    /// 128 KiB, 512 KiB, 2 MiB.
    fn default() -> Self {
        Self { min: 128 << 10, avg: 512 << 10, max: 2 << 20 }
    }
}

/// Sizes that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "chunk sizes of {} to {} bytes, {} on average, cannot be used: they must be even, grow, and lie between 64 bytes and 16 MiB (the average between 256 bytes and 4 MiB)",
    limits.min, limits.max, limits.avg
)]
pub struct BadLimits {
    limits: Limits,
}

impl Limits {
    /// The limits, if the chunker can work with them.
    ///
    /// # Errors
    /// When they do not grow from `min` to `max`, are odd, or too small or large for anything.
    pub fn checked(self) -> Result<Self, BadLimits> {
        let Self { min, avg, max } = self;
        let even = [min, avg, max].iter().all(|size| size % 2 == 0);
        let valid =
            even && min >= 64 && avg >= 256 && min < avg && avg < max && max <= 16 << 20 && avg <= 4 << 20;
        if valid { Ok(self) } else { Err(BadLimits { limits: self }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_must_grow() {
        assert!(Limits::default().checked().is_ok());
        let good = Limits { min: 64, avg: 256, max: 1024 };
        assert!(good.checked().is_ok());
        for bad in [
            Limits { min: 62, ..good },
            Limits { min: 65, ..good },
            Limits { min: 256, ..good },
            Limits { avg: 1024, ..good },
            Limits { max: 32 << 20, ..good },
            Limits { min: 0, avg: 0, max: 0 },
        ] {
            assert!(bad.checked().is_err(), "{bad:?}");
        }
    }
}
