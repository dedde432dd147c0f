//! The fields packets are made of: big-endian integers and strings with a length in front.

use bytes::{Buf, BufMut, Bytes};

/// Bytes that are not what the protocol says; what was being read is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side sent a malformed SFTP packet ({0})")]
pub struct Malformed(pub &'static str);

/// Takes fields off the front of a packet.
#[derive(Debug)]
pub(super) struct Fields(pub(super) Bytes);

impl Fields {
    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.0.try_get_u8().map_err(|_short| Malformed("a byte is missing"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.0.try_get_u32().map_err(|_short| Malformed("a number is missing"))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.0.try_get_u64().map_err(|_short| Malformed("a number is missing"))
    }

    pub(super) fn string(&mut self) -> Result<Bytes, Malformed> {
        let len = usize::try_from(self.u32()?).map_err(|_large| Malformed("a length is too large"))?;
        if len > self.0.len() {
            return Err(Malformed("a string is longer than its packet"));
        }
        Ok(self.0.split_to(len))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a string with its length. Strings of 4 GiB or more, which no packet can hold, are cut by the packet's
/// own length check.
pub(super) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}
