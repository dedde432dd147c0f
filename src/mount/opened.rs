//! A generation that is shown, and what was found out about it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::roots::Roots;
use crate::bag::source::Source;
use crate::base::id::ClientId;
use crate::cache::Cache;
use crate::dir::reader::{TreeError, leaves};
use crate::entry::{Content, Reference};
use crate::generation::{Generation, trees};
use crate::store::StoreError;

/// The device and inode number that a file's names shared when they were saved.
pub type LinkGroup = (u64, u64);

/// Entries of a generation up to which the names of each file are counted. Beyond that it would take longer than whoever asks for one file would wait.
const COUNTABLE: u64 = 2_000_000;

/// A generation that is shown.
pub struct Opened {
    /// Whose it is.
    pub client: ClientId,
    /// Its record.
    pub record: Generation,
    /// Where its roots stand.
    pub roots: Arc<Roots>,
    /// Whether its tree bags were fetched.
    fetched: Mutex<bool>,
    /// The inode number of a file with several names: that of the name seen first.
    inodes: Mutex<HashMap<LinkGroup, u64>>,
    names: OnceLock<HashMap<LinkGroup, u32>>,
}

impl Opened {
    /// A generation of which nothing is known but its record.
    #[must_use]
    pub fn new(client: ClientId, record: Generation) -> Arc<Self> {
        let roots = Roots::of(&record);
        let (fetched, inodes, names) = (Mutex::new(false), Mutex::default(), OnceLock::new());
        Arc::new(Self { client, record, roots, fetched, inodes, names })
    }

    /// Fetches its tree bags, the first time: two or three flights. They are kept by the cache if there is one, else by `source`.
    ///
    /// # Errors
    /// When the store is out of reach; the next call tries again.
    pub fn fetch_trees(&self, source: &Source, cache: &Cache) -> Result<(), StoreError> {
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        if !*fetched {
            trees::fetch_into_cache(source, &[&self.record], cache)?;
            *fetched = true;
        }
        Ok(())
    }

    /// The inode number of all names of a file, which is `ours` if no other name was seen yet.
    #[must_use]
    pub fn inode_of(&self, group: LinkGroup, ours: u64) -> u64 {
        *self.inodes.lock().unwrap_or_else(PoisonError::into_inner).entry(group).or_insert(ours)
    }

    /// How many names a file has in this generation; two where it is too large to count them. The first call reads all directories.
    ///
    /// # Errors
    /// When a directory cannot be had.
    pub fn names_of(&self, group: LinkGroup, source: &Source) -> Result<u32, TreeError> {
        let counts = &self.record.counts;
        let entries = counts.files.saturating_add(counts.directories).saturating_add(counts.others);
        if entries > COUNTABLE {
            return Ok(2);
        }
        let names = match self.names.get() {
            Some(names) => names,
            None => {
                let counted = self.count(source)?;
                self.names.get_or_init(|| counted)
            }
        };
        Ok(names.get(&group).copied().unwrap_or(1))
    }

    fn count(&self, source: &Source) -> Result<HashMap<LinkGroup, u32>, TreeError> {
        let mut names: HashMap<LinkGroup, u32> = HashMap::new();
        // Roots within roots are met where they stand, not where the outer root has them.
        let top = self.roots.root.as_ref().and_then(|root| top_of(&root.content));
        let mut todo = vec![(top, Some(Arc::clone(&self.roots)))];
        while let Some((top, roots)) = todo.pop() {
            let mut add = |group: Option<LinkGroup>| {
                if let Some(group) = group {
                    let count = names.entry(group).or_default();
                    *count = count.saturating_add(1);
                }
            };
            let mut led_on = HashMap::new();
            for leaf in leaves(source, top) {
                for entry in leaf?.entries {
                    match roots.as_ref().and_then(|roots| roots.below.get(&entry.name)) {
                        Some(_) => drop(led_on.insert(entry.name, top_of(&entry.content))),
                        None => match entry.content {
                            Content::Directory(Some(top)) => todo.push((Some(top), None)),
                            _ => add(entry.metadata.link_group),
                        },
                    }
                }
            }
            for (name, below) in roots.iter().flat_map(|roots| &roots.below) {
                let top = match &below.root {
                    Some(root) => top_of(&root.content),
                    None => led_on.get(name).copied().flatten(),
                };
                add(below.root.as_ref().and_then(|root| root.metadata.link_group));
                todo.push((top, Some(Arc::clone(below))));
            }
        }
        Ok(names)
    }
}

fn top_of(content: &Content) -> Option<Reference> {
    match content {
        Content::Directory(top) => *top,
        _ => None,
    }
}
