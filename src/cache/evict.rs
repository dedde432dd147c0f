//! Keeps the cache within its budget.
//!
//! The file `usage` holds the sum of all files' sizes, as far as it was told: each process adds what it wrote, under a lock that nobody waits for.
//! Only when the sum exceeds the budget are all files looked at, and the sum is then exact again. Files replaced or removed make it too high, which costs
//! a look too early and nothing else.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;

use super::{Kind, Usage};
use crate::base::atomic_file;

/// Bytes written that may be untold: a sum for every small file would cost more than the file.
const UNTOLD: u64 = 1 << 20;

/// Counts `bytes` more that were written, and tells them when they are enough. Nothing here fails loudly: the worst is a cache that is too large until the next time.
pub(super) fn added(root: &Path, budget: u64, untold: &AtomicU64, bytes: u64) {
    let sum = untold.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    if sum >= UNTOLD.min(budget / 16) {
        tell(root, budget, untold);
    }
}

/// Adds what is untold to the sum, and makes room when that is too much.
pub(super) fn tell(root: &Path, budget: u64, untold: &AtomicU64) {
    if untold.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(_lock) = lock(root) else { return };
    let sum = untold.swap(0, Ordering::Relaxed);
    let told = fs::read_to_string(root.join("usage")).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let total = match told.map(|told| told.saturating_add(sum)) {
        Some(total) if total <= budget => total,
        // Too many, or nobody knows how many.
        _ => make_room(root, budget),
    };
    let _ = atomic_file::replace(&root.join("usage"), total.to_string().as_bytes(), false);
}

/// Held until the file is dropped; `None` when another holds it, who will do or tell later.
fn lock(root: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(root.join("lock")).ok()?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

struct Found {
    /// When it was last used: seconds and nanoseconds.
    used: (i64, i64),
    path: PathBuf,
    bytes: u64,
}

fn files(dir: &Path) -> impl Iterator<Item = Found> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let used = (metadata.mtime(), metadata.mtime_nsec());
        Some(Found { used, path: entry.path(), bytes: metadata.len() })
    })
}

/// Removes what was used longest ago if there is more than the budget, until nine tenths of it are left; returns how many bytes are left.
fn make_room(root: &Path, budget: u64) -> u64 {
    let mut found: Vec<_> = Kind::ALL.iter().flat_map(|kind| files(&root.join(kind.directory()))).collect();
    // What a crash has left half-written ages like the rest.
    found.extend(files(root).filter(|file| file.path.extension().is_some_and(|end| end == "tmp")));
    let mut total: u64 = found.iter().map(|file| file.bytes).sum();
    if total <= budget {
        return total;
    }
    let enough = budget - budget / 10;
    found.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.path.cmp(&b.path)));
    for file in found {
        if total <= enough {
            break;
        }
        if fs::remove_file(&file.path).is_ok() {
            total = total.saturating_sub(file.bytes);
        }
    }
    total
}

/// What is there of one kind.
pub(super) fn usage(root: &Path, kind: Kind) -> Usage {
    sum(&root.join(kind.directory()), Usage { kind: Some(kind), files: 0, bytes: 0 })
}

/// What is there in a directory, beside what was counted already.
pub(super) fn sum(dir: &Path, counted: Usage) -> Usage {
    files(dir).fold(counted, |sum, file| Usage {
        kind: sum.kind,
        files: sum.files.saturating_add(1),
        bytes: sum.bytes.saturating_add(file.bytes),
    })
}
