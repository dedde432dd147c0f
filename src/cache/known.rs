//! Repositories that were opened before: what is needed to start before the server has answered.
//!
//! The directory above the caches of the repositories holds, for each location a repository was opened at, its id and copies of its configuration and key slots. A repository that
//! was replaced or moved is noticed when the server has answered: what is here is a guess.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::{Filling, Reader};
use super::own::{self, LOCATIONS};
use super::{Cache, CacheError, Kind, private_directory};
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
        own::home_directory(root)?;
        private_directory(&root.join(LOCATIONS))?;
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
        let reader = Reader::open(&self.root.join(LOCATIONS).join(name), Kind::Record, name).ok()?;
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
            let mut filling = Filling::new(&self.root.join(LOCATIONS))?;
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
        let entries = fs::read_dir(self.root.join(LOCATIONS)).into_iter().flatten();
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.any(|name| self.read(&name).is_some_and(|known| known.repository == id))
    }

    /// Forgets what was opened at this location.
    pub fn forget(&self, location: &str) {
        let _ = fs::remove_file(self.entry(location).1);
    }

    /// Forgets what was opened at any location, for good: who is going to remember another one opens the directory anew. What others keep beside it stays.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget_all(&self) -> io::Result<()> {
        own::remove_locations(&self.root.join(LOCATIONS))
    }

    /// Removes the directory itself if it was kitbag's alone, and nothing is left in it but its tag.
    pub fn leave(&self) {
        own::leave(&self.root);
    }

    /// The repositories that have a cache here.
    #[must_use]
    pub fn repositories(&self) -> Vec<RepositoryId> {
        let entries = fs::read_dir(&self.root).into_iter().flatten();
        let caches = entries.flatten().filter(|entry| own::is_repository(&entry.path()));
        let mut ids: Vec<_> = caches.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        ids.sort();
        ids
    }

    /// Removes the cache of a repository.
    ///
    /// # Errors
    /// What the system says; that there is something else under its name. A cache that is not there is removed already.
    pub fn clear(&self, id: RepositoryId) -> io::Result<()> {
        own::remove_repository(&self.directory(id))
    }

    fn entry(&self, location: &str) -> (String, PathBuf) {
        let name = blake3::hash(location.as_bytes()).to_hex().to_string();
        let path = self.root.join(LOCATIONS).join(&name);
        (name, path)
    }
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
