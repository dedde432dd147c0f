//! The invariants of a repository, one function each; `doc/format.md` states the same in words.
//!
//! Each takes what was read and says what contradicts it, as a clause for a sentence about the file.

use std::collections::BTreeSet;

use crate::bag::format::{self, BagKind, HEADER, TRAILER, Table};
use crate::base::id::{BagId, ClientId};
use crate::crypto::NameKey;
use crate::dir::format::{Child, List};
use crate::entry::{Content, Entry, ListPart, Piece};
use crate::generation::{self, Generation};
use crate::index::BagEntry;

/// What is wrong, as a clause: "its header is damaged".
pub type Wrong = String;

/// A bag begins with its header, which names it.
///
/// # Errors
/// When it does not.
pub fn header(bytes: &[u8], bag: BagId) -> Result<BagKind, Wrong> {
    format::decode_header(bytes, bag).map_err(|error| format!("its header is wrong ({error})"))
}

/// A bag ends with its trailer, which says where the table lies: between the blocks and the trailer, and nothing else there.
///
/// # Errors
/// When it does not.
pub fn trailer(tail: &[u8], size: u64) -> Result<(u64, u32), Wrong> {
    let at = tail.len().saturating_sub(TRAILER);
    format::decode_trailer(tail.get(at..).unwrap_or_default(), size)
        .map_err(|error| format!("its trailer is wrong ({error})"))
}

/// The listing and the file agree on its size.
///
/// # Errors
/// When they do not.
pub fn size(listed: u64, found: u64) -> Result<(), Wrong> {
    if listed == found {
        Ok(())
    } else {
        Err(format!("it has {found} bytes where the listing says {listed}"))
    }
}

/// Blocks lie one behind the other between header and table, and none is empty.
///
/// # Errors
/// When they do not.
pub fn blocks(table: &Table, table_offset: u64) -> Result<(), Wrong> {
    let mut end = u64::try_from(HEADER).unwrap_or(u64::MAX);
    for block in &table.blocks {
        if block.offset != end || block.objects.is_empty() {
            return Err(format!("its table does not fit its blocks at byte {}", block.offset));
        }
        end = end.saturating_add(u64::from(block.stored));
    }
    if end == table_offset {
        Ok(())
    } else {
        Err("its table does not fit its blocks at their end".to_owned())
    }
}

/// The trailer ends with the BLAKE3 of all that precedes it.
///
/// # Errors
/// When it does not.
pub fn hash(computed: &blake3::Hash, stored: &[u8]) -> Result<(), Wrong> {
    let fits = <[u8; 32]>::try_from(stored).is_ok_and(|stored| *computed == stored);
    if fits { Ok(()) } else { Err("its bytes do not have the hash that its trailer gives".to_owned()) }
}

/// A segment says of a bag what the bag itself says.
///
/// # Errors
/// When it does not.
pub fn segment_entry(
    said: &BagEntry,
    said_digest: &[u8; 32],
    found: &BagEntry,
    digest: &[u8; 32],
) -> Result<(), Wrong> {
    if said != found {
        return Err(format!("it gives a wrong size or place of the table of bag {}", said.bag));
    }
    if said_digest == digest {
        Ok(())
    } else {
        Err(format!("it lists other objects than bag {} holds", said.bag))
    }
}

/// A generation record lies in the directory of the client that it names.
///
/// # Errors
/// When it does not.
pub fn client(names: &NameKey, generation: &Generation, directory: ClientId) -> Result<(), Wrong> {
    if names.client_id(generation.client.as_bytes()) == directory {
        Ok(())
    } else {
        Err("it lies in the directory of another client than it names".to_owned())
    }
}

/// Tags can be shown in a list.
///
/// # Errors
/// When one cannot.
pub fn tags(tags: &BTreeSet<String>) -> Result<(), Wrong> {
    tags.iter().try_for_each(|tag| generation::tags::check(tag)).map_err(|error| error.to_string())
}

/// Roots are absolute paths, ascending.
///
/// # Errors
/// When they are not.
pub fn roots(generation: &Generation) -> Result<(), Wrong> {
    let paths: Vec<_> = generation.roots.iter().map(|root| &root.path).collect();
    let ascending = paths.is_sorted_by(|one, next| one < next);
    if ascending && paths.iter().all(|path| path.starts_with(b"/")) {
        Ok(())
    } else {
        Err("its roots are not absolute paths in order".to_owned())
    }
}

/// The pieces of a file add up to its size.
///
/// # Errors
/// When they do not.
pub fn file_size(entry: &Entry) -> Result<(), Wrong> {
    let held = match &entry.content {
        Content::Inline(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        Content::Pieces(pieces) => pieces.iter().map(Piece::len).fold(0, u64::saturating_add),
        Content::Lists { parts, .. } => covered(parts),
        _ => return Ok(()),
    };
    if held == entry.metadata.size {
        Ok(())
    } else {
        Err("a file in one of its directories has other contents than its size says".to_owned())
    }
}

/// Bytes of contents that parts of a list cover.
pub fn covered(parts: &[ListPart]) -> u64 {
    parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add)
}

/// Bytes of contents that a list covers.
pub fn list_bytes(list: &List) -> u64 {
    match list {
        List::Pieces(pieces) => pieces.iter().map(Piece::len).fold(0, u64::saturating_add),
        List::Parts(parts) => covered(parts),
    }
}

/// Entries in the pages below an index page.
pub fn child_entries(children: &[Child]) -> u64 {
    children.iter().map(|child| child.entries).fold(0, u64::saturating_add)
}
