//! Where a file system may be mounted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::text::escape;

/// Why a directory cannot be mounted on.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// There is none.
    #[error("there is no directory {}", show(.0))]
    Missing(PathBuf),
    /// It is something else.
    #[error("{} is no directory", show(.0))]
    NotADirectory(PathBuf),
    /// There is something in it.
    #[error("the directory {} is not empty", show(.0))]
    NotEmpty(PathBuf),
    /// What is needed to show anything would be hidden, or is no place to put anything.
    #[error("{} belongs to {what}", show(.at))]
    Within {
        /// The directory.
        at: PathBuf,
        /// The repository, or the cache.
        what: &'static str,
    },
    /// A file system stood there whose program is gone.
    #[error("something is mounted on {} that does not answer any more", show(.0))]
    Abandoned(PathBuf),
    /// It cannot be looked at.
    #[error("cannot look at {}: {source}", show(.at))]
    Unreadable {
        /// The directory.
        at: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn show(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

/// The directory `at`, without links in its path, if it may be mounted on: it is empty, and neither is nor lies within one of `taken`.
///
/// # Errors
/// Why it may not.
pub fn check(at: &Path, taken: &[(&Path, &'static str)]) -> Result<PathBuf, PlaceError> {
    let owned = || at.to_owned();
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => PlaceError::Missing(owned()),
        io::ErrorKind::NotADirectory => PlaceError::NotADirectory(owned()),
        io::ErrorKind::NotConnected => PlaceError::Abandoned(owned()),
        _ => PlaceError::Unreadable { at: owned(), source },
    };
    let whole = at.canonicalize().map_err(unreadable)?;
    for (top, what) in taken {
        // What is not there does not lie anywhere.
        if top.canonicalize().is_ok_and(|top| whole.starts_with(top)) {
            return Err(PlaceError::Within { at: owned(), what });
        }
    }
    match fs::read_dir(&whole).map_err(unreadable)?.next() {
        None => Ok(whole),
        Some(Ok(_)) => Err(PlaceError::NotEmpty(owned())),
        Some(Err(source)) => Err(unreadable(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_directory_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["empty", "full/inside", "repository/bags/00", "cache"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("file"), "").unwrap();
        std::os::unix::fs::symlink(path("repository/bags"), path("link")).unwrap();
        let (repository, cache) = (path("repository"), path("cache"));
        let gone = path("gone");
        let taken = [(&*repository, "the repository"), (&*cache, "the cache"), (&*gone, "nobody")];
        let check = |name: &str| check(&path(name), &taken);
        assert_eq!(check("empty").unwrap(), path("empty").canonicalize().unwrap());
        assert!(matches!(check("full"), Err(PlaceError::NotEmpty(_))));
        assert!(matches!(check("file"), Err(PlaceError::NotADirectory(_))));
        assert!(matches!(check("missing"), Err(PlaceError::Missing(_))));
        for name in ["repository", "repository/bags/00", "cache", "link/00"] {
            assert!(matches!(check(name), Err(PlaceError::Within { .. })), "{name}");
        }
    }
}
