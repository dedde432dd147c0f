//! A regular file's bytes, and where there are holes.

use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::SeekFrom;

/// What is told of a file's contents.
pub struct Contents {
    size: u64,
    /// Where data begins and ends.
    data: Vec<(u64, u64)>,
    /// Of the data and where it lies; holes are not read. Good enough to notice accidents.
    checksum: u64,
}

impl Contents {
    /// Reads a file of `size` bytes.
    pub fn read(file: &File, size: u64) -> io::Result<Self> {
        let data = data_ranges(file, size)?;
        let mut hasher = DefaultHasher::new();
        let mut buffer = vec![0; 1 << 16];
        for &(start, end) in &data {
            let mut at = start;
            while at < end {
                let room = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
                let read = file.read_at(&mut buffer[..room], at)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                hasher.write(&buffer[..read]);
                at += u64::try_from(read).unwrap_or(u64::MAX);
            }
        }
        // One hash over the parts would miss bytes that moved between two of them.
        for &(start, end) in &data {
            hasher.write_u64(start);
            hasher.write_u64(end);
        }
        Ok(Self { size, data, checksum: hasher.finish() })
    }
}

fn data_ranges(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            // Nothing but a hole up to the end.
            Err(rustix::io::Errno::NXIO) => break,
            other => other?,
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
        found.push((start, end));
        at = end;
    }
    Ok(found)
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "size:{} sum:{:016x}", self.size, self.checksum)?;
        if self.data != [(0, self.size)] && self.size > 0 {
            let ranges: Vec<_> = self.data.iter().map(|(start, end)| format!("{start}-{end}")).collect();
            write!(f, " data:{}", ranges.join(","))?;
        }
        Ok(())
    }
}
