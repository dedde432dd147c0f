//! Trees to back up, the same for the same seed on every machine, and what changes in them over night.
//!
//! A [`Workload`] is made once ([`Workload::create`]) and then edited as often as a benchmark wants
//! ([`Workload::edit`]): each round of edits has a number and gives the same result for the same seed and number.

mod laptop;
mod text;
mod vm;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Files in one directory of [`Workload::ManyFiles`].
const PER_DIRECTORY: u64 = 100;

/// A tree to back up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Workload {
    /// Many small files, in directories of 100.
    ManyFiles {
        /// How many.
        files: u64,
        /// Each is between one byte and so many long.
        bytes: u64,
    },
    /// One file of random bytes.
    BigFile {
        /// Its length.
        bytes: u64,
    },
    /// A user's home: realistic sizes, text and binary, symlinks and hard links. Edits are those of a day at work.
    Laptop {
        /// How many files; about 30 kB each.
        files: u64,
    },
    /// One directory with all the files, each a few bytes.
    HugeDirectory {
        /// How many.
        files: u64,
    },
    /// The image of a virtual machine's disk: text, binaries, and holes. Edits are scattered writes of 4 KiB.
    VmImage {
        /// Its length.
        bytes: u64,
    },
}

/// What a tree consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Files, by name: each hard link counts, directories and symlinks do not.
    pub files: u64,
    /// Their lengths.
    pub bytes: u64,
}

/// What a round of edits did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edits {
    /// Files whose content changed.
    pub changed: u64,
    /// Files that are new.
    pub created: u64,
    /// Files that are gone.
    pub deleted: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
}

impl Workload {
    /// A short name for tables and files, such as `many-files-100000`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::ManyFiles { files, .. } => format!("many-files-{files}"),
            Self::BigFile { bytes } => format!("big-file-{}", short(*bytes)),
            Self::Laptop { files } => format!("laptop-{files}"),
            Self::HugeDirectory { files } => format!("huge-directory-{files}"),
            Self::VmImage { bytes } => format!("vm-image-{}", short(*bytes)),
        }
    }

    /// Makes the tree in `root`, which does not exist yet.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn create(&self, root: &Path, seed: u64) -> io::Result<Size> {
        fs::create_dir_all(root)?;
        match *self {
            Self::ManyFiles { files, bytes } => many(root, seed, files, bytes),
            Self::HugeDirectory { files } => small_files(root, &mut Random::new(seed), 0..files, 10),
            Self::BigFile { bytes } => big(&root.join("big"), seed, bytes),
            Self::Laptop { files } => laptop::create(root, seed, files),
            Self::VmImage { bytes } => vm::create(&root.join("disk.img"), seed, bytes),
        }
    }

    /// Edits the tree. `round` counts from 1, and rounds are made in order.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn edit(&self, root: &Path, seed: u64, round: u64) -> io::Result<Edits> {
        let mut random = Random::part(seed, round);
        match *self {
            Self::ManyFiles { files, .. } => {
                let number = random.below(files);
                let file = format!("{:05}/{number:07}", number / PER_DIRECTORY);
                rewrite(&root.join(file), &mut random)
            }
            Self::HugeDirectory { files } => {
                let number = random.below(files);
                rewrite(&root.join(format!("{number:07}")), &mut random)
            }
            Self::BigFile { bytes } => vm::scatter(&root.join("big"), &mut random, bytes),
            Self::Laptop { .. } => laptop::edit(root, &mut random, round),
            Self::VmImage { bytes } => vm::scatter(&root.join("disk.img"), &mut random, bytes),
        }
    }
}

fn many(root: &Path, seed: u64, files: u64, bytes: u64) -> io::Result<Size> {
    let mut random = Random::new(seed);
    let mut size = Size::default();
    for first in (0..files).step_by(usize::try_from(PER_DIRECTORY).unwrap_or(usize::MAX)) {
        let directory = root.join(format!("{:05}", first / PER_DIRECTORY));
        fs::create_dir(&directory)?;
        let here = small_files(&directory, &mut random, first..files.min(first + PER_DIRECTORY), bytes)?;
        size.files += here.files;
        size.bytes += here.bytes;
    }
    Ok(size)
}

fn small_files(
    directory: &Path,
    random: &mut Random,
    numbers: std::ops::Range<u64>,
    most: u64,
) -> io::Result<Size> {
    let mut size = Size::default();
    let mut content = Vec::new();
    for number in numbers {
        let length = 1 + random.below(most);
        content.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        random.fill(&mut content);
        fs::write(directory.join(format!("{number:07}")), &content)?;
        size.files += 1;
        size.bytes += length;
    }
    Ok(size)
}

fn rewrite(file: &Path, random: &mut Random) -> io::Result<Edits> {
    let mut content = [0; 11];
    random.fill(&mut content);
    fs::write(file, content)?;
    Ok(Edits { changed: 1, bytes_written: 11, ..Edits::default() })
}

fn big(path: &Path, seed: u64, bytes: u64) -> io::Result<Size> {
    write_with(path, bytes, &mut Random::new(seed), Random::fill)?;
    Ok(Size { files: 1, bytes })
}

/// Writes a file of that length, block by block.
fn write_with(
    path: &Path,
    bytes: u64,
    random: &mut Random,
    fill: impl Fn(&mut Random, &mut [u8]),
) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(0, File::create(path)?);
    let mut block = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        let part = block.get_mut(..length).unwrap_or_default();
        fill(random, part);
        file.write_all(part)?;
        left -= u64::try_from(length).unwrap_or(left);
    }
    file.flush()
}

/// A length with a unit, for names.
fn short(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{}k", bytes / 1000),
        1_000_000..1_000_000_000 => format!("{}M", bytes / 1_000_000),
        _ => format!("{}G", bytes / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests;
