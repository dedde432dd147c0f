//! Identifiers as types, so that a bag's can never stand where a segment's belongs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {what} of {digits} hexadecimal digits")]
pub struct BadId {
    text: String,
    what: &'static str,
    digits: usize,
}

fn unhex<const N: usize>(text: &str, what: &'static str) -> Result<[u8; N], BadId> {
    let bad = || BadId { text: text.chars().take(80).collect(), what, digits: 2 * N };
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return Err(bad());
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        match pair {
            [high, low] => {
                let (high, low) = (digit(*high).ok_or_else(bad)?, digit(*low).ok_or_else(bad)?);
                *byte = (high << 4) | low;
            }
            _ => return Err(bad()),
        }
    }
    Ok(bytes)
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $len:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $len;

            /// The bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }

            /// The identifier whose bytes these are; `None` for another length.
            #[must_use]
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                unhex(text, $what).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_bytes(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let bytes = serde_bytes::ByteArray::<$len>::deserialize(deserializer)?;
                Ok(Self(bytes.into_array()))
            }
        }
    };
}

macro_rules! random_id {
    ($name:ident) => {
        impl $name {
            /// A fresh one from the operating system's random numbers.
            ///
            /// # Panics
            /// If the operating system gives no random numbers, since nothing can be sealed then.
            #[must_use]
            pub fn random() -> Self {
                Self(super::random_bytes())
            }
        }
    };
}

id!(
    /// Names an object (a chunk or a DIR page): the keyed BLAKE3 hash of its contents.
    ObjectId, 32, "an object id"
);
id!(
    /// Names a bag; random, and never used for two contents.
    BagId, 16, "a bag id"
);
id!(
    /// Names an index segment; random.
    SegmentId, 16, "a segment id"
);
id!(
    /// Names a generation (and the session that makes it); random.
    GenerationId, 8, "a generation id"
);
id!(
    /// Names a repository; random, made by `init`.
    RepositoryId, 16, "a repository id"
);
id!(
    /// Names a key slot; random.
    KeySlotId, 8, "a key slot id"
);
id!(
    /// Stands for a client's name in file names: a keyed hash, so that a server learns no names.
    ClientId, 16, "a client id"
);
id!(
    /// Names a file of tags; random.
    TagsId, 8, "an id of tags"
);
id!(
    /// Names a record of garbage collection (`condemned/`, `moved/`); random.
    CollectionId, 16, "a collection id"
);

random_id!(BagId);
random_id!(SegmentId);
random_id!(GenerationId);
random_id!(RepositoryId);
random_id!(KeySlotId);
random_id!(CollectionId);
random_id!(TagsId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let id = BagId::random();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().len(), 32);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "00", "0g000000000000000", "ABCDEF0123456789", "é0000000000000"] {
            assert!(text.parse::<GenerationId>().is_err(), "{text}");
        }
    }
}
