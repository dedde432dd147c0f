//! A generation compared with what is there now.

use std::sync::Arc;

use super::diff::{Aspect, Change};
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::contents::compare::CompareError;
use crate::contents::has_contents;
use crate::dir::reader::{Leaves, TreeError, leaves};
use crate::entry::{Content, Entry, Kind, Reference, XattrValue};
use crate::live::stat::stat_child;
use crate::live::xattrs::{xattrs_of_child, xattrs_of_fd};
use crate::live::{
    DirFd, Exclude, LiveDir, LiveError, LiveFile, NameList, OwnNames, RawXattr, Stat, read_link,
};

/// Why comparing cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The repository cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// It was asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Who hears what differs, and what could not be compared.
pub trait Hears {
    /// This differs.
    fn differs(&mut self, path: &[u8], change: Change);
    /// This could not be looked at.
    fn unreadable(&mut self, path: &[u8], error: &LiveError);
    /// This is in the generation, and was not looked at.
    fn passed_by(&mut self, path: &[u8], why: &'static str);
}

/// Compares.
pub struct Comparison<'a, H> {
    /// Directories and chunk lists.
    pub source: &'a Source,
    /// What is left out of the live data.
    pub exclude: &'a Exclude,
    /// Whether files are read whose times say that they are unchanged.
    pub reread: bool,
    /// Who hears.
    pub hears: H,
    /// Set by who wants it to stop.
    pub cancel: &'a Cancel,
    buffer: Vec<u8>,
}

/// A directory that is being compared.
struct Level<'a> {
    stored: Entries<'a>,
    live: Option<Live>,
    path_len: usize,
}

struct Live {
    dir: Arc<LiveDir>,
    fd: DirFd,
    names: NameList,
    at: usize,
    /// What is kitbag's own among them.
    own: OwnNames,
    /// Only this one of its entries is there, as far as is asked.
    only: Option<Vec<u8>>,
}

/// The entries of a stored directory.
struct Entries<'a> {
    leaves: Leaves<'a>,
    entries: std::iter::Peekable<std::vec::IntoIter<Entry>>,
}

impl Entries<'_> {
    fn peek(&mut self) -> Result<Option<&Entry>, TreeError> {
        while self.entries.peek().is_none() {
            match self.leaves.next().transpose()? {
                Some(leaf) => self.entries = leaf.entries.into_iter().peekable(),
                None => return Ok(None),
            }
        }
        Ok(self.entries.peek())
    }

    fn next(&mut self) -> Option<Entry> {
        self.entries.next()
    }
}

impl<'a, H: Hears> Comparison<'a, H> {
    /// Compares what is read from `source` with the live data.
    pub fn new(source: &'a Source, exclude: &'a Exclude, reread: bool, hears: H, cancel: &'a Cancel) -> Self {
        Self { source, exclude, reread, hears, cancel, buffer: Vec::new() }
    }

    /// Compares `entry` and what stands below with what is at `path`, which lies in the saved root `root`.
    ///
    /// # Errors
    /// See [`Stop`].
    pub fn compare(&mut self, root: &[u8], path: &[u8], entry: &Entry) -> Result<(), Stop> {
        let top = top_of(&entry.content);
        let dev = LiveDir::open_root(root).map_or(0, |dir| dir.stat().dev);
        // A root is what its path leads to; what lies in it is looked at by name.
        let outcome = match LiveDir::open_root(path) {
            Ok(dir) if path == root => {
                self.directory_itself(path, entry, &dir);
                Ok(Some(dir))
            }
            _ => self.child(path, entry)?,
        };
        match outcome {
            Ok(dir) => self.below(path, top, dir, (root, dev)),
            Err(LiveError::Vanished | LiveError::Replaced) => {
                self.hears.differs(path, Change::Removed);
                self.below(path, top, None, (root, dev))
            }
            Err(error) => {
                self.hears.unreadable(path, &error);
                Ok(())
            }
        }
    }

    /// Compares an entry with what stands at `path`; gives the directory that stands there, if it is one.
    fn child(&mut self, path: &[u8], entry: &Entry) -> Result<Result<Option<Arc<LiveDir>>, LiveError>, Stop> {
        let (parent, name) = split(path);
        let look = || {
            let dir = LiveDir::open_root(parent)?;
            let fd = dir.fd()?;
            let stat = stat_child(&fd, name)?;
            Ok((dir, fd, stat))
        };
        let (dir, fd, stat) = match look() {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        self.entry(path, entry, &fd, name, &stat)?;
        Ok(if stat.kind == Kind::Directory { dir.child(name).map(Some) } else { Ok(None) })
    }

    /// Compares what stands in directories, on either side.
    fn below(
        &mut self,
        path: &[u8],
        top: Option<Reference>,
        dir: Option<Arc<LiveDir>>,
        root: (&[u8], u64),
    ) -> Result<(), Stop> {
        let mut path = path.to_vec();
        let mut levels = vec![self.level(&path, top, dir, root)];
        while let Some(level) = levels.last_mut() {
            if self.cancel.is_cancelled() {
                return Err(Stop::Interrupted);
            }
            path.truncate(level.path_len);
            let next_live = level.live.as_mut().and_then(|live| live.next(self.exclude, root.0, &path));
            let stored = level.stored.peek()?.map(|entry| entry.name.clone());
            let name = match (&stored, &next_live) {
                (None, None) => {
                    levels.pop();
                    continue;
                }
                (Some(one), Some(other)) => one[..].to_vec().min(other.clone()),
                (Some(one), None) => one.to_vec(),
                (None, Some(other)) => other.clone(),
            };
            let entry = if stored.as_deref() == Some(&name[..]) { level.stored.next() } else { None };
            let is_live = next_live.as_deref() == Some(&name[..]);
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let mut child = None;
            let mut seen = None;
            if let Some(live) = &level.live
                && live.own.contains(&name)
            {
                self.pass_by(&path, entry.as_ref());
                if let Some(live) = level.live.as_mut().filter(|_| is_live) {
                    live.at = live.at.saturating_add(1);
                }
                continue;
            }
            if is_live && let Some(live) = &mut level.live {
                live.at = live.at.saturating_add(1);
                match stat_child(&live.fd, &name) {
                    Ok(stat) => seen = Some((stat, live.fd.clone())),
                    Err(LiveError::Vanished) => {}
                    Err(_) if self.exclude.own().is_others_mount(&live.fd, &name) => {
                        self.pass_by(&path, entry.as_ref());
                        continue;
                    }
                    Err(error) => {
                        self.hears.unreadable(&path, &error);
                        continue;
                    }
                }
                if matches!(seen, Some((Stat { kind: Kind::Directory, .. }, _))) {
                    match live.dir.child(&name) {
                        // Whatever it was, and is by now: no backup would save it.
                        Ok(dir) if self.exclude.own().of(&dir).is_some() => {
                            self.pass_by(&path, entry.as_ref());
                            continue;
                        }
                        Ok(dir) => child = Some(dir),
                        Err(error) => self.hears.unreadable(&path, &error),
                    }
                }
            }
            match (&entry, &seen) {
                (Some(entry), Some((stat, fd))) => self.entry(&path, entry, fd, &name, stat)?,
                (Some(_), None) => self.hears.differs(&path, Change::Removed),
                (None, Some(_)) => self.hears.differs(&path, Change::Added),
                (None, None) => {}
            }
            let top = entry.as_ref().and_then(|entry| top_of(&entry.content));
            if top.is_some() || child.is_some() {
                let level = self.level(&path, top, child, root);
                levels.push(level);
            }
        }
        Ok(())
    }

    /// Tells of a place of kitbag's own, if the generation holds something there.
    fn pass_by(&mut self, path: &[u8], entry: Option<&Entry>) {
        let holds = entry.is_some_and(|entry| !matches!(entry.content, Content::Directory(None)));
        if holds && let Some(why) = self.exclude.own().not_compared(path) {
            self.hears.passed_by(path, why);
        }
    }

    fn level(
        &mut self,
        path: &[u8],
        top: Option<Reference>,
        dir: Option<Arc<LiveDir>>,
        root: (&[u8], u64),
    ) -> Level<'a> {
        let stored = Entries { leaves: leaves(self.source, top), entries: Vec::new().into_iter().peekable() };
        let mut live = None;
        if let Some(dir) = dir
            && !self.exclude.stops_at(root.1, dir.stat().dev)
        {
            match dir.names().and_then(|names| Ok((names, dir.fd()?))) {
                Ok((names, fd)) => {
                    let only = self.exclude.tag_of(&fd, &names).map(<[u8]>::to_vec);
                    live = Some(Live { own: self.exclude.own().names_in(&dir), dir, fd, names, at: 0, only });
                }
                Err(LiveError::Vanished) => {}
                Err(error) => self.hears.unreadable(path, &error),
            }
        }
        Level { stored, live, path_len: path.len() }
    }

    /// Compares what a root's path leads to, a directory.
    fn directory_itself(&mut self, path: &[u8], entry: &Entry, dir: &Arc<LiveDir>) {
        let mut aspects = plain_aspects(entry, dir.stat());
        match dir.fd().and_then(|fd| xattrs_of_fd(&fd)) {
            Ok(xattrs) if self.has_xattrs(entry, &xattrs) => {}
            Ok(_) => aspects.push(Aspect::Xattrs),
            Err(error) => self.hears.unreadable(path, &error),
        }
        self.tell(path, aspects);
    }

    /// Compares an entry with what stands under its name.
    fn entry(
        &mut self,
        path: &[u8],
        entry: &Entry,
        fd: &DirFd,
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), Stop> {
        let mut aspects = plain_aspects(entry, stat);
        if aspects.first() != Some(&Aspect::Kind) {
            match xattrs_of_child(fd, name) {
                Ok(xattrs) if self.has_xattrs(entry, &xattrs) => {}
                Ok(_) => aspects.push(Aspect::Xattrs),
                Err(error) => self.hears.unreadable(path, &error),
            }
            match self.has_contents(entry, fd, name, stat) {
                Ok(true) => {}
                Ok(false) => aspects.insert(0, Aspect::Contents),
                Err(CompareError::Tree(error)) => return Err(error.into()),
                Err(CompareError::Live(LiveError::Vanished)) => {}
                Err(CompareError::Live(error)) => self.hears.unreadable(path, &error),
            }
        }
        self.tell(path, aspects);
        Ok(())
    }

    fn tell(&mut self, path: &[u8], aspects: Vec<Aspect>) {
        if !aspects.is_empty() {
            self.hears.differs(path, Change::Changed(aspects));
        }
    }

    fn has_contents(
        &mut self,
        entry: &Entry,
        fd: &DirFd,
        name: &[u8],
        stat: &Stat,
    ) -> Result<bool, CompareError> {
        let saved = &entry.metadata;
        match &entry.content {
            Content::Target(target) => Ok(read_link(fd, name)? == *target),
            _ if saved.kind != Kind::File => Ok(saved.rdev == stat.rdev),
            _ if saved.size != stat.size => Ok(false),
            // Nothing was written to it since.
            _ if !self.reread
                && (saved.inode, saved.mtime, saved.ctime) == (stat.inode, stat.mtime, stat.ctime) =>
            {
                Ok(true)
            }
            content => {
                let file = LiveFile::open(fd, name, stat)?;
                has_contents(self.source, content, saved.size, &file, &mut self.buffer)
            }
        }
    }

    fn has_xattrs(&self, entry: &Entry, live: &[RawXattr]) -> bool {
        let reader = self.source.reader();
        entry.xattrs.len() == live.len()
            && entry.xattrs.iter().zip(live).all(|(saved, live)| {
                saved.name == live.name
                    && match &saved.value {
                        XattrValue::Inline(value) => *value == live.value,
                        XattrValue::Chunk(chunk) => reader.id_of(&live.value) == chunk.id,
                    }
            })
    }
}

impl Live {
    /// The next name that is not left out.
    fn next(&mut self, exclude: &Exclude, root: &[u8], path: &[u8]) -> Option<Vec<u8>> {
        loop {
            let (name, hint) = self.names.get(self.at)?;
            let is_tag = self.only.as_deref().is_none_or(|only| only == name);
            let is_left_out = exclude.has_globs() && {
                let kind = hint.or_else(|| stat_child(&self.fd, name).ok().map(|stat| stat.kind));
                let whole = [path, b"/", name].concat();
                let relative = whole.strip_prefix(root).unwrap_or(&whole);
                let relative = relative.strip_prefix(b"/").unwrap_or(relative);
                exclude.excludes(relative, kind == Some(Kind::Directory))
            };
            if is_tag && !is_left_out {
                return Some(name.to_vec());
            }
            self.at = self.at.saturating_add(1);
        }
    }
}

/// In what an entry differs from what is there, contents and xattrs left aside.
fn plain_aspects(entry: &Entry, stat: &Stat) -> Vec<Aspect> {
    let saved = &entry.metadata;
    if saved.kind != stat.kind {
        return vec![Aspect::Kind];
    }
    let differ = [
        (Aspect::Mode, saved.mode != stat.mode && saved.kind != Kind::Symlink),
        (Aspect::Owner, (saved.owner.uid, saved.owner.gid) != (stat.uid, stat.gid)),
        (Aspect::Mtime, saved.mtime != stat.mtime),
    ];
    differ.into_iter().filter(|(_, differs)| *differs).map(|(aspect, _)| aspect).collect()
}

fn top_of(content: &Content) -> Option<Reference> {
    match content {
        Content::Directory(top) => *top,
        _ => None,
    }
}

/// A path's directory and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", path.get(1..).unwrap_or_default()),
        Some(at) => {
            let (dir, name) = path.split_at(at);
            (dir, name.get(1..).unwrap_or_default())
        }
        None => (b".", path),
    }
}
