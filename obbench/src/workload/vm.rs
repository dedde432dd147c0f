//! A disk's image, and writes all over it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Edits, Size, text};
use crate::random::Random;

/// The image consists of extents of this length, each of one kind.
const EXTENT: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// A sparse image: a third holes, the rest text, records and random bytes.
pub(super) fn create(path: &Path, seed: u64, bytes: u64) -> io::Result<Size> {
    let file = File::create(path)?;
    file.set_len(bytes)?;
    let mut random = Random::new(seed);
    let mut extent = vec![0; usize::try_from(EXTENT).unwrap_or_default()];
    for number in 0..bytes / EXTENT {
        match random.below(6) {
            0 | 1 => continue,
            2 | 3 => text::records(&mut random, &mut extent),
            4 => text::words(&mut random, &mut extent),
            _ => random.fill(&mut extent),
        }
        file.write_all_at(&extent, number * EXTENT)?;
    }
    Ok(Size { files: 1, bytes })
}

/// Writes one page in a thousand, at least one, where they happen to fall.
pub(super) fn scatter(path: &Path, random: &mut Random, bytes: u64) -> io::Result<Edits> {
    let file = File::options().write(true).open(path)?;
    let pages = (bytes / PAGE).max(1);
    let writes = (pages / 1000).max(1);
    let mut page = vec![0; usize::try_from(PAGE.min(bytes)).unwrap_or_default()];
    for _ in 0..writes {
        random.fill(&mut page);
        file.write_all_at(&page, random.below(pages) * PAGE)?;
    }
    Ok(Edits { changed: 1, bytes_written: writes * PAGE.min(bytes), ..Edits::default() })
}
