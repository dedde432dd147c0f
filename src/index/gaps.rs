//! A sorted list of random 64-bit numbers, coded by its gaps.
//!
//! Fingerprints are uniform, so the gaps between n of them are about 2^64 / n: Rice's code writes the part of a gap above
//! `k` bits in unary (that many ones and a zero) and the lower `k` bits as they are. It takes 64 − log2(n) + 1.6 bits a
//! number, within a tenth of a bit of what any code could do: an eighth less than the plain 8 bytes for a bag of a
//! thousand objects. Bits fill each byte from its highest; the last byte is filled up with zeros.
#![warn(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

/// The low bits of a gap that are written as they are, in a list of `count` numbers (at least one).
fn low_bits(count: u32) -> u32 {
    63_u32.saturating_sub(count.checked_ilog2().unwrap_or(0))
}

/// Codes numbers that ascend (equal neighbours allowed).
#[must_use]
pub fn encode(sorted: &[u64]) -> Vec<u8> {
    let low = low_bits(u32::try_from(sorted.len()).unwrap_or(u32::MAX));
    let mut bits = BitWriter::default();
    let mut last = 0_u64;
    for &number in sorted {
        let gap = number.wrapping_sub(last);
        for _ in 0..gap.checked_shr(low).unwrap_or(0) {
            bits.push(1, 1);
        }
        bits.push(0, 1);
        bits.push(gap & mask(low), low);
        last = number;
    }
    bits.finish()
}

/// The `count` numbers that `bytes` code; `None` when they do not code exactly that many, or not in the one way that
/// [`encode`] does. Takes memory for what is there, whatever `count` says.
#[must_use]
pub fn decode(bytes: &[u8], count: u32) -> Option<Vec<u64>> {
    let low = low_bits(count);
    let least = u64::from(count).checked_mul(u64::from(low).checked_add(1)?)?;
    if least > u64::try_from(bytes.len()).ok()?.checked_mul(8)? {
        return None;
    }
    let mut bits = BitReader { bytes, at: 0 };
    let mut numbers = Vec::with_capacity(usize::try_from(count).ok()?);
    let mut last = 0_u64;
    for _ in 0..count {
        let high = bits.ones()?;
        let gap = high.checked_mul(1_u64.checked_shl(low)?)?.checked_add(bits.take(low)?)?;
        last = last.checked_add(gap)?;
        numbers.push(last);
    }
    bits.is_finished().then_some(numbers)
}

fn mask(bits: u32) -> u64 {
    1_u64.checked_shl(bits).map_or(u64::MAX, |above| above.wrapping_sub(1))
}

#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    /// Bits not yet written, in the low `held` (fewer than 8) bits.
    pending: u128,
    held: u32,
}

impl BitWriter {
    /// Appends the low `count` (at most 64) bits of `value`.
    fn push(&mut self, value: u64, count: u32) {
        self.pending = (self.pending << count) | u128::from(value);
        self.held = self.held.saturating_add(count);
        while self.held >= 8 {
            self.held = self.held.saturating_sub(8);
            self.bytes.push(u8::try_from((self.pending >> self.held) & 0xff).unwrap_or(0));
            self.pending &= (1_u128 << self.held).wrapping_sub(1);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.held > 0 {
            self.push(0, 8_u32.saturating_sub(self.held));
        }
        self.bytes
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    /// The next bit.
    at: usize,
}

impl BitReader<'_> {
    /// The next 64 bits, zeros where there are no more.
    fn window(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let mut next = [0_u8; 16];
        for (to, from) in next.iter_mut().zip(rest.iter().take(9)) {
            *to = *from;
        }
        let shifted = u128::from_be_bytes(next).wrapping_shl(u32::try_from(self.at % 8).unwrap_or(0));
        u64::try_from(shifted >> 64).unwrap_or(0)
    }

    fn advance(&mut self, bits: u32) -> Option<()> {
        self.at = self.at.checked_add(usize::try_from(bits).ok()?)?;
        (self.at <= self.bytes.len().checked_mul(8)?).then_some(())
    }

    /// How many ones come next; the zero after them is skipped.
    fn ones(&mut self) -> Option<u64> {
        let mut count = 0_u64;
        loop {
            let ones = self.window().leading_ones();
            count = count.checked_add(u64::from(ones))?;
            if ones < 64 {
                self.advance(ones.checked_add(1)?)?;
                return Some(count);
            }
            self.advance(64)?;
        }
    }

    /// The next `count` (at most 63) bits.
    fn take(&mut self, count: u32) -> Option<u64> {
        let bits = self.window().checked_shr(64_u32.checked_sub(count)?).unwrap_or(0);
        self.advance(count)?;
        Some(bits)
    }

    /// Whether nothing is left but the zeros that fill the last byte.
    fn is_finished(&self) -> bool {
        self.at.div_ceil(8) == self.bytes.len() && self.window() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thousand_take_an_eighth_less_than_eight_bytes_each() {
        let mut numbers: Vec<u64> = (0..1000_u64)
            .map(|i| u64::from_le_bytes(blake3::hash(&i.to_le_bytes()).as_bytes()[..8].try_into().unwrap()))
            .collect();
        numbers.sort_unstable();
        let coded = encode(&numbers);
        assert_eq!(decode(&coded, 1000), Some(numbers));
        assert!(coded.len() < 7050, "{}", coded.len());
    }

    #[test]
    fn one_code_only() {
        assert_eq!(decode(&[], 0), Some(vec![]));
        assert_eq!(decode(&[0], 0), None);
        let coded = encode(&[7, u64::MAX]);
        assert_eq!(decode(&coded, 2), Some(vec![7, u64::MAX]));
        for cut in 0..coded.len() {
            assert_eq!(decode(&coded[..cut], 2), None);
        }
        assert_eq!(decode(&[&coded[..], &[0]].concat(), 2), None);
        assert_eq!(decode(&[0xff; 4096], u32::MAX), None);
    }

    proptest! {
        #[test]
        fn numbers_and_back(mut numbers: Vec<u64>) {
            numbers.sort_unstable();
            let count = u32::try_from(numbers.len()).unwrap();
            prop_assert_eq!(decode(&encode(&numbers), count), Some(numbers));
        }

        #[test]
        fn whatever_decodes_encodes_to_the_same(bytes: Vec<u8>, count in 0_u32..20) {
            if let Some(numbers) = decode(&bytes, count) {
                prop_assert_eq!(encode(&numbers), bytes);
            }
        }
    }
}
