//! A file of the cache: the bytes, and checks that allow a part to be read and believed.
//!
//! ```text
//! the bytes | 16 bytes of BLAKE3 for each 64 KiB of them | trailer
//! ```
//!
//! The trailer is 56 bytes: the eight of `MAGIC`, the number of bytes (u64, little endian) and so of checks, eight zero bytes, and 32 bytes of BLAKE3
//! over kind, name, the number and the checks. A range is checked by the trailer, the checks and the pieces that hold it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::Kind;
use crate::base::{atomic_file, random_bytes};

const MAGIC: [u8; 8] = *b"kbcache1";
const PIECE: usize = 64 << 10;
const CHECK: usize = 16;
const TRAILER: u64 = 56;

type Check = [u8; CHECK];

/// Why a file, or a part of it, cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsound {
    /// It is not there, or cannot be read.
    Absent,
    /// Its bytes are not what was written.
    Damaged,
    /// It is sound, but has no such bytes.
    OutOfRange,
}

fn check(piece: &[u8]) -> Check {
    let mut short = Check::default();
    blake3::Hasher::new().update(piece).finalize_xof().fill(&mut short);
    short
}

/// Binds the checks to the file's place.
fn seal(kind: Kind, name: &str, len: u64, checks: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.directory().as_bytes()).update(b"/").update(name.as_bytes()).update(b"\0");
    hasher.update(&len.to_le_bytes()).update(checks);
    *hasher.finalize().as_bytes()
}

fn size(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// A file that was opened and whose checks are sound.
pub(super) struct Reader {
    file: File,
    len: u64,
    checks: Vec<u8>,
}

impl Reader {
    pub(super) fn open(path: &Path, kind: Kind, name: &str) -> Result<Self, Unsound> {
        let nofollow = i32::from_ne_bytes(OFlags::NOFOLLOW.bits().to_ne_bytes());
        let opened = OpenOptions::new().read(true).custom_flags(nofollow).open(path);
        let file = opened.or(Err(Unsound::Absent))?;
        let all = file.metadata().or(Err(Unsound::Absent))?.len();
        let start = all.checked_sub(TRAILER).ok_or(Unsound::Damaged)?;
        let trailer = read_exact(&file, start, TRAILER)?;
        let (head, sealed) = trailer.split_at_checked(24).ok_or(Unsound::Damaged)?;
        let (magic, numbers) = head.split_at_checked(8).ok_or(Unsound::Damaged)?;
        let (number, zeros) = numbers.split_at_checked(8).ok_or(Unsound::Damaged)?;
        let len = number.try_into().map(u64::from_le_bytes).or(Err(Unsound::Damaged))?;
        let checks = len.div_ceil(size(PIECE)).checked_mul(size(CHECK)).ok_or(Unsound::Damaged)?;
        if magic != MAGIC || zeros != [0; 8] || len.checked_add(checks) != Some(start) {
            return Err(Unsound::Damaged);
        }
        let checks = read_exact(&file, len, checks)?;
        if seal(kind, name, len, &checks) != sealed {
            return Err(Unsound::Damaged);
        }
        Ok(Self { file, len, checks })
    }

    /// How many bytes were written.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// A range of them.
    pub(super) fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, Unsound> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len).ok_or(Unsound::OutOfRange)?;
        let first = offset / size(PIECE);
        let start = first * size(PIECE);
        let stop = end.next_multiple_of(size(PIECE)).min(self.len);
        let mut bytes = read_exact(&self.file, start, stop.saturating_sub(start))?;
        let skipped = usize::try_from(first).or(Err(Unsound::Damaged))?;
        let mut checks = self.checks.chunks_exact(CHECK).skip(skipped);
        if !bytes.chunks(PIECE).all(|piece| checks.next() == Some(&check(piece))) {
            return Err(Unsound::Damaged);
        }
        let (before, kept) = (offset.saturating_sub(start), len);
        bytes.drain(..usize::try_from(before).or(Err(Unsound::Damaged))?);
        bytes.truncate(usize::try_from(kept).or(Err(Unsound::Damaged))?);
        Ok(bytes)
    }

    /// Tells that the file was used now. What cannot be told makes it go a little early.
    pub(super) fn touch(&self) {
        let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        let times = Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) };
        let _ = rustix::fs::futimens(&self.file, &times);
    }
}

/// Lengths come from the file's own size: no more memory is taken than there are bytes.
fn read_exact(file: &File, offset: u64, len: u64) -> Result<Vec<u8>, Unsound> {
    let mut bytes = vec![0; usize::try_from(len).or(Err(Unsound::Damaged))?];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(bytes),
        // Cut under our eyes, or on a disk that cannot read it any more.
        Err(_) => Err(Unsound::Damaged),
    }
}

/// A file being written under a temporary name, which goes when it is dropped.
pub(super) struct Filling {
    file: File,
    temporary: PathBuf,
    len: u64,
    /// The last piece, not full yet.
    piece: Vec<u8>,
    checks: Vec<u8>,
}

impl Filling {
    /// Begins one in the directory `root`.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let temporary = root.join(format!("{:016x}.tmp", u64::from_ne_bytes(random_bytes())));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        Ok(Self { file, temporary, len: 0, piece: Vec::new(), checks: Vec::new() })
    }

    /// Bytes appended so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.len = self.len.saturating_add(size(bytes.len()));
        while !bytes.is_empty() {
            let room = PIECE.saturating_sub(self.piece.len()).min(bytes.len());
            let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            if self.piece.is_empty() && now.len() == PIECE {
                self.write(now)?;
            } else {
                self.piece.extend_from_slice(now);
                if self.piece.len() == PIECE {
                    self.flush()?;
                }
            }
            bytes = later;
        }
        Ok(())
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.checks.extend_from_slice(&check(piece));
        self.file.write_all(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut piece = std::mem::take(&mut self.piece);
        let outcome = if piece.is_empty() { Ok(()) } else { self.write(&piece) };
        piece.clear();
        self.piece = piece;
        outcome
    }

    /// Ends it under its name, replacing what has it; returns the size of the file.
    pub(super) fn finish(mut self, path: &Path, kind: Kind, name: &str) -> io::Result<u64> {
        self.flush()?;
        let mut end = std::mem::take(&mut self.checks);
        let sealed = seal(kind, name, self.len, &end);
        end.extend_from_slice(&MAGIC);
        end.extend_from_slice(&self.len.to_le_bytes());
        end.extend_from_slice(&[0; 8]);
        end.extend_from_slice(&sealed);
        self.file.write_all(&end)?;
        atomic_file::rename_over(&self.temporary, path)?;
        Ok(self.len.saturating_add(size(end.len())))
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        // Gone already when it was finished.
        let _ = std::fs::remove_file(&self.temporary);
    }
}
