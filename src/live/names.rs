//! The names in a directory, sorted, in little memory.

use std::cmp::Ordering;

use rustix::fd::AsFd;
use rustix::fs::{FileType, RawDir};

use super::{LiveError, Result};
use crate::entry::Kind;

/// Bytes of directory entries asked for at once: about two thousand names.
const BUFFER: usize = 64 * 1024;

/// Room is made ahead for at most so many bytes of names. It costs nothing until it is used.
const MOST_ROOM: usize = 64 << 20;

/// No file system that says a size counts less per entry.
const LEAST_ENTRY: usize = 20;

/// All names of a directory without `.` and `..`, sorted by their bytes. Takes 16 bytes and the name's length per
/// entry.
#[derive(Debug, Default)]
pub struct NameList {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The eight bytes after the prefix that all names share, zero-filled: decides most comparisons without a look
    /// at the names themselves.
    key: u64,
    start: u32,
    len: u16,
    kind: Option<Kind>,
}

impl NameList {
    /// Reads the names of an open directory whose offset is at its start. `size` is what the system says of the
    /// directory's own size: a hint at how much room is needed, which saves copying while a large list grows.
    pub(super) fn read(fd: impl AsFd, size: u64) -> Result<Self> {
        Self::read_where(fd, size, |_| true)
    }

    /// As [`read`](Self::read), but for names that are not `wanted`.
    pub(super) fn read_where(fd: impl AsFd, size: u64, wanted: impl Fn(&[u8]) -> bool) -> Result<Self> {
        let room = usize::try_from(size).unwrap_or(usize::MAX).min(MOST_ROOM);
        let mut list =
            Self { bytes: Vec::with_capacity(room), slots: Vec::with_capacity(room / LEAST_ENTRY) };
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|errno| LiveError::new("list it", errno))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && wanted(name) {
                list.push(name, kind_of(entry.file_type()))?;
            }
        }
        list.sort();
        Ok(list)
    }

    fn push(&mut self, name: &[u8], kind: Option<Kind>) -> Result<()> {
        let slot = Slot {
            key: 0,
            start: u32::try_from(self.bytes.len()).map_err(|_too_large| LiveError::TooManyNames)?,
            // Mostly 255 bytes at most, but FUSE allows 1024 and NTFS names can need 765.
            len: u16::try_from(name.len()).map_err(|_too_large| LiveError::TooManyNames)?,
            kind,
        };
        self.bytes.extend_from_slice(name);
        self.slots.push(slot);
        Ok(())
    }

    fn sort(&mut self) {
        self.bytes.shrink_to_fit();
        self.slots.shrink_to_fit();
        let Some(first) = self.slots.first() else { return };
        let bytes = &self.bytes;
        let first = name_in(bytes, *first);
        let mut shared = first.len();
        for slot in &self.slots {
            let same = name_in(bytes, *slot).iter().zip(first).take_while(|(a, b)| a == b).count();
            shared = shared.min(same);
        }
        for slot in &mut self.slots {
            let mut key = [0; 8];
            for (to, from) in key.iter_mut().zip(name_in(bytes, *slot).get(shared..).unwrap_or_default()) {
                *to = *from;
            }
            slot.key = u64::from_be_bytes(key);
        }
        self.slots.sort_unstable_by(|a, b| match a.key.cmp(&b.key) {
            Ordering::Equal => name_in(bytes, *a).cmp(name_in(bytes, *b)),
            other => other,
        });
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the directory is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The name at `index`, and the kind of file where the directory itself tells it: a hint, which may be wrong by
    /// the time the file is looked at.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&[u8], Option<Kind>)> {
        let slot = self.slots.get(index)?;
        Some((name_in(&self.bytes, *slot), slot.kind))
    }

    /// All names in order, with hints as in [`get`](Self::get).
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Option<Kind>)> {
        self.slots.iter().map(|slot| (name_in(&self.bytes, *slot), slot.kind))
    }

    /// Whether `name` is among them.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.slots.binary_search_by(|slot| name_in(&self.bytes, *slot).cmp(name)).is_ok()
    }
}

fn name_in(bytes: &[u8], slot: Slot) -> &[u8] {
    let start = usize::try_from(slot.start).unwrap_or(usize::MAX);
    bytes.get(start..start.saturating_add(usize::from(slot.len))).unwrap_or_default()
}

/// The kind that a directory entry or `st_mode` names.
pub(super) fn kind_of(kind: FileType) -> Option<Kind> {
    match kind {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Directory),
        FileType::Symlink => Some(Kind::Symlink),
        FileType::Fifo => Some(Kind::Fifo),
        FileType::Socket => Some(Kind::Socket),
        FileType::CharacterDevice => Some(Kind::CharDevice),
        FileType::BlockDevice => Some(Kind::BlockDevice),
        FileType::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_by_bytes_whatever_they_share() {
        for prefix in [&b""[..], b"a", b"file-0000"] {
            let mut list = NameList::default();
            let mut expected = Vec::new();
            for tail in [&b"x"[..], b"", b"x\0", b"\xff\xfe", b"xxxxxxxxxx2", b"xxxxxxxxxx10", b"y"] {
                let name = [prefix, tail].concat();
                list.push(&name, None).unwrap();
                expected.push(name);
            }
            expected.sort();
            list.sort();
            let names: Vec<_> = list.iter().map(|(name, _)| name.to_vec()).collect();
            assert_eq!(names, expected);
            assert!(expected.iter().all(|name| list.contains(name)));
            assert!(!list.contains(b"nowhere"));
        }
    }

    #[test]
    fn a_slot_is_small() {
        assert_eq!(size_of::<Slot>(), 16);
    }
}
