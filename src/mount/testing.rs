//! Things to look at in tests.

use std::sync::Arc;

use crate::base::id::GenerationId;
use crate::base::time::Timestamp;
use crate::entry::{Content, Entry, Kind, Metadata, Owner, Reference};
use crate::generation::{BagListRef, Counts, Generation, Root};

/// A directory with this top page.
pub fn directory(top: Option<Reference>) -> Entry {
    let time = Timestamp { secs: 1, nanos: 2 };
    Entry {
        name: Box::default(),
        metadata: Metadata {
            kind: Kind::Directory,
            mode: 0o755,
            owner: Arc::new(Owner::default()),
            mtime: time,
            ctime: time,
            inode: 1,
            size: 0,
            link_group: None,
            rdev: (0, 0),
            flags: 0,
        },
        xattrs: Vec::new(),
        content: Content::Directory(top),
    }
}

/// A complete generation of the client `laptop`.
pub fn generation(id: u8, secs: i64, roots: Vec<(&str, Entry)>) -> Generation {
    let time = Timestamp { secs, nanos: 0 };
    let roots = roots.into_iter().map(|(path, entry)| Root { path: path.into(), entry });
    Generation {
        id: GenerationId([id; 8]),
        client: "laptop".to_owned(),
        host: "laptop".to_owned(),
        started: time,
        ended: time,
        partial: false,
        roots: roots.collect(),
        counts: Counts::default(),
        options: Vec::new(),
        tags: Vec::new(),
        bag_list: BagListRef::default(),
    }
}
