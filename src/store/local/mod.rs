//! A store in a local directory.
//!
//! What is small and must happen in order (creating, opening, listing, removing, renaming) is done by the caller's thread before the call
//! returns; what takes long (reading many bytes, writing, making durable) by a few threads of the store's own ([`pool`]), so that the
//! fsync of one bag overlaps with the writing of the next. Dropping the store and its uploads waits for what was started.

mod dirs;
mod pool;
mod upload;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, OFlags, RenameFlags};
use rustix::io::Errno;

use self::dirs::Dirs;
use self::pool::Pool;
use super::{Class, ErrorKind, Listed, Name, Pending, Store, StoreError, Traffic, Upload};
use crate::base::budget::Budget;
use crate::base::text;

/// Bytes that may wait to be written, of all uploads together.
const OUTSTANDING: u64 = 64 << 20;

/// Threads that write, read and make durable; more than the processors, since they mostly wait for the disk.
const THREADS: usize = 4;

/// Reads up to this length are done by the caller: handing them over would cost more.
const SMALL_READ: u64 = 64 << 10;

/// A directory on a local disk. Its files are made for their owner alone (0600, directories 0700).
///
/// A missing top directory is made by [`Store::make_dir`] only: a disk that was unmounted does not make a second repository in its mount point.
pub struct LocalStore {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
}

/// What uploads and background jobs need of their store.
struct Shared {
    root: PathBuf,
    dirs: Dirs,
    budget: Budget,
}

impl LocalStore {
    /// The store in the directory `root`, which need not exist yet.
    ///
    /// # Errors
    /// When its threads cannot be started.
    pub fn new(root: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let root = root.into();
        let pool = Pool::new(THREADS).map_err(|error| StoreError::from_io("open", show(&root), error))?;
        let shared = Shared { root, dirs: Dirs::new(), budget: Budget::new(OUTSTANDING) };
        Ok(Self { shared: Arc::new(shared), pool: Arc::new(pool) })
    }

    /// Has `act` done by one of the store's threads.
    fn later<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> Pending<T> {
        let (completer, pending) = Pending::later();
        let shared = Arc::clone(&self.shared);
        self.pool.run(move || completer.complete(act(&shared)));
        pending
    }

    /// Makes what was changed in these directories durable, in the background.
    fn settle(&self, dirs: Vec<PathBuf>, operation: &'static str, subject: String) -> Pending<()> {
        let ticket = self.shared.dirs.ticket();
        self.later(move |shared| {
            let synced = dirs.iter().try_for_each(|dir| shared.dirs.sync(dir, ticket));
            synced.map_err(|error| StoreError::from_io(operation, subject, error))
        })
    }
}

fn show(path: &Path) -> String {
    text::escape(path.as_os_str().as_encoded_bytes())
}

impl Shared {
    fn path(&self, name: &Name) -> PathBuf {
        if *name == Name::top() { self.root.clone() } else { self.root.join(name.as_str()) }
    }

    fn subject(&self, name: &Name) -> String {
        show(&self.path(name))
    }

    fn error(&self, operation: &'static str, name: &Name, error: io::Error) -> StoreError {
        StoreError::from_io(operation, self.subject(name), error)
    }

    /// Makes the directories that `dir`, a directory below the top, lacks.
    fn make_dirs(&self, dir: &Path) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Whoever uses it will be told if it is no directory.
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && dir != self.root => {
                match dir.parent() {
                    Some(parent) if parent != self.root => self.make_dirs(parent)?,
                    _ => return Err(error),
                }
                return self.make_dirs(dir);
            }
            Err(error) => return Err(error),
        }
        if let Some(parent) = dir.parent() {
            self.dirs.changed(parent);
        }
        Ok(())
    }

    /// Does something that needs the parent directory of `path`, making that when it is missing.
    fn with_parent<T>(&self, path: &Path, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match (act(), path.parent()) {
            (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound && parent != self.root => {
                self.make_dirs(parent)?;
                act()
            }
            (outcome, _) => outcome,
        }
    }

    /// Opens for reading.
    fn open(&self, name: &Name) -> Result<File, StoreError> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags(OFlags::NOFOLLOW));
        options.open(self.path(name)).map_err(|error| self.error("read", name, error))
    }

    /// Renames without overwriting, making the directory of `to` when it is missing. Not durable yet.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.with_parent(to, || rename_new(from, to))
    }

    /// The directories to be made durable after renaming.
    fn touched(from: &Path, to: &Path) -> Vec<PathBuf> {
        let mut dirs: Vec<_> = [to, from].into_iter().filter_map(Path::parent).map(Path::to_owned).collect();
        dirs.dedup();
        dirs
    }
}

fn flags(flags: OFlags) -> i32 {
    // The bits of open(2) are an int.
    i32::from_ne_bytes(flags.bits().to_ne_bytes())
}

/// Renames; a file system that cannot refuse to overwrite (NFS, some FUSE) is asked for a second link instead, which never overwrites.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_new(from, to),
        outcome => Ok(outcome?),
    }
}

/// Links the file to its new name and removes the old one. Who cannot remove it has lost to another who renamed or removed it, and takes his link back.
fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    fs::remove_file(from).inspect_err(|_| {
        // What said that the old name is gone is the failure to tell.
        let _ = fs::remove_file(to);
    })
}

/// Exactly the range.
fn read_range(file: &File, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    // Checked before memory is taken: the length may come from a damaged table.
    if offset.checked_add(len).is_none_or(|end| end > size) {
        let missing = format!("it ends at byte {size}, before the end of the {len} bytes from {offset}");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, missing));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

impl Store for LocalStore {
    fn describe(&self) -> String {
        show(&self.shared.root)
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        let listed = match fs::read_dir(self.shared.path(dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
            Ok(entries) => {
                entries.filter_map(|entry| entry.and_then(|entry| listed(&entry)).transpose()).collect()
            }
        };
        Pending::ready(listed.map_err(|error| self.shared.error("list", dir, error)))
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        let file = match self.shared.open(name) {
            Ok(file) => file,
            Err(error) => return Pending::ready(Err(error)),
        };
        let subject = self.shared.subject(name);
        let read = move || {
            read_range(&file, offset, len).map_err(|error| StoreError::from_io("read", subject, error))
        };
        if len <= SMALL_READ { Pending::ready(read()) } else { self.later(move |_| read()) }
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        let tail = self.shared.open(name).and_then(|file| {
            let read = || {
                let size = file.metadata()?.len();
                let len = len.min(size);
                Ok((read_range(&file, size.saturating_sub(len), len)?, size))
            };
            read().map_err(|error| self.shared.error("read", name, error))
        });
        Pending::ready(tail)
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        let opened = self.shared.open(name).and_then(|file| match file.metadata() {
            Ok(metadata) => Ok((file, metadata.len())),
            Err(error) => Err(self.shared.error("read", name, error)),
        });
        let (file, size) = match opened {
            Ok(opened) => opened,
            Err(error) => return Pending::ready(Err(error)),
        };
        let subject = self.shared.subject(name);
        if size > limit {
            let detail = format!("it has {size} bytes, and at most {limit} are allowed");
            return Pending::ready(Err(StoreError::new(ErrorKind::TooLong, "read", subject, detail)));
        }
        let read =
            move || read_range(&file, 0, size).map_err(|error| StoreError::from_io("read", subject, error));
        if size <= SMALL_READ { Pending::ready(read()) } else { self.later(move |_| read()) }
    }

    fn create(&self, name: &Name, _class: Class) -> Box<dyn Upload> {
        Box::new(upload::LocalUpload::new(&self.shared, &self.pool, name))
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        let path = self.shared.path(name);
        match fs::remove_file(&path) {
            Ok(()) => {
                let dir = path.parent().map(Path::to_owned);
                self.settle(dir.into_iter().collect(), "remove", show(&path))
            }
            Err(error) => Pending::ready(Err(self.shared.error("remove", name, error))),
        }
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        let (old, new) = (self.shared.path(from), self.shared.path(to));
        match self.shared.rename(&old, &new) {
            Ok(()) => self.settle(Shared::touched(&old, &new), "rename", show(&old)),
            Err(error) => {
                let taken = error.kind() == io::ErrorKind::AlreadyExists;
                Pending::ready(Err(self.shared.error("rename", if taken { to } else { from }, error)))
            }
        }
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        let path = self.shared.path(dir);
        let root = &self.shared.root;
        let made = self.shared.make_dirs(root).and_then(|()| self.shared.make_dirs(&path));
        match made {
            Ok(()) if path.is_dir() => {
                let above =
                    path.ancestors().skip(1).take_while(|above| above.starts_with(root)).chain(root.parent());
                self.settle(above.map(Path::to_owned).collect(), "create", show(&path))
            }
            Ok(()) => Pending::ready(Err(self.shared.error("create", dir, Errno::NOTDIR.into()))),
            Err(error) => Pending::ready(Err(self.shared.error("create", dir, error))),
        }
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

/// An entry as a listing shows it; `None` when it was removed meanwhile. Follows symbolic links: a directory may have been moved to another disk.
fn listed(entry: &fs::DirEntry) -> io::Result<Option<Listed>> {
    let metadata = match fs::metadata(entry.path()).or_else(|_| entry.metadata()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    Ok(Some(Listed {
        name: entry.file_name().to_string_lossy().into_owned(),
        size: metadata.len(),
        modified: std::os::unix::fs::MetadataExt::mtime(&metadata),
        is_dir: metadata.is_dir(),
    }))
}

#[cfg(test)]
mod tests;
