//! What the bags hold, by their own headers, trailers and tables.
//!
//! Of each object only eight bytes are kept: a hash of its name and its whole place. A reference that has the same hash names that object at
//! that place; another one would with a probability of objects / 2^64.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::FsckError;
use super::check::{self, Wrong};
use super::flight::{Flight, fly};
use super::report::{Unreadable, given};
use crate::bag::Table;
use crate::bag::format::{BagKind, HEADER, MAX_TABLE, TRAILER};
use crate::bag::moved::Moves;
use crate::bag::reader::{BagReader, ReadError};
use crate::base::cancel::Cancel;
use crate::base::id::BagId;
use crate::crypto::OVERHEAD;
use crate::entry::Reference;
use crate::index::{BagEntry, Fingerprint};
use crate::store::{Pending, layout};

/// The number of a bag: existing ones in the order of their ids, missing ones behind.
pub type BagNo = u32;

/// The number of an object of a tree bag, over all of them.
pub type Node = u32;

/// A bag that is there.
pub struct Bag {
    /// Its id.
    pub id: BagId,
    /// What its header, trailer and table say; `None` when one of them is damaged.
    pub sound: Option<Sound>,
}

/// What a bag says of itself.
pub struct Sound {
    /// Kind, size, place of the table.
    pub entry: BagEntry,
    /// A hash of the fingerprints of its objects.
    pub digest: [u8; 32],
    /// The hashes of its objects, ascending.
    prints: Vec<u64>,
    /// The number of its first object, for a tree bag.
    first: Node,
    /// The blocks of a tree bag, until it was read: they are few.
    blocks: Option<Table>,
}

/// All bags: those that are there, and those that somebody refers to.
pub struct Bags {
    bags: Vec<Bag>,
    nodes: Node,
    missing: Mutex<Missing>,
    bad: Mutex<HashSet<(BagNo, u64)>>,
    wrongs: Mutex<BTreeMap<BagNo, Vec<Wrong>>>,
    moves: Moves,
    given_up: HashSet<BagNo>,
}

#[derive(Default)]
struct Missing {
    numbers: HashMap<BagId, BagNo>,
    ids: Vec<BagId>,
}

/// Where a reference leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The bag.
    pub bag: BagNo,
    /// Whether the object is there, and not known to be damaged.
    pub holds: bool,
    /// The object's number, if it is in a tree bag.
    pub node: Option<Node>,
}

/// More clauses than this say nothing new about one bag.
const MOST_WRONGS: usize = 4;

/// As much of a bag's end as is read at once: most tables are smaller.
const TAIL: u64 = 64 << 10;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number as an index.
pub fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// An index as a number.
pub fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn print(reference: &Reference) -> u64 {
    let mut hasher = DefaultHasher::new();
    reference.hash(&mut hasher);
    hasher.finish()
}

/// A hash of fingerprints, ascending.
pub fn digest(fingerprints: &[Fingerprint]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for fingerprint in fingerprints {
        hasher.update(&fingerprint.0.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// The fingerprints of a table's objects, ascending.
pub fn fingerprints(table: &Table) -> Vec<Fingerprint> {
    let ids = table.blocks.iter().flat_map(|block| block.objects.iter().map(|(id, _, _)| id));
    let mut all: Vec<_> = ids.map(Fingerprint::of).collect();
    all.sort_unstable();
    all
}

impl Bags {
    /// Asks for the ends of these bags, as far as they fit the window.
    pub fn ask<'a>(reader: &'a BagReader, listed: &'a [(BagId, u64)]) -> Ends<'a> {
        let ask = |&(_, id, _): &(BagNo, BagId, u64)| {
            let name = layout::bag(id);
            // What kind of bag it is, its header will tell.
            let head = reader.fetch(BagKind::Data, id, 0, u64::try_from(HEADER).unwrap_or(u64::MAX));
            let tail = reader.store(BagKind::Data).read_tail(&name, TAIL);
            (TAIL, both(head, tail))
        };
        let keys = (0..).zip(listed).map(|(number, &(id, size))| (number, id, size));
        let (keys, ask): (Keys<'a>, Ask<'a>) = (Box::new(keys), Box::new(ask));
        Ends { reader, listed, flight: Flight::take_off(keys, ask) }
    }

    /// Reads the header, trailer and table of each bag: two flights, the second only where tables are large.
    ///
    /// # Errors
    /// When the store is out of reach.
    pub fn read(ends: Ends<'_>, cancel: &Cancel) -> Result<Self, FsckError> {
        let Ends { reader, listed, flight } = ends;
        let bags: Vec<_> = listed.iter().map(|&(id, _)| Bag { id, sound: None }).collect();
        let mut all = Self {
            bags,
            nodes: 0,
            missing: Mutex::default(),
            bad: Mutex::default(),
            wrongs: Mutex::default(),
            moves: Moves::default(),
            given_up: HashSet::new(),
        };
        let mut large = Vec::new();
        flight.land(|(number, id, listed), answer| {
            cancelled(cancel)?;
            let (head, tail) = answer?;
            let (head, tail) = (given(head)?, given(tail)?);
            match all.ends(id, listed, head, tail) {
                Err(wrong) => all.wrong(number, wrong),
                Ok((entry, Some(sealed))) => {
                    all.table(reader, number, entry, Ok(sealed));
                }
                Ok((entry, None)) => large.push((number, entry)),
            }
            Ok(())
        })?;
        let ask = |(_, entry): &(BagNo, BagEntry)| {
            let len = u64::from(entry.table_len);
            (len, reader.fetch(entry.kind, entry.bag, entry.table_offset, len))
        };
        fly(large, ask, |(number, entry), answer| {
            cancelled(cancel)?;
            let sealed = given(answer)?.map_err(|error| error.to_string());
            all.table(reader, number, entry, sealed);
            Ok(())
        })?;
        Ok(all)
    }

    /// What header and trailer say, and the sealed table if it came with the trailer.
    fn ends(
        &self,
        bag: BagId,
        listed: u64,
        head: Result<Vec<u8>, Unreadable>,
        tail: Result<(Vec<u8>, u64), Unreadable>,
    ) -> Result<(BagEntry, Option<Vec<u8>>), Wrong> {
        let text = |error: Unreadable| error.to_string();
        let (mut tail, size) = tail.map_err(text)?;
        let kind = check::header(&head.map_err(text)?, bag)?;
        check::size(listed, size)?;
        let (table_offset, table_len) = check::trailer(&tail, size)?;
        if usize::try_from(table_len).map_or(true, |len| len > MAX_TABLE.saturating_add(OVERHEAD)) {
            return Err("its table is longer than a table can be".to_owned());
        }
        let entry = BagEntry { bag, kind, size, table_offset, table_len };
        let start = size.saturating_sub(u64::try_from(tail.len()).unwrap_or(u64::MAX));
        let inside = table_offset.checked_sub(start).and_then(|before| usize::try_from(before).ok());
        let sealed = inside.map(|before| {
            tail.truncate(tail.len().saturating_sub(TRAILER));
            tail.split_off(before.min(tail.len()))
        });
        Ok((entry, sealed))
    }

    fn table(&mut self, reader: &BagReader, number: BagNo, entry: BagEntry, sealed: Result<Vec<u8>, Wrong>) {
        let opened = sealed.and_then(|mut sealed| {
            let table = reader
                .open_table(entry.bag, entry.table_offset, &mut sealed)
                .map_err(|error| table_wrong(&error))?;
            check::blocks(&table, entry.table_offset)?;
            Ok(table)
        });
        let table = match opened {
            Ok(table) => table,
            Err(wrong) => return self.wrong(number, wrong),
        };
        let mut prints: Vec<_> = table.references(entry.bag).map(|reference| print(&reference)).collect();
        prints.sort_unstable();
        prints.shrink_to_fit();
        let first = self.nodes;
        if entry.kind == BagKind::Tree {
            self.nodes = self.nodes.saturating_add(self::number(prints.len()));
        }
        let digest = digest(&fingerprints(&table));
        if let Some(bag) = self.bags.get_mut(index(number)) {
            let blocks = (entry.kind == BagKind::Tree).then_some(table);
            bag.sound = Some(Sound { entry, digest, prints, first, blocks });
        }
    }

    /// Follows these moves from now on.
    pub fn know_moves(&mut self, moves: Moves) {
        self.moves = moves;
    }

    /// These bags will be gone soon: whatever is referred to in them must have been moved.
    pub fn give_up(&mut self, bags: impl Iterator<Item = BagId>) {
        self.given_up = bags.map(|bag| self.number_of(bag)).collect();
    }

    /// Whether garbage collection has decided that a bag goes.
    pub fn is_given_up(&self, bag: BagNo) -> bool {
        self.given_up.contains(&bag)
    }

    /// The bags that are there, in the order of their numbers.
    pub fn existing(&self) -> &[Bag] {
        &self.bags
    }

    /// Objects of tree bags.
    pub fn nodes(&self) -> usize {
        index(self.nodes)
    }

    /// Objects of all bags whose tables could be read.
    pub fn objects(&self) -> u64 {
        let sound = self.bags.iter().filter_map(|bag| bag.sound.as_ref());
        sound.map(|sound| u64::try_from(sound.prints.len()).unwrap_or(u64::MAX)).sum()
    }

    /// The bag of this number, if it is there.
    pub fn get(&self, number: BagNo) -> Option<&Bag> {
        self.bags.get(index(number))
    }

    /// Bytes of these bags.
    pub fn bytes_of(&self, numbers: &[BagNo]) -> u64 {
        let sizes = numbers.iter().filter_map(|number| Some(self.get(*number)?.sound.as_ref()?.entry.size));
        sizes.fold(0, u64::saturating_add)
    }

    /// The number of a bag, be it there or not.
    pub fn number_of(&self, id: BagId) -> BagNo {
        if let Ok(found) = self.bags.binary_search_by_key(&id, |bag| bag.id) {
            return number(found);
        }
        let mut missing = lock(&self.missing);
        let Missing { numbers, ids } = &mut *missing;
        *numbers.entry(id).or_insert_with(|| {
            ids.push(id);
            number(self.bags.len().saturating_add(ids.len()).saturating_sub(1))
        })
    }

    /// The id of the bag of this number.
    pub fn id_of(&self, number: BagNo) -> Option<BagId> {
        let behind = || index(number).checked_sub(self.bags.len());
        self.get(number).map(|bag| bag.id).or_else(|| lock(&self.missing).ids.get(behind()?).copied())
    }

    /// Hands out the tables of tree bags, which are of no further use when these were read.
    pub fn take_tables(&mut self) -> BTreeMap<BagNo, Table> {
        let sound = (0..).zip(&mut self.bags).filter_map(|(number, bag)| Some((number, bag.sound.as_mut()?)));
        sound.filter_map(|(number, sound)| Some((number, sound.blocks.take()?))).collect()
    }

    /// How many numbers are in use.
    pub fn numbers(&self) -> usize {
        self.bags.len().saturating_add(lock(&self.missing).ids.len())
    }

    /// Where a reference to an object in a bag of this kind leads.
    pub fn target(&self, kind: BagKind, reference: &Reference) -> Target {
        let bag = self.number_of(reference.place.bag);
        if !self.is_given_up(bag)
            && let Some(target) = self.target_there(kind, reference)
        {
            return target;
        }
        // Where it is said to be it is not: it may have been moved.
        let place = self.moves.resolve(&reference.place);
        let moved = place.and_then(|place| self.target_there(kind, &Reference { id: reference.id, place }));
        moved.map_or(Target { bag, holds: false, node: None }, |target| Target { bag, ..target })
    }

    fn target_there(&self, kind: BagKind, reference: &Reference) -> Option<Target> {
        let number = self.number_of(reference.place.bag);
        let sound = self.get(number)?.sound.as_ref().filter(|sound| sound.entry.kind == kind)?;
        let print = print(reference);
        let at = sound.prints.binary_search(&print).ok()?;
        let node = (kind == BagKind::Tree).then(|| sound.first.saturating_add(self::number(at)));
        Some(Target { bag: number, holds: !lock(&self.bad).contains(&(number, print)), node })
    }

    /// Remembers that an object is damaged.
    pub fn spoil(&self, number: BagNo, reference: &Reference) {
        lock(&self.bad).insert((number, print(reference)));
    }

    /// Remembers what is wrong with a bag.
    pub fn wrong(&self, number: BagNo, wrong: Wrong) {
        let mut wrongs = lock(&self.wrongs);
        let of_bag = wrongs.entry(number).or_default();
        if of_bag.len() < MOST_WRONGS && !of_bag.contains(&wrong) {
            of_bag.push(wrong);
        }
    }

    /// What is wrong, by bag.
    pub fn wrongs(&self) -> BTreeMap<BagNo, Vec<Wrong>> {
        lock(&self.wrongs).clone()
    }
}

/// A bag, and the size that the listing gives.
type Key = (BagNo, BagId, u64);

type Keys<'a> = Box<dyn Iterator<Item = Key> + 'a>;

/// Starts the requests for a bag's ends.
type Ask<'a> = Box<dyn FnMut(&Key) -> (u64, Pending<Both>) + 'a>;

/// The ends of bags, on their way.
pub struct Ends<'a> {
    reader: &'a BagReader,
    listed: &'a [(BagId, u64)],
    flight: Flight<Key, Both, Keys<'a>, Ask<'a>>,
}

/// What is wrong with a table that cannot be read.
pub fn table_wrong(error: &ReadError) -> Wrong {
    match error {
        ReadError::Format { source, .. } => format!("its table is wrong ({source})"),
        _ => "its table is damaged".to_owned(),
    }
}

/// Both answers, the first waited for first.
type Both = (Result<Vec<u8>, crate::store::StoreError>, Result<(Vec<u8>, u64), crate::store::StoreError>);

fn both(head: Pending<Vec<u8>>, tail: Pending<(Vec<u8>, u64)>) -> Pending<Both> {
    head.then(move |head| Ok((head, tail.wait())))
}

/// Ends a check that the user wants to end.
///
/// # Errors
/// `Interrupted`.
pub fn cancelled(cancel: &Cancel) -> Result<(), FsckError> {
    if cancel.is_cancelled() { Err(FsckError::Interrupted { read_up_to: None, damages: 0 }) } else { Ok(()) }
}
