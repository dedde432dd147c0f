//! Comparing entries with what stands under their names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::contents::{Contents, Failure, same_xattrs};
use super::{Difference, Go, Options, Start, Summary, VerifyError, What, each};
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::dir::reader::TreeError;
use crate::dir::walk::Visit;
use crate::entry::{Content, Entry, Kind, Metadata};
use crate::live::flags::{flags_of_child, flags_of_fd};
use crate::live::stat::stat_child;
use crate::live::xattrs::{xattrs_of_child, xattrs_of_fd};
use crate::live::{LiveDir, LiveError, OwnPlaces, RawXattr, Stat, read_link};
use crate::monitor::{Counter, Monitor, Problem, Severity};

/// Entries that wait for a worker.
const AHEAD: usize = 256;

/// An entry, and where it should stand.
struct Job {
    path: Vec<u8>,
    entry: Entry,
    place: Place,
}

enum Place {
    /// It is this directory.
    Here(Arc<LiveDir>),
    /// Under its own name in this directory.
    In(Arc<LiveDir>),
    /// Under the last name of its path in this one.
    Named(Arc<LiveDir>, Vec<u8>),
}

impl Place {
    /// Whether the name of the entry, where it stands, is the repository's.
    fn is_own(&self, entry: &Entry, own: &OwnPlaces) -> bool {
        match self {
            Self::Here(_) => false,
            Self::In(dir) => own.names_in(dir).contains(&entry.name),
            Self::Named(dir, name) => own.names_in(dir).contains(name),
        }
    }
}

/// A comparison under way. Shared by threads.
pub struct Comparison<'a> {
    source: &'a Source,
    monitor: &'a dyn Monitor,
    tell: &'a (dyn Fn(&Difference) + Sync),
    cancel: &'a Cancel,
    entries: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    different: AtomicU64,
    failed: AtomicU64,
}

impl<'a> Comparison<'a> {
    /// Nothing compared yet.
    pub fn new(
        source: &'a Source,
        monitor: &'a dyn Monitor,
        tell: &'a (dyn Fn(&Difference) + Sync),
        cancel: &'a Cancel,
    ) -> Self {
        let zero = AtomicU64::default;
        Self {
            source,
            monitor,
            tell,
            cancel,
            entries: zero(),
            files: zero(),
            bytes: zero(),
            different: zero(),
            failed: zero(),
        }
    }

    /// What was compared.
    pub fn finish(self) -> Summary {
        Summary {
            entries: self.entries.into_inner(),
            files: self.files.into_inner(),
            bytes: self.bytes.into_inner(),
            different: self.different.into_inner(),
            failed: self.failed.into_inner(),
            fetched: 0,
        }
    }

    /// Compares all entries.
    ///
    /// # Errors
    /// When a page is out of reach, or the user wants to end.
    pub fn all(&self, options: &Options, source: &Source) -> Result<(), VerifyError> {
        self.with_workers(options.workers, |jobs| {
            // The directories on the way to the entry that is visited.
            let mut open: Vec<Arc<LiveDir>> = Vec::new();
            each(source, options, self.monitor, self.cancel, &mut |visit, number, depth| {
                open.truncate(depth);
                let place = match (open.last(), options.starts.get(number)) {
                    (Some(dir), _) => Some(Place::In(Arc::clone(dir))),
                    (None, Some(start)) => self.place_of(start, &visit),
                    (None, None) => None,
                };
                let Some(place) = place else { return Ok(Go::PassBy) };
                if place.is_own(&visit.entry, &options.own) {
                    self.pass_by(&visit, &options.own);
                    return Ok(Go::PassBy);
                }
                let mut go = Go::On;
                if let Content::Directory(_) = &visit.entry.content {
                    match opened(&place, &visit.entry) {
                        Ok(dir) if options.own.of(&dir).is_some() => {
                            self.pass_by(&visit, &options.own);
                            return Ok(Go::PassBy);
                        }
                        Ok(dir) => open.push(dir),
                        // Looking at it will tell why.
                        Err(_) => go = Go::PassBy,
                    }
                }
                self.hand(jobs, Job { path: visit.path, entry: visit.entry, place })?;
                Ok(go)
            })
        })
    }

    /// Compares these entries, each below the start of its number.
    ///
    /// # Errors
    /// When the user wants to end.
    pub fn some(&self, options: &Options, chosen: &[(usize, Visit)]) -> Result<(), VerifyError> {
        self.with_workers(options.workers, |jobs| {
            for (number, visit) in chosen {
                let Some(start) = options.starts.get(*number) else { continue };
                let Some(place) = self.place_below(start, visit, &options.own) else { continue };
                self.hand(jobs, Job { path: visit.path.clone(), entry: visit.entry.clone(), place })?;
            }
            Ok(())
        })
    }

    fn with_workers(
        &self,
        workers: usize,
        feed: impl FnOnce(&Sender<Job>) -> Result<(), VerifyError>,
    ) -> Result<(), VerifyError> {
        thread::scope(|scope| {
            let (jobs, take) = bounded::<Job>(AHEAD);
            let working: Vec<_> = (0..workers.max(1))
                .map(|_| {
                    let take: Receiver<Job> = take.clone();
                    scope.spawn(move || {
                        let mut contents = Contents::new(self.source);
                        take.iter().try_for_each(|job| self.one(&mut contents, &job))
                    })
                })
                .collect();
            drop(take);
            let fed = feed(&jobs);
            drop(jobs);
            let mut outcome = fed;
            for worker in working {
                let ended = worker.join().unwrap_or(Err(VerifyError::Interrupted));
                outcome = ended.and(outcome);
            }
            outcome
        })
    }

    /// Tells of a place of kitbag's own, if the generation holds something there.
    fn pass_by(&self, visit: &Visit, own: &OwnPlaces) {
        if !matches!(visit.entry.content, Content::Directory(None)) {
            self.not_compared(&visit.path, own);
        }
    }

    fn not_compared(&self, path: &[u8], own: &OwnPlaces) {
        if let Some(why) = own.not_compared(path) {
            self.monitor.problem(Problem::new(Severity::Note, path, why));
        }
    }

    fn hand(&self, jobs: &Sender<Job>, job: Job) -> Result<(), VerifyError> {
        if self.cancel.is_cancelled() {
            return Err(VerifyError::Interrupted);
        }
        // All workers are gone only when each has failed, which is told in the end.
        jobs.send(job).map_err(|_gone| VerifyError::Interrupted)
    }

    /// Where a start stands. A root means what its path leads to; what stands below one is reached by its name.
    fn place_of(&self, start: &Start, visit: &Visit) -> Option<Place> {
        let is_directory = visit.entry.metadata.kind == Kind::Directory;
        let found = if is_directory && start.path == start.root {
            LiveDir::open_root(&start.path).map(Place::Here)
        } else {
            let (parent, name) = split(&start.path);
            LiveDir::open_root(parent).map(|dir| Place::Named(dir, name.to_vec()))
        };
        found.map_err(|error| self.not_reached(&visit.path, &error)).ok()
    }

    /// Where an entry below a start stands.
    fn place_below(&self, start: &Start, visit: &Visit, own: &OwnPlaces) -> Option<Place> {
        let below = visit.path.strip_prefix(&start.path[..]).unwrap_or_default();
        let names: Vec<_> = below.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let Some((_, above)) = names.split_last() else { return self.place_of(start, visit) };
        let mut dir = LiveDir::open_root(&start.path);
        let mut path = start.path.clone();
        for name in above {
            let is_part = dir.as_ref().is_ok_and(|dir| own.names_in(dir).contains(name));
            dir = dir.and_then(|dir| dir.child(name));
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            if is_part || dir.as_ref().is_ok_and(|dir| own.of(dir).is_some()) {
                self.not_compared(&path, own);
                return None;
            }
        }
        if dir.as_ref().is_ok_and(|dir| own.names_in(dir).contains(&visit.entry.name)) {
            self.not_compared(&visit.path, own);
            return None;
        }
        dir.map(Place::In).map_err(|error| self.not_reached(&visit.path, &error)).ok()
    }

    /// Compares one entry.
    fn one(&self, contents: &mut Contents<'_>, job: &Job) -> Result<(), VerifyError> {
        add(&self.entries, 1);
        self.monitor.path(&job.path);
        let before = contents.read;
        let compared = match &job.place {
            Place::Here(dir) => self.directory(dir, &job.entry),
            Place::In(dir) => self.child(contents, dir, &job.entry.name, &job.entry),
            Place::Named(dir, name) => self.child(contents, dir, name, &job.entry),
        };
        let read = contents.read.saturating_sub(before);
        add(&self.bytes, read);
        self.monitor.count(Counter::BytesRead, read);
        match compared {
            Ok(what) => self.found(&job.path, what),
            Err(Failure::Live(error)) => self.unseen(&job.path, &error),
            Err(Failure::Tree(error)) if error.is_damage() => self.damaged(&job.path, &error),
            Err(Failure::Tree(error)) => return Err(VerifyError::Tree(error)),
        }
        Ok(())
    }

    fn directory(&self, dir: &Arc<LiveDir>, entry: &Entry) -> Result<Vec<What>, Failure> {
        let fd = dir.fd()?;
        let mut what = metadata(&entry.metadata, dir.stat(), flags_of_fd(&fd));
        self.xattrs(entry, &xattrs_of_fd(&fd)?, &mut what);
        Ok(what)
    }

    fn child(
        &self,
        contents: &mut Contents<'_>,
        dir: &Arc<LiveDir>,
        name: &[u8],
        entry: &Entry,
    ) -> Result<Vec<What>, Failure> {
        let fd = dir.fd()?;
        let stat = stat_child(&fd, name)?;
        if stat.kind != entry.metadata.kind {
            return Ok(vec![What::Kind]);
        }
        let flags = match stat.kind {
            Kind::File | Kind::Directory => flags_of_child(&fd, name)?,
            _ => 0,
        };
        let mut what = metadata(&entry.metadata, &stat, flags);
        self.xattrs(entry, &xattrs_of_child(&fd, name)?, &mut what);
        let same = match (&entry.content, stat.kind) {
            (Content::Target(target), _) => read_link(&fd, name)? == *target,
            (_, Kind::File) => {
                add(&self.files, 1);
                self.monitor.count(Counter::FilesRead, 1);
                contents.are_same(&fd, name, &stat, entry)?
            }
            _ => true,
        };
        if !same {
            what.insert(0, What::Contents);
        }
        Ok(what)
    }

    fn xattrs(&self, entry: &Entry, found: &[RawXattr], what: &mut Vec<What>) {
        if !same_xattrs(self.source, entry, found) {
            what.push(What::Xattrs);
        }
    }

    fn found(&self, path: &[u8], what: Vec<What>) {
        if !what.is_empty() {
            add(&self.different, 1);
            (self.tell)(&Difference { path: path.to_vec(), what });
        }
    }

    /// Where it would stand could not be looked at, or is not there.
    fn not_reached(&self, path: &[u8], error: &LiveError) {
        add(&self.entries, 1);
        self.unseen(path, error);
    }

    /// What stands there could not be looked at, or is not there.
    fn unseen(&self, path: &[u8], error: &LiveError) {
        match error {
            LiveError::Vanished => self.found(path, vec![What::Missing]),
            LiveError::Replaced => self.found(path, vec![What::Kind]),
            error => {
                add(&self.failed, 1);
                self.monitor.problem(Problem::new(Severity::Lost, path, error));
            }
        }
    }

    fn damaged(&self, path: &[u8], error: &TreeError) {
        add(&self.failed, 1);
        self.monitor.problem(Problem::new(Severity::Damage, path, error));
    }
}

/// The directory of an entry that is one.
fn opened(place: &Place, entry: &Entry) -> Result<Arc<LiveDir>, LiveError> {
    match place {
        Place::Here(dir) => Ok(Arc::clone(dir)),
        Place::In(dir) => dir.child(&entry.name),
        Place::Named(dir, name) => dir.child(name),
    }
}

/// What differs of what a look at it tells.
fn metadata(was: &Metadata, is: &Stat, flags: u32) -> Vec<What> {
    let compared = [
        (What::Mode, was.mode == is.mode),
        (What::Owner, (was.owner.uid, was.owner.gid) == (is.uid, is.gid)),
        (What::Time, was.mtime == is.mtime),
        (What::Flags, was.flags == flags),
        (What::Device, was.rdev == is.rdev),
    ];
    compared.iter().filter(|(_, same)| !same).map(|(what, _)| *what).collect()
}

/// A path's directory and last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", path.get(1..).unwrap_or_default()),
        Some(at) => {
            (path.get(..at).unwrap_or_default(), path.get(at.saturating_add(1)..).unwrap_or_default())
        }
        None => (b".", path),
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
