//! Reading a file that others may be writing.
//!
//! What is stored must fit together: the size says how many bytes follow, the times say which state of the file they
//! are. So a file is read as long as it was when it was opened (one that grows all the time must end some day), and
//! looked at again afterwards: what happened to it in between is told as an [`Alteration`]. The end of a file is
//! never concluded from an error.

use std::fmt;
use std::io::IoSliceMut;

use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Advice, OFlags, SeekFrom, fadvise, readlinkat, seek};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr};

use super::dirs::open_quietly;
use super::stat::stat_fd;
use super::{DirFd, LiveError, Result, Stat};
use crate::entry::Kind;

/// `O_NONBLOCK`: should a FIFO have come in place of the file, opening it must not wait for a writer.
const OPEN: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Files from this size on are worth telling the kernel that they are read from start to end.
const LARGE: u64 = 1 << 20;

/// Bytes read until the kernel is told to forget them, where it did not hold them before.
const FORGET: u64 = 8 << 20;

/// Files that say they are empty are read to their end all the same (those in `/proc` say so), but not further than
/// this: some never end.
const UNSIZED_LIMIT: u64 = 64 << 20;

/// Times that a small file is read before it is called restless.
const TRIES: usize = 3;

/// A regular file, open for reading from its start to its end.
#[derive(Debug)]
pub struct LiveFile {
    fd: OwnedFd,
    opened: Stat,
    /// Where the next segment begins.
    position: u64,
    /// Where it will end at the latest.
    limit: u64,
    /// Whether holes are asked for; then, data reach to `data_end`.
    sparse: bool,
    data_end: u64,
    /// Whether pages read are dropped from the page cache, and up to where that is done.
    forget: bool,
    forgotten: u64,
}

/// What comes next in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// That many bytes, at the start of the buffer.
    Data(usize),
    /// A hole of that many bytes.
    Hole(u64),
    /// Nothing any more.
    End,
}

/// What happened to a file while it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alteration {
    /// It grew; what it had at first was read.
    Grew,
    /// It became shorter; what was left was read.
    Shrank,
    /// It was written to: what was read may be a mixture.
    Modified,
    /// Only its inode changed: a mode, an owner, a name, a link. Its contents are whole, unless somebody has set the
    /// time of modification back.
    Touched,
}

impl fmt::Display for Alteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grew => "it grew while it was read; what it had at first was saved",
            Self::Shrank => "it became shorter while it was read; what was left of it was saved",
            Self::Modified => "it was written to while it was read; what was saved may be a mixture",
            Self::Touched => "its metadata changed while it was read",
        })
    }
}

/// A file that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The file as it was when it was opened, but for the size: that is the bytes that were read, holes included.
    pub stat: Stat,
    /// What happened meanwhile.
    pub alteration: Option<Alteration>,
}

impl LiveFile {
    /// Opens `name` in `dir`, which must still be the inode that was `seen` there. Never waits, whatever has come in
    /// its place, and leaves the access time alone where that is allowed.
    ///
    /// # Errors
    /// [`LiveError::Vanished`], [`LiveError::Replaced`], else what the system said.
    pub fn open(dir: &DirFd, name: &[u8], seen: &Stat) -> Result<Self> {
        let fd = open_quietly(dir, name, OPEN, dir.may_hide_access(seen))
            .map_err(|errno| LiveError::opening("open it", errno))?;
        let opened = stat_fd(&fd)?;
        if opened.kind != Kind::File || !opened.is_same_inode(seen) {
            return Err(LiveError::Replaced);
        }
        let mut file = Self {
            limit: if opened.size == 0 { UNSIZED_LIMIT } else { opened.size },
            sparse: opened.may_have_holes(),
            fd,
            opened,
            position: 0,
            data_end: 0,
            forget: false,
            forgotten: 0,
        };
        if opened.size >= LARGE {
            // Advice only: whether it is taken changes nothing.
            let _ = fadvise(&file.fd, 0, None, Advice::Sequential);
            file.forget = !file.is_cached(0) && !file.is_cached(opened.size / 2);
        }
        Ok(file)
    }

    /// The file as it was when it was opened; may be newer than what was seen in the listing.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.opened
    }

    /// The next segment; data come in `buffer`, as much of it as there is without a gap. An empty buffer gets
    /// nothing: it must not be empty.
    ///
    /// # Errors
    /// What the system said. The file cannot be read on then.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Segment> {
        if self.position >= self.limit {
            return Ok(Segment::End);
        }
        if self.sparse
            && self.position >= self.data_end
            && let Some(hole) = self.seek_data()?
        {
            self.position = self.position.saturating_add(hole);
            return Ok(if hole == 0 { Segment::End } else { Segment::Hole(hole) });
        }
        let end = if self.sparse { self.data_end.min(self.limit) } else { self.limit };
        let want = usize::try_from(end.saturating_sub(self.position)).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = buffer.get_mut(..want).unwrap_or_default();
        let got = retry_on_intr(|| pread(&self.fd, &mut *buffer, self.position)).map_err(cannot_read)?;
        if got == 0 {
            return Ok(Segment::End);
        }
        self.position = self.position.saturating_add(len_of(got));
        self.forget_behind(FORGET);
        Ok(Segment::Data(got))
    }

    /// Asks where the next data are. Returns the length of the hole before them, 0 when the file ends here, `None`
    /// when there are data right here (or nobody can tell).
    fn seek_data(&mut self) -> Result<Option<u64>> {
        let start = match seek(&self.fd, SeekFrom::Data(self.position)) {
            Ok(start) => start,
            // No data any more: the rest is a hole, up to where the file ends now.
            Err(Errno::NXIO) => {
                let end = stat_fd(&self.fd)?.size.min(self.limit);
                return Ok(Some(end.saturating_sub(self.position)));
            }
            // A file system without this knowledge.
            Err(_) => {
                self.sparse = false;
                return Ok(None);
            }
        };
        self.data_end = seek(&self.fd, SeekFrom::Hole(start)).unwrap_or(self.limit);
        if self.data_end <= self.position {
            // It was cut off just now: the next read finds the end.
            self.sparse = false;
        }
        let hole = start.min(self.limit).saturating_sub(self.position);
        Ok((hole > 0).then_some(hole))
    }

    /// Looks at the file again, and says what became of it. To be called after [`Segment::End`].
    ///
    /// # Errors
    /// What the system said.
    pub fn finish(mut self) -> Result<Finished> {
        self.forget_behind(1);
        let now = stat_fd(&self.fd)?;
        let alteration = alteration(&self.opened, &now, self.position);
        Ok(Finished { stat: Stat { size: self.position, ..self.opened }, alteration })
    }

    /// Reads from any place, independent of the segments: as much as there is, up to the length of the buffer.
    ///
    /// # Errors
    /// What the system said.
    pub fn read_range(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let from = offset.saturating_add(len_of(done));
            match retry_on_intr(|| pread(&self.fd, &mut *rest, from)).map_err(cannot_read)? {
                0 => break,
                got => done = done.saturating_add(got),
            }
        }
        Ok(done)
    }

    /// Whether all of this range is a hole. No, if nobody can tell.
    #[must_use]
    pub fn has_hole(&self, offset: u64, len: u64) -> bool {
        match seek(&self.fd, SeekFrom::Data(offset)) {
            Ok(start) => start >= offset.saturating_add(len),
            Err(errno) => errno == Errno::NXIO,
        }
    }

    /// Whether no part of this range is a hole. Yes, if nobody can tell.
    #[must_use]
    pub fn has_data(&self, offset: u64, len: u64) -> bool {
        seek(&self.fd, SeekFrom::Hole(offset)).map_or(true, |start| start >= offset.saturating_add(len))
    }

    /// Whether the page cache holds the byte at `offset`; yes, if nobody can tell.
    fn is_cached(&self, offset: u64) -> bool {
        let mut byte = [0];
        let result = preadv2(&self.fd, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT);
        !matches!(result, Err(Errno::AGAIN))
    }

    /// A backup reads everything once; what only it wanted must not push out what others want.
    fn forget_behind(&mut self, at_least: u64) {
        let read = self.position.saturating_sub(self.forgotten);
        if self.forget && read >= at_least {
            let _ = fadvise(&self.fd, self.forgotten, std::num::NonZero::new(read), Advice::DontNeed);
            self.forgotten = self.position;
        }
    }
}

impl AsFd for LiveFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Reads a small file as a whole into `buffer`, in four system calls when nobody meddles. A file that is written to
/// meanwhile is read again, a few times. The returned state may be newer than what was `seen`.
///
/// # Errors
/// As [`LiveFile::open`] and [`LiveFile::next`].
pub fn read_small(dir: &DirFd, name: &[u8], seen: &Stat, buffer: &mut Vec<u8>) -> Result<Finished> {
    let fd = open_quietly(dir, name, OPEN, dir.may_hide_access(seen))
        .map_err(|errno| LiveError::opening("open it", errno))?;
    let mut before = *seen;
    let mut result = None;
    for _ in 0..TRIES {
        buffer.clear();
        read_whole(&fd, before.size, buffer).or_else(|error| {
            // Reading what has come in the place of a file may fail as it likes.
            if stat_fd(&fd)?.is_same_inode(seen) { Err(error) } else { Err(LiveError::Replaced) }
        })?;
        let after = stat_fd(&fd)?;
        if !after.is_same_inode(seen) {
            return Err(LiveError::Replaced);
        }
        let len = len_of(buffer.len());
        let alteration = alteration(&before, &after, len);
        let finished = Finished { stat: Stat { size: len, ..after }, alteration };
        if alteration.is_none() {
            return Ok(finished);
        }
        result = Some(finished);
        before = after;
    }
    result.ok_or(LiveError::Replaced)
}

/// Reads up to the end, or one byte more than expected: that is enough to see that the file has grown.
fn read_whole(fd: &OwnedFd, expected: u64, buffer: &mut Vec<u8>) -> Result<()> {
    let expected = usize::try_from(expected).unwrap_or(usize::MAX);
    let limit = if expected == 0 { UNSIZED_LIMIT } else { len_of(expected).saturating_add(1) };
    buffer.reserve_exact(if expected == 0 { 512 } else { expected.saturating_add(1) });
    while len_of(buffer.len()) < limit {
        if buffer.len() == buffer.capacity() {
            buffer.reserve(buffer.len());
        }
        let at = len_of(buffer.len());
        let got = loop {
            match pread(fd, spare_capacity(buffer), at) {
                Err(Errno::INTR) => {}
                result => break result.map_err(cannot_read)?,
            }
        };
        // A short read that fits the size is the end; the look at the file afterwards finds it if it was not.
        if got == 0 || buffer.len() == expected {
            break;
        }
    }
    Ok(())
}

/// What happened between two looks at a file of which `read` bytes were read.
fn alteration(before: &Stat, after: &Stat, read: u64) -> Option<Alteration> {
    let unsized_file = before.size == 0 && after.size == 0;
    if after.size > before.size {
        Some(Alteration::Grew)
    } else if after.size < before.size || (read < before.size && !unsized_file) {
        Some(Alteration::Shrank)
    } else if after.mtime != before.mtime {
        Some(Alteration::Modified)
    } else if after.ctime != before.ctime {
        Some(Alteration::Touched)
    } else if read > before.size && !unsized_file {
        Some(Alteration::Grew)
    } else {
        None
    }
}

/// Where the symbolic link `name` points.
///
/// # Errors
/// [`LiveError::Vanished`], [`LiveError::Replaced`] if it is no link, else what the system said.
pub fn read_link(dir: &DirFd, name: &[u8]) -> Result<Box<[u8]>> {
    match readlinkat(dir, name, Vec::new()) {
        Ok(target) => Ok(target.into_bytes().into_boxed_slice()),
        Err(Errno::INVAL) => Err(LiveError::Replaced),
        Err(errno) => Err(LiveError::opening("read the link", errno)),
    }
}

fn cannot_read(errno: Errno) -> LiveError {
    LiveError::System { action: "read it", source: errno.into() }
}

fn len_of(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::io::Write as _;
    use std::os::unix::fs::FileExt;

    use super::super::stat::stat_child;
    use super::super::testing::{Scratch, run};
    use super::*;
    use crate::live::LiveDir;

    fn open(scratch: &Scratch, name: &str) -> LiveFile {
        let fd = scratch.open().fd().unwrap();
        LiveFile::open(&fd, name.as_bytes(), &stat_child(&fd, name.as_bytes()).unwrap()).unwrap()
    }

    fn segments(file: &mut LiveFile) -> Vec<Segment> {
        let (mut buffer, mut all) = (vec![0; 1 << 16], Vec::new());
        loop {
            match file.next(&mut buffer).unwrap() {
                Segment::End => return all,
                segment => all.push(segment),
            }
        }
    }

    #[test]
    fn holes_are_holes_and_zeros_are_zeros() {
        let scratch = Scratch::new();
        let file = File::create(scratch.join("sparse")).unwrap();
        file.set_len(10 << 20).unwrap();
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        fs::write(scratch.join("zeros"), vec![0; 1 << 16]).unwrap();
        File::create(scratch.join("hole")).unwrap().set_len(5_000_000_000).unwrap();

        let mut sparse = open(&scratch, "sparse");
        let expected = [Segment::Hole(1 << 20), Segment::Data(4096), Segment::Hole((9 << 20) - 4096)];
        assert_eq!(segments(&mut sparse), expected);
        assert_eq!(sparse.finish().unwrap().alteration, None);
        assert_eq!(segments(&mut open(&scratch, "zeros")), [Segment::Data(1 << 16)]);
        assert_eq!(segments(&mut open(&scratch, "hole")), [Segment::Hole(5_000_000_000)]);
    }

    #[test]
    fn what_happens_meanwhile_is_told() {
        let scratch = Scratch::new();
        let path = scratch.join("file");
        for (meddle, size, expected) in [
            ((|path| fs::write(path, [2; 50]).unwrap()) as fn(&std::path::Path), 50, Alteration::Shrank),
            (
                |path| OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap(),
                100,
                Alteration::Grew,
            ),
            (
                |path| OpenOptions::new().write(true).open(path).unwrap().write_all(b"other").unwrap(),
                100,
                Alteration::Modified,
            ),
            (|path| fs::hard_link(path, path.with_file_name("link")).unwrap(), 100, Alteration::Touched),
        ] {
            fs::write(&path, [1; 100]).unwrap();
            // The kernel's time of changes goes in ticks.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let mut file = open(&scratch, "file");
            meddle(&path);
            segments(&mut file);
            let finished = file.finish().unwrap();
            assert_eq!((finished.stat.size, finished.alteration), (size, Some(expected)));
        }
    }

    #[test]
    fn replaced_and_vanished() {
        let scratch = Scratch::new();
        let fd = scratch.open().fd().unwrap();
        fs::write(scratch.join("file"), "one").unwrap();
        let seen = stat_child(&fd, b"file").unwrap();
        fs::write(scratch.join("new"), "two").unwrap();
        let mut buffer = Vec::new();
        for replace in [
            (|dir| run("mv", &["new", "file"], dir)) as fn(&std::path::Path),
            |dir| run("ln", &["-sf", "file2", "file"], dir),
            |dir| run("sh", &["-c", "rm file; mkfifo file"], dir),
            |dir| run("sh", &["-c", "rm file; mkdir file"], dir),
        ] {
            replace(scratch.path());
            assert!(matches!(LiveFile::open(&fd, b"file", &seen), Err(LiveError::Replaced)));
            assert!(matches!(read_small(&fd, b"file", &seen, &mut buffer), Err(LiveError::Replaced)));
        }
        run("rmdir", &["file"], scratch.path());
        assert!(matches!(LiveFile::open(&fd, b"file", &seen), Err(LiveError::Vanished)));
        assert!(matches!(read_small(&fd, b"file", &seen, &mut buffer), Err(LiveError::Vanished)));
    }

    #[test]
    fn small_files() {
        let scratch = Scratch::new();
        let fd = scratch.open().fd().unwrap();
        let mut buffer = Vec::new();
        for contents in [&b""[..], b"x", &[7; 5000]] {
            fs::write(scratch.join("file"), contents).unwrap();
            let seen = stat_child(&fd, b"file").unwrap();
            let finished = read_small(&fd, b"file", &seen, &mut buffer).unwrap();
            assert_eq!((&buffer[..], finished.alteration), (contents, None));
            assert_eq!(finished.stat, seen);
        }
        // Changed since it was listed: read as it is now.
        let seen = stat_child(&fd, b"file").unwrap();
        for contents in [&[1; 9000][..], b"", b"abc"] {
            fs::write(scratch.join("file"), contents).unwrap();
            let finished = read_small(&fd, b"file", &seen, &mut buffer).unwrap();
            assert_eq!((&buffer[..], finished.alteration), (contents, None));
            assert_eq!(finished.stat, stat_child(&fd, b"file").unwrap());
        }
    }

    #[test]
    fn an_error_is_no_end() {
        let proc = LiveDir::open_root(b"/proc/self").unwrap().fd().unwrap();
        let seen = stat_child(&proc, b"mem").unwrap();
        let mut buffer = vec![0; 100];
        let error = LiveFile::open(&proc, b"mem", &seen).unwrap().next(&mut buffer).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::IO));
        assert_eq!(read_small(&proc, b"mem", &seen, &mut buffer).unwrap_err().errno(), Some(Errno::IO));
    }

    #[test]
    fn files_that_hide_their_size() {
        let proc = LiveDir::open_root(b"/proc").unwrap().fd().unwrap();
        let seen = stat_child(&proc, b"cpuinfo").unwrap();
        let mut buffer = Vec::new();
        assert_eq!(seen.size, 0);
        assert_eq!(read_small(&proc, b"cpuinfo", &seen, &mut buffer).unwrap().alteration, None);
        assert!(buffer.starts_with(b"processor"));
        let mut file = LiveFile::open(&proc, b"cpuinfo", &seen).unwrap();
        segments(&mut file);
        assert!(file.finish().unwrap().stat.size > 100);
    }

    #[test]
    fn the_access_time_stays() {
        let scratch = Scratch::new();
        fs::write(scratch.join("file"), "x").unwrap();
        run("touch", &["-a", "-d", "2001-01-01", "file"], scratch.path());
        segments(&mut open(&scratch, "file"));
        let fd = scratch.open().fd().unwrap();
        read_small(&fd, b"file", &stat_child(&fd, b"file").unwrap(), &mut Vec::new()).unwrap();
        let accessed = fs::metadata(scratch.join("file")).unwrap().accessed().unwrap();
        assert!(accessed < std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000));
    }
}
