//! The trees that were named to be backed up.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::base::id::GenerationId;
use crate::base::time::Timestamp;
use crate::entry::{Content, Entry};
use crate::generation::{Counts, Generation};
use crate::live::{LiveDir, LiveError};
use crate::monitor::{Problem, Severity};

use super::BackupError;
use super::content::{Contents, Failure};
use super::entries::{Earlier, Here, Now, Worker};
use super::node::{Former, Outcome, Was};
use super::tree::known_entry;
use super::walk::{Tally, Walk, count};

use crate::bag::Placing;

/// The roots, each with what it was before.
pub struct Roots(Vec<Chosen>);

struct Chosen {
    path: Vec<u8>,
    former: Option<Before>,
    checkpoint: Option<Before>,
}

/// A root's former self, and where it was found.
struct Before {
    entry: Entry,
    generation: GenerationId,
    began: Timestamp,
}

/// A root that was walked.
#[derive(Clone)]
pub struct WalkedRoot {
    /// Its path.
    pub path: Vec<u8>,
    /// What is there now.
    pub entry: Entry<Placing>,
    /// Whether it is what it was before.
    pub is_same: bool,
}

/// What walking gave.
pub struct Walked {
    /// The roots that were there, ascending by path.
    pub roots: Vec<WalkedRoot>,
    /// What the workers have counted.
    pub tallies: Vec<Tally>,
    /// What was counted in directories that are done.
    pub counts: Counts,
}

impl Roots {
    /// Finds each root's former self: in the newest complete generation (by its date) that has it, and in a checkpoint made after that.
    pub fn choose(paths: &[Vec<u8>], former: &[Generation]) -> Self {
        let mut newest_first: Vec<_> = former.iter().collect();
        newest_first.sort_by_key(|one| std::cmp::Reverse((one.started, one.id)));
        let mut paths: Vec<_> = paths.iter().map(|path| tidy(path)).collect();
        paths.sort();
        paths.dedup();
        let find = |path: &[u8], partial: bool| {
            newest_first.iter().filter(|one| one.partial == partial).find_map(|one| {
                let root = one.roots.iter().find(|root| root.path == path)?;
                Some(Before { entry: root.entry.clone(), generation: one.id, began: one.started })
            })
        };
        let choose = |path: Vec<u8>| {
            let (former, checkpoint) = (find(&path, false), find(&path, true));
            let is_later = |one: &Before| former.as_ref().is_none_or(|former| one.began > former.began);
            let checkpoint = checkpoint.filter(is_later);
            let (former, checkpoint) =
                if former.is_some() { (former, checkpoint) } else { (checkpoint, None) };
            Chosen { path, former, checkpoint }
        };
        Self(paths.into_iter().map(choose).collect())
    }

    /// The root of this number, a directory that has become this.
    pub fn directory(
        &self,
        worker: &mut Worker<'_>,
        number: usize,
        outcome: Outcome,
    ) -> Result<Option<WalkedRoot>, BackupError> {
        self.0.get(number).map_or(Ok(None), |root| worker.directory_root(root, outcome))
    }

    /// The generations that they are compared with.
    pub fn compared(&self) -> BTreeSet<GenerationId> {
        self.before().map(|before| before.generation).collect()
    }

    /// What the roots were.
    pub fn former_entries(&self) -> Vec<Entry> {
        self.before().map(|before| before.entry.clone()).collect()
    }

    /// When the first of the generations began that they are compared with.
    pub fn began(&self) -> Timestamp {
        self.before().map(|before| before.began).min().unwrap_or_default()
    }

    fn before(&self) -> impl Iterator<Item = &Before> {
        self.0.iter().flat_map(|root| root.former.iter().chain(&root.checkpoint))
    }

    /// Walks all of them with so many workers.
    /// `beside` runs along, until the flag given to it is set; should it be parked then, it is woken.
    pub fn walk(
        &self,
        walk: &Walk,
        workers: usize,
        beside: impl FnOnce(&[WalkedRoot], &AtomicBool) + Send,
    ) -> Result<Walked, BackupError> {
        let monitor = &*walk.sink.monitor;
        let mut alone = Worker {
            walk,
            contents: Contents::new(&walk.sink, walk.cutter.clone()),
            tally: Tally::default(),
        };
        let mut files = Vec::new();
        for (number, root) in self.0.iter().enumerate() {
            let (parent, name) = split(&root.path);
            let dir = LiveDir::open_root(&root.path);
            let outcome = match dir {
                Ok(dir) => {
                    let was = |before: &Option<Before>| {
                        let before = before.as_ref()?;
                        let Content::Directory(page) = before.entry.content else { return None };
                        Some(Was { page, began: before.began })
                    };
                    let former = Former { newest: was(&root.former), checkpoint: was(&root.checkpoint) };
                    walk.queue.add_root(number, dir, former);
                    continue;
                }
                Err(LiveError::Replaced) => alone.file_root(&parent, &name, root),
                Err(error) => Err(Failure::File(error)),
            };
            match outcome {
                Ok(walked) => files.extend(walked),
                Err(Failure::Backup(error)) => return Err(error),
                Err(Failure::File(error)) => {
                    alone.tally.counts.failed += 1;
                    super::lost_root(monitor, &root.path, &error);
                }
            }
        }
        let done = AtomicBool::new(false);
        let results: Vec<_> = thread::scope(|scope| {
            let (done, files) = (&done, &files[..]);
            let beside = scope.spawn(move || beside(files, done));
            let threads: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(|| walk.work())).collect();
            let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
            let results = joined.map(|one| one.unwrap_or(Err(BackupError::Stopped))).collect();
            done.store(true, Ordering::Relaxed);
            beside.thread().unpark();
            results
        });
        let (mut tallies, counts) = (Vec::new(), walk.counts());
        let mut failure = None;
        for result in results {
            match result {
                Ok(tally) => tallies.push(tally),
                // The first cause counts, not that others were stopped by it.
                Err(error) if matches!(failure, None | Some(BackupError::Stopped)) => failure = Some(error),
                Err(_) => {}
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let mut roots = files;
        for (number, outcome) in walk.queue.outcomes() {
            roots.extend(self.directory(&mut alone, number, outcome)?);
        }
        roots.sort_by(|one, other| one.path.cmp(&other.path));
        tallies.push(alone.tally);
        Ok(Walked { roots, tallies, counts })
    }
}

impl Worker<'_> {
    /// A root that is no directory.
    fn file_root(
        &mut self,
        parent: &[u8],
        name: &[u8],
        root: &Chosen,
    ) -> Result<Option<WalkedRoot>, Failure> {
        let dir = LiveDir::open_root(parent)?;
        let fd = dir.fd()?;
        let was = |before: &Option<Before>| before.as_ref().map(|one| (one.entry.clone(), one.began));
        let (former, saved) = (was(&root.former), was(&root.checkpoint));
        let began = former.as_ref().map(|(_, began)| *began).unwrap_or_default();
        let here = Here { dir: &dir, fd: &fd, name, snapshot: &|| None };
        let (now, _) = self.other(&here, began, Earlier { former, saved })?;
        let (entry, is_same) = match now {
            Now::Same(entry) => (known_entry(*entry), true),
            Now::New(entry) => (*entry, false),
            Now::Gone => return Ok(None),
        };
        let metadata = &entry.metadata;
        count(&mut self.tally, &*self.walk.sink.monitor, metadata.kind, metadata.size);
        Ok(Some(WalkedRoot { path: root.path.clone(), entry, is_same }))
    }

    fn directory_root(&mut self, root: &Chosen, outcome: Outcome) -> Result<Option<WalkedRoot>, BackupError> {
        let monitor = &*self.walk.sink.monitor;
        let done = match outcome {
            Outcome::Done(done) => done,
            Outcome::Closed | Outcome::LeftOut => return Ok(None),
            Outcome::Gone => {
                let gone = Problem::new(Severity::Lost, &root.path, "it vanished meanwhile");
                monitor.problem(gone);
                return Ok(None);
            }
        };
        count(&mut self.tally, monitor, done.stat.kind, 0);
        let read = LiveDir::open_root(&root.path).and_then(|dir| {
            let fd = dir.fd()?;
            let here = Here { dir: &dir, fd: &fd, name: b".", snapshot: &|| None };
            Ok(self.entry(&here, &done.stat, Content::Directory(done.page.clone()), None))
        });
        let mut entry = match read {
            Ok(Ok(entry)) => entry,
            Ok(Err(Failure::Backup(error))) => return Err(error),
            Ok(Err(Failure::File(error))) | Err(error) => {
                super::lost_root(monitor, &root.path, &error);
                return Ok(None);
            }
        };
        entry.name = (*b"root").into();
        let is_same = done.is_same
            && root.former.as_ref().is_some_and(|before| before.entry.metadata == entry.metadata);
        Ok(Some(WalkedRoot { path: root.path.clone(), entry, is_same }))
    }
}

/// The path without doubled or trailing slashes.
fn tidy(path: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
    let joined = parts.join(&b'/');
    if path.starts_with(b"/") { [b"/", &joined[..]].concat() } else { joined }
}

/// A path's parent and last part.
fn split(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    match slash {
        Some(0) => (b"/".to_vec(), path.get(1..).unwrap_or_default().to_vec()),
        Some(at) => {
            let parent = path.get(..at).unwrap_or_default();
            (parent.to_vec(), path.get(at + 1..).unwrap_or_default().to_vec())
        }
        None => (b".".to_vec(), path.to_vec()),
    }
}
