//! Fetching the contents of entries, and verifying them: that a restore would have them.
//!
//! Blocks are asked for ahead of need, in the order of the walk, which is about that in which they were written. What was opened last is kept, since neighbours share blocks.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroUsize;

use lru::LruCache;

use super::VerifyError;
use crate::bag::BagKind;
use crate::bag::reader::ReadError;
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::id::BagId;
use crate::dir::reader::{pieces, references};
use crate::entry::{Entry, Piece, Place, Reference};
use crate::monitor::{Counter, Monitor, Problem, Severity};
use crate::store::{ErrorKind, Pending, StoreError};

/// Sealed bytes under way.
const WINDOW: u64 = 32 << 20;

/// Objects that wait for their blocks.
const MOST_WAITING: usize = 1 << 16;

/// Blocks kept open.
const OPENED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

type Key = (BagId, u64);

/// Objects on their way.
pub struct Flight<'a> {
    source: &'a Source,
    monitor: &'a dyn Monitor,
    cancel: &'a Cancel,
    /// Blocks asked for, in order.
    asked: VecDeque<(Place, Pending<Vec<u8>>)>,
    flying: HashSet<Key>,
    under_way: u64,
    /// Objects in the order in which their blocks come.
    waiting: VecDeque<(Reference, usize)>,
    /// The paths of those, and the number of the first.
    paths: VecDeque<Vec<u8>>,
    first_path: usize,
    /// Opened, or why not.
    blocks: LruCache<Key, Result<Vec<u8>, String>>,
    bytes: u64,
}

impl<'a> Flight<'a> {
    /// Nothing under way.
    pub fn new(source: &'a Source, monitor: &'a dyn Monitor, cancel: &'a Cancel) -> Self {
        Self {
            source,
            monitor,
            cancel,
            asked: VecDeque::new(),
            flying: HashSet::new(),
            under_way: 0,
            waiting: VecDeque::new(),
            paths: VecDeque::new(),
            first_path: 0,
            blocks: LruCache::new(OPENED),
            bytes: 0,
        }
    }

    /// Has the contents and large extended attributes of an entry fetched. Damage is told to the monitor with the path.
    ///
    /// # Errors
    /// When the store is out of reach, or the user wants to end.
    pub fn entry(&mut self, path: &[u8], entry: &Entry) -> Result<(), VerifyError> {
        self.paths.push_back(path.to_vec());
        let xattrs = Entry { content: crate::entry::Content::Empty, ..entry.clone() };
        for (_, reference) in references(&xattrs) {
            self.want(reference)?;
        }
        for piece in pieces(self.source, &entry.content) {
            match piece {
                Ok(Piece::Chunk(reference)) => self.want(reference)?,
                Ok(Piece::Hole(_)) => {}
                Err(error) if error.is_damage() => {
                    self.monitor.problem(Problem::new(Severity::Damage, path, error));
                }
                Err(error) => return Err(VerifyError::Tree(error)),
            }
        }
        Ok(())
    }

    /// Waits for what is under way; gives the bytes of contents that were verified.
    ///
    /// # Errors
    /// When the store is out of reach, or the user wants to end.
    pub fn finish(mut self) -> Result<u64, VerifyError> {
        while !self.waiting.is_empty() {
            self.settle()?;
        }
        Ok(self.bytes)
    }

    fn want(&mut self, reference: Reference) -> Result<(), VerifyError> {
        if self.cancel.is_cancelled() {
            return Err(VerifyError::Interrupted);
        }
        let place = reference.place;
        let key = (place.bag, place.offset);
        if !self.flying.contains(&key) && self.blocks.get(&key).is_none() {
            let stored = u64::from(place.stored);
            while self.under_way > 0 && self.under_way.saturating_add(stored) > WINDOW {
                self.settle()?;
            }
            let pending = self.source.reader().fetch(BagKind::Data, place.bag, place.offset, stored);
            self.asked.push_back((place, pending));
            self.under_way = self.under_way.saturating_add(stored);
            self.flying.insert(key);
        }
        let path = self.first_path.saturating_add(self.paths.len()).saturating_sub(1);
        self.waiting.push_back((reference, path));
        while self.waiting.len() > MOST_WAITING {
            self.settle()?;
        }
        Ok(())
    }

    /// Verifies the object that waits longest.
    fn settle(&mut self) -> Result<(), VerifyError> {
        let Some((reference, path)) = self.waiting.pop_front() else { return Ok(()) };
        let place = reference.place;
        let key = (place.bag, place.offset);
        while self.flying.contains(&key) {
            self.land()?;
        }
        while self.first_path < path {
            self.paths.pop_front();
            self.first_path = self.first_path.saturating_add(1);
        }
        let wrong = match self.blocks.peek(&key) {
            Some(Ok(block)) => {
                self.source.reader().object(&reference, block).err().map(|error| error.to_string())
            }
            Some(Err(wrong)) => Some(wrong.clone()),
            // It was dropped before its last object was looked at.
            None => {
                let object = self.source.reader().block(BagKind::Data, &place);
                match object.and_then(|block| self.source.reader().object(&reference, &block).map(drop)) {
                    Ok(()) => None,
                    Err(error) => Some(read_wrong(error)?),
                }
            }
        };
        match (wrong, self.paths.front()) {
            (None, _) => {
                let len = u64::from(place.len);
                self.bytes = self.bytes.saturating_add(len);
                self.monitor.count(Counter::ObjectsChecked, 1);
            }
            (Some(wrong), path) => {
                let path = path.map(Vec::as_slice).unwrap_or_default();
                let text = format!("some of its contents in the repository are damaged or missing ({wrong})");
                self.monitor.problem(Problem::new(Severity::Damage, path, text));
            }
        }
        Ok(())
    }

    /// Waits for the block asked for first, and opens it.
    fn land(&mut self) -> Result<(), VerifyError> {
        let Some((place, pending)) = self.asked.pop_front() else { return Ok(()) };
        self.flying.remove(&(place.bag, place.offset));
        self.under_way = self.under_way.saturating_sub(u64::from(place.stored));
        let opened = pending.wait().map_err(ReadError::from).and_then(|mut sealed| {
            self.source.reader().open(BagKind::Data, place.bag, place.offset, &mut sealed)
        });
        // What is not there may have been moved.
        let opened = match opened {
            Err(ReadError::Store(error)) if error.kind == ErrorKind::NotFound => {
                self.source.reader().block(BagKind::Data, &place)
            }
            other => other,
        };
        let opened = match opened {
            Ok(block) => Ok(block),
            Err(error) => Err(read_wrong(error)?),
        };
        self.blocks.put((place.bag, place.offset), opened);
        Ok(())
    }
}

/// What is wrong with a block, unless the store is out of reach.
fn read_wrong(error: ReadError) -> Result<String, StoreError> {
    let is_damage = error.is_damage();
    match error {
        ReadError::Store(error) if !is_damage => Err(error),
        error => Ok(error.to_string()),
    }
}
