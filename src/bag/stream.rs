//! One bag on its way to the store.
//!
//! Blocks are sealed by several threads and arrive in any order; a bag is written, and hashed, from its beginning to its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::Receiver;

use super::Sealing;
use super::format::{self, BagKind, Table, TableBlock};
use super::roomy::Roomy;
use super::steady::Steady;
use crate::base::budget::Permit;
use crate::base::id::BagId;
use crate::compress::Level;
use crate::crypto::Kind;
use crate::store::{ErrorKind, Store, StoreError, layout};

/// A bag of which all was handed to the store.
#[derive(Debug, Clone)]
pub struct StoredBag {
    /// Its id.
    pub id: BagId,
    /// What it holds.
    pub kind: BagKind,
    /// Its length in bytes.
    pub size: u64,
    /// Where its sealed table begins.
    pub table_offset: u64,
    /// Length of the sealed table.
    pub table_len: u32,
    /// Its table.
    pub table: Arc<Table>,
}

/// What a stream is told.
pub(super) enum Message {
    /// A sealed block; the permit is held until the store has taken the bytes over.
    Block { block: TableBlock, sealed: Vec<u8>, permit: Permit },
    /// No block lies at or behind this offset.
    End(u64),
}

/// Writes a bag until its end is told and reached, tells that all of it was `written`, and waits until the store has acknowledged it;
/// its bytes are kept in `keep_in` for so long, in case the store loses them. A bag that ends without a block is not stored. The
/// receiver's hanging up before means that the bag is given up.
pub(super) fn run(
    store: &dyn Store,
    keep_in: Option<&Path>,
    sealing: &Sealing,
    (id, kind): (BagId, BagKind),
    messages: &Receiver<Message>,
    queued: &AtomicU64,
    written: impl FnOnce(&StoredBag),
) -> Result<Option<StoredBag>, StoreError> {
    let mut bag = Writer::begin(store, keep_in, (id, kind))?;
    let mut early = BTreeMap::new();
    let mut end = None;
    while end != Some(bag.at) {
        let Ok(message) = messages.recv() else {
            return Err(StoreError::new(ErrorKind::Cancelled, "store", layout::bag(id), "given up"));
        };
        match message {
            Message::End(offset) => end = Some(offset),
            Message::Block { block, sealed, permit } => {
                early.insert(block.offset, (block, sealed, permit));
            }
        }
        while let Some((block, sealed, permit)) = early.remove(&bag.at) {
            let len = u64::from(block.stored);
            bag.write(sealed)?;
            bag.table.blocks.push(block);
            queued.fetch_sub(len, Ordering::Relaxed);
            drop(permit);
        }
    }
    if bag.table.blocks.is_empty() {
        return Ok(None);
    }
    bag.finish(sealing, written).map(Some)
}

/// The written part of a bag.
struct Writer<'a> {
    id: BagId,
    kind: BagKind,
    upload: Steady<'a>,
    hash: blake3::Hasher,
    at: u64,
    table: Table,
}

impl<'a> Writer<'a> {
    fn begin(
        store: &'a dyn Store,
        keep_in: Option<&Path>,
        (id, kind): (BagId, BagKind),
    ) -> Result<Self, StoreError> {
        let upload = Steady::create(store, layout::bag_part(id), keep_in);
        let (hash, table) = (blake3::Hasher::new(), Table::default());
        let mut bag = Self { id, kind, upload, hash, at: 0, table };
        bag.write(format::encode_header(id, kind).to_vec())?;
        Ok(bag)
    }

    fn write(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.hash.update(&bytes);
        self.at = self.at.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.upload.append(bytes)
    }

    fn finish(
        mut self,
        sealing: &Sealing,
        written: impl FnOnce(&StoredBag),
    ) -> Result<StoredBag, StoreError> {
        let table_offset = self.at;
        let mut table = Roomy::default();
        table.push(&format::encode_table(&self.table));
        let mut sealed = Sealing::compress(table, Level::Default);
        sealing.seal(Kind::BagTable, self.id, table_offset, &mut sealed);
        let table_len = u32::try_from(sealed.len()).unwrap_or(u32::MAX);
        self.write(sealed)?;
        self.write(format::encode_trailer_head(table_offset, table_len).to_vec())?;
        let hash = *self.hash.finalize().as_bytes();
        self.write(hash.to_vec())?;
        let bag = StoredBag {
            id: self.id,
            kind: self.kind,
            size: self.at,
            table_offset,
            table_len,
            table: Arc::new(self.table),
        };
        let acknowledged = self.upload.commit(&layout::bag(self.id));
        written(&bag);
        acknowledged.wait()?;
        Ok(bag)
    }
}
