//! A user's home, and a day's work in it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{Edits, Size, text, write_with};
use crate::random::Random;

/// Of a million files so many are no longer than that and longer than the line before says. About 30 kB on average.
const LENGTHS: [(u64, u64); 6] = [
    (300_000, 1 << 10),
    (700_000, 8 << 10),
    (920_000, 64 << 10),
    (990_000, 256 << 10),
    (999_000, 1 << 20),
    (1_000_000, 8 << 20),
];

/// The log that grows every day.
const LOG: &str = "syslog.log";

/// Makes the tree.
pub(super) fn create(root: &Path, seed: u64, files: u64) -> io::Result<Size> {
    let mut random = Random::new(seed);
    let mut directories = vec![root.to_path_buf()];
    let mut size = Size::default();
    let mut last: Option<PathBuf> = None;
    for number in 0..files {
        if number % 12 == 0 {
            // Early directories are parents more often: a bushy tree, some ten levels deep.
            let at = random.below(u64::try_from(directories.len()).unwrap_or(1));
            let parent = usize::try_from(random.below(at + 1)).unwrap_or_default();
            let directory = directories.get(parent).map_or(root, |path| path).join(format!("d{number:06}"));
            fs::create_dir(&directory)?;
            directories.push(directory);
        }
        let Some(directory) = directories.last() else {
            continue;
        };
        let kind = random.below(1000);
        let path = directory.join(format!("f{number:07}{}", extension(kind)));
        match (&last, kind) {
            (Some(last), 0..20) => symlink(last.file_name().unwrap_or_default(), &path)?,
            (Some(last), 20..25) => {
                fs::hard_link(last, &path)?;
                size.files += 1;
                size.bytes += fs::metadata(&path)?.len();
            }
            _ => {
                let length = length(&mut random);
                write_file(&path, kind, length, &mut random)?;
                size.files += 1;
                size.bytes += length;
                last = Some(path);
            }
        }
        // Links point to a file of their own directory.
        if number % 12 == 11 {
            last = None;
        }
    }
    write_file(&root.join(LOG), 500, 1 << 20, &mut random)?;
    Ok(Size { files: size.files + 1, bytes: size.bytes + (1 << 20) })
}

/// 1 % changed, 1 % new, 0.5 % deleted, one directory renamed, the log appended to.
pub(super) fn edit(root: &Path, random: &mut Random, round: u64) -> io::Result<Edits> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    list(root, &mut files, &mut directories)?;
    let mut edits = Edits::default();
    for path in &files {
        let number = random.below(1_000_000);
        let kind = random.below(1000);
        match number {
            0..10_000 => {
                edits.bytes_written += change(path, random)?;
                edits.changed += 1;
            }
            10_000..15_000 => {
                fs::remove_file(path)?;
                edits.deleted += 1;
            }
            15_000..25_000 => {
                let length = length(random);
                let name = format!("new{round:03}-{:07}{}", edits.created, extension(kind));
                write_file(&path.with_file_name(name), kind.max(25), length, random)?;
                edits.created += 1;
                edits.bytes_written += length;
            }
            _ => {}
        }
    }
    if !directories.is_empty() {
        let chosen = random.below(u64::try_from(directories.len()).unwrap_or(1));
        if let Some(directory) = usize::try_from(chosen).ok().and_then(|at| directories.get(at)) {
            move_directory(directory, round)?;
        }
    }
    let mut lines = vec![0; 8000];
    text::words(random, &mut lines);
    File::options().append(true).open(root.join(LOG))?.write_all(&lines)?;
    edits.changed += 1;
    edits.bytes_written += 8000;
    Ok(edits)
}

#[expect(clippy::disallowed_methods, reason = "a user renames a directory; durability is no concern")]
fn move_directory(directory: &Path, round: u64) -> io::Result<()> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    fs::rename(directory, directory.with_file_name(format!("{name}-moved{round}")))
}

/// Replaces the first fifth of a small file, a page in the middle of a larger one.
fn change(path: &Path, random: &mut Random) -> io::Result<u64> {
    let mut content = fs::read(path)?;
    let length = content.len();
    let (from, to) =
        if length < 20_000 { (0, (length / 5).max(1).min(length)) } else { (length / 2, length / 2 + 4096) };
    if length == 0 {
        content.push(b'x');
    } else {
        text::words(random, content.get_mut(from..to).unwrap_or_default());
    }
    // A new file under the old name, as editors write.
    fs::remove_file(path)?;
    fs::write(path, &content)?;
    u64::try_from(content.len()).map_err(io::Error::other)
}

/// All regular files but the log, and all directories but the root, in an order that does not change.
fn list(directory: &Path, files: &mut Vec<PathBuf>, directories: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            directories.push(entry.path());
            list(&entry.path(), files, directories)?;
        } else if kind.is_file() && entry.file_name() != LOG {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn length(random: &mut Random) -> u64 {
    let rank = random.below(1_000_000);
    let place = LENGTHS.iter().position(|&(until, _)| rank < until).unwrap_or_default();
    let most = LENGTHS.get(place).map_or(0, |line| line.1);
    let least = place.checked_sub(1).and_then(|before| LENGTHS.get(before)).map_or(0, |line| line.1);
    least + random.below(most - least)
}

fn extension(kind: u64) -> &'static str {
    match kind {
        0..20 => ".link",
        25..150 => ".jpg",
        150..450 => ".so",
        _ => ".txt",
    }
}

fn write_file(path: &Path, kind: u64, length: u64, random: &mut Random) -> io::Result<()> {
    match extension(kind) {
        ".jpg" => write_with(path, length, random, Random::fill),
        ".so" => write_with(path, length, random, text::records),
        _ => write_with(path, length, random, text::words),
    }
}
