//! Looking at one entry of the live data.

use std::sync::Arc;

use crate::bag::Placing;
use crate::base::time::Timestamp;
use crate::entry::{Content, Entry, Kind, Metadata, Xattr, XattrValue};
use crate::live::stat::{born_child, stat_child};
use crate::live::xattrs::xattrs_of_child;
use crate::live::{Alteration, DirFd, LiveDir, LiveError, Stat, flags::flags_of_child, read_link};
use crate::monitor::{Change, Problem, Severity};

use super::BackupError;
use super::content::{Contents, Failure};
use super::node::{Done, Node, Outcome};
use super::pause::Snapshot;
use super::tree::known_entry;
use super::unchanged::{Judge, Verdict};
use super::walk::{Tally, Walk, count, name_at, tell};

/// One worker.
pub struct Worker<'a> {
    /// What all share.
    pub walk: &'a Walk,
    /// Reads files.
    pub contents: Contents<'a>,
    /// What it has counted.
    pub tally: Tally,
}

/// Where an entry is.
pub struct Here<'a> {
    /// Its directory.
    pub dir: &'a LiveDir,
    /// The directory's descriptor.
    pub fd: &'a DirFd,
    /// Its name.
    pub name: &'a [u8],
    /// What is done of the directory so far, for a checkpoint.
    pub snapshot: &'a dyn Fn() -> Option<Snapshot>,
}

/// A place among the names of a directory.
pub struct Spot<'a> {
    /// The directory.
    pub node: &'a Arc<Node>,
    /// Its descriptor.
    pub fd: &'a DirFd,
    /// The place.
    pub at: usize,
    /// What is done of the directory so far, for a checkpoint.
    pub snapshot: &'a dyn Fn() -> Option<Snapshot>,
}

/// An entry of a generation, and when that generation began.
pub type Dated = (Entry, Timestamp);

/// What generations before have under a name.
#[derive(Default)]
pub struct Earlier {
    /// The one compared with.
    pub former: Option<Dated>,
    /// A checkpoint made after it.
    pub saved: Option<Dated>,
}

/// What became of an entry.
pub enum Now {
    /// It is what it was.
    Same(Box<Entry>),
    /// It is new or differs.
    New(Box<Entry<Placing>>),
    /// It is not there (any more), or could not be read, which was reported.
    Gone,
}

impl Worker<'_> {
    /// Looks at the entry at a place among a directory's names. `subdirs` is how many subdirectories lie before it, or before the last one that was
    /// looked at.
    pub fn look(
        &mut self,
        spot: &Spot<'_>,
        earlier: Earlier,
        subdirs: &mut usize,
    ) -> Result<Now, BackupError> {
        let Spot { node, fd, at, snapshot } = *spot;
        let name = name_at(&node.names, at);
        let here = Here { dir: &node.dir, fd, name, snapshot };
        // Some may have been left out.
        while node.subdirs.get(*subdirs).is_some_and(|subdir| subdir.at < at) {
            *subdirs += 1;
        }
        let subdir = node.subdirs.get(*subdirs).filter(|subdir| subdir.at == at);
        let outcome = match subdir {
            Some(subdir) => {
                *subdirs += 1;
                self.subdir(&here, earlier.former, subdir.outcome.get())
            }
            None => self.other(&here, node.root.began, earlier),
        };
        let monitor = &*self.walk.sink.monitor;
        match outcome {
            Ok((now, change)) => {
                let metadata = match &now {
                    Now::Same(entry) => Some(&entry.metadata),
                    Now::New(entry) => Some(&entry.metadata),
                    Now::Gone => None,
                };
                if let Some(metadata) = metadata {
                    count(&mut self.tally, monitor, metadata.kind, metadata.size);
                    tell(monitor, &node.dir, name, change);
                }
                Ok(now)
            }
            Err(Failure::Backup(error)) => Err(error),
            Err(Failure::File(LiveError::Vanished)) => Ok(Now::Gone),
            Err(Failure::File(error)) => {
                self.tally.counts.failed += 1;
                self.walk.lost(&node.dir.path_of(name), &error);
                Ok(Now::Gone)
            }
        }
    }

    fn subdir(
        &mut self,
        here: &Here<'_>,
        former: Option<Dated>,
        outcome: Option<&Outcome>,
    ) -> Result<(Now, Change), Failure> {
        let closed;
        let done = match outcome {
            Some(Outcome::Done(done)) => &**done,
            Some(Outcome::Closed) => {
                let stat = stat_child(here.fd, here.name)?;
                closed = Done { stat, page: None, is_same: false };
                &closed
            }
            Some(Outcome::Gone | Outcome::LeftOut) | None => return Ok((Now::Gone, Change::Unchanged)),
        };
        let content = Content::Directory(done.page.clone());
        self.directory(here, former, (&done.stat, content, done.is_same))
    }

    fn directory(
        &mut self,
        here: &Here<'_>,
        former: Option<Dated>,
        (stat, content, is_same): (&Stat, Content<Placing>, bool),
    ) -> Result<(Now, Change), Failure> {
        let judge = self.walk.judge;
        let verdict = former.as_ref().map(|(former, began)| judge.compare(former, *began, stat));
        let change = match (former, verdict) {
            (Some((former, _)), Some(Verdict::Unchanged)) if is_same => {
                return Ok((Now::Same(Box::new(former)), Change::Unchanged));
            }
            (None, _) if is_same => Change::Moved,
            (None, _) => Change::New,
            (Some(_), Some(Verdict::Unchanged)) => Change::Changed,
            (Some(_), _) if is_same => Change::Metadata,
            (Some(_), _) => Change::Changed,
        };
        let entry = self.entry(here, stat, content, None)?;
        Ok((Now::New(Box::new(entry)), change))
    }

    /// Something that is no directory. `began`: when the generation began that the root is compared with; `former` is what that has under this
    /// name, `saved` what a later checkpoint has.
    pub fn other(
        &mut self,
        here: &Here<'_>,
        began: Timestamp,
        Earlier { former, saved }: Earlier,
    ) -> Result<(Now, Change), Failure> {
        let stat = stat_child(here.fd, here.name)?;
        if stat.kind == Kind::Directory {
            // It has come in the place of another kind of file since the directory was listed.
            return Err(LiveError::Replaced.into());
        }
        let judge = self.walk.judge;
        let verdict = former.as_ref().map(|(former, began)| judge.compare(former, *began, &stat));
        if verdict != Some(Verdict::Unchanged)
            && let Some((saved, saved_began)) = saved
            && judge.compare(&saved, saved_began, &stat) == Verdict::Unchanged
        {
            let change = if former.is_some() { Change::Changed } else { Change::New };
            return Ok((Now::New(Box::new(known_entry(saved))), change));
        }
        let (Some((former, former_began)), Some(mut verdict)) = (former, verdict) else {
            if let Some(entry) = self.moved(here, began, &stat)? {
                return Ok((Now::New(Box::new(entry)), Change::Moved));
            }
            let entry = self.read(here, &stat)?;
            return Ok((Now::New(Box::new(entry)), Change::New));
        };
        if stat.kind == Kind::File
            && matches!(verdict, Verdict::Metadata | Verdict::Unexplained)
            && !judge.is_still_there(born_child(here.fd, here.name)?, former_began)
        {
            verdict = Verdict::Contents;
        }
        match verdict {
            Verdict::Unchanged => Ok((Now::Same(Box::new(former)), Change::Unchanged)),
            Verdict::Contents => {
                if former.metadata.inode != stat.inode
                    && let Some(entry) = self.moved(here, began, &stat)?
                {
                    return Ok((Now::New(Box::new(entry)), Change::Moved));
                }
                let entry = self.read(here, &stat)?;
                Ok((Now::New(Box::new(entry)), Change::Changed))
            }
            Verdict::Metadata if stat.kind == Kind::File => {
                let content = known_entry(former).content;
                let entry = self.entry(here, &stat, content, None)?;
                Ok((Now::New(Box::new(entry)), Change::Metadata))
            }
            Verdict::Metadata => {
                let entry = self.read(here, &stat)?;
                Ok((Now::New(Box::new(entry)), Change::Metadata))
            }
            Verdict::Unexplained => {
                let xattrs = self.walk.sink.xattrs(xattrs_of_child(here.fd, here.name)?)?;
                let flags = flags_of_child(here.fd, here.name)?;
                let explained = flags != former.metadata.flags || !same_xattrs(&xattrs, &former.xattrs);
                if explained {
                    let content = known_entry(former).content;
                    let entry = self.entry(here, &stat, content, Some((xattrs, flags)))?;
                    return Ok((Now::New(Box::new(entry)), Change::Metadata));
                }
                let entry = self.read(here, &stat)?;
                let same = content_id(&entry.content) == content_id(&known_entry(former).content);
                let change = if same { Change::Metadata } else { Change::Changed };
                Ok((Now::New(Box::new(entry)), change))
            }
        }
    }

    /// The entry with the contents that the file had under another name, if it is a moved one.
    fn moved(
        &self,
        here: &Here<'_>,
        began: Timestamp,
        stat: &Stat,
    ) -> Result<Option<Entry<Placing>>, Failure> {
        if stat.kind != Kind::File || stat.size == 0 || !self.walk.judge.may_be_moved(began, stat) {
            return Ok(None);
        }
        let Some(former) = self.walk.moves.find(stat) else { return Ok(None) };
        if !Judge::is_moved(born_child(here.fd, here.name)?, self.walk.moves.began()) {
            return Ok(None);
        }
        self.entry(here, stat, known_entry(former).content, None).map(Some)
    }

    /// Reads everything about an entry that is no directory.
    fn read(&mut self, here: &Here<'_>, stat: &Stat) -> Result<Entry<Placing>, Failure> {
        let mut now = *stat;
        let content = match stat.kind {
            Kind::File => match self.walk.links.get(stat) {
                Some(content) => content,
                None => {
                    let read = self.contents.read(here, stat)?;
                    now = read.stat;
                    self.report(here, read.alteration);
                    self.walk.links.remember(&read.stat, &read.content);
                    read.content
                }
            },
            Kind::Symlink => Content::Target(read_link(here.fd, here.name)?),
            _ => Content::Empty,
        };
        self.entry(here, &now, content, None)
    }

    fn report(&self, here: &Here<'_>, alteration: Option<Alteration>) {
        let Some(alteration) = alteration.filter(|one| *one != Alteration::Touched) else { return };
        let path = here.dir.path_of(here.name);
        self.walk.sink.monitor.problem(Problem::new(Severity::Note, &path, alteration));
    }

    pub fn entry(
        &self,
        here: &Here<'_>,
        stat: &Stat,
        content: Content<Placing>,
        known: Option<(Vec<Xattr<Placing>>, u32)>,
    ) -> Result<Entry<Placing>, Failure> {
        let (xattrs, flags) = match known {
            Some(known) => known,
            None => {
                let xattrs = self.walk.sink.xattrs(xattrs_of_child(here.fd, here.name)?)?;
                let has_flags = matches!(stat.kind, Kind::File | Kind::Directory);
                // A file that may not be opened for its flags has none that could be set again.
                (xattrs, if has_flags { flags_of_child(here.fd, here.name).unwrap_or(0) } else { 0 })
            }
        };
        let metadata = Metadata { flags, ..stat.metadata(&self.walk.owners) };
        Ok(Entry { name: here.name.into(), metadata, xattrs, content })
    }
}

fn same_xattrs(now: &[Xattr<Placing>], former: &[Xattr]) -> bool {
    now.len() == former.len()
        && now.iter().zip(former).all(|(now, former)| {
            now.name == former.name
                && match (&now.value, &former.value) {
                    (XattrValue::Inline(now), XattrValue::Inline(former)) => now == former,
                    (XattrValue::Chunk(now), XattrValue::Chunk(former)) => now.id() == Some(former.id),
                    _ => false,
                }
        })
}

/// What tells contents apart without reading them.
fn content_id(content: &Content<Placing>) -> Vec<u8> {
    match content {
        Content::Inline(bytes) => bytes.to_vec(),
        Content::Pieces(pieces) => pieces
            .iter()
            .flat_map(|piece| match piece {
                crate::entry::Piece::Chunk(placing) => {
                    placing.id().map(|id| id.0.to_vec()).unwrap_or_default()
                }
                crate::entry::Piece::Hole(len) => len.to_le_bytes().to_vec(),
            })
            .collect(),
        _ => Vec::new(),
    }
}
