//! The one place that knows CBOR.
//!
//! Structures are written as maps whose keys are the field's position (`serde_cbor`'s packed form), so
//! a field costs one byte, a reader skips fields it does not know, and a missing one takes its
//! default. `serde_cbor` is archived: nothing else may name it, so that `ciborium` or `minicbor` can
//! take its place here.

use serde::{Deserialize, Serialize};

/// Bytes that are not the CBOR of what was expected.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Not the CBOR of this type.
    #[error("not a valid {what}")]
    Invalid {
        /// The type, in words.
        what: &'static str,
        /// What the decoder found.
        source: serde_cbor::Error,
    },
    /// More bytes than such a thing can have.
    #[error("{what} of {len} bytes is longer than the {limit} allowed")]
    TooLong {
        /// The type, in words.
        what: &'static str,
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        limit: usize,
    },
}

/// Encodes a value; equal values give equal bytes.
///
/// # Panics
/// Never for the types of this crate: only a type whose `Serialize` fails could do so.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    match serde_cbor::ser::to_vec_packed(value) {
        Ok(bytes) => bytes,
        Err(error) => panic!("a value that cannot be encoded: {error}"),
    }
}

/// Decodes `bytes`, which must hold exactly one value and be no longer than `limit`.
///
/// Nesting is limited by the decoder to 128 levels; lengths inside are believed only as far as bytes are there.
///
/// # Errors
/// When the bytes are too many or are not the CBOR of a `T`.
pub fn decode<'a, T: Deserialize<'a>>(
    bytes: &'a [u8],
    what: &'static str,
    limit: usize,
) -> Result<T, CodecError> {
    if bytes.len() > limit {
        return Err(CodecError::TooLong { what, len: bytes.len(), limit });
    }
    serde_cbor::from_slice(bytes).map_err(|source| CodecError::Invalid { what, source })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_cbor::Value;

    use super::*;

    /// All shapes that stored structures have.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        number: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pairs: Vec<(i64, u32)>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inner: Option<Box<Sample>>,
    }

    fn sample() -> Sample {
        let inner = Sample { number: 0, bytes: vec![], text: String::new(), pairs: vec![], inner: None };
        Sample {
            number: u64::MAX,
            bytes: vec![0, 255],
            text: "é".into(),
            pairs: vec![(-1, 7)],
            inner: Some(Box::new(inner)),
        }
    }

    fn read(bytes: &[u8]) -> Result<Sample, CodecError> {
        decode(bytes, "sample", 1 << 20)
    }

    #[test]
    fn fields_are_numbers_and_unknown_ones_are_skipped() {
        let bytes = encode(&sample());
        assert_eq!(bytes[..2], [0xa5, 0x00], "a map of five, the first of which is 0");
        assert_eq!(read(&bytes).unwrap(), sample());
        // { 0: 1, 1: h'', 2: "", 9: [true] }
        let newer = [0xa4, 0x00, 0x01, 0x01, 0x40, 0x02, 0x60, 0x09, 0x81, 0xf5];
        assert_eq!(read(&newer).unwrap().number, 1);
    }

    #[test]
    fn one_value_and_no_byte_more() {
        let mut bytes = encode(&sample());
        let len = bytes.len();
        assert!(matches!(decode::<Sample>(&bytes, "sample", len - 1), Err(CodecError::TooLong { .. })));
        bytes.push(0);
        assert!(matches!(read(&bytes), Err(CodecError::Invalid { .. })));
        for end in 0..len {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn nesting_and_lengths_are_not_believed() {
        for opening in [0x81_u8, 0xc1] {
            let deep = vec![opening; 1 << 20];
            assert!(decode::<Value>(&deep, "value", 1 << 20).is_err(), "{opening:x}");
        }
        // Strings, arrays and maps that claim 2^62 elements.
        for major in [0x5b_u8, 0x7b, 0x9b, 0xbb] {
            let mut bytes = vec![major, 0x40, 0, 0, 0, 0, 0, 0, 0];
            bytes.resize(100, 0);
            assert!(decode::<Value>(&bytes, "value", 1 << 20).is_err(), "{major:x}");
            assert!(decode::<Vec<u64>>(&bytes, "numbers", 1 << 20).is_err(), "{major:x}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let _ = decode::<Value>(&bytes, "value", 1 << 20);
        }

        #[test]
        fn damaged_bytes_are_survived(at in any::<prop::sample::Index>(), with in any::<u8>()) {
            let mut bytes = encode(&sample());
            let at = at.index(bytes.len());
            bytes[at] = with;
            if let Ok(read) = read(&bytes) {
                prop_assert_eq!(decode::<Sample>(&encode(&read), "sample", 1 << 20).unwrap(), read);
            }
        }
    }
}
