//! From drafts of pages to stored pages.
//!
//! A page can be encoded only when every reference in it is known, that is, when the blocks that hold its objects have got their places. Drafts wait here
//! until then. What waits is bounded: when it becomes too much, or nothing else comes, the blocks that are being filled are sealed though they
//! are not full.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, select};

use crate::bag::{BagKind, Packer, Placing};
use crate::base::id::ObjectId;
use crate::dir::format::{Child, List, Page, encode_list, encode_page};
use crate::dir::reader;
use crate::entry::{Content, Entry, ListPart, Piece, Reference, Xattr, XattrValue};
use crate::generation::BagCounter;

use super::BackupError;
use super::shelf::Shelf;

/// A child of an index page that may still be to be made.
#[derive(Debug, Clone)]
pub struct DraftChild {
    /// The name of its last entry.
    pub last: Box<[u8]>,
    /// Entries in it or below it.
    pub entries: u64,
    /// The page.
    pub page: Placing,
}

/// A page or list whose references may still be open.
#[derive(Debug)]
pub enum Draft {
    /// A leaf page.
    Leaf(Vec<Entry<Placing>>),
    /// An index page.
    Index(Vec<DraftChild>),
    /// A chunk list.
    Pieces(Vec<Piece<Placing>>),
    /// A list of chunk lists.
    Parts(Vec<ListPart<Placing>>),
}

enum Message {
    Job(Job),
    /// Tell when everything that came before has become pages.
    Settle(Sender<BagCounter>, Count),
}

/// What becomes of the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    /// It is noted: what comes from now on may not be meant to stay.
    Noted,
    /// It is as it was when it was noted.
    TakenBack,
}

struct Job {
    draft: Draft,
    slot: Arc<OnceLock<Placing>>,
    /// Objects of the generation before that this may turn out to be again.
    former: Arc<[Reference]>,
}

/// What was counted in the pages and lists made.
pub struct Counted {
    /// All references in them.
    pub bags: BagCounter,
    /// Chunk lists that were taken over: what they refer to is not counted.
    pub lists: Vec<Reference>,
}

/// Takes drafts in.
pub struct Tree {
    jobs: Option<Sender<Message>>,
    thread: Option<JoinHandle<Result<Counted, BackupError>>>,
    failed: Arc<Mutex<Option<BackupError>>>,
}

/// Drafts that may wait before blocks are sealed for their sake: a few thousand entries' worth of memory.
const WAITING: usize = 128;

impl Tree {
    /// Starts the thread that makes the pages.
    pub fn start(shelf: Arc<Shelf>, packer: Arc<Packer>, placed: Receiver<()>) -> Self {
        let (jobs, receiver) = bounded(32);
        let failed: Arc<Mutex<Option<BackupError>>> = Arc::default();
        let maker = Maker {
            shelf,
            packer,
            placed,
            waiting: Vec::new(),
            counter: BagCounter::default(),
            lists: Vec::new(),
            noted: None,
        };
        let thread = thread::spawn(move || maker.run(&receiver));
        Self { jobs: Some(jobs), thread: Some(thread), failed }
    }

    /// Hands a draft in; waits while too many are there. `former` are objects that it may turn out to be again.
    ///
    /// # Errors
    /// When the thread has stopped; [`finish`](Self::finish) tells why.
    pub fn submit(&self, draft: Draft, former: Arc<[Reference]>) -> Result<Placing, BackupError> {
        let slot = Arc::new(OnceLock::new());
        let job = Job { draft, slot: Arc::clone(&slot), former };
        match &self.jobs {
            Some(jobs) if jobs.send(Message::Job(job)).is_ok() => Ok(Placing::Later(slot)),
            _ => Err(BackupError::Stopped),
        }
    }

    /// Waits until all drafts handed in so far have become pages, though perhaps in a block that is not sealed yet. The pages that come then, until
    /// [`settle`](Self::settle), are those of a checkpoint: the backup itself does not need them.
    ///
    /// # Errors
    /// When the thread has stopped.
    pub fn begin_checkpoint(&self) -> Result<(), BackupError> {
        self.wait(Count::Noted).map(drop)
    }

    /// Waits in the same way; gives the count of all references in all pages, and counts those of the checkpoint no longer.
    ///
    /// # Errors
    /// When the thread has stopped.
    pub fn settle(&self) -> Result<BagCounter, BackupError> {
        self.wait(Count::TakenBack)
    }

    fn wait(&self, count: Count) -> Result<BagCounter, BackupError> {
        let (answer, receiver) = bounded(1);
        match &self.jobs {
            Some(jobs) if jobs.send(Message::Settle(answer, count)).is_ok() => {
                receiver.recv().map_err(|_stopped| BackupError::Stopped)
            }
            _ => Err(BackupError::Stopped),
        }
    }

    /// Waits until all drafts have become pages with known places; gives the count of all references in them.
    ///
    /// # Errors
    /// Why the thread has stopped.
    pub fn finish(mut self) -> Result<Counted, BackupError> {
        self.jobs = None;
        let outcome = self.thread.take().map(JoinHandle::join);
        let earlier = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (outcome, earlier) {
            (_, Some(error)) => Err(error),
            (Some(Ok(counted)), None) => counted,
            _ => Err(BackupError::Stopped),
        }
    }
}

struct Waiting {
    job: Job,
    /// What was still open when last looked at.
    open: Vec<Placing>,
}

struct Maker {
    shelf: Arc<Shelf>,
    packer: Arc<Packer>,
    placed: Receiver<()>,
    waiting: Vec<Waiting>,
    counter: BagCounter,
    lists: Vec<Reference>,
    /// Both when a checkpoint began.
    noted: Option<(BagCounter, usize)>,
}

impl Maker {
    fn run(mut self, jobs: &Receiver<Message>) -> Result<Counted, BackupError> {
        loop {
            if self.waiting.len() >= WAITING {
                self.flush()?;
            }
            select! {
                recv(jobs) -> job => match job {
                    Ok(Message::Job(job)) => self.take(job)?,
                    Ok(Message::Settle(answer, count)) => {
                        while !self.waiting.is_empty() {
                            self.flush()?;
                        }
                        // Whoever asked may have given up.
                        let _ = answer.send(self.counter.clone());
                        match (count, self.noted.take()) {
                            (Count::Noted, _) => self.noted = Some((self.counter.clone(), self.lists.len())),
                            (Count::TakenBack, Some((counter, lists))) => {
                                self.counter = counter;
                                self.lists.truncate(lists);
                            }
                            (Count::TakenBack, None) => {}
                        }
                    }
                    Err(_) => break,
                },
                recv(self.placed) -> _ => self.retry()?,
            }
        }
        while !self.waiting.is_empty() {
            self.flush()?;
        }
        Ok(Counted { bags: self.counter, lists: self.lists })
    }

    fn take(&mut self, job: Job) -> Result<(), BackupError> {
        let mut open = Vec::new();
        each_placing(&job.draft, &mut |placing| {
            if placing.get().is_none() {
                open.push(placing.clone());
            }
        });
        // Neighbours are mostly in the same block: one of a run is enough to ask.
        open.dedup_by(|next, kept| same_block(next, kept));
        if open.is_empty() {
            return self.make(job);
        }
        self.waiting.push(Waiting { job, open });
        Ok(())
    }

    /// Makes every page that can be made now. Pages made here may let others be made only when their own block is sealed.
    fn retry(&mut self) -> Result<(), BackupError> {
        let mut ready = Vec::new();
        self.waiting.retain_mut(|waiting| {
            while waiting.open.last().is_some_and(|placing| placing.get().is_some()) {
                waiting.open.pop();
            }
            if waiting.open.is_empty() {
                let nothing =
                    Job { draft: Draft::Index(Vec::new()), slot: Arc::default(), former: [].into() };
                ready.push(std::mem::replace(&mut waiting.job, nothing));
            }
            !waiting.open.is_empty()
        });
        ready.into_iter().try_for_each(|job| self.make(job))
    }

    /// Has the blocks that are being filled sealed, and waits until a waiting page can be made by it.
    fn flush(&mut self) -> Result<(), BackupError> {
        self.packer.flush(BagKind::Data)?;
        self.packer.flush(BagKind::Tree)?;
        let before = self.waiting.len();
        loop {
            self.retry()?;
            if self.waiting.len() < before {
                return Ok(());
            }
            self.packer.check()?;
            self.shelf.check()?;
            // The packer tells of every block, the shelf of the index; the time-out is for their having stopped.
            let _ = self.placed.recv_timeout(std::time::Duration::from_millis(100));
        }
    }

    fn make(&mut self, job: Job) -> Result<(), BackupError> {
        let bytes = match job.draft {
            Draft::Leaf(entries) => {
                self.lists.extend(entries.iter().flat_map(known_lists));
                let entries: Option<Vec<_>> = entries.into_iter().map(resolve_entry).collect();
                let page = Page::Leaf(entries.ok_or(BackupError::Stopped)?);
                self.count_page(&page);
                encode_page(&page)
            }
            Draft::Index(children) => {
                let children: Option<Vec<_>> = children
                    .into_iter()
                    .map(|child| {
                        let page = child.page.get()?;
                        Some(Child { last: child.last, entries: child.entries, page })
                    })
                    .collect();
                let page = Page::Index(children.ok_or(BackupError::Stopped)?);
                self.count_page(&page);
                encode_page(&page)
            }
            Draft::Pieces(pieces) => {
                let pieces: Option<Vec<_>> = pieces.iter().map(resolve_piece).collect();
                let list = List::Pieces(pieces.ok_or(BackupError::Stopped)?);
                count_list(&mut self.counter, &list);
                encode_list(&list)
            }
            Draft::Parts(parts) => {
                let parts: Option<Vec<_>> = parts.iter().map(resolve_part).collect();
                let list = List::Parts(parts.ok_or(BackupError::Stopped)?);
                count_list(&mut self.counter, &list);
                encode_list(&list)
            }
        };
        let former = (!job.former.is_empty())
            .then(|| {
                let id: ObjectId = self.shelf.id_of(&bytes);
                job.former.iter().find(|reference| reference.id == id)
            })
            .flatten();
        let placing = match former {
            Some(reference) => Placing::Known(*reference),
            None => self.shelf.put(&self.packer, BagKind::Tree, &bytes)?,
        };
        // Set once: each slot belongs to one job.
        let _ = job.slot.set(placing);
        Ok(())
    }

    fn count_page(&mut self, page: &Page) {
        count_page(&mut self.counter, page);
    }
}

/// Counts all references in a page.
pub fn count_page(counter: &mut BagCounter, page: &Page) {
    match page {
        Page::Leaf(entries) => {
            for entry in entries {
                count_entry(counter, entry);
            }
        }
        Page::Index(children) => {
            for child in children {
                counter.add(BagKind::Tree, &child.page);
            }
        }
    }
}

/// Counts all references in an entry.
pub fn count_entry(counter: &mut BagCounter, entry: &Entry) {
    for (kind, reference) in reader::references(entry) {
        counter.add(kind, &reference);
    }
}

/// The chunk lists of an entry that were there before: those that are new were counted when they were made.
pub fn known_lists(entry: &Entry<Placing>) -> impl Iterator<Item = Reference> + '_ {
    let parts: &[ListPart<Placing>] = match &entry.content {
        Content::Lists { parts, .. } => parts,
        _ => &[],
    };
    parts.iter().filter_map(|part| match part.list {
        Placing::Known(list) => Some(list),
        _ => None,
    })
}

/// Counts all references in a chunk list.
pub fn count_list(counter: &mut BagCounter, list: &List) {
    match list {
        List::Pieces(pieces) => {
            for piece in pieces {
                if let Piece::Chunk(reference) = piece {
                    counter.add(BagKind::Data, reference);
                }
            }
        }
        List::Parts(parts) => parts.iter().for_each(|part| counter.add(BagKind::Tree, &part.list)),
    }
}

fn same_block(one: &Placing, other: &Placing) -> bool {
    match (one, other) {
        (Placing::InBlock { block: one, .. }, Placing::InBlock { block: other, .. }) => {
            Arc::ptr_eq(one, other)
        }
        _ => false,
    }
}

fn each_placing<'a>(draft: &'a Draft, visit: &mut dyn FnMut(&'a Placing)) {
    match draft {
        Draft::Leaf(entries) => {
            for entry in entries {
                for xattr in &entry.xattrs {
                    if let XattrValue::Chunk(placing) = &xattr.value {
                        visit(placing);
                    }
                }
                match &entry.content {
                    Content::Pieces(pieces) => each_piece(pieces, visit),
                    Content::Lists { parts, .. } => parts.iter().for_each(|part| visit(&part.list)),
                    Content::Directory(Some(page)) => visit(page),
                    _ => {}
                }
            }
        }
        Draft::Index(children) => children.iter().for_each(|child| visit(&child.page)),
        Draft::Pieces(pieces) => each_piece(pieces, visit),
        Draft::Parts(parts) => parts.iter().for_each(|part| visit(&part.list)),
    }
}

fn each_piece<'a>(pieces: &'a [Piece<Placing>], visit: &mut dyn FnMut(&'a Placing)) {
    for piece in pieces {
        if let Piece::Chunk(placing) = piece {
            visit(placing);
        }
    }
}

fn resolve_piece(piece: &Piece<Placing>) -> Option<Piece> {
    Some(match piece {
        Piece::Chunk(placing) => Piece::Chunk(placing.get()?),
        Piece::Hole(len) => Piece::Hole(*len),
    })
}

fn resolve_part(part: &ListPart<Placing>) -> Option<ListPart> {
    Some(ListPart { list: part.list.get()?, bytes: part.bytes })
}

/// The entry with its references, once all of them are known.
pub fn resolve_entry(entry: Entry<Placing>) -> Option<Entry> {
    let xattrs = entry
        .xattrs
        .into_iter()
        .map(|xattr| {
            let value = match xattr.value {
                XattrValue::Inline(value) => XattrValue::Inline(value),
                XattrValue::Chunk(placing) => XattrValue::Chunk(placing.get()?),
            };
            Some(Xattr { name: xattr.name, value })
        })
        .collect::<Option<_>>()?;
    let content = match entry.content {
        Content::Empty => Content::Empty,
        Content::Inline(bytes) => Content::Inline(bytes),
        Content::Target(target) => Content::Target(target),
        Content::Pieces(pieces) => Content::Pieces(pieces.iter().map(resolve_piece).collect::<Option<_>>()?),
        Content::Lists { depth, parts } => {
            Content::Lists { depth, parts: parts.iter().map(resolve_part).collect::<Option<_>>()? }
        }
        Content::Directory(None) => Content::Directory(None),
        Content::Directory(Some(page)) => Content::Directory(Some(page.get()?)),
    };
    Some(Entry { name: entry.name, metadata: entry.metadata, xattrs, content })
}

/// The entry as one whose references happen to be known already.
pub fn known_entry(entry: Entry) -> Entry<Placing> {
    let part = |part: ListPart| ListPart { list: Placing::Known(part.list), bytes: part.bytes };
    let content = match entry.content {
        Content::Empty => Content::Empty,
        Content::Inline(bytes) => Content::Inline(bytes),
        Content::Target(target) => Content::Target(target),
        Content::Pieces(pieces) => Content::Pieces(
            pieces
                .into_iter()
                .map(|piece| match piece {
                    Piece::Chunk(reference) => Piece::Chunk(Placing::Known(reference)),
                    Piece::Hole(len) => Piece::Hole(len),
                })
                .collect(),
        ),
        Content::Lists { depth, parts } => {
            Content::Lists { depth, parts: parts.into_iter().map(part).collect() }
        }
        Content::Directory(page) => Content::Directory(page.map(Placing::Known)),
    };
    let xattrs = entry
        .xattrs
        .into_iter()
        .map(|xattr| {
            let value = match xattr.value {
                XattrValue::Inline(value) => XattrValue::Inline(value),
                XattrValue::Chunk(reference) => XattrValue::Chunk(Placing::Known(reference)),
            };
            Xattr { name: xattr.name, value }
        })
        .collect();
    Entry { name: entry.name, metadata: entry.metadata, xattrs, content }
}
