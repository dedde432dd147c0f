//! Chunks on their way from the store into files.

use std::borrow::Cow;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};

use super::item::Item;
use super::site::{Site, Trouble};
use crate::bag::BagKind;
use crate::bag::reader::ReadError;
use crate::base::budget::{Budget, Permit};
use crate::base::id::BagId;
use crate::contents::plan::{Block, Read, Want, reads};
use crate::entry::{Place, Reference};
use crate::store::{ErrorKind, Pending};

/// Chunks gathered until their reads are planned.
const MOST_WANTS: usize = 8192;

/// Bytes of chunks gathered until their reads are planned. They are not in memory: a larger window only finds more neighbours.
const MOST_BYTES: u64 = 64 << 20;

/// Sealed bytes that are under way, or wait to be opened.
const UNDER_WAY: u64 = 48 << 20;

/// What a chunk is wanted for.
pub struct Goal {
    item: Arc<Item>,
    part: Part,
}

enum Part {
    /// Contents at this offset.
    Contents(u64),
    /// The xattr at this place.
    Xattr(usize),
}

/// A read that is under way.
pub struct Flight {
    read: Read<Goal>,
    pending: Pending<Vec<u8>>,
    /// Given back when its bytes are where they belong.
    _permit: Permit,
}

/// Puts what comes where it belongs, until nobody can send any more.
pub fn land_all(site: &Site<'_>, flights: &Receiver<Flight>) {
    for flight in flights {
        // Else whoever waits for what comes is given up as well.
        if !site.is_stopped() {
            land(site, flight);
        }
    }
}

/// Gathers what is wanted, plans reads and sends them on their way.
pub struct Window {
    wants: Vec<Want<Goal>>,
    bytes: u64,
    flights: Sender<Flight>,
    budget: Budget,
}

impl Window {
    /// Reads go to whoever receives `flights`.
    pub fn new(flights: Sender<Flight>) -> Self {
        Self { wants: Vec::new(), bytes: 0, flights, budget: Budget::new(UNDER_WAY) }
    }

    /// A chunk is wanted as contents of `item` at `offset`.
    pub fn want_contents(&mut self, site: &Site<'_>, item: &Arc<Item>, offset: u64, reference: Reference) {
        self.want(site, item, reference, Part::Contents(offset));
    }

    /// A chunk is wanted as the value of an xattr of `item`.
    pub fn want_xattr(&mut self, site: &Site<'_>, item: &Arc<Item>, at: usize, reference: Reference) {
        self.want(site, item, reference, Part::Xattr(at));
    }

    fn want(&mut self, site: &Site<'_>, item: &Arc<Item>, reference: Reference, part: Part) {
        let reference = site.reader().resolved(&reference);
        item.expect();
        self.bytes = self.bytes.saturating_add(reference.place.len.into());
        self.wants.push(Want { reference, goal: Goal { item: Arc::clone(item), part } });
        if self.wants.len() >= MOST_WANTS || self.bytes >= MOST_BYTES {
            self.flush(site, false);
        }
    }

    /// Sends all reads on their way, waiting while too much is; the block wanted last is left for the next time, unless this is the last.
    pub fn flush(&mut self, site: &Site<'_>, is_last: bool) {
        let mut wants = std::mem::take(&mut self.wants);
        self.bytes = 0;
        if let Some(last) = wants.last().filter(|_| !is_last) {
            let block = block_of(&last.reference.place);
            let same = wants.iter().filter(|want| block_of(&want.reference.place) == block).count();
            if same <= wants.len() / 2 {
                let (later, now) =
                    wants.into_iter().partition(|want| block_of(&want.reference.place) == block);
                wants = now;
                self.wants = later;
                let bytes = |want: &Want<Goal>| u64::from(want.reference.place.len);
                self.bytes = self.wants.iter().map(bytes).fold(0, u64::saturating_add);
            }
        }
        for read in reads(wants) {
            if site.is_stopped() {
                return;
            }
            let permit = self.budget.take(read.len);
            let pending = site.reader().fetch(BagKind::Data, read.bag, read.offset, read.len);
            // Whoever receives lives as long as this sender.
            let _ = self.flights.send(Flight { read, pending, _permit: permit });
        }
    }
}

fn block_of(place: &Place) -> (BagId, u64) {
    (place.bag, place.offset)
}

/// Waits for a read and puts what it brings where it is wanted.
fn land(site: &Site<'_>, flight: Flight) {
    let Flight { mut read, pending, _permit } = flight;
    let blocks = std::mem::take(&mut read.blocks);
    match pending.wait() {
        Ok(mut sealed) => {
            for block in blocks {
                let Place { bag, offset, .. } = block.place;
                let bytes = read.range(&block.place).and_then(|range| sealed.get_mut(range));
                let opened = site.reader().open_there(BagKind::Data, bag, offset, bytes.unwrap_or_default());
                deliver_or_fail(site, block, opened);
            }
        }
        Err(error) => {
            // One that is not there may have been moved.
            let is_alone = blocks.len() == 1 && error.kind != ErrorKind::NotFound;
            for block in blocks {
                let failed = ReadError::Store(error.duplicate());
                // The bag may have been cut off behind some of the blocks.
                let opened = if is_alone || !failed.is_damage() {
                    Err(failed)
                } else {
                    site.reader().block(BagKind::Data, &block.place).map(Cow::Owned)
                };
                deliver_or_fail(site, block, opened);
            }
        }
    }
}

fn deliver_or_fail(site: &Site<'_>, block: Block<Goal>, opened: Result<Cow<'_, [u8]>, ReadError>) {
    match opened {
        Ok(opened) => deliver(site, block, &opened),
        Err(error) => {
            let error = Arc::new(error);
            for Want { goal: Goal { item, .. }, .. } in block.wants {
                item.fail(site, Trouble::Shared(Arc::clone(&error)));
                item.arrived(site);
            }
        }
    }
}

/// Puts the objects of an opened block where they are wanted.
fn deliver(site: &Site<'_>, block: Block<Goal>, opened: &[u8]) {
    let mut last = None;
    for Want { reference, goal: Goal { item, part } } in block.wants {
        // Equal ones follow each other: each is hashed once.
        let bytes = match last {
            Some((same, bytes)) if same == reference => Ok(bytes),
            _ => site.reader().object(&reference, opened),
        };
        match (bytes, part) {
            (Ok(bytes), Part::Contents(offset)) => {
                last = Some((reference, bytes));
                item.write(site, offset, bytes);
            }
            (Ok(bytes), Part::Xattr(at)) => item.set_xattr(at, bytes),
            (Err(error), _) => item.fail(site, error.into()),
        }
        item.arrived(site);
    }
}
