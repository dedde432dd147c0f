//! Bytes of DIR pages and chunk lists.
//!
//! Pure functions between plaintext bytes and types; `doc/format.md` describes the same in words. A field that has its
//! usual value is left out.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::places::{BadPlaces, Places, PlacesReader, PlacesWriter};
use crate::base::codec::{self, CodecError};
use crate::base::time::Timestamp;
use crate::base::varint;
use crate::entry::{
    Content, Entry, Kind, ListPart, Metadata, Owner, Piece, Reference, Xattr, XattrValue, is_valid_name,
};

/// The largest page or list in bytes.
pub const MAX_PAGE: usize = 8 << 20;

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    /// Entries, ascending by name.
    Leaf(Vec<Entry>),
    /// Pages below, ascending by the name of their last entry.
    Index(Vec<Child>),
}

/// A page below an index page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// The name of the last entry in it or below it.
    pub last: Box<[u8]>,
    /// Entries in it or below it.
    pub entries: u64,
    /// The page.
    pub page: Reference,
}

/// Part of a long file's chunk list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum List {
    /// Pieces of contents.
    Pieces(Vec<Piece>),
    /// Lists below.
    Parts(Vec<ListPart>),
}

/// Why bytes are not a page or a list.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Not the CBOR of one.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A reference is wrong.
    #[error(transparent)]
    Places(#[from] BadPlaces),
    /// The CBOR is right, its meaning is not.
    #[error("{0}")]
    Meaning(&'static str),
}

#[derive(Serialize, Deserialize)]
struct WirePage<'a> {
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    entries: Vec<WireEntry<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    children: Vec<WireChild<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    owners: Vec<WireOwner<'a>>,
    #[serde(default, skip_serializing_if = "Places::is_empty")]
    places: Places,
}

#[derive(Serialize, Deserialize)]
struct WireOwner<'a> {
    uid: u32,
    gid: u32,
    #[serde(with = "serde_bytes", default, skip_serializing_if = "<[u8]>::is_empty")]
    user: &'a [u8],
    #[serde(with = "serde_bytes", default, skip_serializing_if = "<[u8]>::is_empty")]
    group: &'a [u8],
}

#[derive(Serialize, Deserialize)]
struct WireChild<'a> {
    #[serde(with = "serde_bytes")]
    last: &'a [u8],
    entries: u64,
}

#[derive(Serialize, Deserialize)]
struct WireXattr<'a> {
    #[serde(with = "serde_bytes")]
    name: &'a [u8],
    /// Absent: the value is the next reference.
    #[serde(with = "serde_bytes", default, skip_serializing_if = "Option::is_none")]
    value: Option<&'a [u8]>,
}

#[derive(Serialize, Deserialize)]
struct WireEntry<'a> {
    #[serde(with = "serde_bytes")]
    name: &'a [u8],
    kind: u8,
    mode: u16,
    owner: u32,
    mtime: Timestamp,
    ctime: Timestamp,
    inode: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link_group: Option<(u64, u64)>,
    #[serde(default, skip_serializing_if = "is_default")]
    rdev: (u32, u32),
    #[serde(default, skip_serializing_if = "is_default")]
    flags: u32,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<WireXattr<'a>>,
    #[serde(default, skip_serializing_if = "is_default")]
    content: u8,
    #[serde(with = "serde_bytes", default, skip_serializing_if = "<[u8]>::is_empty")]
    data: &'a [u8],
    #[serde(with = "serde_bytes", default, skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<u8>,
    #[serde(default, skip_serializing_if = "is_default")]
    depth: u8,
}

#[derive(Serialize, Deserialize)]
struct WireList {
    #[serde(with = "serde_bytes")]
    pieces: Vec<u8>,
    places: Places,
    #[serde(default, skip_serializing_if = "is_default")]
    parts: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const EMPTY: u8 = 0;
const INLINE: u8 = 1;
const PIECES: u8 = 2;
const LISTS: u8 = 3;
const TARGET: u8 = 4;
const DIRECTORY: u8 = 5;
const EMPTY_DIRECTORY: u8 = 6;

const KINDS: [Kind; 7] = [
    Kind::File,
    Kind::Directory,
    Kind::Symlink,
    Kind::Fifo,
    Kind::Socket,
    Kind::CharDevice,
    Kind::BlockDevice,
];

fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::File => 0,
        Kind::Directory => 1,
        Kind::Symlink => 2,
        Kind::Fifo => 3,
        Kind::Socket => 4,
        Kind::CharDevice => 5,
        Kind::BlockDevice => 6,
    }
}

/// A chunk is written as 0 (its length stands in its reference), a hole as its length.
fn put_pieces(pieces: &[Piece], out: &mut Vec<u8>, places: &mut PlacesWriter) {
    for piece in pieces {
        match piece {
            Piece::Chunk(reference) => {
                varint::put(out, 0);
                places.push(reference);
            }
            Piece::Hole(len) => varint::put(out, *len),
        }
    }
}

fn take_pieces(mut bytes: &[u8], places: &mut PlacesReader<'_>) -> Result<Vec<Piece>, FormatError> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        pieces.push(match varint::take(&mut bytes).ok_or(FormatError::Meaning("a piece is cut off"))? {
            0 => Piece::Chunk(places.take()?),
            len => Piece::Hole(len),
        });
    }
    Ok(pieces)
}

fn put_parts(parts: &[ListPart], out: &mut Vec<u8>, places: &mut PlacesWriter) {
    for part in parts {
        varint::put(out, part.bytes);
        places.push(&part.list);
    }
}

fn take_parts(mut bytes: &[u8], places: &mut PlacesReader<'_>) -> Result<Vec<ListPart>, FormatError> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let bytes = varint::take(&mut bytes).ok_or(FormatError::Meaning("a list part is cut off"))?;
        parts.push(ListPart { list: places.take()?, bytes });
    }
    Ok(parts)
}

fn wire_entry<'a>(entry: &'a Entry, owner: u32, places: &mut PlacesWriter) -> WireEntry<'a> {
    let xattrs = entry
        .xattrs
        .iter()
        .map(|xattr| WireXattr {
            name: &xattr.name,
            value: match &xattr.value {
                XattrValue::Inline(value) => Some(value),
                XattrValue::Chunk(reference) => {
                    places.push(reference);
                    None
                }
            },
        })
        .collect();
    let (mut data, mut pieces, mut levels): (&[u8], _, _) = (&[], Vec::new(), 0);
    let content = match &entry.content {
        Content::Empty => EMPTY,
        Content::Inline(bytes) => {
            data = bytes;
            INLINE
        }
        Content::Pieces(list) => {
            put_pieces(list, &mut pieces, places);
            PIECES
        }
        Content::Lists { depth, parts } => {
            put_parts(parts, &mut pieces, places);
            levels = *depth;
            LISTS
        }
        Content::Target(bytes) => {
            data = bytes;
            TARGET
        }
        Content::Directory(Some(page)) => {
            places.push(page);
            DIRECTORY
        }
        Content::Directory(None) => EMPTY_DIRECTORY,
    };
    let metadata = &entry.metadata;
    WireEntry {
        name: &entry.name,
        kind: kind_number(metadata.kind),
        mode: metadata.mode,
        owner,
        mtime: metadata.mtime,
        ctime: metadata.ctime,
        inode: metadata.inode,
        size: metadata.size,
        link_group: metadata.link_group,
        rdev: metadata.rdev,
        flags: metadata.flags,
        xattrs,
        content,
        data,
        pieces,
        depth: levels,
    }
}

/// The plaintext of a page.
#[must_use]
pub fn encode_page(page: &Page) -> Vec<u8> {
    let mut places = PlacesWriter::default();
    let mut owners = Vec::new();
    let mut numbers: HashMap<&Owner, u32> = HashMap::new();
    let (mut entries, mut children) = (Vec::new(), Vec::new());
    match page {
        Page::Leaf(list) => {
            for entry in list {
                let owner = &*entry.metadata.owner;
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                let number = *numbers.entry(owner).or_insert_with(|| {
                    owners.push(WireOwner {
                        uid: owner.uid,
                        gid: owner.gid,
                        user: &owner.user,
                        group: &owner.group,
                    });
                    next
                });
                entries.push(wire_entry(entry, number, &mut places));
            }
        }
        Page::Index(list) => {
            for child in list {
                places.push(&child.page);
                children.push(WireChild { last: &child.last, entries: child.entries });
            }
        }
    }
    codec::encode(&WirePage { entries, children, owners, places: places.finish() })
}

fn entry_from(
    wire: WireEntry<'_>,
    owners: &[Arc<Owner>],
    places: &mut PlacesReader<'_>,
) -> Result<Entry, FormatError> {
    let wrong = FormatError::Meaning;
    if !is_valid_name(wire.name) {
        return Err(wrong("an entry has an impossible name"));
    }
    let kind = *KINDS.get(usize::from(wire.kind)).ok_or(wrong("an entry is of an unknown kind"))?;
    let owner = usize::try_from(wire.owner).ok().and_then(|number| owners.get(number));
    let xattrs = wire
        .xattrs
        .into_iter()
        .map(|xattr| {
            let value = match xattr.value {
                Some(value) => XattrValue::Inline(value.into()),
                None => XattrValue::Chunk(places.take()?),
            };
            Ok(Xattr { name: xattr.name.into(), value })
        })
        .collect::<Result<_, FormatError>>()?;
    let content = match (wire.content, kind) {
        (EMPTY, _) if kind != Kind::Symlink && kind != Kind::Directory => Content::Empty,
        (INLINE, Kind::File) => Content::Inline(wire.data.into()),
        (PIECES, Kind::File) => Content::Pieces(take_pieces(&wire.pieces, places)?),
        (LISTS, Kind::File) => Content::Lists { depth: wire.depth, parts: take_parts(&wire.pieces, places)? },
        (TARGET, Kind::Symlink) => Content::Target(wire.data.into()),
        (DIRECTORY, Kind::Directory) => Content::Directory(Some(places.take()?)),
        (EMPTY_DIRECTORY, Kind::Directory) => Content::Directory(None),
        _ => return Err(wrong("an entry's contents do not fit its kind")),
    };
    Ok(Entry {
        name: wire.name.into(),
        metadata: Metadata {
            kind,
            mode: wire.mode & 0o7777,
            owner: Arc::clone(owner.ok_or(wrong("an entry's owner is missing"))?),
            mtime: wire.mtime,
            ctime: wire.ctime,
            inode: wire.inode,
            size: wire.size,
            link_group: wire.link_group,
            rdev: wire.rdev,
            flags: wire.flags,
        },
        xattrs,
        content,
    })
}

fn ascending<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> Result<(), FormatError> {
    let mut last: &[u8] = b"";
    names
        .all(|name| {
            let fits = last < name;
            last = name;
            fits
        })
        .then_some(())
        .ok_or(FormatError::Meaning("names are not in order"))
}

/// The page that these bytes hold. Names are valid, in order and unique; contents fit their kinds.
///
/// # Errors
/// When the bytes are not such a page.
pub fn decode_page(bytes: &[u8]) -> Result<Page, FormatError> {
    let wire: WirePage<'_> = codec::decode(bytes, "DIR page", MAX_PAGE)?;
    let mut places = wire.places.reader();
    let page = if wire.children.is_empty() {
        let owners: Vec<_> = wire
            .owners
            .iter()
            .map(|owner| {
                Arc::new(Owner {
                    uid: owner.uid,
                    gid: owner.gid,
                    user: owner.user.into(),
                    group: owner.group.into(),
                })
            })
            .collect();
        ascending(wire.entries.iter().map(|entry| entry.name))?;
        let entries = wire.entries.into_iter().map(|entry| entry_from(entry, &owners, &mut places));
        Page::Leaf(entries.collect::<Result<_, _>>()?)
    } else if wire.entries.is_empty() {
        ascending(wire.children.iter().map(|child| child.last))?;
        let children = wire
            .children
            .into_iter()
            .map(|child| Ok(Child { last: child.last.into(), entries: child.entries, page: places.take()? }));
        Page::Index(children.collect::<Result<_, FormatError>>()?)
    } else {
        return Err(FormatError::Meaning("a page has both entries and children"));
    };
    places.finish()?;
    Ok(page)
}

/// The plaintext of a chunk list.
#[must_use]
pub fn encode_list(list: &List) -> Vec<u8> {
    let mut places = PlacesWriter::default();
    let mut pieces = Vec::new();
    let parts = match list {
        List::Pieces(list) => {
            put_pieces(list, &mut pieces, &mut places);
            false
        }
        List::Parts(list) => {
            put_parts(list, &mut pieces, &mut places);
            true
        }
    };
    codec::encode(&WireList { pieces, places: places.finish(), parts })
}

/// The chunk list that these bytes hold.
///
/// # Errors
/// When the bytes are not such a list.
pub fn decode_list(bytes: &[u8]) -> Result<List, FormatError> {
    let wire: WireList = codec::decode(bytes, "chunk list", MAX_PAGE)?;
    let mut places = wire.places.reader();
    let list = if wire.parts {
        List::Parts(take_parts(&wire.pieces, &mut places)?)
    } else {
        List::Pieces(take_pieces(&wire.pieces, &mut places)?)
    };
    places.finish()?;
    Ok(list)
}
