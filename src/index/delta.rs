//! What a run adds, in memory, until it is merged into the tables.

use std::collections::HashMap;

use super::format::SegmentBag;
use super::shard::Entry;
use super::{BagEntry, Fingerprint};
use crate::base::uniform::Uniform;

/// Bags added, and which fingerprints they have.
#[derive(Debug)]
pub(super) struct Delta {
    first_bag: u32,
    bags: Vec<BagEntry>,
    entries: HashMap<u64, u32, Uniform>,
    /// What a later bag has taken the place of in `entries`: not proposed from here, but kept for the tables.
    hidden: Vec<Entry>,
}

impl Delta {
    /// An empty one whose first bag will have this number.
    pub(super) fn new(first_bag: u32) -> Self {
        Self { first_bag, bags: vec![], entries: HashMap::default(), hidden: vec![] }
    }

    /// The number that the next bag gets.
    pub(super) fn end_bag(&self) -> u32 {
        self.first_bag.saturating_add(u32::try_from(self.bags.len()).unwrap_or(u32::MAX))
    }

    /// The number of its first bag.
    pub(super) fn first_bag(&self) -> u32 {
        self.first_bag
    }

    /// How many entries it has.
    pub(super) fn len(&self) -> usize {
        self.entries.len().saturating_add(self.hidden.len())
    }

    /// Its bags, in the order of their numbers.
    pub(super) fn bags(&self) -> &[BagEntry] {
        &self.bags
    }

    /// Adds a bag; gives its number. Where two bags have a fingerprint, the later one is proposed.
    pub(super) fn insert(&mut self, bag: &SegmentBag) -> u32 {
        let number = self.end_bag();
        self.bags.push(*bag.entry());
        let own = Fingerprint::of_bag(&bag.entry().bag);
        for &Fingerprint(fingerprint) in bag.fingerprints().iter().chain([&own]) {
            match self.entries.insert(fingerprint, number) {
                Some(earlier) if earlier != number => self.hidden.push(Entry { fingerprint, bag: earlier }),
                _ => {}
            }
        }
        number
    }

    /// The bag that has a fingerprint.
    #[inline]
    pub(super) fn find(&self, fingerprint: u64) -> Option<u32> {
        self.entries.get(&fingerprint).copied()
    }

    /// A bag by its number.
    pub(super) fn bag(&self, number: u32) -> Option<BagEntry> {
        let at = number.checked_sub(self.first_bag)?;
        self.bags.get(usize::try_from(at).ok()?).copied()
    }

    /// Its entries, ascending.
    pub(super) fn sorted(&self) -> Vec<Entry> {
        let mut entries = self.hidden.clone();
        entries.extend(self.entries.iter().map(|(&fingerprint, &bag)| Entry { fingerprint, bag }));
        entries.sort_unstable();
        entries
    }
}
