//! What stands there already.

use std::sync::Arc;

use super::item::Item;
use super::site::Site;
use crate::dir::reader;
use crate::entry::{Content, Kind, Piece, Reference};
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

/// Looks at what stands under the item's name; `buffer` is for reading it.
pub fn look(site: &Site<'_>, item: &Arc<Item>, buffer: &mut Vec<u8>) -> Existing {
    // Should that fail, making the item tells why.
    let Ok(fd) = item.dir().fd() else { return Existing::Nothing };
    let entry = item.entry();
    let Ok(there) = stat_child(&fd, &entry.name) else { return Existing::Nothing };
    if there.kind != entry.metadata.kind {
        return Existing::Nothing;
    }
    if there.kind != Kind::File {
        let is_same = match &entry.content {
            Content::Target(target) => read_link(&fd, &entry.name).is_ok_and(|link| link == *target),
            _ => there.rdev == entry.metadata.rdev,
        };
        return if is_same && may_stay(site, item, &there) { Existing::Same } else { Existing::Nothing };
    }
    let has_chunks = matches!(entry.content, Content::Pieces(_) | Content::Lists { .. });
    let may_be_same = looks_same(&there, &entry.metadata) && may_stay(site, item, &there);
    if !may_be_same && (!has_chunks || there.size == 0) {
        return Existing::Nothing;
    }
    match LiveFile::open(&fd, &entry.name, &there) {
        Ok(file) if may_be_same && has_contents(site, &file, &entry.content, buffer) => Existing::Same,
        Ok(file) if has_chunks => Existing::Similar(file),
        _ => Existing::Nothing,
    }
}

/// Whether `file`, of the right size, has these contents and holes. A name, a size and a time do not prove it: disks rot, and tools set times.
fn has_contents(site: &Site<'_>, file: &LiveFile, content: &Content, buffer: &mut Vec<u8>) -> bool {
    let has_data = |from, len| !file.stat().may_have_holes() || file.has_data(from, len);
    if let Content::Inline(bytes) = content {
        buffer.resize(bytes.len(), 0);
        let read = file.read_range(0, buffer);
        return read.is_ok_and(|len| buffer.get(..len) == Some(&bytes[..])) && has_data(0, file.stat().size);
    }
    let mut at = 0u64;
    reader::pieces(&site.source, content).all(|piece| {
        let Ok(piece) = piece else { return false };
        let from = at;
        at = at.saturating_add(piece.len());
        match &piece {
            Piece::Hole(len) => file.has_hole(from, *len),
            Piece::Chunk(chunk) => has_data(from, piece.len()) && has_chunk(site, file, from, chunk, buffer),
        }
    })
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
