//! Finding what a path means in a generation.

use super::format::{Generation, Root};
use crate::bag::source::Source;
use crate::dir::lookup;
use crate::dir::reader::TreeError;
use crate::entry::Entry;

/// Something that a path leads to.
#[derive(Debug)]
pub struct Located<'a> {
    /// The root that it stands in.
    pub root: &'a Root,
    /// The entries on the way: the root's first, what was looked for last. The root's has no name of its own.
    pub way: Vec<Entry>,
}

impl Located<'_> {
    /// Its whole path.
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        let mut path = self.root.path.clone();
        for entry in self.way.iter().skip(1) {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
        }
        path
    }
}

/// The names that make a path: without empty ones and `.`; `None` if it has a `..`, which means nothing here.
#[must_use]
pub fn names(path: &[u8]) -> Option<Vec<&[u8]>> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.map(|name| (name != b"..").then_some(name)).collect()
}

/// All that `path` means: what stands under it in the deepest root that has it, and every root that stands below it. A path without a slash at its start
/// is one below a root, or else below `/`. Nothing when it is not there.
///
/// # Errors
/// When a page cannot be had or is damaged.
pub fn locate<'a>(
    source: &Source,
    generation: &'a Generation,
    path: &[u8],
) -> Result<Vec<Located<'a>>, TreeError> {
    let Some(wanted) = names(path) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    if path.first() != Some(&b'/') && !wanted.is_empty() {
        for root in &generation.roots {
            if let Some(way) = lookup::descend(source, &root.entry, &wanted)? {
                found.push(Located { root, way });
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let mut around = Vec::new();
    for root in &generation.roots {
        let names = names(&root.path).unwrap_or_default();
        if let Some(below) = wanted.strip_prefix(&names[..]) {
            around.push((root, below));
        } else if names.starts_with(&wanted) {
            found.push(Located { root, way: vec![root.entry.clone()] });
        }
    }
    around.sort_by_key(|(_, below)| below.len());
    for (root, below) in around {
        if let Some(way) = lookup::descend(source, &root.entry, below)? {
            found.insert(0, Located { root, way });
            break;
        }
    }
    Ok(found)
}

/// The entry that stands under `path`, and its whole path; the first one if there are several.
///
/// # Errors
/// When a page cannot be had or is damaged.
pub fn entry(
    source: &Source,
    generation: &Generation,
    path: &[u8],
) -> Result<Option<(Vec<u8>, Entry)>, TreeError> {
    let first = locate(source, generation, path)?.into_iter().next();
    Ok(first.and_then(|located| {
        let path = located.path();
        Some((path, located.way.into_iter().next_back()?))
    }))
}
