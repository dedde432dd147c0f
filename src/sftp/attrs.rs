//! A file's attributes on the wire.

use bytes::BufMut;

use super::fields::{Fields, Malformed};

const SIZE: u32 = 0x1;
const OWNER: u32 = 0x2;
const PERMISSIONS: u32 = 0x4;
const TIMES: u32 = 0x8;
const EXTENDED: u32 = 0x8000_0000;

const TYPE_MASK: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// What a server says about a file; every part may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attrs {
    /// Length in bytes.
    pub size: Option<u64>,
    /// Type and mode bits, as in `st_mode`.
    pub permissions: Option<u32>,
    /// Last modification, in seconds since 1970, by the server's clock. Version 3 has 32 bits, taken as unsigned.
    pub modified: Option<u32>,
}

impl Attrs {
    /// Whether it is known to be a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.permissions.is_some_and(|mode| mode & TYPE_MASK == DIRECTORY)
    }

    /// Whether it is known to be a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.permissions.is_some_and(|mode| mode & TYPE_MASK == REGULAR)
    }

    /// Whether it is known to be a symbolic link.
    #[must_use]
    pub fn is_link(&self) -> bool {
        self.permissions.is_some_and(|mode| mode & TYPE_MASK == LINK)
    }

    pub(super) fn take(fields: &mut Fields) -> Result<Self, Malformed> {
        let flags = fields.u32()?;
        let mut attrs = Self::default();
        if flags & SIZE != 0 {
            attrs.size = Some(fields.u64()?);
        }
        if flags & OWNER != 0 {
            fields.u32()?;
            fields.u32()?;
        }
        if flags & PERMISSIONS != 0 {
            attrs.permissions = Some(fields.u32()?);
        }
        if flags & TIMES != 0 {
            fields.u32()?;
            attrs.modified = Some(fields.u32()?);
        }
        if flags & EXTENDED != 0 {
            // Each pair takes bytes, so a huge count ends at the end of the packet.
            for _ in 0..fields.u32()? {
                fields.string()?;
                fields.string()?;
            }
        }
        Ok(attrs)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        flags |= if self.size.is_some() { SIZE } else { 0 };
        flags |= if self.permissions.is_some() { PERMISSIONS } else { 0 };
        flags |= if self.modified.is_some() { TIMES } else { 0 };
        out.put_u32(flags);
        if let Some(size) = self.size {
            out.put_u64(size);
        }
        if let Some(permissions) = self.permissions {
            out.put_u32(permissions);
        }
        if let Some(modified) = self.modified {
            out.put_u32(modified);
            out.put_u32(modified);
        }
    }
}
