//! Fetching a generation's directories ahead of need.
//!
//! A tree can be read level by level, which costs a wait for each; but a generation names all bags that it needs, so its tree bags can be fetched all at
//! once: the bags of the roots and of the bag list first, then the others. Two flights, however deep the tree is.

use std::collections::{BTreeSet, VecDeque};

use super::format::{Generation, decode_bucket};
use crate::bag::BagKind;
use crate::bag::source::Source;
use crate::base::id::BagId;
use crate::cache::{self, Cache};
use crate::dir::reader;
use crate::store::{ErrorKind, Pending, StoreError, layout};

/// Sealed bytes of tree bags that are kept at most: the trees of about a million files.
const HELD: u64 = 64 << 20;

/// A larger bag is not fetched whole.
const LARGEST_BAG: u64 = 48 << 20;

/// Bytes of tree bags that are under way at once, as far as is known before they are there.
const UNDER_WAY: u64 = 48 << 20;

/// More roots and buckets than this in different bags are not fetched as whole bags, because little of each may be wanted.
const FIRST_BAGS: usize = 8;

/// Entries whose directories are cheap enough to fetch all of them even if only some are wanted.
const CHEAP: u64 = 100_000;

/// Whether it pays to fetch all directories although only a part of them is wanted.
#[must_use]
pub fn are_cheap(generation: &Generation) -> bool {
    let counts = &generation.counts;
    let entries = counts.files.saturating_add(counts.directories).saturating_add(counts.others);
    entries <= CHEAP
}

/// Fetches the generation's tree bags into `source`, as far as they fit. What is damaged or missing is no failure here: whoever needs it finds that out.
///
/// # Errors
/// When the store is out of reach.
pub fn fetch_ahead(source: &Source, generation: &Generation) -> Result<(), StoreError> {
    fetch_into_cache(source, &[generation], &Cache::disabled())
}

/// The same of several generations, in as many flights, for who will read for a long time: what is in the cache is left there, and what comes into it from the
/// store that `source` reads is not held beside it. Without a cache it is held.
///
/// # Errors
/// When the store is out of reach.
pub fn fetch_into_cache(
    source: &Source,
    generations: &[&Generation],
    cache: &Cache,
) -> Result<(), StoreError> {
    let (under_way, missed) = (VecDeque::new(), BTreeSet::new());
    let mut flight = Flight { source, cache, under_way, expected: 0, held: 0, missed };
    let roots = generations
        .iter()
        .flat_map(|generation| &generation.roots)
        .flat_map(|root| reader::references(&root.entry));
    let tops = roots.filter(|(kind, _)| *kind == BagKind::Tree).map(|(_, top)| top.place.bag);
    let own = generations.iter().flat_map(|generation| generation.bag_list.own_bags());
    let first: BTreeSet<BagId> = own.chain(tops).collect();
    if first.len() <= FIRST_BAGS.saturating_mul(generations.len()) {
        for bag in &first {
            flight.start(*bag, 255 << 10)?;
        }
        flight.land(0)?;
        flight.follow()?;
    }
    // Generations that follow each other share most of them.
    let buckets: BTreeSet<_> =
        generations.iter().flat_map(|generation| &generation.bag_list.buckets).copied().collect();
    let buckets: Vec<_> = buckets
        .into_iter()
        .map(|bucket| {
            let place = bucket.place;
            let is_held = flight.is_here(place.bag);
            let fetched = (!is_held)
                .then(|| source.reader().fetch(BagKind::Tree, place.bag, place.offset, place.stored.into()));
            (bucket, fetched)
        })
        .collect();
    for (bucket, fetched) in buckets {
        let place = bucket.place;
        let opened = match fetched {
            None => source.object(BagKind::Tree, &bucket),
            Some(fetched) => fetched.wait().map_err(Into::into).and_then(|mut sealed| {
                let block = source.reader().open(BagKind::Tree, place.bag, place.offset, &mut sealed)?;
                source.reader().object(&bucket, &block).map(<[u8]>::to_vec)
            }),
        };
        let uses = match opened {
            Ok(bytes) => decode_bucket(&bytes).unwrap_or_default(),
            Err(crate::bag::reader::ReadError::Store(error)) => {
                passable(error)?;
                continue;
            }
            Err(_) => continue,
        };
        for one in uses.into_iter().filter(|one| one.kind == BagKind::Tree) {
            flight.start(one.bag, one.bytes)?;
        }
    }
    flight.land(0)?;
    flight.follow()
}

/// Bags under way.
struct Flight<'a> {
    source: &'a Source,
    cache: &'a Cache,
    under_way: VecDeque<(BagId, u64, Pending<Vec<u8>>)>,
    expected: u64,
    held: u64,
    /// Bags that are not there.
    missed: BTreeSet<BagId>,
}

impl Flight<'_> {
    fn is_here(&self, bag: BagId) -> bool {
        self.source.holds(bag) || self.is_cached(bag)
    }

    fn is_cached(&self, bag: BagId) -> bool {
        self.cache.len_of(cache::Kind::Bag, &bag.to_string()).is_some()
    }

    fn start(&mut self, bag: BagId, expected: u64) -> Result<(), StoreError> {
        if self.is_here(bag) || self.under_way.iter().any(|(other, ..)| *other == bag) {
            return Ok(());
        }
        let expected = expected.clamp(64 << 10, LARGEST_BAG);
        self.land(UNDER_WAY.saturating_sub(expected))?;
        if self.held.saturating_add(self.expected) >= HELD {
            return Ok(());
        }
        let pending =
            self.source.reader().store(BagKind::Tree).read_expected(&layout::bag(bag), LARGEST_BAG, expected);
        self.under_way.push_back((bag, expected, pending));
        self.expected = self.expected.saturating_add(expected);
        Ok(())
    }

    /// Waits until at most so many bytes are under way.
    fn land(&mut self, most: u64) -> Result<(), StoreError> {
        while self.expected > most {
            let Some((bag, expected, pending)) = self.under_way.pop_front() else { return Ok(()) };
            self.expected = self.expected.saturating_sub(expected);
            match pending.wait() {
                // It has come into the cache on its way.
                Ok(_) if self.is_cached(bag) => {}
                Ok(sealed) => {
                    self.held = self.held.saturating_add(u64::try_from(sealed.len()).unwrap_or(u64::MAX));
                    self.source.hold(bag, sealed);
                }
                Err(error) => {
                    if error.kind == ErrorKind::NotFound {
                        self.missed.insert(bag);
                    }
                    passable(error)?;
                }
            }
        }
        Ok(())
    }

    /// Fetches the bags that what was missed has been moved to.
    fn follow(&mut self) -> Result<(), StoreError> {
        for bag in std::mem::take(&mut self.missed) {
            let moves = self.source.reader().moves_of(bag)?;
            for target in moves.iter().flat_map(|moves| moves.targets(bag)) {
                self.start(target, 1 << 20)?;
            }
        }
        self.land(0)
    }
}

/// Lets pass what only means that a bag cannot be had as a whole.
fn passable(error: StoreError) -> Result<(), StoreError> {
    match error.kind {
        ErrorKind::NotFound | ErrorKind::Truncated | ErrorKind::TooLong => Ok(()),
        _ => Err(error),
    }
}
