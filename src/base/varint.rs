//! Whole numbers in as few bytes as they need: seven bits a byte, the lowest first, the top bit set while more follow
//! (LEB128, as DWARF and Protocol Buffers have it).

/// Appends `value`: one byte below 128, at most ten.
pub fn put(out: &mut Vec<u8>, value: u64) {
    let mut rest = value;
    loop {
        let [low, ..] = rest.to_le_bytes();
        rest >>= 7;
        if rest == 0 {
            out.push(low & 0x7f);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Takes a number from the front of `bytes`; `None` when they end within it or it does not fit 64 bits.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Takes a number that must fit 32 bits.
pub fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    u32::try_from(take(bytes)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn there_and_back(value: u64) {
            let mut out = Vec::new();
            put(&mut out, value);
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while take(&mut rest).is_some() {}
        }
    }

    #[test]
    fn too_large_or_cut_off() {
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take_u32(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), None);
    }
}
