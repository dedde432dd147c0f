//! What differs between two states of a file.

use std::fmt;

use super::versions::{Met, Set};
use crate::entry::{Content, Entry, Kind, Piece, Xattr, XattrValue};

/// What can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aspect {
    /// What kind of file it is.
    Kind,
    /// The contents, or what a link leads to, or a device's number.
    Contents,
    /// The permission bits.
    Mode,
    /// Owner or group, by number.
    Owner,
    /// When the contents last changed.
    Mtime,
    /// Extended attributes, access lists among them.
    Xattrs,
    /// Inode flags.
    Flags,
}

impl Aspect {
    /// As `--json` names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Contents => "contents",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Mtime => "mtime",
            Self::Xattrs => "xattrs",
            Self::Flags => "flags",
        }
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What has become of a file from the first to the second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// It differs in these respects.
    Changed(Vec<Aspect>),
}

/// A file that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its path.
    pub path: Vec<u8>,
    /// How.
    pub change: Change,
}

/// What differs between generation 0 and generation 1 in what was met; `None` if nothing does. Says too whether there may be more below.
#[must_use]
pub fn difference(met: &Met) -> (Option<Change>, bool) {
    let of = |number: usize| {
        let is_in = |(set, _): &&(Set, Entry)| set.contains(&number);
        met.entries.iter().find(is_in).map(|(_, entry)| entry)
    };
    match (of(0), of(1)) {
        (Some(_), None) => (Some(Change::Removed), true),
        (None, Some(_)) => (Some(Change::Added), true),
        (Some(before), Some(after)) if !std::ptr::eq(before, after) => {
            let aspects = aspects(before, after);
            let may_differ_below = before.content != after.content;
            ((!aspects.is_empty()).then_some(Change::Changed(aspects)), may_differ_below)
        }
        _ => (None, false),
    }
}

/// In what two entries differ. Not in when they were changed last as inodes, in inode numbers, nor in names of owners, which depend on the machine. Of directories only what
/// they are themselves counts, not what is in them.
#[must_use]
pub fn aspects(before: &Entry, after: &Entry) -> Vec<Aspect> {
    let (old, new) = (&before.metadata, &after.metadata);
    if old.kind != new.kind {
        return vec![Aspect::Kind];
    }
    let has_same_contents = old.rdev == new.rdev
        && old.size == new.size
        && (old.kind == Kind::Directory || same_contents(&before.content, &after.content));
    let differ = [
        (Aspect::Contents, !has_same_contents),
        // Nobody can change a link's.
        (Aspect::Mode, old.mode != new.mode && old.kind != Kind::Symlink),
        (Aspect::Owner, (old.owner.uid, old.owner.gid) != (new.owner.uid, new.owner.gid)),
        (Aspect::Mtime, old.mtime != new.mtime),
        (Aspect::Xattrs, !same_xattrs(&before.xattrs, &after.xattrs)),
        (Aspect::Flags, old.flags != new.flags),
    ];
    differ.into_iter().filter(|(_, differs)| *differs).map(|(aspect, _)| aspect).collect()
}

/// Whether two contents are the same by the names of their chunks, wherever these lie.
fn same_contents(one: &Content, other: &Content) -> bool {
    match (one, other) {
        (Content::Pieces(one), Content::Pieces(other)) => {
            let same = |(one, other): (&Piece, &Piece)| match (one, other) {
                (Piece::Chunk(one), Piece::Chunk(other)) => one.id == other.id,
                (Piece::Hole(one), Piece::Hole(other)) => one == other,
                _ => false,
            };
            one.len() == other.len() && one.iter().zip(other).all(same)
        }
        (Content::Lists { parts: one, .. }, Content::Lists { parts: other, .. }) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.list.id == other.list.id)
        }
        (one, other) => one == other,
    }
}

fn same_xattrs(one: &[Xattr], other: &[Xattr]) -> bool {
    let same = |(one, other): (&Xattr, &Xattr)| {
        one.name == other.name
            && match (&one.value, &other.value) {
                (XattrValue::Inline(one), XattrValue::Inline(other)) => one == other,
                (XattrValue::Chunk(one), XattrValue::Chunk(other)) => one.id == other.id,
                _ => false,
            }
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::id::{BagId, ObjectId};
    use crate::base::time::Timestamp;
    use crate::entry::{Metadata, Owner, Place, Reference};

    fn file(bag: u8, id: u8) -> Entry {
        let place = Place { bag: BagId([bag; 16]), offset: 0, stored: 1, start: 0, len: 9 };
        let time = Timestamp { secs: 5, nanos: 0 };
        Entry {
            name: b"x"[..].into(),
            metadata: Metadata {
                kind: Kind::File,
                mode: 0o644,
                owner: Arc::new(Owner::default()),
                mtime: time,
                ctime: time,
                inode: bag.into(),
                size: 9,
                link_group: None,
                rdev: (0, 0),
                flags: 0,
            },
            xattrs: Vec::new(),
            content: Content::Pieces(vec![Piece::Chunk(Reference { id: ObjectId([id; 32]), place })]),
        }
    }

    #[test]
    fn contents_are_compared_wherever_they_lie() {
        assert_eq!(aspects(&file(1, 7), &file(2, 7)), []);
        assert_eq!(aspects(&file(1, 7), &file(1, 8)), [Aspect::Contents]);
    }

    #[test]
    fn each_aspect_is_told() {
        let before = file(1, 7);
        let mut after = file(1, 7);
        after.metadata.mode = 0o600;
        after.metadata.mtime.nanos = 1;
        after.metadata.owner = Arc::new(Owner { gid: 5, ..Owner::default() });
        after.xattrs.push(Xattr { name: b"user.x"[..].into(), value: XattrValue::Inline(b"1"[..].into()) });
        let all = [Aspect::Mode, Aspect::Owner, Aspect::Mtime, Aspect::Xattrs];
        assert_eq!(aspects(&before, &after), all);
        after.metadata.kind = Kind::Fifo;
        assert_eq!(aspects(&before, &after), [Aspect::Kind]);
    }

    #[test]
    fn who_has_it() {
        let set = |numbers: &[usize]| Set::from(numbers);
        let met = |entries| Met { path: Vec::new(), entries };
        assert_eq!(difference(&met(vec![(set(&[0, 1]), file(1, 1))])), (None, false));
        assert_eq!(difference(&met(vec![(set(&[0]), file(1, 1))])), (Some(Change::Removed), true));
        assert_eq!(difference(&met(vec![(set(&[1]), file(1, 1))])), (Some(Change::Added), true));
        let both = met(vec![(set(&[1]), file(1, 1)), (set(&[0]), file(1, 2))]);
        assert_eq!(difference(&both), (Some(Change::Changed(vec![Aspect::Contents])), true));
    }
}
