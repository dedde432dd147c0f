//! A generation, or a part of it, as a tar archive.

use std::io::{self, Write};
use std::sync::Arc;

use super::feed::{Feed, Item};
use super::tar::{Archive, Member};
use crate::bag::reader::ReadError;
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::contents::Blocks;
use crate::dir::reader::{TreeError, pieces};
use crate::entry::{Content, Entry, Kind, Piece, Reference, XattrValue};
use crate::monitor::{Counter, Monitor, Problem, Severity};
use crate::store::StoreError;

/// Bytes of opened blocks that are kept.
const KEPT: usize = 96 << 20;

/// Zeros, for holes and for what cannot be read.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Why exporting ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The repository is out of reach.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The archive could not be written.
    #[error("cannot write the archive: {0}")]
    Write(#[from] io::Error),
    /// It was asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Writes an archive of what stands at and below `starts` to `out`: paths without the slash at their start, everything but sockets. What cannot be read is told to
/// `monitor`; in the archive it is zeros, or missing. Returns the number of members.
///
/// # Errors
/// See [`ExportError`].
pub fn export(
    source: &Source,
    starts: Vec<(Vec<u8>, Entry)>,
    out: &mut dyn Write,
    monitor: &dyn Monitor,
    cancel: &Cancel,
) -> Result<u64, ExportError> {
    let blocks = Blocks::new(source.reader().clone(), KEPT);
    let feed = Feed::new(source, &blocks, starts);
    let archive = Archive::new(out);
    let mut export = Export { source, blocks: &blocks, archive, monitor, open: None, members: 0 };
    for item in feed {
        if cancel.is_cancelled() {
            return Err(ExportError::Interrupted);
        }
        export.item(item)?;
    }
    export.close()?;
    export.archive.end()?;
    Ok(export.members)
}

struct Export<'a, W: Write> {
    source: &'a Source,
    blocks: &'a Blocks,
    archive: Archive<W>,
    monitor: &'a dyn Monitor,
    open: Option<Open>,
    members: u64,
}

/// A regular file whose pieces are being written.
struct Open {
    path: Vec<u8>,
    /// Bytes of data that its header has promised, and those that were written.
    promised: u64,
    written: u64,
    /// Whether holes are left out.
    is_sparse: bool,
}

impl<W: Write> Export<'_, W> {
    fn item(&mut self, item: Item) -> Result<(), ExportError> {
        match item {
            Item::Piece(piece) => self.piece(&piece),
            Item::Broken(error) => self.lost_rest(error),
            Item::Lost(error) => {
                self.close()?;
                self.lost(&error.path, error.source)
            }
            Item::Link(path, entry, first) => {
                self.close()?;
                self.member(&path, &entry, Some((&first, true)), None)
            }
            Item::Entry(path, entry) => {
                self.close()?;
                self.entry(path, &entry)
            }
        }
    }

    fn entry(&mut self, path: Vec<u8>, entry: &Entry) -> Result<(), ExportError> {
        let size = entry.metadata.size;
        match (&entry.content, entry.metadata.kind) {
            (_, Kind::Socket) => {
                let text = "a socket has no place in an archive";
                self.monitor.problem(Problem::new(Severity::Note, &path, text));
                Ok(())
            }
            (Content::Target(target), _) => self.member(&path, entry, Some((target, false)), None),
            (Content::Inline(bytes), _) => {
                self.member(&path, entry, None, None)?;
                self.archive.data(bytes)?;
                self.open = Some(Open { path, promised: size, written: size, is_sparse: false });
                Ok(())
            }
            (content, Kind::File) => {
                let segments = match segments(self.source, content) {
                    Ok(segments) => segments,
                    Err(error) => return self.lost(&path, error),
                };
                self.member(&path, entry, None, segments.as_deref())?;
                let is_sparse = segments.is_some();
                let promised = segments.map_or(size, |segments| {
                    segments.iter().map(|(_, len)| *len).fold(0, u64::saturating_add)
                });
                self.open = Some(Open { path, promised, written: 0, is_sparse });
                Ok(())
            }
            _ => self.member(&path, entry, None, None),
        }
    }

    fn member(
        &mut self,
        path: &[u8],
        entry: &Entry,
        link: Option<(&[u8], bool)>,
        segments: Option<&[(u64, u64)]>,
    ) -> Result<(), ExportError> {
        let mut name = relative(path).to_vec();
        if entry.metadata.kind == Kind::Directory {
            name.push(b'/');
        }
        let is_hard_link = link.is_some_and(|(_, is_hard)| is_hard);
        let mut xattrs = Vec::new();
        for xattr in entry.xattrs.iter().filter(|_| !is_hard_link) {
            let value = match &xattr.value {
                XattrValue::Inline(value) => value.to_vec(),
                XattrValue::Chunk(reference) => match self.object(reference) {
                    Ok(value) => value,
                    Err(error) => {
                        self.lost_read(path, &error)?;
                        continue;
                    }
                },
            };
            xattrs.push((xattr.name.to_vec(), value));
        }
        let link = link.map(|(link, is_hard)| if is_hard { relative(link) } else { link });
        let metadata = &entry.metadata;
        self.archive.begin(&Member {
            path: &name,
            metadata,
            link,
            is_hard_link,
            xattrs: &xattrs,
            segments,
        })?;
        self.members = self.members.saturating_add(1);
        self.monitor.count(Counter::FilesRestored, 1);
        Ok(())
    }

    fn piece(&mut self, piece: &Piece) -> Result<(), ExportError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        match piece {
            Piece::Hole(_) if open.is_sparse => {}
            Piece::Hole(len) => self.zeros(*len)?,
            Piece::Chunk(reference) => {
                let slot = self.blocks.slot(reference);
                match self.blocks.find(&slot, reference) {
                    Ok(range) => self.archive.data(slot.bytes().get(range).unwrap_or_default())?,
                    Err(error) => {
                        self.lost_read(&open.path, &error)?;
                        self.zeros(piece.len())?;
                    }
                }
            }
        }
        if !(open.is_sparse && matches!(piece, Piece::Hole(_))) {
            open.written = open.written.saturating_add(piece.len());
        }
        self.monitor.count(Counter::BytesRestored, piece.len());
        self.open = Some(open);
        Ok(())
    }

    /// Ends the file whose pieces were written.
    fn close(&mut self) -> Result<(), ExportError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if open.written != open.promised {
            let text = format!("its contents have {} bytes instead of {}", open.written, open.promised);
            self.monitor.problem(Problem::new(Severity::Damage, &open.path, text));
        }
        self.zeros(open.promised.saturating_sub(open.written))?;
        Ok(self.archive.pad(open.promised)?)
    }

    fn zeros(&mut self, len: u64) -> Result<(), ExportError> {
        let mut left = len;
        while left > 0 {
            let some = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
            self.archive.data(ZEROS.get(..some).unwrap_or_default())?;
            left = left.saturating_sub(u64::try_from(some).unwrap_or(left));
        }
        Ok(())
    }

    fn object(&self, reference: &Reference) -> Result<Vec<u8>, Arc<ReadError>> {
        let slot = self.blocks.slot(reference);
        let range = self.blocks.find(&slot, reference)?;
        Ok(slot.bytes().get(range).unwrap_or_default().to_vec())
    }

    fn lost_rest(&mut self, error: TreeError) -> Result<(), ExportError> {
        let path = self.open.as_ref().map(|open| open.path.clone()).unwrap_or_default();
        self.lost(&path, error)
    }

    fn lost(&mut self, path: &[u8], error: TreeError) -> Result<(), ExportError> {
        match error {
            TreeError::Read(error) => self.lost_read(path, &error),
            error => {
                self.monitor.problem(Problem::new(Severity::Damage, path, error));
                Ok(())
            }
        }
    }

    /// Damage is told, and the archive goes on; a store that is out of reach is the end.
    fn lost_read(&self, path: &[u8], error: &ReadError) -> Result<(), ExportError> {
        match error {
            ReadError::Store(error) if !ReadError::Store(error.duplicate()).is_damage() => {
                Err(error.duplicate().into())
            }
            error => {
                self.monitor.problem(Problem::new(Severity::Damage, path, error));
                Ok(())
            }
        }
    }
}

/// Where a file's data lie, if it has holes.
fn segments(source: &Source, content: &Content) -> Result<Option<Vec<(u64, u64)>>, TreeError> {
    let (mut segments, mut has_holes, mut at): (Vec<(u64, u64)>, _, _) = (Vec::new(), false, 0u64);
    for piece in pieces(source, content) {
        let piece = piece?;
        match (&piece, segments.last_mut()) {
            (Piece::Hole(_), _) => has_holes = true,
            (_, Some((start, len))) if start.saturating_add(*len) == at => {
                *len = len.saturating_add(piece.len());
            }
            _ => segments.push((at, piece.len())),
        }
        at = at.saturating_add(piece.len());
    }
    Ok(has_holes.then_some(segments))
}

fn relative(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    match path.get(start..) {
        Some(path) if !path.is_empty() => path,
        _ => b".",
    }
}
