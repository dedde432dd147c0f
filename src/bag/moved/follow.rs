//! Following moves while reading.
//!
//! Nothing is asked for in advance: most repositories have no moves that matter, and a bag that is there needs none. The first miss reads `moved/`
//! (two serial round trips), and from then on every reference is looked up before it is fetched.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::format::{self, MAX_RECORD, MAX_SEALED};
use super::{Move, Moves};
use crate::bag::format::BagKind;
use crate::bag::reader::{BagReader, ReadError};
use crate::bag::{MAX_OPENED, Sealing};
use crate::base::id::{BagId, CollectionId};
use crate::crypto::Kind;
use crate::entry::{Place, Reference};
use crate::sealed;
use crate::store::{ErrorKind, Listed, Store, StoreError, layout};

/// A record can vanish between listing and reading, when it was folded into another: how often the listing is read again.
const ATTEMPTS: usize = 4;

/// What a reader and its clones know of moves.
#[derive(Debug, Default)]
pub(in crate::bag) struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    moves: Option<Arc<Moves>>,
    /// Bags that are gone and of which nothing was moved.
    in_vain: HashSet<BagId>,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record of moves as it is listed.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its id.
    pub id: CollectionId,
    /// What it says.
    pub moves: Vec<Move>,
}

/// The ids among the names in `moved/`; other names are none of ours.
#[must_use]
pub fn ids(listed: &[Listed]) -> Vec<CollectionId> {
    listed.iter().filter_map(|file| file.name.parse().ok()).collect()
}

/// Reads records, all at once. One that is gone is `None`; one that is damaged is told of in the log, and says nothing: its bags are missed then.
///
/// # Errors
/// What the store says.
pub fn read(
    store: &dyn Store,
    sealing: &Sealing,
    ids: &[CollectionId],
) -> Result<Vec<Option<Record>>, StoreError> {
    let asked: Vec<_> = ids.iter().map(|id| (*id, store.read_all(&layout::moved(*id), MAX_SEALED))).collect();
    asked
        .into_iter()
        .map(|(id, answer)| match answer.wait() {
            Ok(bytes) => Ok(Some(open(store, sealing, id, bytes)?)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
        .collect()
}

fn open(
    store: &dyn Store,
    sealing: &Sealing,
    id: CollectionId,
    bytes: Vec<u8>,
) -> Result<Record, StoreError> {
    let name = layout::moved(id);
    let decode = |bytes| {
        sealed::decode(&sealing.keys, sealing.repository, Kind::Moved, &name, bytes, MAX_RECORD)
            .ok()
            .and_then(|plaintext| format::decode(&plaintext).ok())
    };
    let moves = match decode(bytes) {
        Some(moves) => Some(moves),
        // Should a copy in the local cache be what is damaged, the store has a better one.
        None => {
            store.forget(&name);
            match store.read_all(&name, MAX_SEALED).wait() {
                Ok(bytes) => decode(bytes),
                Err(error) if error.kind == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            }
        }
    };
    if moves.is_none() {
        tracing::warn!("{name} is damaged; what it says of moved objects is lost");
    }
    Ok(Record { id, moves: moves.unwrap_or_default() })
}

impl BagReader {
    /// Reads all moves, anew. Two serial round trips.
    ///
    /// # Errors
    /// What the store says.
    pub fn load_moves(&self) -> Result<Arc<Moves>, StoreError> {
        let store = self.store(BagKind::Tree);
        let mut moves = Moves::default();
        for _ in 0..ATTEMPTS {
            let listed = store.list(&layout::directory("moved")).wait()?;
            let records = read(&**store, self.sealing(), &ids(&listed))?;
            let is_whole = records.iter().all(Option::is_some);
            moves = records.into_iter().flatten().flat_map(|record| record.moves).collect();
            if is_whole {
                break;
            }
        }
        let moves = Arc::new(moves);
        self.know_moves(Arc::clone(&moves));
        Ok(moves)
    }

    /// Tells the reader and its clones of moves that somebody else has read.
    pub fn know_moves(&self, moves: Arc<Moves>) {
        let mut state = self.known().lock();
        state.in_vain.clear();
        state.moves = Some(moves);
    }

    /// Where an object is, as far as moves have been read by now.
    #[must_use]
    pub fn resolved(&self, reference: &Reference) -> Reference {
        let known = self.known().lock().moves.clone();
        match known.and_then(|moves| moves.resolve(&reference.place)) {
            Some(place) => Reference { id: reference.id, place },
            None => *reference,
        }
    }

    /// The moves out of a bag that was missed; `None` when there are none. Reads them at the first miss, and when a bag is missed that had not been emptied then.
    ///
    /// # Errors
    /// What the store says.
    pub fn moves_of(&self, bag: BagId) -> Result<Option<Arc<Moves>>, StoreError> {
        {
            let state = self.known().lock();
            if state.in_vain.contains(&bag) {
                return Ok(None);
            }
            if let Some(moves) = state.moves.as_ref().filter(|moves| moves.is_source(bag)) {
                return Ok(Some(Arc::clone(moves)));
            }
        }
        let moves = self.load_moves()?;
        if moves.is_source(bag) {
            return Ok(Some(moves));
        }
        self.known().lock().in_vain.insert(bag);
        Ok(None)
    }

    /// What a block of a bag that is gone held, as far as it was moved: each object where it was in the block. `None` when nothing of it was moved. One serial round trip beside
    /// those of [`moves_of`](Self::moves_of).
    ///
    /// # Errors
    /// When something cannot be fetched or is damaged.
    pub(in crate::bag) fn moved_block(
        &self,
        kind: BagKind,
        place: &Place,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let Some(moves) = self.moves_of(place.bag)? else { return Ok(None) };
        match self.gather(kind, &moves, place) {
            // What it was moved to has been emptied, too.
            Err(ReadError::Store(error)) if error.kind == ErrorKind::NotFound => {
                self.gather(kind, &*self.load_moves()?, place)
            }
            gathered => gathered,
        }
    }

    fn gather(&self, kind: BagKind, moves: &Moves, place: &Place) -> Result<Option<Vec<u8>>, ReadError> {
        let pieces = moves.of_block(place.bag, place.offset);
        let end = |start: u32, len: u32| usize::try_from(start.checked_add(len)?).ok();
        let ends = pieces.iter().map(|piece| end(piece.start, piece.place.len));
        let Some(len) = ends.max().flatten().filter(|len| *len <= MAX_OPENED) else { return Ok(None) };
        let mut blocks: BTreeMap<(BagId, u64, u32), Vec<_>> = BTreeMap::new();
        for piece in pieces {
            blocks.entry((piece.place.bag, piece.place.offset, piece.place.stored)).or_default().push(piece);
        }
        let asked: Vec<_> = blocks
            .into_iter()
            .map(|((bag, offset, stored), pieces)| {
                (bag, offset, pieces, self.fetch(kind, bag, offset, u64::from(stored)))
            })
            .collect();
        let mut block = vec![0; len];
        for (bag, offset, pieces, answer) in asked {
            let opened = self.open(kind, bag, offset, &mut answer.wait()?)?;
            for piece in pieces {
                let range = |start: u32| Some(usize::try_from(start).ok()?..end(start, piece.place.len)?);
                let source = range(piece.place.start).and_then(|range| opened.get(range));
                let target = range(piece.start).and_then(|range| block.get_mut(range));
                // Whoever takes an object out of the block checks it against its name.
                if let (Some(source), Some(target)) = (source, target) {
                    target.copy_from_slice(source);
                }
            }
        }
        Ok(Some(block))
    }
}
