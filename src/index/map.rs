//! A local file as bytes in memory, read as they are touched.

use std::fs::File;
use std::io;
use std::ops::Deref;

/// Bytes of a file of the local index: mapped, or held in memory where there is no directory for it.
#[derive(Debug)]
pub(super) enum Bytes {
    /// A mapped file; its pages belong to the system's cache, not to this process.
    Mapped(memmap2::Mmap),
    /// Bytes of this process.
    Held(Vec<u8>),
}

impl Bytes {
    /// Maps a whole file. Two promises make that sound: files of the local index are never changed once they are named in
    /// its state (they are replaced by others, and a removed file stays whole while it is mapped), and they lie in a
    /// directory of this user alone, or have no name. Somebody who cuts a mapped file all the same ends this program by SIGBUS; one who
    /// changes it is met by the checksums, or by the bag's own table.
    pub(super) fn map(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::Held(Vec::new()));
        }
        #[expect(unsafe_code, reason = "files of the index are never changed in place, see above")]
        // SAFETY: nobody writes to the file while it is mapped, by the promises above; all bytes are valid as `u8`.
        let map = unsafe { memmap2::Mmap::map(file) }?;
        // Lookups are spread evenly; reading ahead would fill the page cache with what is not asked for.
        let _ = map.advise(memmap2::Advice::Random);
        Ok(Self::Mapped(map))
    }

    /// Tells the system that all of it will be read, from front to back (`true`), or in no order.
    pub(super) fn expect_sequential(&self, sequential: bool) {
        if let Self::Mapped(map) = self {
            let advice = if sequential { memmap2::Advice::Sequential } else { memmap2::Advice::Random };
            // Only advice.
            let _ = map.advise(advice);
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Held(bytes) => bytes,
        }
    }
}
