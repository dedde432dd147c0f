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
