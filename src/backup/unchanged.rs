//! Whether an entry has changed since the generation before: a pure decision.

use crate::base::time::Timestamp;
use crate::entry::{Entry, Kind, Metadata};
use crate::live::Stat;

/// What is believed of the live data, and since when.
#[derive(Debug, Clone, Copy, Default)]
pub struct Judge {
    /// Inode numbers mean nothing (some network file systems make them up at each mount).
    pub ignore_inode: bool,
    /// Believe nothing: read every file.
    pub reread: bool,
}

/// How an entry compares with its former self.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing differs.
    Unchanged,
    /// Metadata differ; the contents are the same.
    Metadata,
    /// Only the time of the inode's last change differs. Xattrs or flags may explain it; if they do not, the contents
    /// may have changed and the time of modification been set back.
    Unexplained,
    /// The contents may differ.
    Contents,
}

/// How far a file system's clock may lag behind when it stamps a change: its tick.
const TICK_NANOS: u32 = 20_000_000;

impl Judge {
    /// Compares `former`, of a generation that `began` then, with what stands under its name now. What had changed in the tick in which it
    /// was looked at, or later, may have changed again without showing it. Costs no system call.
    #[must_use]
    pub fn compare(&self, former: &Entry, began: Timestamp, stat: &Stat) -> Verdict {
        let was = &former.metadata;
        if was.kind != stat.kind {
            return Verdict::Contents;
        }
        let is_file = stat.kind == Kind::File;
        let same_inode = self.ignore_inode || was.inode == stat.inode;
        let same_contents = was.mtime == stat.mtime && (!is_file || was.size == stat.size) && same_inode;
        let rereads = is_file && (self.reread || is_racy(was, began));
        if !same_contents || rereads {
            return Verdict::Contents;
        }
        let explained = was.mode != stat.mode
            || was.owner.uid != stat.uid
            || was.owner.gid != stat.gid
            || was.rdev != stat.rdev
            || was.link_group != stat.link_group();
        if explained {
            Verdict::Metadata
        } else if was.ctime == stat.ctime {
            Verdict::Unchanged
        } else if is_file {
            Verdict::Unexplained
        } else {
            Verdict::Metadata
        }
    }

    /// Whether something under a new name may have stood under another one: it was last modified before the generation before
    /// `began`. A rename changes the time of the inode's last change, but not that.
    #[must_use]
    pub fn may_be_moved(&self, began: Timestamp, stat: &Stat) -> bool {
        !self.ignore_inode && !self.reread && !is_racy_time(stat.mtime, began)
    }

    /// Whether the inode that stands under a new name can be one that a generation saw which `began` then. Inode numbers are used again, and
    /// tools give new files times and sizes of old ones (archives in which all times are equal): only when it was `born` tells.
    #[must_use]
    pub fn is_moved(born: Option<Timestamp>, began: Timestamp) -> bool {
        born.is_some_and(|born| !is_racy_time(born, began))
    }

    /// The same of an inode that stands where it stood, so that it is believed where the file system does not tell when it was `born`, unless inode
    /// numbers mean nothing.
    #[must_use]
    pub fn is_still_there(&self, born: Option<Timestamp>, began: Timestamp) -> bool {
        born.map_or(!self.ignore_inode, |_| Self::is_moved(born, began))
    }
}

/// Whether the file may have changed after it was looked at, in the same tick, so that its times do not show it.
fn is_racy(was: &Metadata, began: Timestamp) -> bool {
    is_racy_time(was.mtime, began) || is_racy_time(was.ctime, began)
}

/// Whether a change at `time` may have been in the same tick as a look at `began`, or after it.
fn is_racy_time(time: Timestamp, began: Timestamp) -> bool {
    // Whole seconds: a file system that keeps no parts of them, some only every second one.
    let margin = if time.nanos == 0 { (2, 0) } else { (0, TICK_NANOS) };
    let limit = time.secs.saturating_add(margin.0);
    let (limit, nanos) = match time.nanos.saturating_add(margin.1) {
        nanos if nanos >= 1_000_000_000 => (limit.saturating_add(1), nanos - 1_000_000_000),
        nanos => (limit, nanos),
    };
    Timestamp { secs: limit, nanos } >= began
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Content, Owner};
    use std::sync::Arc;

    fn at(secs: i64, nanos: u32) -> Timestamp {
        Timestamp { secs, nanos }
    }

    fn pair() -> (Entry, Stat) {
        let stat = Stat {
            kind: Kind::File,
            mode: 0o644,
            uid: 1,
            gid: 2,
            mtime: at(100, 5),
            ctime: at(200, 5),
            inode: 7,
            dev: 1,
            size: 10,
            blocks: 8,
            nlink: 1,
            rdev: (0, 0),
            is_protected: false,
        };
        let metadata = Metadata {
            kind: Kind::File,
            mode: 0o644,
            owner: Arc::new(Owner { uid: 1, gid: 2, ..Owner::default() }),
            mtime: stat.mtime,
            ctime: stat.ctime,
            inode: 7,
            size: 10,
            link_group: None,
            rdev: (0, 0),
            flags: 0,
        };
        let name = (*b"name").into();
        (
            Entry { name, metadata, xattrs: Vec::new(), content: Content::Inline((*b"0123456789").into()) },
            stat,
        )
    }

    #[test]
    fn decides() {
        let (judge, began) = (Judge::default(), at(1000, 0));
        let (former, stat) = pair();
        let with = |change: fn(&mut Stat)| {
            let mut stat = stat;
            change(&mut stat);
            judge.compare(&former, began, &stat)
        };
        assert_eq!(with(|_| ()), Verdict::Unchanged);
        assert_eq!(with(|stat| stat.size = 11), Verdict::Contents);
        assert_eq!(with(|stat| stat.mtime.nanos = 6), Verdict::Contents);
        assert_eq!(with(|stat| stat.inode = 8), Verdict::Contents);
        assert_eq!(with(|stat| stat.kind = Kind::Fifo), Verdict::Contents);
        // A tool has set the time of modification back: only the inode's own time tells.
        assert_eq!(with(|stat| stat.ctime = at(300, 1)), Verdict::Unexplained);
        assert_eq!(with(|stat| (stat.ctime, stat.mode) = (at(300, 1), 0o600)), Verdict::Metadata);
        assert_eq!(with(|stat| (stat.ctime, stat.nlink) = (at(300, 1), 2)), Verdict::Metadata);
    }

    #[test]
    fn what_changed_while_it_was_saved_is_not_believed() {
        let (judge, began) = (Judge::default(), at(1000, 0));
        let (mut former, mut stat) = pair();
        let mut with = |ctime| {
            (former.metadata.ctime, stat.ctime) = (ctime, ctime);
            judge.compare(&former, began, &stat)
        };
        assert_eq!(with(at(1000, 1)), Verdict::Contents);
        assert_eq!(with(at(999, 990_000_000)), Verdict::Contents);
        assert_eq!(with(at(999, 970_000_000)), Verdict::Unchanged);
        // Whole seconds only.
        assert_eq!(with(at(998, 0)), Verdict::Contents);
        assert_eq!(with(at(997, 0)), Verdict::Unchanged);
    }

    #[test]
    fn options() {
        let (former, mut stat) = pair();
        stat.inode = 8;
        let (judge, began) = (Judge { ignore_inode: true, reread: false }, at(1000, 0));
        assert_eq!(judge.compare(&former, began, &stat), Verdict::Unchanged);
        assert_eq!(Judge { reread: true, ..judge }.compare(&former, began, &stat), Verdict::Contents);
    }
}
