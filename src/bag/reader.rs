//! Fetching blocks and tables of bags.

use std::borrow::Cow;
use std::sync::Arc;

use super::format::{self, BagFormatError, BagKind, TRAILER, Table};
use super::moved::follow::Known;
use super::{OpenError, Sealing, block_kind};
use crate::base::id::{BagId, ObjectId};
use crate::crypto::Kind;
use crate::entry::{Place, Reference};
use crate::store::{ErrorKind, Pending, SharedStore, StoreError, layout};

/// Why an object, a block or a table could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store could not give the bytes.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The bytes are not what was sealed there.
    #[error("bag {bag} is damaged at byte {offset}: {source}")]
    Damaged {
        /// The bag.
        bag: BagId,
        /// Where the block begins.
        offset: u64,
        /// What is wrong.
        source: OpenError,
    },
    /// The file is not a bag, or not this one.
    #[error("bag {bag} is damaged: {source}")]
    Format {
        /// The bag.
        bag: BagId,
        /// What is wrong.
        source: BagFormatError,
    },
    /// The object is not where the reference says.
    #[error("bag {} does not hold object {} at byte {}", .0.place.bag, .0.id, .0.place.offset)]
    Object(Box<Reference>),
}

impl ReadError {
    /// The bag that is there, and is damaged.
    #[must_use]
    pub fn damaged_bag(&self) -> Option<BagId> {
        match self {
            Self::Store(_) => None,
            Self::Damaged { bag, .. } | Self::Format { bag, .. } => Some(*bag),
            Self::Object(reference) => Some(reference.place.bag),
        }
    }

    /// Whether the repository is damaged, as opposed to out of reach.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        use crate::store::ErrorKind::{NotFound, Truncated};
        match self {
            Self::Store(error) => matches!(error.kind, NotFound | Truncated),
            _ => true,
        }
    }
}

/// Reads bags of a store. Cheap to clone.
#[derive(Clone)]
pub struct BagReader {
    data: SharedStore,
    tree: SharedStore,
    sealing: Sealing,
    moves: Arc<Known>,
    hears: Option<Arc<dyn Fn(BagId) + Send + Sync>>,
}

/// A bag's table and how it was found.
#[derive(Debug, Clone)]
pub struct FoundTable {
    /// What the bag holds.
    pub table: Arc<Table>,
    /// Where the sealed table begins.
    pub offset: u64,
    /// Its sealed length.
    pub len: u32,
    /// The bag's size.
    pub size: u64,
}

impl BagReader {
    /// A reader of `store`.
    #[must_use]
    pub fn new(store: SharedStore, sealing: Sealing) -> Self {
        Self { data: store.clone(), tree: store, sealing, moves: Arc::default(), hears: None }
    }

    /// The same, but tree bags are read through `tree`, which has the local cache before the store.
    #[must_use]
    pub fn with_tree_store(self, tree: SharedStore) -> Self {
        Self { tree, ..self }
    }

    /// The same, and `hears` is told which data bags have a block that cannot be opened.
    #[must_use]
    pub fn with_damage_told(self, hears: Arc<dyn Fn(BagId) + Send + Sync>) -> Self {
        Self { hears: Some(hears), ..self }
    }

    /// Where bags of this kind are.
    #[must_use]
    pub fn store(&self, kind: BagKind) -> &SharedStore {
        match kind {
            BagKind::Data => &self.data,
            BagKind::Tree => &self.tree,
        }
    }

    /// What is known of moves.
    pub(super) fn known(&self) -> &Known {
        &self.moves
    }

    /// The keys and the id.
    #[must_use]
    pub fn sealing(&self) -> &Sealing {
        &self.sealing
    }

    /// Asks for the sealed bytes of `len` bytes from `offset`.
    pub fn fetch(&self, kind: BagKind, bag: BagId, offset: u64, len: u64) -> Pending<Vec<u8>> {
        self.store(kind).read(&layout::bag(bag), offset, len)
    }

    /// Opens a sealed block; `sealed` is overwritten.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn open(
        &self,
        kind: BagKind,
        bag: BagId,
        offset: u64,
        sealed: &mut [u8],
    ) -> Result<Vec<u8>, ReadError> {
        self.open_there(kind, bag, offset, sealed).map(Cow::into_owned)
    }

    /// The same without a copy where the contents were not compressed: they lie in `sealed` then.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn open_there<'a>(
        &self,
        kind: BagKind,
        bag: BagId,
        offset: u64,
        sealed: &'a mut [u8],
    ) -> Result<Cow<'a, [u8]>, ReadError> {
        let opened = self.sealing.open(block_kind(kind), bag, offset, sealed);
        if let (Err(_), BagKind::Data, Some(hears)) = (&opened, kind, &self.hears) {
            hears(bag);
        }
        opened.map_err(|source| ReadError::Damaged { bag, offset, source })
    }

    /// The block at a place. One serial round trip; one more when a copy in the local cache turns out to be damaged. Of a bag whose objects were
    /// moved elsewhere, the block as far as they were, each object in its old place; that takes up to four.
    ///
    /// # Errors
    /// When it cannot be fetched or is damaged.
    pub fn block(&self, kind: BagKind, place: &Place) -> Result<Vec<u8>, ReadError> {
        let read = || {
            let mut sealed = self.fetch(kind, place.bag, place.offset, u64::from(place.stored)).wait()?;
            self.open(kind, place.bag, place.offset, &mut sealed)
        };
        match read() {
            Err(ReadError::Damaged { .. }) if kind == BagKind::Tree => {
                self.tree.forget(&layout::bag(place.bag));
                read()
            }
            Err(ReadError::Store(error)) if error.kind == ErrorKind::NotFound => {
                self.moved_block(kind, place)?.ok_or(ReadError::Store(error))
            }
            other => other,
        }
    }

    /// The object of a reference within its opened block, checked against its name.
    ///
    /// # Errors
    /// When it is not there.
    pub fn object<'a>(&self, reference: &Reference, block: &'a [u8]) -> Result<&'a [u8], ReadError> {
        let place = &reference.place;
        let range = usize::try_from(place.start).ok().and_then(|start| {
            let end = start.checked_add(usize::try_from(place.len).ok()?)?;
            block.get(start..end)
        });
        match range {
            Some(bytes) if self.id_of(bytes) == reference.id => Ok(bytes),
            _ => Err(ReadError::Object(Box::new(*reference))),
        }
    }

    /// The name of an object with these contents.
    #[must_use]
    pub fn id_of(&self, bytes: &[u8]) -> ObjectId {
        self.sealing.keys.hash().object_id(bytes)
    }

    /// The table of a bag that lies at a known place. One serial round trip.
    ///
    /// # Errors
    /// When it cannot be fetched or is damaged.
    pub fn table_at(&self, bag: BagId, offset: u64, len: u32) -> Result<Arc<Table>, ReadError> {
        let mut sealed = self.data.read(&layout::bag(bag), offset, u64::from(len)).wait()?;
        self.open_table(bag, offset, &mut sealed).map(Arc::new)
    }

    /// The table of a bag of which only the id is known: by its trailer.
    ///
    /// # Errors
    /// When it cannot be fetched or is damaged.
    pub fn find_table(&self, bag: BagId) -> Result<FoundTable, ReadError> {
        // Most tables are small enough to come with the trailer.
        let (mut tail, size) = self.data.read_tail(&layout::bag(bag), 64 << 10).wait()?;
        let at = tail.len().saturating_sub(TRAILER);
        let (offset, len) = format::decode_trailer(tail.get(at..).unwrap_or_default(), size)
            .map_err(|source| ReadError::Format { bag, source })?;
        let start = size.saturating_sub(u64::try_from(tail.len()).unwrap_or(u64::MAX));
        let inside = offset.checked_sub(start).and_then(|before| usize::try_from(before).ok());
        let table = match inside.and_then(|before| tail.get_mut(before..at)) {
            Some(sealed) => Arc::new(self.open_table(bag, offset, sealed)?),
            None => self.table_at(bag, offset, len)?,
        };
        Ok(FoundTable { table, offset, len, size })
    }

    /// Opens a sealed table; `sealed` is overwritten.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn open_table(&self, bag: BagId, offset: u64, sealed: &mut [u8]) -> Result<Table, ReadError> {
        let opened = self.sealing.open(Kind::BagTable, bag, offset, sealed);
        let opened = opened.map_err(|source| ReadError::Damaged { bag, offset, source })?;
        format::decode_table(&opened).map_err(|source| ReadError::Format { bag, source })
    }
}
