//! Finding entries by name, one page of each level read.

use super::format::Page;
use super::reader::{TreeError, page};
use crate::bag::source::Source;
use crate::entry::{Content, Entry, Reference};

/// More levels than pages of a hundred children ever need.
const MAX_LEVELS: usize = 16;

/// The entry `name` of the directory with this top page; `None` when there is none. Reads one page of each of the directory's levels.
///
/// # Errors
/// When a page cannot be had or is damaged.
pub fn find(source: &Source, top: Option<Reference>, name: &[u8]) -> Result<Option<Entry>, TreeError> {
    let Some(mut next) = top else { return Ok(None) };
    for _ in 0..MAX_LEVELS {
        match page(source, &next)? {
            Page::Leaf(mut entries) => {
                let found = entries.binary_search_by(|entry| (*entry.name).cmp(name));
                return Ok(found.ok().map(|at| entries.swap_remove(at)));
            }
            Page::Index(children) => {
                let at = children.partition_point(|child| *child.last < *name);
                match children.get(at) {
                    Some(child) => next = child.page,
                    None => return Ok(None),
                }
            }
        }
    }
    Err(TreeError::Depth)
}

/// The entries on the way from `root` down these names: `root` first, what was looked for last. `None` when one of the
/// names is not there, or stands in what is no directory.
///
/// # Errors
/// When a page cannot be had or is damaged.
pub fn descend(source: &Source, root: &Entry, names: &[&[u8]]) -> Result<Option<Vec<Entry>>, TreeError> {
    let mut way = vec![root.clone()];
    for name in names {
        let Some(Content::Directory(top)) = way.last().map(|entry| &entry.content) else { return Ok(None) };
        match find(source, *top, name)? {
            Some(entry) => way.push(entry),
            None => return Ok(None),
        }
    }
    Ok(Some(way))
}
