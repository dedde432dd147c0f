//! Copying objects from bags into others.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::choose::Chosen;
use super::live::Live;
use crate::bag::moved::{Move, Moves};
use crate::bag::reader::{BagReader, ReadError};
use crate::bag::{BagKind, Packer, PackerEvents, PackerOptions, Placing, StoredBag, Table};
use crate::base::id::{BagId, ObjectId};
use crate::compress::Level;
use crate::entry::{Place, Reference};
use crate::index::{BagEntry, SegmentBag};
use crate::repo::Repository;
use crate::store::{Pending, StoreError, layout};

/// Sealed bytes that are under way at once.
const UNDER_WAY: u64 = 32 << 20;

/// Copies.
pub struct Copier<'a> {
    pub repository: &'a Repository,
    pub reader: &'a BagReader,
    /// What segments say of the bags.
    pub entries: &'a BTreeMap<BagId, BagEntry>,
    /// What was moved before.
    pub moves: &'a Moves,
}

/// What was copied.
#[derive(Default)]
pub struct Copied {
    pub emptied: BTreeSet<BagId>,
    pub thinned: BTreeSet<BagId>,
    pub bags: Vec<SegmentBag>,
    pub moves: Vec<Move>,
    /// Bags that cannot be read, and why.
    pub damaged: Vec<(BagId, String)>,
}

#[derive(Default)]
struct Stored(Mutex<Vec<SegmentBag>>);

impl PackerEvents for Stored {
    fn placed(&self) {}
    fn queued(&self, _bytes: u64) {}
    fn stored(&self, bag: &StoredBag) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(SegmentBag::from(bag));
    }
}

/// A block on its way, and the objects that are wanted of it.
struct Flight {
    bag: BagId,
    offset: u64,
    wanted: Vec<Reference>,
    pending: Pending<Vec<u8>>,
}

impl Copier<'_> {
    /// Copies what was chosen: all of small bags, what is live of the others. One kind after the other.
    ///
    /// # Errors
    /// What the store says. A bag that is damaged is left out.
    pub fn copy(&self, chosen: &Chosen, live: &Live) -> Result<Copied, StoreError> {
        let mut copied = Copied::default();
        for kind in [BagKind::Data, BagKind::Tree] {
            let is_kind = |bag: &BagId| self.entries.get(bag).is_some_and(|entry| entry.kind == kind);
            let small: BTreeSet<BagId> =
                chosen.small.iter().filter(|(of, _)| *of == kind).map(|(_, bag)| *bag).collect();
            let sparse: BTreeSet<BagId> = chosen.sparse.iter().copied().filter(|bag| is_kind(bag)).collect();
            if !small.is_empty() || !sparse.is_empty() {
                self.kind(kind, &small, &sparse, live, &mut copied)?;
            }
        }
        Ok(copied)
    }

    fn kind(
        &self,
        kind: BagKind,
        small: &BTreeSet<BagId>,
        sparse: &BTreeSet<BagId>,
        live: &Live,
        copied: &mut Copied,
    ) -> Result<(), StoreError> {
        let tables = self.tables(small.union(sparse).copied(), copied)?;
        let stores = [self.repository.store().clone(), self.repository.cached().clone()];
        let keep_in = self.repository.cache().directory(crate::cache::UNFINISHED);
        let options = PackerOptions { keep_in, ..PackerOptions::new(Level::Default, 2) };
        let stored = Arc::new(Stored::default());
        let packer = Packer::new(stores, self.repository.sealing(), options, stored.clone());
        let mut placed: Vec<(Place, Placing)> = Vec::new();
        let mut known: HashMap<ObjectId, Placing> = HashMap::new();
        let mut bad: BTreeSet<BagId> = BTreeSet::new();
        let mut under_way: VecDeque<(u64, Flight)> = VecDeque::new();
        let mut bytes = 0u64;
        let mut land = |under_way: &mut VecDeque<(u64, Flight)>, bytes: &mut u64| {
            let Some((len, flight)) = under_way.pop_front() else { return Ok(()) };
            *bytes = bytes.saturating_sub(len);
            let bag = flight.bag;
            match self.land(kind, flight, &packer, &mut known, &mut placed) {
                Err(ReadError::Store(error)) if !ReadError::Store(error.duplicate()).is_damage() => {
                    Err(error)
                }
                Err(error) => {
                    bad.insert(bag);
                    copied.damaged.push((bag, error.to_string()));
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        };
        for (bag, table) in &tables {
            let is_small = small.contains(bag);
            for block in &table.blocks {
                let wanted: Vec<Reference> = block
                    .objects
                    .iter()
                    .map(|&(id, start, len)| Reference {
                        id,
                        place: Place { bag: *bag, offset: block.offset, stored: block.stored, start, len },
                    })
                    .filter(|object| is_small || live.is_live(*bag, object.place.offset, object.place.start))
                    .filter(|object| self.moves.resolve(&object.place).is_none())
                    .collect();
                if wanted.is_empty() {
                    continue;
                }
                let len = u64::from(block.stored);
                let pending = self.reader.fetch(kind, *bag, block.offset, len);
                under_way.push_back((len, Flight { bag: *bag, offset: block.offset, wanted, pending }));
                bytes = bytes.saturating_add(len);
                while bytes > UNDER_WAY && under_way.len() > 1 {
                    land(&mut under_way, &mut bytes)?;
                }
            }
        }
        while !under_way.is_empty() {
            land(&mut under_way, &mut bytes)?;
        }
        // Places are known when all is stored.
        let _ = packer.quiesce();
        packer.finish()?;
        for (from, placing) in placed {
            match placing.get() {
                Some(to) if !bad.contains(&from.bag) => copied.moves.push(Move { from, to: to.place }),
                Some(_) => {}
                None => drop(bad.insert(from.bag)),
            }
        }
        let good = tables.keys().filter(|bag| !bad.contains(bag));
        for bag in good {
            let set = if small.contains(bag) { &mut copied.emptied } else { &mut copied.thinned };
            set.insert(*bag);
        }
        copied.bags.append(&mut stored.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// The tables of bags, asked for together.
    fn tables(
        &self,
        bags: impl Iterator<Item = BagId>,
        copied: &mut Copied,
    ) -> Result<BTreeMap<BagId, Table>, StoreError> {
        let store = self.repository.store();
        let asked: Vec<_> = bags
            .filter_map(|bag| self.entries.get(&bag))
            .map(|entry| {
                (entry, store.read(&layout::bag(entry.bag), entry.table_offset, entry.table_len.into()))
            })
            .collect();
        let mut tables = BTreeMap::new();
        for (entry, answer) in asked {
            let opened = answer
                .wait()
                .map_err(ReadError::from)
                .and_then(|mut sealed| self.reader.open_table(entry.bag, entry.table_offset, &mut sealed));
            match opened {
                Ok(table) => drop(tables.insert(entry.bag, table)),
                Err(error) if error.is_damage() => copied.damaged.push((entry.bag, error.to_string())),
                Err(ReadError::Store(error)) => return Err(error),
                Err(error) => copied.damaged.push((entry.bag, error.to_string())),
            }
        }
        Ok(tables)
    }

    fn land(
        &self,
        kind: BagKind,
        flight: Flight,
        packer: &Packer,
        known: &mut HashMap<ObjectId, Placing>,
        placed: &mut Vec<(Place, Placing)>,
    ) -> Result<(), ReadError> {
        let Flight { bag, offset, wanted, pending } = flight;
        let block = self.reader.open(kind, bag, offset, &mut pending.wait()?)?;
        for object in wanted {
            let bytes = self.reader.object(&object, &block)?;
            let placing = match known.get(&object.id) {
                Some(placing) => placing.clone(),
                None => {
                    // Should the packer have stopped, its finish tells why.
                    let Ok(placing) = packer.put(kind, object.id, bytes) else { return Ok(()) };
                    known.insert(object.id, placing.clone());
                    placing
                }
            };
            placed.push((object.place, placing));
        }
        Ok(())
    }
}
