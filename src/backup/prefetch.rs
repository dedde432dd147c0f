//! Tree bags that the local cache lacks are fetched before the walk needs them, many at once.

use std::collections::{BTreeSet, VecDeque};

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
    fetch(source, repository, chosen().flat_map(|one| one.bag_list.own_bags()).collect())?;
    let mut bags = BTreeSet::new();
    for generation in chosen() {
        for uses in baglist::read(source, &generation.bag_list)? {
            if uses.kind == BagKind::Tree {
                bags.insert(uses.bag);
            }
        }
    }
    Ok(fetch(source, repository, bags)?)
}

fn fetch(source: &Source, repository: &Repository, bags: BTreeSet<BagId>) -> Result<(), StoreError> {
    let missed = fetch_those(repository, bags)?;
    let mut moved = BTreeSet::new();
    for bag in missed {
        moved.extend(source.reader().moves_of(bag)?.iter().flat_map(|moves| moves.targets(bag)));
    }
    fetch_those(repository, moved).map(drop)
}

/// Those that are not there.
fn fetch_those(repository: &Repository, bags: BTreeSet<BagId>) -> Result<Vec<BagId>, StoreError> {
    let mut under_way: VecDeque<(BagId, Pending<Vec<u8>>)> = VecDeque::new();
    let mut missed = Vec::new();
    let mut land = |(bag, pending): (BagId, Pending<Vec<u8>>)| match pending.wait() {
        Err(error) if error.kind == ErrorKind::NotFound => {
            missed.push(bag);
            Ok(())
        }
        other => other.map(drop),
    };
    for bag in bags {
        if repository.cache().len_of(cache::Kind::Bag, &bag.to_string()).is_some() {
            continue;
        }
        // Asking for a byte brings the whole bag into the cache.
        under_way.push_back((bag, repository.cached().read(&layout::bag(bag), 0, 1)));
        if under_way.len() >= AT_ONCE
            && let Some(first) = under_way.pop_front()
        {
            land(first)?;
        }
    }
    under_way.into_iter().try_for_each(land)?;
    Ok(missed)
}
