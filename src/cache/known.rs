//! Repositories that were opened before: what is needed to start before the server has answered.
//!
//! The directory above the caches of the repositories holds, for each location a repository was opened at, its id and copies of its configuration and key slots. A repository that
//! was replaced or moved is noticed when the server has answered: what is here is a guess.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::{Filling, Reader};
use super::{Cache, CacheError, Kind, TAG, private_directory, tag};
use crate::base::codec;
use crate::base::id::{KeySlotId, RepositoryId};

/// Bytes that an entry may have.
const LIMIT: usize = 4 << 20;

/// The directory of all caches of a user, `$XDG_CACHE_HOME/kitbag`.
#[derive(Debug, Clone)]
pub struct CacheHome {
    root: PathBuf,
}

/// A repository that was opened at a location before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its id.
    pub repository: RepositoryId,
    /// The file `config`, as it was read.
    #[serde(with = "serde_bytes")]
    pub config: Vec<u8>,
    /// The key slots, as they were read.
    pub key_slots: Vec<KnownSlot>,
}

/// A key slot as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownSlot {
    /// Its name.
    pub id: KeySlotId,
    /// Its bytes.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

impl CacheHome {
    /// The caches in this directory, which is made private (0700) with all it lacks.
    ///
    /// # Errors
    /// When the directory cannot be used, in a sentence for the user.
    pub fn open(root: &Path) -> Result<Self, CacheError> {
        private_directory(root)?;
        private_directory(&root.join("locations"))?;
        if !root.join(TAG).exists() && holds_nothing_else(root) {
            tag(root);
        }
        Ok(Self { root: root.to_owned() })
    }

    /// The cache of a repository.
    ///
    /// # Errors
    /// As [`Cache::open`].
    pub fn repository(&self, id: RepositoryId, budget: u64) -> Result<Cache, CacheError> {
        Cache::open(&self.directory(id), budget)
    }

    /// Where the cache of a repository is, or would be.
    #[must_use]
    pub fn directory(&self, id: RepositoryId) -> PathBuf {
        self.root.join(id.to_string())
    }

    /// What was opened at this location (its one spelling) the last time; `None` when nothing was, or what is kept is damaged.
    #[must_use]
    pub fn known(&self, location: &str) -> Option<Known> {
        self.read(&self.entry(location).0)
    }

    fn read(&self, name: &str) -> Option<Known> {
        let reader = Reader::open(&self.root.join("locations").join(name), Kind::Record, name).ok()?;
        let bytes = reader.read(0, reader.len()).ok()?;
        codec::decode(&bytes, "known repository", LIMIT).ok()
    }

    /// Remembers what was opened at this location. A failure costs the next run a round trip, and is not told.
    pub fn remember(&self, location: &str, known: &Known) {
        if self.known(location).as_ref() == Some(known) {
            return;
        }
        let (name, path) = self.entry(location);
        let write = || {
            let mut filling = Filling::new(&self.root.join("locations"))?;
            filling.append(&codec::encode(known))?;
            filling.finish(&path, Kind::Record, &name)
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "a location was not remembered");
        }
    }

    /// Whether this repository was opened at any location that is not forgotten.
    #[must_use]
    pub fn is_known(&self, id: RepositoryId) -> bool {
        let entries = fs::read_dir(self.root.join("locations")).into_iter().flatten();
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.any(|name| self.read(&name).is_some_and(|known| known.repository == id))
    }

    /// Forgets what was opened at this location.
    pub fn forget(&self, location: &str) {
        let _ = fs::remove_file(self.entry(location).1);
    }

    /// Forgets what was opened at any location, for good: who is going to remember another one opens the directory anew.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget_all(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.root.join("locations")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The repositories that have a cache here.
    #[must_use]
    pub fn repositories(&self) -> Vec<RepositoryId> {
        let entries = fs::read_dir(&self.root).into_iter().flatten();
        let mut ids: Vec<_> =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        ids.sort();
        ids
    }

    /// Removes the cache of a repository.
    ///
    /// # Errors
    /// What the system says; a cache that is not there is removed already.
    pub fn clear(&self, id: RepositoryId) -> io::Result<()> {
        match fs::remove_dir_all(self.directory(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn entry(&self, location: &str) -> (String, PathBuf) {
        let name = blake3::hash(location.as_bytes()).to_hex().to_string();
        let path = self.root.join("locations").join(&name);
        (name, path)
    }
}

/// The directories that are kitbag's alone: the one of all caches, unless somebody keeps something else in it, too; then those of kitbag's in it.
#[must_use]
pub fn own_directories(root: &Path) -> Vec<PathBuf> {
    if !root.is_dir() {
        return Vec::new();
    }
    if holds_nothing_else(root) {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries.filter(|entry| is_own(&entry.file_name())).map(|entry| entry.path()).collect()
}

/// Whether a directory has nothing in it but what kitbag has put there.
fn holds_nothing_else(root: &Path) -> bool {
    fs::read_dir(root).is_ok_and(|entries| {
        entries.into_iter().all(|entry| entry.is_ok_and(|entry| is_own(&entry.file_name())))
    })
}

fn is_own(name: &OsStr) -> bool {
    let is_repository = |name: &str| name.parse::<RepositoryId>().is_ok();
    name.to_str().is_some_and(|name| ["locations", "turns", TAG].contains(&name) || is_repository(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        let slots = [vec![1], vec![2; 100]];
        let key_slots = slots.map(|bytes| KnownSlot { id: KeySlotId::random(), bytes }).to_vec();
        Known { repository: RepositoryId::random(), config: vec![1, 2, 3], key_slots }
    }

    #[test]
    fn a_location_is_remembered_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let home = CacheHome::open(&dir.path().join("kitbag")).unwrap();
        let (one, two) = (known(), known());
        let (one_id, two_id) = (one.repository, two.repository);
        assert_eq!(home.known("sftp://a/x"), None);
        home.remember("sftp://a/x", &one);
        home.remember("sftp://b/x", &two);
        assert_eq!(home.known("sftp://a/x"), Some(one));
        home.remember("sftp://a/x", &two);
        assert_eq!(home.known("sftp://a/x"), Some(two));
        home.forget("sftp://a/x");
        assert_eq!(home.known("sftp://a/x"), None);
        assert!(home.known("sftp://b/x").is_some());
        assert!(home.is_known(two_id) && !home.is_known(one_id));
        home.forget_all().unwrap();
        assert_eq!(home.known("sftp://b/x"), None);
    }

    #[test]
    fn damage_is_absence() {
        let dir = tempfile::tempdir().unwrap();
        let home = CacheHome::open(dir.path()).unwrap();
        home.remember("a", &known());
        let path = home.entry("a").1;
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            if let Some(byte) = bad.get_mut(at) {
                *byte ^= 1;
            }
            fs::write(&path, &bad).unwrap();
            assert_eq!(home.known("a"), None, "flipped at {at}");
            fs::write(&path, good.get(..at).unwrap()).unwrap();
            assert_eq!(home.known("a"), None, "cut at {at}");
        }
        // Another location's entry says nothing about this one.
        fs::write(home.entry("b").1, &good).unwrap();
        assert_eq!(home.known("b"), None);
    }

    #[test]
    fn what_others_keep_there_is_not_kitbags() {
        let dir = tempfile::tempdir().unwrap();
        let (alone, shared) = (dir.path().join("alone"), dir.path().join("shared"));
        fs::create_dir(&shared).unwrap();
        fs::write(shared.join("letter"), "of somebody").unwrap();
        let id = RepositoryId::random();
        for root in [&alone, &shared] {
            CacheHome::open(root).unwrap().repository(id, 1 << 20).unwrap();
        }
        assert_eq!(own_directories(&alone), std::slice::from_ref(&alone));
        let mut own = own_directories(&shared);
        own.sort();
        let mut expected = [shared.join(id.to_string()), shared.join("locations")];
        expected.sort();
        assert_eq!(own, expected);
        // Whoever leaves out what is tagged shall not lose the letter.
        assert!(alone.join(TAG).exists() && !shared.join(TAG).exists());
        assert!(own_directories(&dir.path().join("nowhere")).is_empty());
    }

    #[test]
    fn caches_are_listed_and_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let home = CacheHome::open(dir.path()).unwrap();
        let id = RepositoryId::random();
        home.repository(id, 1 << 20).unwrap().put(Kind::Record, "x", b"x");
        assert_eq!(home.repositories(), [id]);
        home.clear(id).unwrap();
        home.clear(id).unwrap();
        assert!(home.repositories().is_empty());
    }
}
