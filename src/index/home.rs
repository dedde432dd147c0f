//! Where the files of the local index are: a directory that keeps them, one in which they have no names, or memory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::map::Bytes;
use super::summed::Sink;

/// A place for files; clones are the same place.
#[derive(Debug, Clone)]
pub(super) enum Home {
    /// A directory of this user alone.
    Directory(PathBuf),
    /// A directory for temporary files: a file has a name there for a moment only, and is gone with its last user.
    Nameless(PathBuf),
    /// No directory: what is made lives in memory, and is gone with its last user.
    Memory,
}

impl Home {
    /// A directory, made (0700, with its parents) if it is missing.
    pub(super) fn directory(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self::Directory(path.to_owned()))
    }

    /// Begins a file that is not there yet.
    pub(super) fn create(&self, name: &str) -> io::Result<Sink> {
        match self {
            Self::Directory(path) => {
                let mut options = OpenOptions::new();
                let file =
                    options.read(true).write(true).create_new(true).mode(0o600).open(path.join(name))?;
                Ok(Sink::File(file))
            }
            Self::Nameless(path) => Self::Directory(path.clone()).scratch(),
            Self::Memory => Ok(Sink::Memory(vec![])),
        }
    }

    /// Begins a file that nobody else sees and that goes with its handle.
    pub(super) fn scratch(&self) -> io::Result<Sink> {
        let name = format!("kitbag-{:016x}.tmp", u64::from_ne_bytes(crate::base::random_bytes()));
        let sink = self.create(&name)?;
        self.remove(&name)?;
        Ok(sink)
    }

    /// Opens a file that was made in a directory.
    pub(super) fn open(&self, name: &str) -> io::Result<Bytes> {
        match self {
            Self::Directory(path) => Bytes::map(&File::open(path.join(name))?),
            Self::Nameless(_) | Self::Memory => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Makes a file durable.
    pub(super) fn sync(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Directory(path) => File::open(path.join(name))?.sync_data(),
            Self::Nameless(_) | Self::Memory => Ok(()),
        }
    }

    /// Removes a file; one that is not there is no failure.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Directory(path) => match fs::remove_file(path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            Self::Nameless(_) | Self::Memory => Ok(()),
        }
    }
}
