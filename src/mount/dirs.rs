//! Inode numbers of what stands in generations.
//!
//! A directory that is looked into for the first time gets a range of numbers, one for each of its entries; an entry's number is its place in that range. So what
//! is remembered grows with the directories that were looked into, not with their entries, and a number leads back to its entry: to the range, to the
//! directory, to the page. Numbers are never given twice, and stay as long as the mount does.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::opened::Opened;
use super::roots::Roots;
use crate::entry::Reference;

/// The first number of what stands in generations: those below are for what stands above them.
pub const FIRST: u64 = 1 << 32;

/// A directory that was looked into.
pub struct Dir {
    /// Its inode number.
    pub inode: u64,
    /// That of the directory that it stands in.
    pub parent: u64,
    /// The generation.
    pub generation: Arc<Opened>,
    /// Its top page.
    pub top: Option<Reference>,
    /// The number of its first entry.
    pub first: u64,
    /// How many entries its pages have.
    pub stored: u64,
    /// The roots that stand below it, and their names in order: they are numbered behind the stored entries.
    pub roots: Option<Arc<Roots>>,
    /// Their names.
    pub names: Vec<Box<[u8]>>,
}

impl Dir {
    /// How many numbers it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.stored.saturating_add(u64::try_from(self.names.len()).unwrap_or(u64::MAX))
    }
}

/// The directories that were looked into.
#[derive(Default)]
pub struct Dirs(Mutex<Known>);

struct Known {
    by_inode: HashMap<u64, Arc<Dir>>,
    by_first: BTreeMap<u64, Arc<Dir>>,
    next: u64,
}

impl Default for Known {
    fn default() -> Self {
        Self { by_inode: HashMap::new(), by_first: BTreeMap::new(), next: FIRST }
    }
}

impl Dirs {
    /// The directory with this number, if it was looked into.
    #[must_use]
    pub fn get(&self, inode: u64) -> Option<Arc<Dir>> {
        self.lock().by_inode.get(&inode).cloned()
    }

    /// The directory that the entry with this number stands in, and its place there.
    #[must_use]
    pub fn around(&self, inode: u64) -> Option<(Arc<Dir>, u64)> {
        let known = self.lock();
        let (first, dir) = known.by_first.range(..=inode).next_back()?;
        let index = inode.checked_sub(*first)?;
        (index < dir.len()).then(|| (Arc::clone(dir), index))
    }

    /// Gives a directory its range, unless somebody was quicker.
    pub fn add(&self, dir: Dir) -> Arc<Dir> {
        let mut known = self.lock();
        if let Some(dir) = known.by_inode.get(&dir.inode) {
            return Arc::clone(dir);
        }
        let dir = Arc::new(Dir { first: known.next, ..dir });
        known.next = known.next.saturating_add(dir.len());
        if dir.len() > 0 {
            known.by_first.insert(dir.first, Arc::clone(&dir));
        }
        known.by_inode.insert(dir.inode, Arc::clone(&dir));
        dir
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::generation;
    use super::*;
    use crate::base::id::ClientId;

    #[test]
    fn numbers_lead_back() {
        let generation = Opened::new(ClientId([0; ClientId::LEN]), generation(1, 1, Vec::new()));
        let dir = |inode, stored, names: &[&str]| Dir {
            inode,
            parent: 1,
            generation: Arc::clone(&generation),
            top: None,
            first: 0,
            stored,
            roots: None,
            names: names.iter().map(|name| name.as_bytes().into()).collect(),
        };
        let dirs = Dirs::default();
        assert!(dirs.around(FIRST).is_none());
        let one = dirs.add(dir(5, 3, &["x"]));
        let empty = dirs.add(dir(6, 0, &[]));
        let two = dirs.add(dir(one.first + 1, 2, &[]));
        assert_eq!([one.first, empty.first, two.first], [FIRST, FIRST + 4, FIRST + 4]);
        let around = |inode| dirs.around(inode).map(|(dir, index)| (dir.inode, index));
        assert_eq!(around(FIRST + 3), Some((5, 3)));
        assert_eq!(around(FIRST + 4), Some((FIRST + 1, 0)));
        assert_eq!(around(FIRST + 6), None);
        assert_eq!(around(7), None);
        assert_eq!(dirs.add(dir(5, 9, &[])).first, FIRST, "the first one stays");
    }
}
