//! Names that share one file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::item::Item;
use crate::live::LiveDir;

/// Device and inode number.
pub type Inode = (u64, u64);

/// Groups that are remembered at most: about 200 MB when none of their directories is shared, mostly far less.
const MOST: usize = 500_000;

/// Which saved groups have been met, and where their first name stands.
#[derive(Default)]
pub struct Links(Mutex<Groups>);

#[derive(Default)]
struct Groups {
    met: HashMap<Inode, Group>,
    /// Files that were there already, and for which saved group each was kept.
    kept: HashMap<Inode, Inode>,
}

enum Group {
    /// The first name is under way; these wait for it.
    UnderWay(Vec<Arc<Item>>),
    /// The first name.
    There(Arc<LiveDir>, Box<[u8]>),
    /// It could not be restored.
    Failed,
}

/// What is to be done with a name.
pub enum Claim {
    /// It is the first of its group: the file is to be restored.
    First,
    /// There are more groups than are remembered: the file is to be restored, and each of its further names too.
    Apart,
    /// It waits for the first one.
    Waits,
    /// It is to become another name of this one.
    Link(Arc<LiveDir>, Box<[u8]>),
    /// The first one could not be restored.
    Failed,
}

impl Links {
    /// What is to be done with `item`, a name of the saved file `group`.
    pub fn claim(&self, group: Inode, item: &Arc<Item>) -> Claim {
        let mut groups = self.lock();
        let is_full = groups.met.len() >= MOST;
        match groups.met.get_mut(&group) {
            Some(Group::UnderWay(waiting)) => {
                waiting.push(Arc::clone(item));
                Claim::Waits
            }
            Some(Group::There(dir, name)) => Claim::Link(Arc::clone(dir), name.clone()),
            Some(Group::Failed) => Claim::Failed,
            None if is_full => Claim::Apart,
            None => {
                groups.met.insert(group, Group::UnderWay(Vec::new()));
                Claim::First
            }
        }
    }

    /// The first name is there (or failed: `None`). Returns those that have waited for it.
    pub fn settle(&self, group: Inode, place: Option<(Arc<LiveDir>, Box<[u8]>)>) -> Vec<Arc<Item>> {
        let settled = place.map_or(Group::Failed, |(dir, name)| Group::There(dir, name));
        match self.lock().met.get_mut(&group) {
            // It is not remembered.
            None => Vec::new(),
            Some(known) => match std::mem::replace(known, settled) {
                Group::UnderWay(waiting) => waiting,
                Group::There(..) | Group::Failed => Vec::new(),
            },
        }
    }

    /// Whether a file that is there already, with several names, may stay as that of the saved `group`: not if it stays as another
    /// group's, whose names this one must not share.
    pub fn may_keep(&self, there: Inode, group: Inode) -> bool {
        *self.lock().kept.entry(there).or_insert(group) == group
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
