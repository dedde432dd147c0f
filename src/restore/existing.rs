//! What stands there already.

use std::sync::Arc;

use super::item::Item;
use super::site::Site;
use crate::entry::{Content, Kind, Reference};
use crate::live::apply::looks_same;
use crate::live::stat::stat_child;
use crate::live::{LiveFile, Stat, read_link};

/// What stands under an item's name, as far as it is of use.
pub enum Existing {
    /// Nothing that is of use.
    Nothing,
    /// It is what is wanted, but perhaps for its metadata.
    Same,
    /// A file of which parts may be the same.
    Similar(LiveFile),
}

/// Looks at what stands under the item's name.
pub fn look(site: &Site<'_>, item: &Arc<Item>) -> Existing {
    // Should that fail, making the item tells why.
    let Ok(fd) = item.dir().fd() else { return Existing::Nothing };
    let entry = item.entry();
    let Ok(there) = stat_child(&fd, &entry.name) else { return Existing::Nothing };
    if there.kind != entry.metadata.kind {
        return Existing::Nothing;
    }
    let is_same = match &entry.content {
        Content::Target(target) => read_link(&fd, &entry.name).is_ok_and(|link| link == *target),
        _ if there.kind == Kind::File => looks_same(&there, &entry.metadata),
        _ => there.rdev == entry.metadata.rdev,
    };
    if is_same && may_stay(site, item, &there) {
        return Existing::Same;
    }
    let has_chunks = matches!(entry.content, Content::Pieces(_) | Content::Lists { .. });
    if !has_chunks || there.size == 0 {
        return Existing::Nothing;
    }
    LiveFile::open(&fd, &entry.name, &there).map_or(Existing::Nothing, Existing::Similar)
}

/// Whether its names are those that it should have, as far as it matters here: a name that it should not have is taken from it when that name's own turn
/// comes; one that stands outside of what is restored costs nothing but a copy each time.
fn may_stay(site: &Site<'_>, item: &Arc<Item>, there: &Stat) -> bool {
    match (there.link_group(), item.entry().metadata.link_group) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(inode), Some(group)) => site.links.may_keep(inode, group),
    }
}

/// Whether `file` has this chunk at `offset`; then it is in `buffer`.
pub fn has_chunk(
    site: &Site<'_>,
    file: &LiveFile,
    offset: u64,
    chunk: &Reference,
    buffer: &mut Vec<u8>,
) -> bool {
    buffer.resize(usize::try_from(chunk.place.len).unwrap_or(usize::MAX), 0);
    let read = file.read_range(offset, buffer);
    read.is_ok_and(|len| len == buffer.len()) && site.reader().id_of(buffer) == chunk.id
}
