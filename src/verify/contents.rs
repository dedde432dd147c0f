//! Whether a live file has the contents that an entry tells, by reading and hashing it alone.

use crate::bag::source::Source;
use crate::base::id::ObjectId;
use crate::dir::reader::{TreeError, pieces};
use crate::entry::{Content, Entry, Piece, XattrValue};
use crate::live::{DirFd, LiveError, LiveFile, RawXattr, Stat};

/// Bytes of a hole looked at in one go.
const STEP: u64 = 1 << 20;

/// Why nobody can tell.
pub enum Failure {
    /// The live file cannot be read.
    Live(LiveError),
    /// The list of its chunks cannot.
    Tree(TreeError),
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Self {
        Self::Live(error)
    }
}

/// Compares contents; keeps a buffer from one file to the next.
pub struct Contents<'a> {
    source: &'a Source,
    buffer: Vec<u8>,
    /// Bytes read so far.
    pub read: u64,
}

impl<'a> Contents<'a> {
    /// Lists of chunks are read from `source`.
    pub fn new(source: &'a Source) -> Self {
        Self { source, buffer: Vec::new(), read: 0 }
    }

    /// Whether the file `name`, which was `seen` in `dir`, has the contents of `entry`. Reads no further than the first piece that differs.
    pub fn are_same(
        &mut self,
        dir: &DirFd,
        name: &[u8],
        seen: &Stat,
        entry: &Entry,
    ) -> Result<bool, Failure> {
        if seen.size != entry.metadata.size {
            return Ok(false);
        }
        let file = LiveFile::open(dir, name, seen)?;
        if let Content::Inline(bytes) = &entry.content {
            return Ok(self.next(&file, 0, u64::try_from(bytes.len()).unwrap_or(u64::MAX))? == Some(&**bytes));
        }
        let mut at = 0u64;
        for piece in pieces(self.source, &entry.content) {
            let piece = piece.map_err(Failure::Tree)?;
            let same = match &piece {
                Piece::Chunk(reference) => {
                    let wanted = reference.id;
                    let source = self.source;
                    self.next(&file, at, piece.len())?.is_some_and(|bytes| id(source, bytes) == wanted)
                }
                Piece::Hole(len) => self.is_zero(&file, at, *len)?,
            };
            if !same {
                return Ok(false);
            }
            at = at.saturating_add(piece.len());
        }
        // It may have grown since it was looked at.
        Ok(at == entry.metadata.size && file.stat().size == at)
    }

    /// So many bytes of the file; `None` when it has not so many.
    fn next(&mut self, file: &LiveFile, at: u64, len: u64) -> Result<Option<&[u8]>, LiveError> {
        let Ok(len) = usize::try_from(len) else { return Ok(None) };
        self.buffer.resize(len, 0);
        let got = file.read_range(at, &mut self.buffer)?;
        self.read = self.read.saturating_add(u64::try_from(got).unwrap_or(0));
        Ok((got == len).then_some(&*self.buffer))
    }

    /// Whether there are only zeros, be they written or not.
    fn is_zero(&mut self, file: &LiveFile, from: u64, len: u64) -> Result<bool, LiveError> {
        if file.has_hole(from, len) {
            return Ok(true);
        }
        let mut done = 0u64;
        while done < len {
            let step = STEP.min(len.saturating_sub(done));
            match self.next(file, from.saturating_add(done), step)? {
                Some(bytes) if bytes.iter().all(|byte| *byte == 0) => {}
                _ => return Ok(false),
            }
            done = done.saturating_add(step);
        }
        Ok(true)
    }
}

fn id(source: &Source, bytes: &[u8]) -> ObjectId {
    source.reader().id_of(bytes)
}

/// Whether these are the extended attributes of an entry.
pub fn same_xattrs(source: &Source, entry: &Entry, live: &[RawXattr]) -> bool {
    let same_value = |wanted: &XattrValue, found: &[u8]| match wanted {
        XattrValue::Inline(bytes) => **bytes == *found,
        XattrValue::Chunk(reference) => reference.id == id(source, found),
    };
    entry.xattrs.len() == live.len()
        && entry
            .xattrs
            .iter()
            .zip(live)
            .all(|(wanted, found)| wanted.name == found.name && same_value(&wanted.value, &found.value))
}
