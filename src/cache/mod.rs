//! The local cache: never trusted further than its checks, never needed for correctness.
//!
//! A [`Cache`] keeps copies of a repository's small files and tree bags in a private directory, under a [`Kind`] and a name:
//!
//! ```text
//! <cache>/bags/<name> index/<name> records/<name> listings/<name>    files of the form in `file`
//! <cache>/chunks                                                     the local chunk index, which has checks of its own
//! <cache>/usage                                                      how many bytes they have, roughly
//! <cache>/lock                                                       held while that is brought up to date
//! ```
//!
//! - **Damage is absence.** Every file ends with checks bound to its kind and name. One that is truncated, flipped, or another's is removed and
//!   reported as not there. An *old copy* of a file has valid checks: so what changes under one name (a listing) is a hint, never a proof.
//! - **Never in the way.** Reading fails by giving nothing. The first failure to write is kept as one sentence ([`Cache::trouble`]), and nothing is
//!   written any more. [`Cache::disabled`] holds nothing.
//! - **It decides nothing**: that a chunk is in the repository is never concluded from a file here being there.
//! - **Shared.** Threads and processes may use a directory at once: files appear and go atomically, without a common lock for reading.
//! - **Bounded.** When more than the budget is there, the files used longest ago go until nine tenths are left. A file's time of modification is when it was last used,
//!   told once per process. All files are looked at only then: the cost is that of what was added, not of what exists.
//!
//! Nothing is made durable: what a crash leaves half-written is noticed when it is read.

pub mod damaged;
pub mod file;
pub mod known;
pub mod own;

mod evict;

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::text;
use file::{Filling, Reader};

/// What a file is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A tree bag.
    Bag,
    /// An index segment.
    Segment,
    /// A generation record, or another small sealed file.
    Record,
    /// What was seen in a listing.
    Listing,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bag, Self::Segment, Self::Record, Self::Listing];

    /// The name of its directory.
    #[must_use]
    pub fn directory(self) -> &'static str {
        match self {
            Self::Bag => "bags",
            Self::Segment => "index",
            Self::Record => "records",
            Self::Listing => "listings",
        }
    }
}

/// Why a directory cannot serve as a cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It cannot be made or used.
    #[error("working without a cache, since {directory} cannot be used: {source}")]
    Unusable {
        /// The directory.
        directory: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is another's, who could read along.
    #[error("working without a cache, since {directory} belongs to another user")]
    Foreign {
        /// The directory.
        directory: String,
    },
}

/// The name of the directory of the local chunk index ([`Cache::directory`]).
pub const CHUNK_INDEX: &str = "chunks";

/// The name of the directory of what is kept of a run until it is uploaded ([`Cache::directory`]).
pub const UNFINISHED: &str = "unfinished";

/// What is there of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Which; `None` for the local chunk index.
    pub kind: Option<Kind>,
    /// How many files.
    pub files: u64,
    /// Their bytes, with their checks.
    pub bytes: u64,
}

/// The cache of one repository; clones share it.
#[derive(Clone)]
pub struct Cache(Option<Arc<Inner>>);

struct Inner {
    root: PathBuf,
    budget: u64,
    /// Bytes written that the file `usage` does not tell yet.
    added: AtomicU64,
    /// Files whose use was told already.
    touched: Mutex<HashSet<(Kind, String)>>,
    failed: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        evict::tell(&self.root, self.budget, &self.added);
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(inner) => write!(f, "Cache({:?})", inner.root),
            None => f.write_str("Cache(disabled)"),
        }
    }
}

impl Cache {
    /// A cache that holds nothing.
    #[must_use]
    pub fn disabled() -> Self {
        Self(None)
    }

    /// The cache in the directory `root`, which is made private (0700) with all it lacks; it holds about `budget` bytes at most.
    ///
    /// # Errors
    /// When the directory cannot be used, in a sentence for the user.
    pub fn open(root: &Path, budget: u64) -> Result<Self, CacheError> {
        private_directory(root)?;
        for kind in Kind::ALL {
            private_directory(&root.join(kind.directory()))?;
        }
        tag(root);
        Ok(Self(Some(Arc::new(Inner {
            root: root.to_owned(),
            budget,
            added: AtomicU64::new(0),
            touched: Mutex::default(),
            failed: AtomicBool::new(false),
            trouble: Mutex::default(),
        }))))
    }

    /// Whether it holds nothing and never will.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.0.is_none()
    }

    /// The whole file, if it is there and sound.
    #[must_use]
    pub fn get(&self, kind: Kind, name: &str) -> Option<Vec<u8>> {
        self.read(kind, name, |reader| {
            let len = reader.len();
            reader.read(0, len)
        })
    }

    /// `len` bytes from `offset`, if they are there and sound; only what holds them is read and checked.
    #[must_use]
    pub fn get_range(&self, kind: Kind, name: &str, offset: u64, len: u64) -> Option<Vec<u8>> {
        self.read(kind, name, |reader| reader.read(offset, len))
    }

    /// The last `len` bytes (all, when there are fewer), and the file's length.
    #[must_use]
    pub fn get_tail(&self, kind: Kind, name: &str, len: u64) -> Option<(Vec<u8>, u64)> {
        self.read(kind, name, |reader| {
            let size = reader.len();
            let len = len.min(size);
            Ok((reader.read(size.saturating_sub(len), len)?, size))
        })
    }

    /// The length of the file, if it is there; its bytes are not checked.
    #[must_use]
    pub fn len_of(&self, kind: Kind, name: &str) -> Option<u64> {
        self.read(kind, name, |reader| Ok(reader.len()))
    }

    /// Keeps a file, replacing what has its name.
    pub fn put(&self, kind: Kind, name: &str, bytes: &[u8]) {
        let mut filling = self.fill();
        filling.append(bytes);
        filling.finish(kind, name);
    }

    /// Begins a file that is filled piece by piece, and may get its kind and name at the end.
    #[must_use]
    pub fn fill(&self) -> CacheFilling {
        let filling = self.writable().and_then(|inner| {
            Filling::new(&inner.root)
                .map_err(|error| inner.fail(&error))
                .ok()
                .map(|file| (Arc::clone(inner), file))
        });
        CacheFilling(filling)
    }

    /// Forgets a file: it is gone from the repository, or a check above this one has refused it.
    pub fn remove(&self, kind: Kind, name: &str) {
        if let Some(path) = self.0.as_ref().and_then(|inner| inner.path(kind, name)) {
            // Not there is what was wanted; and what cannot be removed is noticed again by whoever reads it.
            let _ = fs::remove_file(path);
        }
    }

    /// The names of the files of a kind, sound or not, in no order.
    #[must_use]
    pub fn names(&self, kind: Kind) -> Vec<String> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let entries = fs::read_dir(inner.root.join(kind.directory())).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| is_name(name)).collect()
    }

    /// A private directory in the cache for files that carry checks of their own (the chunk index) and count against no budget; `None` when it cannot be had.
    #[must_use]
    pub fn directory(&self, name: &str) -> Option<PathBuf> {
        let inner = self.writable()?;
        let path = inner.root.join(name);
        let reserved = Kind::ALL.iter().any(|kind| kind.directory() == name);
        if !is_name(name) || reserved {
            return None;
        }
        match private_directory(&path) {
            Ok(()) => Some(path),
            Err(error) => {
                inner.fail(&error);
                None
            }
        }
    }

    /// The first failure to write, as one sentence; told once.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.0.as_ref().and_then(|inner| lock(&inner.trouble).take())
    }

    /// What is there, by kind.
    #[must_use]
    pub fn info(&self) -> Vec<Usage> {
        let Some(inner) = &self.0 else { return Vec::new() };
        Kind::ALL.iter().map(|kind| evict::usage(&inner.root, *kind)).collect()
    }

    /// What is there of the local chunk index.
    #[must_use]
    pub fn chunk_index(&self) -> Usage {
        let none = Usage { kind: None, files: 0, bytes: 0 };
        self.0.as_ref().map_or(none, |inner| evict::sum(&inner.root.join(CHUNK_INDEX), none))
    }

    /// Removes all there is, the directories of [`Cache::directory`] included.
    ///
    /// # Errors
    /// What the system says.
    pub fn clear(&self) -> io::Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        for entry in fs::read_dir(&inner.root)? {
            let path = entry?.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        for kind in Kind::ALL {
            DirBuilder::new().recursive(true).mode(0o700).create(inner.root.join(kind.directory()))?;
        }
        tag(&inner.root);
        Ok(())
    }

    fn writable(&self) -> Option<&Arc<Inner>> {
        self.0.as_ref().filter(|inner| !inner.failed.load(Ordering::Relaxed))
    }

    fn read<T>(
        &self,
        kind: Kind,
        name: &str,
        read: impl FnOnce(&mut Reader) -> Result<T, file::Unsound>,
    ) -> Option<T> {
        let inner = self.0.as_ref()?;
        let path = inner.path(kind, name)?;
        match Reader::open(&path, kind, name).and_then(|mut reader| Ok((read(&mut reader)?, reader))) {
            Ok((value, reader)) => {
                if lock(&inner.touched).insert((kind, name.to_owned())) {
                    reader.touch();
                }
                Some(value)
            }
            Err(file::Unsound::Damaged) => {
                tracing::debug!(?path, "damaged, dropped");
                let _ = fs::remove_file(&path);
                None
            }
            Err(file::Unsound::Absent | file::Unsound::OutOfRange) => None,
        }
    }
}

impl Inner {
    /// Where a file is; `None` for what is no name.
    fn path(&self, kind: Kind, name: &str) -> Option<PathBuf> {
        is_name(name).then(|| self.root.join(kind.directory()).join(name))
    }

    /// Nothing is written any more.
    fn fail(&self, error: &dyn fmt::Display) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            let place = text::escape(self.root.as_os_str().as_encoded_bytes());
            *lock(&self.trouble) = Some(format!("nothing more is kept in the cache {place}: {error}"));
        }
    }
}

/// A file of the cache being filled; dropped unfinished, nothing is kept.
pub struct CacheFilling(Option<(Arc<Inner>, Filling)>);

impl CacheFilling {
    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        if let Some((inner, filling)) = &mut self.0
            && let Err(error) = filling.append(bytes)
        {
            inner.fail(&error);
            self.0 = None;
        }
    }

    /// Keeps it under this name, replacing what has it.
    pub fn finish(self, kind: Kind, name: &str) {
        let Some((inner, filling)) = self.0 else { return };
        let Some(path) = inner.path(kind, name) else { return };
        // What is larger than all the rest may be would drive that out for nothing.
        if filling.len() > inner.budget {
            return;
        }
        match filling.finish(&path, kind, name) {
            Ok(bytes) => {
                lock(&inner.touched).insert((kind, name.to_owned()));
                evict::added(&inner.root, inner.budget, &inner.added, bytes);
            }
            // Another process has made room and took it for what a crash had left.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && path.parent().is_some_and(Path::is_dir) => {}
            Err(error) => inner.fail(&error),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names are single components; what begins with a dot or ends in `.tmp` is no file of the cache's users.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.+".contains(&byte);
    !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && !name.ends_with(".tmp")
        && name.bytes().all(plain)
}

/// The name of the file that marks a directory as a cache.
const TAG: &str = "CACHEDIR.TAG";

/// What it says.
const TAG_TEXT: &[u8] =
    b"Signature: 8a477f597d28d172789f06886806bc55\n# This is a cache of kitbag. It may be removed.\n";

/// Marks the directory as a cache for backup programs, this one included. It does without where that fails.
fn tag(root: &Path) {
    let made = fs::File::create_new(root.join(TAG)).and_then(|mut file| file.write_all(TAG_TEXT));
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            tracing::debug!(%error, "the cache could not be marked as one");
        }
        _ => {}
    }
}

/// Makes a directory, or makes sure that it is this user's and nobody else's to read.
///
/// # Errors
/// `Foreign`, `Unusable`.
pub fn private_directory(path: &Path) -> Result<(), CacheError> {
    let directory = || text::escape(path.as_os_str().as_encoded_bytes());
    let check = || {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let (metadata, user) = (fs::metadata(path)?, rustix::process::geteuid().as_raw());
        // A link, too, must be this user's: another's could lead to any directory of this user, whose mode is none of a cache's business.
        if metadata.uid() != user || fs::symlink_metadata(path)?.uid() != user {
            return Ok(false);
        }
        if metadata.mode() & 0o777 != 0o700 {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        }
        Ok(true)
    };
    match check() {
        Ok(true) => Ok(()),
        Ok(false) => Err(CacheError::Foreign { directory: directory() }),
        Err(source) => Err(CacheError::Unusable { directory: directory(), source }),
    }
}

#[cfg(test)]
mod tests;
