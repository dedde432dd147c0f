//! Checkpoints: what is done of a long backup is published as a partial generation, so that an interrupted one goes on where it was.
//!
//! The workers stand still. Directories that are done are in the partial tree as they are; of those that are not, what is done so far. Everything it
//! refers to is acknowledged before it is published. The lease is renewed: the next session is created before the partial generation is published with this one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::bag::Placing;
use crate::base::id::GenerationId;
use crate::base::time::{Clock, Timestamp};
use crate::condemned::reading::{self, Names};
use crate::entry::Content;
use crate::generation::baglist;
use crate::generation::{Catalog, Generation, Root, Session, SessionError, Started};
use crate::live::Stat;
use crate::monitor::{Problem, Severity};
use crate::reach::Custody;
use crate::store::{ErrorKind, layout};

use super::builder::DirBuilder;
use super::content::{Contents, Failure};
use super::entries::{Here, Worker};
use super::node::{Done, Node, Outcome, Parent};
use super::pause::Snapshot;
use super::publish::Maker;
use super::roots::{Roots, WalkedRoot};
use super::tree::{count_entry, resolve_entry};
use super::walk::{Tally, Walk, name_at};
use super::{BackupError, Run};

/// When checkpoints are made.
#[derive(Debug, Clone, Copy)]
pub struct Every {
    /// After so much time.
    pub time: Duration,
    /// Or so many bytes of new objects.
    pub bytes: u64,
}

impl Default for Every {
    /// Five minutes, or 1 GiB.
    fn default() -> Self {
        Self { time: Duration::from_secs(300), bytes: 1 << 30 }
    }
}

/// How often it is looked whether a checkpoint is due.
const LOOK: Duration = Duration::from_millis(20);

/// Makes checkpoints of a walk.
pub struct Checkpoints<'a> {
    /// The run.
    pub run: &'a Run<'a>,
    /// The walk.
    pub walk: &'a Walk,
    /// What is walked.
    pub roots: &'a Roots,
    /// Roots that are no directories, which are done.
    pub files: &'a [WalkedRoot],
    /// The generations compared with.
    pub former: &'a [Generation],
    /// When the backup began.
    pub started: Timestamp,
    /// What time it is.
    pub clock: &'a dyn Clock,
}

/// A directory that is being backed up.
struct Unfinished {
    node: Arc<Node>,
    snapshot: Snapshot,
}

impl Checkpoints<'_> {
    /// Makes checkpoints when they are due, and a last one when the user wants to stop, until the walk is `done`.
    pub fn watch(&self, done: &AtomicBool) {
        let every = self.run.options.checkpoint;
        let (mut time, mut bytes) = (self.clock.monotonic(), 0);
        while !done.load(Ordering::Relaxed) {
            let interrupted = self.run.cancel.is_cancelled();
            let new = self.run.shelf.new_bytes();
            let is_due = self.clock.monotonic().saturating_sub(time) >= every.time
                || new.saturating_sub(bytes) >= every.bytes;
            if interrupted || is_due {
                // Without an answer from the repository there is nothing to publish with.
                let has_lease = self.run.lease().session.is_some();
                if new > bytes && has_lease && !self.run.options.dry_run {
                    self.make_one(interrupted);
                }
                (time, bytes) = (self.clock.monotonic(), self.run.shelf.new_bytes());
            }
            if interrupted {
                self.walk.sink.interrupted.cancel();
                return;
            }
            // Whoever waits for the end of a short backup waits for no look.
            thread::park_timeout(LOOK);
        }
    }

    /// A checkpoint that fails is not the end: the backup goes on, or finds the cause itself.
    fn make_one(&self, is_last: bool) {
        let pause = &self.walk.sink.pause;
        let snapshots = pause.stop();
        let outcome = self.make(snapshots);
        if is_last {
            // Before anybody goes on with what nobody will publish.
            self.walk.sink.interrupted.cancel();
        }
        pause.go_on();
        if let Err(error) = outcome
            && !matches!(error, BackupError::Stopped)
        {
            let text = format!("no checkpoint could be made: {error}");
            self.run.monitor.problem(Problem::new(Severity::Note, b"", text));
        }
    }

    fn make(&self, snapshots: Vec<Snapshot>) -> Result<(), BackupError> {
        let mut lease = self.run.lease();
        // Without an answer from the repository there is nothing to publish with.
        let Some(mut session) = lease.session.take() else { return Ok(()) };
        match self.partial(&session, snapshots) {
            Ok(Some(generation)) => {
                let (next, holds_good) = match self.renew() {
                    Ok(renewed) => renewed,
                    Err(error) => {
                        lease.session = Some(session);
                        return Err(error);
                    }
                };
                let id = session.id();
                let filled = session.fill(&generation);
                if let Err(error) = filled.and_then(|()| session.publish()) {
                    // What was to be published next may refer to bags that are gone.
                    lease.lost = Some(error.into());
                    self.walk.sink.stop.cancel();
                    return Err(BackupError::Stopped);
                }
                if !holds_good {
                    // What is published is safe, but what comes next would not be.
                    lease.lost = Some(BackupError::Overtaken);
                    self.walk.sink.stop.cancel();
                    return Err(BackupError::Stopped);
                }
                lease.session = Some(next);
                lease.partial.replace(id).map_or(Ok(()), |earlier| self.run.forget(earlier))
            }
            Ok(None) => {
                lease.session = Some(session);
                Ok(())
            }
            Err(error @ BackupError::Session(SessionError::Revoked(_))) => {
                // Nothing will be published any more, so nothing more is to be sent.
                lease.lost = Some(error);
                self.walk.sink.stop.cancel();
                Err(BackupError::Stopped)
            }
            Err(error) => {
                lease.session = Some(session);
                Err(error)
            }
        }
    }

    /// The lease of what follows, and whether all that is not published yet may be published under it.
    fn renew(&self) -> Result<(Session, bool), BackupError> {
        let run = self.run;
        let (store, sealing) = (run.repository.cached(), run.repository.sealing());
        let Started { mut session, condemned, generations, .. } = Session::begin(store, &sealing, run.client);
        let names = Names::of(&condemned.wait()?);
        let listed = Catalog::ids(&generations.wait()?);
        let custody = Custody(reading::ask(store, &sealing, &names).wait()?);
        session.created()?;
        let compared = self.roots.compared();
        let compared: Vec<_> = self.former.iter().filter(|one| compared.contains(&one.id)).collect();
        let holds_good = custody.holds_good(&run.source, &run.shelf.referred(), &compared, &listed)?;
        run.shelf.exclude(&custody.forbidden())?;
        Ok((session, holds_good))
    }

    /// A generation of what is done, everything that it needs being stored and listed; none while no root has anything.
    fn partial(
        &self,
        session: &Session,
        snapshots: Vec<Snapshot>,
    ) -> Result<Option<Generation>, BackupError> {
        self.walk.sink.tree.begin_checkpoint()?;
        let made = self.counted(session, snapshots);
        if !matches!(made, Ok(Some(_))) {
            // The pages that were made for it are not to stay in the count, however far it came. A thread that has stopped is found by the others.
            drop(self.walk.sink.tree.settle());
        }
        made
    }

    fn counted(
        &self,
        session: &Session,
        snapshots: Vec<Snapshot>,
    ) -> Result<Option<Generation>, BackupError> {
        let roots = self.partial_roots(snapshots)?;
        if roots.is_empty() {
            return Ok(None);
        }
        let run = self.run;
        let mut bags = self.walk.sink.tree.settle()?;
        run.packer.settle()?;
        let resolve = |root: WalkedRoot| Some(Root { path: root.path, entry: resolve_entry(root.entry)? });
        let roots: Option<Vec<_>> = roots.into_iter().map(resolve).collect();
        let roots = roots.ok_or(BackupError::Stopped)?;
        roots.iter().for_each(|root| count_entry(&mut bags, &root.entry));
        // What was taken over is not counted yet: all that the generations compared with need is more than enough.
        let compared = self.roots.compared();
        for former in self.former.iter().filter(|one| compared.contains(&one.id)) {
            for uses in baglist::read(&run.source, &former.bag_list)? {
                bags.add_uses(&uses);
            }
        }
        let maker =
            Maker { shelf: &run.shelf, packer: &run.packer, source: &run.source, monitor: run.monitor };
        let bag_list = maker.bag_list(&bags, self.former)?;
        maker.publish_segment(session)?;
        let options = run.options;
        Ok(Some(Generation {
            id: session.id(),
            client: options.client.clone(),
            host: options.host.clone(),
            started: self.started,
            ended: self.clock.now(),
            partial: true,
            roots,
            counts: self.walk.counts(),
            options: options.words.clone(),
            // They are meant for the complete one.
            tags: Vec::new(),
            bag_list,
        }))
    }

    fn partial_roots(&self, snapshots: Vec<Snapshot>) -> Result<Vec<WalkedRoot>, BackupError> {
        let (outcomes, waiting) = self.walk.queue.look();
        let mut unfinished: HashMap<*const Node, Unfinished> = HashMap::new();
        let waiting = waiting.iter().map(Snapshot::empty);
        for snapshot in snapshots.into_iter().chain(waiting) {
            add(&mut unfinished, snapshot);
        }
        let mut deepest_first: Vec<_> = unfinished.into_values().collect();
        deepest_first.sort_by_key(|one| std::cmp::Reverse(one.node.dir.depth()));
        let mut worker = Worker {
            walk: self.walk,
            contents: Contents::new(&self.walk.sink, self.walk.cutter.clone()),
            tally: Tally::default(),
        };
        let mut done: HashMap<(*const Node, usize), (Stat, Option<Placing>)> = HashMap::new();
        let mut roots = outcomes;
        for Unfinished { node, snapshot } in deepest_first {
            let page = self.partial_page(&mut worker, &node, snapshot, &done)?;
            let stat = *node.dir.stat();
            match &node.parent {
                Parent::Node(parent, number) => {
                    done.insert((Arc::as_ptr(parent), *number), (stat, page));
                }
                Parent::Root(number) => {
                    roots.push((*number, Outcome::Done(Box::new(Done { stat, page, is_same: false }))));
                }
            }
        }
        let mut walked = self.files.to_vec();
        for (number, outcome) in roots {
            walked.extend(self.roots.directory(&mut worker, number, outcome)?);
        }
        walked.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(walked)
    }

    /// The pages of what is done of a directory.
    fn partial_page(
        &self,
        worker: &mut Worker<'_>,
        node: &Arc<Node>,
        snapshot: Snapshot,
        done: &HashMap<(*const Node, usize), (Stat, Option<Placing>)>,
    ) -> Result<Option<Placing>, BackupError> {
        let next = snapshot.next;
        let mut builder = DirBuilder::resume(&self.walk.sink.tree, self.walk.keys.names(), snapshot);
        let subdirs = node.subdirs.iter().enumerate().filter(|(_, subdir)| subdir.at >= next);
        // A directory that cannot be opened any more has nothing more to add.
        let Ok(fd) = node.dir.fd() else { return builder.finish(&[]) };
        for (number, subdir) in subdirs {
            let (stat, page) = match (subdir.outcome.get(), done.get(&(Arc::as_ptr(node), number))) {
                (Some(Outcome::Done(done)), _) => (done.stat, done.page.clone()),
                (None, Some((stat, page))) => (*stat, page.clone()),
                _ => continue,
            };
            let name = name_at(&node.names, subdir.at);
            let here = Here { dir: &node.dir, fd: &fd, name, snapshot: &|| None };
            match worker.entry(&here, &stat, Content::Directory(page), None) {
                Ok(entry) => builder.push(entry)?,
                Err(Failure::Backup(error)) => return Err(error),
                Err(Failure::File(_)) => {}
            }
        }
        builder.finish(&[])
    }
}

/// Notes a directory that is not finished, and those above it.
fn add(unfinished: &mut HashMap<*const Node, Unfinished>, snapshot: Snapshot) {
    let mut snapshot = snapshot;
    loop {
        let node = Arc::clone(&snapshot.node);
        let parent = node.parent.clone();
        match unfinished.get_mut(&Arc::as_ptr(&node)) {
            Some(known) if known.snapshot.next < snapshot.next => known.snapshot = snapshot,
            Some(_) => {}
            None => {
                unfinished.insert(Arc::as_ptr(&node), Unfinished { node, snapshot });
            }
        }
        match parent {
            Parent::Node(parent, _) => snapshot = Snapshot::empty(&parent),
            Parent::Root(_) => return,
        }
    }
}

/// The lease, while it is not being used, and what was published under it.
#[derive(Default)]
pub struct Lease {
    /// The session.
    pub session: Option<Session>,
    /// The last checkpoint of this run.
    pub partial: Option<GenerationId>,
    /// Why the lease is lost.
    pub lost: Option<BackupError>,
}

impl Run<'_> {
    /// Removes a partial generation that a later one has made needless. It stays where this key may only add: forgetting by a policy removes it, too.
    pub fn forget(&self, id: GenerationId) -> Result<(), BackupError> {
        match self.repository.cached().remove(&layout::generation(self.client, id)).wait() {
            Err(error) if !matches!(error.kind, ErrorKind::NotFound | ErrorKind::AppendOnly) => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }
}
