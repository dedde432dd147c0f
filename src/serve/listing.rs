//! Directories that are open, and attributes as the protocol has them.

use bytes::Bytes;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::refusal::Refusal;
use super::rights::Rights;
use super::spot::Spot;
use super::tree::Tree;
use crate::sftp::attrs::Attrs;
use crate::sftp::reply::DirEntry;

/// Bytes of entries in one answer: what every client can take.
const ANSWER: usize = 30_000;

/// What an entry takes beside its names.
const ENTRY: usize = 32;

/// A directory that is being listed.
pub(super) struct Listing {
    dir: Dir,
    spot: Spot,
    rights: Rights,
    /// Whether names were left out without which the listing means something else.
    has_gaps: bool,
}

impl Listing {
    pub(super) fn open(tree: &Tree, spot: Spot, rights: Rights) -> Result<Self, Refusal> {
        let opened = tree.open_at(&spot, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self { dir: Dir::new(opened)?, spot, rights, has_gaps: false })
    }

    /// Some more entries; the end when there are none. Sessions that are left out are no end: who collects garbage must not think that nobody
    /// is at work.
    pub(super) fn next(&mut self) -> Result<Vec<DirEntry>, Refusal> {
        let (mut entries, mut len) = (Vec::new(), 0_usize);
        while len < ANSWER {
            let Some(entry) = self.dir.read() else { break };
            let name = entry?.file_name().to_owned();
            let bytes = name.to_bytes();
            let is_own = bytes == b"." || bytes == b"..";
            if !is_own && !self.rights.shows(&self.spot, bytes) {
                self.has_gaps |= self.spot.split().is_some_and(|(_, dir)| dir == b"sessions");
                continue;
            }
            // What lies above the top is not for this client to see.
            let looked_at = if bytes == b".." { c"." } else { &name };
            let stat = match rustix::fs::statat(self.dir.fd()?, looked_at, AtFlags::SYMLINK_NOFOLLOW) {
                // Renamed or removed meanwhile.
                Err(Errno::NOENT) => continue,
                stat => stat?,
            };
            let long_name = long_name(&stat, bytes);
            len = len.saturating_add(ENTRY).saturating_add(bytes.len()).saturating_add(long_name.len());
            entries.push(DirEntry { name: Bytes::copy_from_slice(bytes), long_name, attrs: attrs(&stat) });
        }
        match (entries.is_empty(), self.has_gaps) {
            (false, _) => Ok(entries),
            (true, false) => Err(Refusal::end()),
            (true, true) => Err(Refusal::denied("who is at work is not told to this key")),
        }
    }

    pub(super) fn stat(&self) -> Result<Stat, Refusal> {
        Ok(self.dir.stat()?)
    }
}

/// What the protocol can say of it. Whose it is, is not said.
pub(super) fn attrs(stat: &Stat) -> Attrs {
    Attrs {
        size: u64::try_from(stat.st_size).ok(),
        permissions: Some(stat.st_mode),
        modified: u32::try_from(stat.st_mtime).ok(),
    }
}

/// A line for people: type and permissions, length, name.
fn long_name(stat: &Stat, name: &[u8]) -> Bytes {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::RegularFile => '-',
        _ => '?',
    };
    let mut line = String::from(kind);
    for shift in [6, 3, 0] {
        for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
            line.push(if (stat.st_mode >> shift) & bit != 0 { letter } else { '-' });
        }
    }
    let mut line = format!("{line} {:>12} ", stat.st_size).into_bytes();
    line.extend_from_slice(name);
    line.into()
}
