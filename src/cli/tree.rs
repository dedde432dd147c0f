//! Walking through the files of a generation.

use super::error::Failure;
use super::select::{Relation, Selection, join};
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::dir::reader::{Leaf, Leaves, leaves};
use crate::entry::{Content, Entry};
use crate::generation::Generation;
use crate::monitor::{Monitor, Problem, Severity};

/// What is done with the path of an entry and the entry.
pub type Visit<'a> = dyn FnMut(&[u8], &Entry) -> Result<(), Failure> + 'a;

/// A directory that is being walked through.
struct Level<'a> {
    path: Vec<u8>,
    pages: Leaves<'a>,
    entries: std::vec::IntoIter<Entry>,
}

/// Calls `visit` with the path of each selected entry and the entry, a directory before what is in it. A page that cannot be read for damage is
/// told to `monitor`, and what it holds is left out.
///
/// One page of each directory on the way is in memory, however deep the tree: no recursion.
///
/// # Errors
/// When the store does not answer, `visit` fails, or `cancel` is set.
pub fn walk(
    source: &Source,
    generation: &Generation,
    selection: &mut Selection,
    monitor: &dyn Monitor,
    cancel: &Cancel,
    visit: &mut Visit<'_>,
) -> Result<(), Failure> {
    for root in &generation.roots {
        let mut levels = Vec::new();
        enter(source, root.path.clone(), &root.entry, selection, visit, &mut levels)?;
        while let Some(level) = levels.last_mut() {
            if cancel.is_cancelled() {
                return Err(Failure::interrupted());
            }
            if let Some(entry) = level.entries.next() {
                let path = join(&level.path, &entry.name);
                enter(source, path, &entry, selection, visit, &mut levels)?;
                continue;
            }
            match level.pages.next() {
                None => drop(levels.pop()),
                Some(Ok(Leaf { entries, .. })) => level.entries = entries.into_iter(),
                Some(Err(error)) if error.is_damage() => {
                    monitor.problem(Problem::new(Severity::Damage, &level.path, error));
                }
                Some(Err(error)) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn enter<'a>(
    source: &'a Source,
    path: Vec<u8>,
    entry: &Entry,
    selection: &mut Selection,
    visit: &mut Visit<'_>,
    levels: &mut Vec<Level<'a>>,
) -> Result<(), Failure> {
    match selection.look(&path) {
        Relation::Outside => return Ok(()),
        Relation::Above => {}
        Relation::Inside => visit(&path, entry)?,
    }
    if let Content::Directory(top) = &entry.content {
        levels.push(Level { path, pages: leaves(source, *top), entries: Vec::new().into_iter() });
    }
    Ok(())
}
