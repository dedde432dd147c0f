//! Tree bags that the local cache lacks are fetched before the walk needs them, many at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::bag::BagKind;
use crate::bag::source::Source;
use crate::base::id::{BagId, GenerationId};
use crate::cache;
use crate::generation::Generation;
use crate::generation::baglist;
use crate::repo::Repository;
use crate::store::{ErrorKind, Pending, StoreError, layout};

use super::BackupError;

/// Bags fetched at once.
const AT_ONCE: usize = 16;

/// Bytes that are asked for of a bag of which nothing is known.
const USUAL_BAG: u64 = 255 << 10;

/// A larger bag is not fetched whole.
const LARGEST_BAG: u64 = 128 << 20;

/// Fetches what the cache lacks of the tree bags of the chosen generations. Serial round trips: those of one bag for the bags that hold the lists, and those
/// of one bag for all others.
pub fn tree_bags(
    source: &Source,
    repository: &Repository,
    generations: &[Generation],
    chosen: &BTreeSet<GenerationId>,
) -> Result<(), BackupError> {
    if repository.cache().is_disabled() {
        return Ok(());
    }
    let chosen = || generations.iter().filter(|one| chosen.contains(&one.id));
    let own = chosen().flat_map(|one| one.bag_list.own_bags()).map(|bag| (bag, 0));
    fetch(source, repository, own.collect())?;
    let mut bags = BTreeMap::new();
    for generation in chosen() {
        for uses in baglist::read(source, &generation.bag_list)? {
            if uses.kind == BagKind::Tree {
                bags.insert(uses.bag, uses.bytes);
            }
        }
    }
    Ok(fetch(source, repository, bags)?)
}

/// Fetches bags of which at least so many bytes are known to be there.
fn fetch(source: &Source, repository: &Repository, bags: BTreeMap<BagId, u64>) -> Result<(), StoreError> {
    let missed = fetch_those(repository, bags)?;
    let mut moved = BTreeMap::new();
    for bag in missed {
        moved.extend(
            source.reader().moves_of(bag)?.iter().flat_map(|moves| moves.targets(bag)).map(|bag| (bag, 0)),
        );
    }
    fetch_those(repository, moved).map(drop)
}

/// Those that are not there.
fn fetch_those(repository: &Repository, bags: BTreeMap<BagId, u64>) -> Result<Vec<BagId>, StoreError> {
    let mut under_way: VecDeque<(BagId, Pending<Vec<u8>>)> = VecDeque::new();
    let mut missed = Vec::new();
    let mut land = |(bag, pending): (BagId, Pending<Vec<u8>>)| match pending.wait() {
        // It is read in parts, when those are needed.
        Err(error) if error.kind == ErrorKind::TooLong => Ok(()),
        Err(error) if error.kind == ErrorKind::NotFound => {
            missed.push(bag);
            Ok(())
        }
        other => other.map(drop),
    };
    for (bag, bytes) in bags {
        if repository.cache().len_of(cache::Kind::Bag, &bag.to_string()).is_some() {
            continue;
        }
        // What else is in it is mostly of the same tree; then there are a table and a trailer.
        let expected = bytes.saturating_add(bytes / 8).max(USUAL_BAG);
        under_way
            .push_back((bag, repository.cached().read_expected(&layout::bag(bag), LARGEST_BAG, expected)));
        if under_way.len() >= AT_ONCE
            && let Some(first) = under_way.pop_front()
        {
            land(first)?;
        }
    }
    under_way.into_iter().try_for_each(land)?;
    Ok(missed)
}
