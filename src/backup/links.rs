//! Files with several links are read once.

use std::sync::{Mutex, PoisonError};

use lru::LruCache;

use crate::bag::Placing;
use crate::entry::Content;
use crate::live::Stat;

/// Links remembered.
const REMEMBERED: std::num::NonZeroUsize = std::num::NonZeroUsize::new(1 << 16).unwrap();

/// The contents of files with several links, by inode, for as long as the file has not changed. The oldest are forgotten first: such a file is read
/// again, and its chunks found known.
pub struct Links(Mutex<LruCache<(u64, u64), Linked>>);

/// A file when it was read, and what was read.
type Linked = (Stat, Content<Placing>);

impl Links {
    /// None yet.
    pub fn new() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED)))
    }

    /// The contents of the file, if one of its links was read and nothing has changed since.
    pub fn get(&self, stat: &Stat) -> Option<Content<Placing>> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, content) = links.get(&stat.link_group()?)?;
        let same = |stat: &Stat| (stat.size, stat.mtime, stat.ctime);
        (same(seen) == same(stat)).then(|| content.clone())
    }

    /// Remembers the contents of a file with several links.
    pub fn remember(&self, stat: &Stat, content: &Content<Placing>) {
        if let Some(group) = stat.link_group() {
            let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            links.put(group, (*stat, content.clone()));
        }
    }
}
