//! Bytes with room in front.

use super::PREFIX;
use crate::crypto::seal;

/// Bytes that come before the contents of a sealed block: its nonce, and how the contents are packed.
const ROOM: usize = seal::NONCE_LEN + PREFIX;

/// Contents of a block on their way to be sealed, in a buffer that has room for what sealing adds: contents that do not compress are gathered, sealed
/// and sent in one and the same place.
#[derive(Debug)]
pub struct Roomy(Vec<u8>);

impl Default for Roomy {
    fn default() -> Self {
        Self(vec![0; ROOM])
    }
}

impl Roomy {
    /// Adds contents.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.reserve(bytes.len().saturating_add(seal::TAG_LEN));
        self.0.extend_from_slice(bytes);
    }

    /// Lets `write` append contents.
    pub fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        write(&mut self.0)
    }

    /// The contents.
    #[must_use]
    pub fn contents(&self) -> &[u8] {
        self.0.get(ROOM..).unwrap_or_default()
    }

    /// Writes how the contents are packed, in front of them. The buffer still has its room for a nonce, and for a tag, but no more: it is kept until a server
    /// has acknowledged it.
    #[must_use]
    pub fn with_prefix(mut self, prefix: [u8; PREFIX]) -> Vec<u8> {
        self.0.reserve(seal::TAG_LEN);
        self.0.shrink_to(self.0.len().saturating_add(seal::TAG_LEN));
        let places = self.0.iter_mut().skip(seal::NONCE_LEN);
        places.zip(prefix).for_each(|(place, byte)| *place = byte);
        self.0
    }
}
