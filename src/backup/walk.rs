//! The workers that walk the live data.
//!
//! A directory is entered (its names listed, its subdirectories queued) and, when all subdirectories are done, finished (its
//! other entries looked at and compared, its pages built). The queue is a stack, so that few directories are open at once; each worker takes whatever
//! is on top.

use std::sync::{Arc, Mutex, PoisonError};

use crate::bag::source::Source;
use crate::base::time::Timestamp;
use crate::dir::reader;
use crate::entry::{Content, Entry, Kind, Reference};
use crate::generation::{BagCounter, Counts};
use crate::live::stat::stat_child;
use crate::live::{DirFd, Exclude, LiveDir, LiveError, NameList, Own, Owners};
use crate::monitor::{Change, Counter, Monitor, Problem, Severity};

use super::BackupError;
use super::builder::DirBuilder;
use super::content::{Contents, Sink};
use super::entries::{Dated, Earlier, Now, Spot, Worker};
use super::node::{Done, Former, Node, Outcome, Parent, RootOf, Subdir, Was};
use super::pause::{Pause, Snapshot};
use super::queue::{Queue, Step};
use super::tree::{count_entry, known_entry};
use super::unchanged::Judge;

/// What all workers share.
pub struct Walk {
    /// Where contents and pages go.
    pub sink: Sink,
    /// The generation before.
    pub source: Arc<Source>,
    /// How it compares.
    pub judge: Judge,
    /// What is left out.
    pub exclude: Exclude,
    /// Names of users and groups.
    pub owners: Owners,
    /// The chunker's cuts.
    pub cutter: crate::chunker::Cutter,
    /// Keyed hashes of names.
    pub keys: crate::crypto::Keys,
    /// What was counted in directories that are done.
    pub counted: Mutex<Counts>,
    /// What is to be done.
    pub queue: Queue,
    /// Where to look for what has a new name.
    pub moves: super::moves::Moves,
    /// Contents of files with several links that were read already.
    pub links: super::links::Links,
}

/// A worker in the middle of something.
struct Working<'a>(&'a Pause);

impl<'a> Working<'a> {
    fn begin(pause: &'a Pause) -> Self {
        pause.working(true);
        Self(pause)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.working(false);
    }
}

/// What a worker has counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// References in pages that were taken over as they are.
    pub bags: BagCounter,
    /// Chunk lists of files that were taken over as they are, whose references are not counted yet.
    pub lists: Vec<Reference>,
    /// Entries.
    pub counts: Counts,
}

impl Walk {
    /// One worker: works until all is done. An error stops the others.
    ///
    /// # Errors
    /// Why the backup cannot go on.
    pub fn work(&self) -> Result<Tally, BackupError> {
        let contents = Contents::new(&self.sink, self.cutter.clone());
        let mut worker = Worker { walk: self, contents, tally: Tally::default() };
        while let Some(step) = self.queue.next() {
            let _working = Working::begin(&self.sink.pause);
            self.sink.pause.point(|| step.node().map(Snapshot::empty));
            if let Err(error) = self.sink.check().and_then(|()| worker.step(step)) {
                self.queue.stop();
                return Err(error);
            }
        }
        Ok(worker.tally)
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that something of the live data could not be saved.
    pub fn lost(&self, path: &[u8], error: &LiveError) {
        self.sink.monitor.problem(Problem::new(Severity::Lost, path, error));
    }

    /// Tells, once, that a place of kitbag's own is left out.
    fn pass_by(&self, own: Own, path: &[u8]) {
        if let Some(note) = self.exclude.own().note(own, path) {
            self.sink.monitor.problem(Problem::new(Severity::Note, path, note));
        }
    }
}

impl Worker<'_> {
    fn step(&mut self, step: Step) -> Result<(), BackupError> {
        match step {
            Step::Finish(node) => self.finish(&node),
            Step::Enter(dir, former, parent) => self.enter(dir, former, parent),
            Step::Open(node, number) => {
                let parent = Parent::Node(Arc::clone(&node), number);
                let Some(subdir) = node.subdirs.get(number) else { return Ok(()) };
                let Some((name, _)) = node.names.get(subdir.at) else { return Ok(()) };
                match node.dir.child(name) {
                    Ok(dir) => {
                        let mut former = subdir.former.promoted();
                        if former.newest.is_none() {
                            former.newest = self.moved_directory(&node, &dir);
                        }
                        self.enter(dir, former, parent)
                    }
                    Err(LiveError::Vanished) => {
                        self.walk.queue.complete(&parent, Outcome::Gone);
                        Ok(())
                    }
                    Err(error) => {
                        let path = node.dir.path_of(name);
                        let own = self.walk.exclude.own();
                        let outcome = if node.dir.fd().is_ok_and(|fd| own.is_others_mount(fd, name)) {
                            self.walk.pass_by(Own::Mount, &path);
                            Outcome::LeftOut
                        } else {
                            self.lost(&path, &error);
                            Outcome::Closed
                        };
                        self.walk.queue.complete(&parent, outcome);
                        Ok(())
                    }
                }
            }
        }
    }

    /// What a directory was under another name. Its entries are compared one by one as always, so a wrong guess does no harm.
    fn moved_directory(&self, node: &Node, dir: &LiveDir) -> Option<Was> {
        let began = node.root.began;
        if !self.walk.judge.may_be_moved(began, dir.stat()) {
            return None;
        }
        match self.walk.moves.find(dir.stat())?.content {
            Content::Directory(page) => Some(Was { page, began }),
            _ => None,
        }
    }

    /// Lists a directory and queues its subdirectories.
    fn enter(&mut self, dir: Arc<LiveDir>, former: Former, parent: Parent) -> Result<(), BackupError> {
        let walk = self.walk;
        let root = match &parent {
            Parent::Node(node, _) => node.root,
            Parent::Root(_) => {
                let began = former.newest.map(|was| was.began).unwrap_or_default();
                RootOf { dev: dir.stat().dev, began }
            }
        };
        let own = walk.exclude.own().of(&dir);
        if let Some(own) = own {
            walk.pass_by(own, &dir.path());
        }
        if own.is_some_and(|own| !own.keeps_directory()) {
            walk.queue.complete(&parent, Outcome::LeftOut);
            return Ok(());
        }
        if own.is_some() || walk.exclude.stops_at(root.dev, dir.stat().dev) {
            let is_same = former.newest.is_some_and(|was| was.page.is_none());
            let done = Done { stat: *dir.stat(), page: None, is_same };
            walk.queue.complete(&parent, Outcome::Done(Box::new(done)));
            return Ok(());
        }
        let listed = dir.names().and_then(|names| Ok((names, dir.fd()?)));
        let (names, fd) = match listed {
            Ok(listed) => listed,
            Err(LiveError::Vanished) => {
                walk.queue.complete(&parent, Outcome::Gone);
                return Ok(());
            }
            Err(error) => {
                self.lost(&dir.path(), &error);
                walk.queue.complete(&parent, Outcome::Closed);
                return Ok(());
            }
        };
        let (skipped, subdirs) = self.sort_out(&dir, &fd, &names, former);
        let has_subdirs = !subdirs.is_empty();
        let node = Arc::new(Node::new(dir, (names, skipped, subdirs), former, root, parent));
        if has_subdirs {
            walk.queue.add_subdirs(node);
            Ok(())
        } else {
            self.finish(&node)
        }
    }

    /// Which names are left out, and which are subdirectories.
    fn sort_out(
        &self,
        dir: &LiveDir,
        fd: &DirFd,
        names: &NameList,
        former: Former,
    ) -> (Vec<bool>, Vec<Subdir>) {
        let exclude = &self.walk.exclude;
        let tag = exclude.tag_of(fd, names);
        let globs = exclude.has_globs();
        let relative = if globs { dir.relative_path() } else { Vec::new() };
        let own = exclude.own().names_in(dir);
        if names.iter().any(|(name, _)| own.contains(name)) {
            self.walk.pass_by(Own::RepositoryPart, &dir.path());
        }
        let mut skipped = Vec::new();
        let mut subdirs = Vec::new();
        for (at, (name, hint)) in names.iter().enumerate() {
            let kind = hint.or_else(|| stat_child(fd, name).ok().map(|stat| stat.kind));
            let is_directory = kind == Some(Kind::Directory);
            let left_out = own.contains(name)
                || tag.is_some_and(|tag| tag != name)
                || (globs && exclude.excludes(&join(&relative, name), is_directory));
            if left_out && skipped.is_empty() {
                skipped = vec![false; names.len()];
            }
            if let Some(skip) = skipped.get_mut(at) {
                *skip = left_out;
            }
            if is_directory && !left_out {
                subdirs.push(Subdir { at, former: Former::default(), outcome: Default::default() });
            }
        }
        self.find_former(names, &mut subdirs, former.newest, |subdir| &mut subdir.former.newest);
        self.find_former(names, &mut subdirs, former.checkpoint, |subdir| &mut subdir.former.checkpoint);
        (skipped, subdirs)
    }

    /// Finds what the subdirectories were in one generation.
    fn find_former(
        &self,
        names: &NameList,
        subdirs: &mut [Subdir],
        was: Option<Was>,
        place: impl Fn(&mut Subdir) -> &mut Option<Was>,
    ) {
        let Some(Was { page: Some(page), began }) = was else { return };
        let mut former = Cursor::new(&self.walk.source, page);
        for subdir in subdirs {
            // A page that cannot be read is reported when the directory is finished.
            if let Some(entry) = former.take(name_at(names, subdir.at))
                && let Content::Directory(page) = entry.content
            {
                *place(subdir) = Some(Was { page, began });
            }
        }
    }

    /// Looks at all entries of a directory whose subdirectories are done, and builds its pages.
    fn finish(&mut self, node: &Arc<Node>) -> Result<(), BackupError> {
        let walk = self.walk;
        let fd = match node.dir.fd() {
            Ok(fd) => fd,
            Err(LiveError::Vanished) => {
                walk.queue.complete(&node.parent, Outcome::Gone);
                return Ok(());
            }
            Err(error) => {
                self.lost(&node.dir.path(), &error);
                walk.queue.complete(&node.parent, Outcome::Closed);
                return Ok(());
            }
        };
        let outcome = self.pages(node, &fd)?;
        let counts = std::mem::take(&mut self.tally.counts);
        walk.counted.lock().unwrap_or_else(PoisonError::into_inner).add(&counts);
        walk.queue.complete(&node.parent, outcome);
        Ok(())
    }

    fn pages(&mut self, node: &Arc<Node>, fd: &DirFd) -> Result<Outcome, BackupError> {
        let walk = self.walk;
        let mut builder = DirBuilder::new(&walk.sink.tree, walk.keys.names());
        let left_out = node.left_out();
        let is_kept = |at: &usize| !node.is_skipped(*at) && !left_out.contains(at);
        let mut places = (0..node.names.len()).filter(is_kept).peekable();
        let mut leaves = reader::leaves(&walk.source, node.former.page());
        let mut checkpoint = Checkpoint::new(&walk.source, node.former.checkpoint);
        let began = node.former.newest.map(|was| was.began).unwrap_or_default();
        let (mut former_leaves, mut intact) = (0usize, true);
        let mut subdirs = 0;
        for leaf in leaves.by_ref() {
            let leaf = match leaf {
                Ok(leaf) => leaf,
                Err(error) => {
                    let severity =
                        if error.is_damage() { Severity::Damage } else { return Err(error.into()) };
                    let text = format!(
                        "its listing in the generation before is damaged, so all of it is read again ({error})"
                    );
                    walk.sink.monitor.problem(Problem::new(severity, &node.dir.path(), text));
                    if let Some(bag) = error.damaged_bag() {
                        walk.sink.shelf.distrust(bag);
                    }
                    intact = false;
                    break;
                }
            };
            former_leaves += 1;
            let mut page = PageMerge { kept: Vec::new(), intact: builder.at_start() };
            let last = leaf.entries.last().map(|entry| entry.name.clone()).unwrap_or_default();
            let mut entries = leaf.entries.into_iter().peekable();
            while let Some(at) = places.next_if(|at| name_at(&node.names, *at) <= &*last) {
                let name = name_at(&node.names, at);
                while entries.next_if(|entry| &*entry.name < name).is_some() {
                    page.part(&mut builder)?;
                }
                let former = entries.next_if(|entry| &*entry.name == name).map(|entry| (entry, began));
                let snapshot = || Some(builder.snapshot(node, at));
                walk.sink.pause.point(snapshot);
                let spot = Spot { node, fd, at, snapshot: &snapshot };
                match self.look(&spot, Earlier { former, saved: checkpoint.take(name) }, &mut subdirs)? {
                    Now::Same(entry) if page.intact => page.kept.push(*entry),
                    Now::Same(entry) => builder.push(known_entry(*entry))?,
                    Now::Gone => page.part(&mut builder)?,
                    Now::New(entry) => {
                        page.part(&mut builder)?;
                        builder.push(*entry)?;
                    }
                }
            }
            if entries.next().is_some() {
                page.part(&mut builder)?;
            }
            let is_last = places.peek().is_none();
            if page.intact && builder.reuse(leaf.reference, &page.kept, is_last) {
                for entry in &page.kept {
                    count_entry(&mut self.tally.bags, entry);
                    if let Content::Lists { parts, .. } = &entry.content {
                        self.tally.lists.extend(parts.iter().map(|part| part.list));
                    }
                }
            } else {
                page.part(&mut builder)?;
            }
        }
        for at in places {
            let snapshot = || Some(builder.snapshot(node, at));
            walk.sink.pause.point(snapshot);
            let saved = checkpoint.take(name_at(&node.names, at));
            let spot = Spot { node, fd, at, snapshot: &snapshot };
            match self.look(&spot, Earlier { former: None, saved }, &mut subdirs)? {
                Now::Same(entry) => builder.push(known_entry(*entry))?,
                Now::New(entry) => builder.push(*entry)?,
                Now::Gone => {}
            }
        }
        let index_pages = leaves.index_pages();
        let all_same = intact && node.former.newest.is_some() && builder.all_reused() == Some(former_leaves);
        let stat = *node.dir.stat();
        if all_same {
            for page in index_pages {
                if let crate::dir::Page::Index(children) = reader::page(&walk.source, page)? {
                    for child in children {
                        self.tally.bags.add(crate::bag::BagKind::Tree, &child.page);
                    }
                }
            }
            let page = node.former.page().map(crate::bag::Placing::Known);
            return Ok(Outcome::Done(Box::new(Done { stat, page, is_same: true })));
        }
        let page = builder.finish(index_pages)?;
        Ok(Outcome::Done(Box::new(Done { stat, page, is_same: false })))
    }

    fn lost(&mut self, path: &[u8], error: &LiveError) {
        self.tally.counts.failed += 1;
        self.walk.lost(path, error);
    }
}

/// The entries of a former page, as long as all of them are unchanged.
struct PageMerge {
    kept: Vec<Entry>,
    intact: bool,
}

impl PageMerge {
    /// Something differs: what was kept back goes to the builder.
    fn part(&mut self, builder: &mut DirBuilder<'_>) -> Result<(), BackupError> {
        self.intact = false;
        self.kept.drain(..).try_for_each(|entry| builder.push(known_entry(entry)))
    }
}

/// The entries of a directory in one generation, asked for by ascending names.
struct Cursor<'a> {
    leaves: reader::Leaves<'a>,
    entries: std::iter::Peekable<std::vec::IntoIter<Entry>>,
}

impl<'a> Cursor<'a> {
    fn new(source: &'a Source, page: Reference) -> Self {
        Self { leaves: reader::leaves(source, Some(page)), entries: Vec::new().into_iter().peekable() }
    }

    /// The entry of this name; names must ascend. What cannot be read is not there.
    fn take(&mut self, name: &[u8]) -> Option<Entry> {
        loop {
            while self.entries.next_if(|entry| &*entry.name < name).is_some() {}
            if self.entries.peek().is_some() {
                return self.entries.next_if(|entry| &*entry.name == name);
            }
            self.entries = self.leaves.next()?.ok()?.entries.into_iter().peekable();
        }
    }
}

/// What a checkpoint has saved of a directory.
struct Checkpoint<'a>(Option<(Cursor<'a>, Timestamp)>);

impl<'a> Checkpoint<'a> {
    fn new(source: &'a Source, was: Option<Was>) -> Self {
        Self(was.and_then(|was| Some((Cursor::new(source, was.page?), was.began))))
    }

    fn take(&mut self, name: &[u8]) -> Option<Dated> {
        let (cursor, began) = self.0.as_mut()?;
        Some((cursor.take(name)?, *began))
    }
}

/// The name at a place; places come from the list itself.
pub fn name_at(names: &NameList, at: usize) -> &[u8] {
    names.get(at).map_or(b"", |(name, _)| name)
}

fn join(relative: &[u8], name: &[u8]) -> Vec<u8> {
    if relative.is_empty() { name.to_vec() } else { [relative, b"/", name].concat() }
}

/// Tells of an entry's change, for those who follow.
pub fn tell(monitor: &dyn Monitor, dir: &LiveDir, name: &[u8], change: Change) {
    if monitor.follows_changes() {
        monitor.change(&dir.path_of(name), change);
    }
}

/// Counts an entry.
pub fn count(tally: &mut Tally, monitor: &dyn Monitor, kind: Kind, size: u64) {
    let counts = &mut tally.counts;
    match kind {
        Kind::File => {
            counts.files += 1;
            counts.bytes = counts.bytes.saturating_add(size);
            monitor.count(Counter::Files, 1);
            monitor.count(Counter::FileBytes, size);
        }
        Kind::Directory => counts.directories += 1,
        _ => counts.others += 1,
    }
    monitor.count(Counter::Entries, 1);
}
