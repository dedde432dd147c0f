//! Reading the contents of live files into chunks.

use std::sync::Arc;

use crate::bag::{BagKind, Packer, Placing};
use crate::base::cancel::Cancel;
use crate::chunker::{Chunker, Cutter};
use crate::entry::{Content, Piece, Xattr, XattrValue};
use crate::live::{Alteration, LiveError, LiveFile, RawXattr, Segment, Stat, read_small};
use crate::monitor::{Counter, Monitor};

use super::BackupError;
use super::entries::Here;
use super::lists::Lists;
use super::pause::Pause;
use super::shelf::Shelf;
use super::tree::Tree;

/// Contents of at most this many bytes live inside the DIR entry.
pub const INLINE: usize = 512;

/// Xattr values of at most this many bytes live inside the DIR entry, as long as all of them together have no more than four times as many.
const INLINE_XATTR: usize = 1024;

/// Bytes read at a time.
const BUFFER: usize = 512 << 10;

/// Where chunks and lists go.
pub struct Sink {
    /// What is there already.
    pub shelf: Arc<Shelf>,
    /// What stores the rest.
    pub packer: Arc<Packer>,
    /// What makes lists.
    pub tree: Tree,
    /// Who is told.
    pub monitor: Arc<dyn Monitor>,
    /// Whether the user wanted to stop, and what was done until then is safe.
    pub interrupted: Cancel,
    /// Whether another part has failed.
    pub stop: Cancel,
    /// Where workers stand still for a checkpoint.
    pub pause: Pause,
}

/// One worker's buffers.
pub struct Contents<'a> {
    sink: &'a Sink,
    chunker: Chunker,
    small: usize,
    buffer: Vec<u8>,
}

/// Why a file could not be read.
#[derive(Debug)]
pub enum Failure {
    /// This file: the backup goes on without it.
    File(LiveError),
    /// The backup cannot go on.
    Backup(BackupError),
}

impl From<LiveError> for Failure {
    fn from(error: LiveError) -> Self {
        Self::File(error)
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        Self::Backup(error)
    }
}

/// A file that was read.
pub struct Read {
    /// Its contents.
    pub content: Content<Placing>,
    /// What it was when it was opened; the size is the number of bytes read.
    pub stat: Stat,
    /// What happened to it meanwhile.
    pub alteration: Option<Alteration>,
}

impl<'a> Contents<'a> {
    /// Reads into `sink`, cutting chunks with `cutter`.
    pub fn new(sink: &'a Sink, cutter: Cutter) -> Self {
        let small = usize::try_from(cutter.limits().min).unwrap_or(usize::MAX).min(BUFFER);
        Self { sink, chunker: Chunker::new(cutter), small, buffer: Vec::new() }
    }

    /// Reads a regular file that was `seen` in its directory.
    pub fn read(&mut self, here: &Here<'_>, seen: &Stat) -> Result<Read, Failure> {
        self.sink.monitor.count(Counter::FilesRead, 1);
        let small = u64::try_from(self.small).unwrap_or(u64::MAX);
        if seen.size < small && !seen.may_have_holes() {
            let finished = read_small(here.fd, here.name, seen, &mut self.buffer)?;
            self.sink.monitor.count(Counter::BytesRead, finished.stat.size);
            let content = self.small_content()?;
            return Ok(Read { content, stat: finished.stat, alteration: finished.alteration });
        }
        self.read_large(here, seen)
    }

    fn small_content(&mut self) -> Result<Content<Placing>, BackupError> {
        let bytes = std::mem::take(&mut self.buffer);
        let content = if bytes.is_empty() {
            Content::Empty
        } else if bytes.len() <= INLINE {
            Content::Inline(bytes[..].into())
        } else if bytes.len() <= self.small {
            Content::Pieces(vec![Piece::Chunk(self.sink.chunk(&bytes)?)])
        } else {
            // It grew beyond what a single chunk may be while it was read.
            let mut lists = Lists::new(&self.sink.tree);
            self.chunks(|chunker, emit| chunker.push(&bytes, emit), &mut lists)?;
            self.end_chunk(&mut lists)?;
            lists.finish()?
        };
        self.buffer = bytes;
        Ok(content)
    }

    fn read_large(&mut self, here: &Here<'_>, seen: &Stat) -> Result<Read, Failure> {
        let mut file = LiveFile::open(here.fd, here.name, seen)?;
        let mut lists = Lists::new(&self.sink.tree);
        self.chunker.clear();
        let outcome: Result<(), Failure> = loop {
            self.sink.pause.point(here.snapshot);
            if let Err(error) = self.sink.check() {
                break Err(error.into());
            }
            match file.next(self.chunker.room(BUFFER)) {
                Err(error) => break Err(error.into()),
                Ok(Segment::Data(len)) => {
                    self.sink.monitor.count(Counter::BytesRead, u64::try_from(len).unwrap_or(0));
                    if let Err(error) = self.chunks(|chunker, emit| chunker.take_in(len, emit), &mut lists) {
                        break Err(error.into());
                    }
                }
                Ok(Segment::Hole(len)) => {
                    let ended = self.end_chunk(&mut lists);
                    if let Err(error) = ended.and_then(|()| lists.push(Piece::Hole(len))) {
                        break Err(error.into());
                    }
                }
                Ok(Segment::End) => break Ok(()),
            }
        };
        outcome?;
        self.end_chunk(&mut lists)?;
        let finished = file.finish()?;
        Ok(Read { content: lists.finish()?, stat: finished.stat, alteration: finished.alteration })
    }

    fn end_chunk(&mut self, lists: &mut Lists<'_>) -> Result<(), BackupError> {
        self.chunks(|chunker, emit| chunker.finish(emit), lists)
    }

    /// Stores and lists the chunks that the chunker hands out.
    fn chunks(
        &mut self,
        work: impl FnOnce(&mut Chunker, &mut dyn FnMut(&[u8])),
        lists: &mut Lists<'_>,
    ) -> Result<(), BackupError> {
        let mut outcome = Ok(());
        let sink = self.sink;
        work(&mut self.chunker, &mut |chunk| {
            if outcome.is_ok() {
                outcome = sink.chunk(chunk).and_then(|placing| lists.push(Piece::Chunk(placing)));
            }
        });
        outcome
    }
}

impl Sink {
    /// Whether to go on.
    pub fn check(&self) -> Result<(), BackupError> {
        if self.interrupted.is_cancelled() {
            Err(BackupError::Interrupted)
        } else if self.stop.is_cancelled() {
            Err(BackupError::Stopped)
        } else {
            Ok(())
        }
    }

    /// Has a chunk stored unless it is there.
    pub fn chunk(&self, bytes: &[u8]) -> Result<Placing, BackupError> {
        self.shelf.put(&self.packer, BagKind::Data, bytes)
    }

    /// Xattrs as they stand in an entry: small values inside, large ones as chunks.
    pub fn xattrs(&self, raw: Vec<RawXattr>) -> Result<Vec<Xattr<Placing>>, BackupError> {
        let mut room = 4 * INLINE_XATTR;
        raw.into_iter()
            .map(|xattr| {
                let len = xattr.value.len();
                let value = if len <= INLINE_XATTR.min(room) {
                    room -= len;
                    XattrValue::Inline(xattr.value)
                } else {
                    XattrValue::Chunk(self.chunk(&xattr.value)?)
                };
                Ok(Xattr { name: xattr.name, value })
            })
            .collect()
    }
}
