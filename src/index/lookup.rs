//! The local index: asks, adds, keeps.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::delta::Delta;
use super::fold::{Workshop, how_many};
use super::format::SegmentBag;
use super::growth::{Growth, threshold};
use super::numbers::{Bits, Runs};
use super::state::{self, Lock, SegmentState, State};
use super::sync::Synced;
use super::table::Table;
use super::{BagEntry, BagNumber, Fingerprint, IndexError};
use crate::base::cancel::Cancel;
use crate::base::id::{BagId, ObjectId, SegmentId};

/// How long the caller is held up for a bag when the tables do not keep up.
const PATIENCE: Duration = Duration::from_millis(5);

/// What is known of a segment that is merged in.
#[derive(Debug, Clone, Default)]
pub(super) struct Merged {
    /// The numbers of its bags.
    pub(super) bags: Runs,
    /// Entries of these bags in the tables.
    pub(super) entries: u64,
}

/// Says which bags may have an object. See the module for what it is made of, [`Index::open`] for how it is made.
///
/// Asking takes a shared reference and may be done by many threads; it never waits. An index that is dropped without
/// [`Index::flush`] leaves the directory as it was opened.
#[derive(Debug)]
pub struct Index {
    /// Where new tables are made: nameless files for all who do not hold the lock.
    pub(super) workshop: Workshop,
    /// The directory and the right to write there.
    pub(super) writable: Option<(PathBuf, Lock)>,
    /// Oldest first.
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) growth: Option<Growth>,
    /// A fold failed, which was told once: what it was to fold stays in memory, and no other is tried.
    stuck: bool,
    pub(super) delta: Delta,
    /// Bags that a listed segment names, and those of this run.
    pub(super) alive: Bits,
    /// Bags that must not be referred to afresh.
    excluded: Bits,
    pub(super) segments: BTreeMap<SegmentId, Merged>,
    /// Whether the state on disk says something else.
    pub(super) changed: bool,
    pub(super) synced: Synced,
}

impl Index {
    pub(super) fn empty(workshop: Workshop, writable: Option<(PathBuf, Lock)>) -> Self {
        Self {
            workshop,
            writable,
            tables: vec![],
            growth: None,
            stuck: false,
            delta: Delta::new(0),
            alive: Bits::default(),
            excluded: Bits::default(),
            segments: BTreeMap::new(),
            changed: false,
            synced: Synced::default(),
        }
    }

    /// What opening found and did.
    #[must_use]
    pub fn synced(&self) -> &Synced {
        &self.synced
    }

    /// How many entries there are: an object counts once for each bag that has it, and each bag counts as one.
    #[must_use]
    pub fn len(&self) -> u64 {
        let in_memory = self.delta.len() + self.growth.as_ref().map_or(0, |growth| growth.delta.len());
        self.stored().saturating_add(u64::try_from(in_memory).unwrap_or(u64::MAX))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether damage was met: what lay there is not proposed any more, and the next one to open the directory makes it
    /// anew.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.workshop.damaged.load(Ordering::Relaxed)
    }

    /// The bags that may have an object: mostly none or one. Newest first; excluded ones and those that no segment names are left out.
    #[must_use]
    pub fn candidates(&self, id: &ObjectId) -> Vec<BagEntry> {
        let mut bags = Vec::new();
        self.propose(id, |number| {
            // A bag has two numbers while a segment and the one that it was merged into are both listed.
            bags.extend(self.bag(number).filter(|bag| !bags.contains(bag)));
        });
        bags
    }

    /// Gives the same bags by their numbers, without reading of them: a bag may be given twice, by two numbers.
    #[inline]
    pub fn propose(&self, id: &ObjectId, mut found: impl FnMut(BagNumber)) {
        self.find(Fingerprint::of(id), |number| {
            if !self.excluded.contains(number) {
                found(BagNumber(number));
            }
        });
    }

    /// Whether this bag may be in an answer: some segment names it, and it is not excluded.
    #[must_use]
    #[inline]
    pub fn may_propose(&self, BagNumber(number): BagNumber) -> bool {
        self.alive.contains(number) && !self.excluded.contains(number)
    }

    /// The bag of this number; `None` where the local index is damaged.
    #[must_use]
    pub fn bag(&self, BagNumber(number): BagNumber) -> Option<BagEntry> {
        self.entry(number)
    }

    /// Adds a bag of this run: its objects are candidates from now on. Now and then this starts a thread that folds what was
    /// added into the tables; a caller who is faster than that thread is held up by 5 ms a bag, so that memory stays bounded.
    ///
    /// # Errors
    /// When such a thread failed, or could not be started: once, since no other is tried. What was added is still known, and what is added later
    /// stays in memory, too, without a bound.
    pub fn insert(&mut self, bag: &SegmentBag) -> Result<(), IndexError> {
        let number = self.delta.insert(bag);
        self.alive.insert(number..number.saturating_add(1));
        self.changed = true;
        let grown = self.grow();
        grown.map_err(|source| self.local(source))
    }

    /// Leaves these bags out of all answers from now on: those that garbage collection has condemned.
    pub fn exclude(&mut self, bags: &HashSet<BagId>) {
        for bag in bags {
            while let Some(number) = self.number_of(bag, &self.excluded) {
                self.excluded.insert(number..number.saturating_add(1));
            }
        }
    }

    /// Notes that a segment of this run was published and names these bags, all of them inserted before: whoever opens the directory
    /// next need not fetch it. Bags that no published segment names are forgotten then.
    pub fn published<'a>(&mut self, segment: SegmentId, bags: impl IntoIterator<Item = &'a SegmentBag>) {
        let mut merged = Merged::default();
        for bag in bags {
            match self.number_of(&bag.entry().bag, &Bits::default()) {
                Some(number) => {
                    merged.bags.push(number);
                    merged.entries = merged.entries.saturating_add(entries_of(bag));
                }
                // It names a bag that was never inserted: to be merged in like anybody's.
                None => return,
            }
        }
        self.segments.insert(segment, merged);
        self.changed = true;
    }

    /// Keeps what was added and published for the next run, durably; a crash leaves the former state or this one. Waits for a fold
    /// under way. Does nothing for an index that is not kept, and for one whose directory another process was writing to when
    /// it was opened.
    ///
    /// # Errors
    /// When a file cannot be written. The index can be used on.
    pub fn flush(&mut self) -> Result<(), IndexError> {
        self.settle().and_then(|()| self.store()).map_err(|source| self.local(source))
    }

    pub(super) fn local(&self, source: io::Error) -> IndexError {
        IndexError::Local { dir: self.writable.as_ref().map(|(dir, _)| dir.clone()), source }
    }

    /// Entries in the tables.
    pub(super) fn stored(&self) -> u64 {
        self.tables.iter().map(|table| table.entries()).sum()
    }

    /// Gives the numbers of living bags that have a fingerprint, newest first.
    #[inline]
    fn find(&self, fingerprint: Fingerprint, mut found: impl FnMut(u32)) {
        let mut found = |number| {
            if self.alive.contains(number) {
                found(number);
            }
        };
        self.delta.find(fingerprint.0).into_iter().for_each(&mut found);
        if let Some(growth) = &self.growth {
            growth.delta.find(fingerprint.0).into_iter().for_each(&mut found);
        }
        for table in self.tables.iter().rev() {
            table.find(fingerprint.0, &mut found);
        }
    }

    fn entry(&self, number: u32) -> Option<BagEntry> {
        if number >= self.delta.first_bag() {
            return self.delta.bag(number);
        }
        match &self.growth {
            Some(growth) if number >= growth.delta.first_bag() => growth.delta.bag(number),
            _ => self.tables.iter().find(|table| table.numbers().contains(&number))?.bag(number),
        }
    }

    /// The number of a living bag, not one of `except`.
    pub(super) fn number_of(&self, bag: &BagId, except: &Bits) -> Option<u32> {
        let mut number = None;
        self.find(Fingerprint::of_bag(bag), |candidate| {
            let is_it = || self.entry(candidate).is_some_and(|entry| entry.bag == *bag);
            if number.is_none() && !except.contains(candidate) && is_it() {
                number = Some(candidate);
            }
        });
        number
    }

    /// Takes over a fold that is done; starts one when there is enough to fold.
    fn grow(&mut self) -> io::Result<()> {
        if self.stuck {
            return Ok(());
        }
        let enough = threshold(self.stored());
        let patience = if self.delta.len() < 2 * enough { Duration::ZERO } else { PATIENCE };
        if self.growth.as_mut().is_some_and(|growth| growth.is_done_within(patience)) {
            self.settle()?;
        }
        if self.growth.is_none() && self.delta.len() >= enough {
            let next = Delta::new(self.delta.end_bag());
            let delta = Arc::new(std::mem::replace(&mut self.delta, next));
            self.growth = Some(Growth::start(&self.workshop, &self.tables, delta, &self.alive)?);
        }
        Ok(())
    }

    /// Waits for the fold under way and takes its table.
    fn settle(&mut self) -> io::Result<()> {
        if let Some(growth) = &mut self.growth {
            let table = growth.join().inspect_err(|_| self.stuck = true)?;
            let keep = self.tables.len().saturating_sub(growth.replaces);
            self.replace_tables(keep, table);
            self.growth = None;
        }
        Ok(())
    }

    /// Keeps the oldest `keep` tables, and this one behind them.
    fn replace_tables(&mut self, keep: usize, table: Table) {
        self.tables.truncate(keep);
        self.tables.push(Arc::new(table));
    }

    /// Appends a table, folding it with the ones before where its size asks for that.
    pub(super) fn append(&mut self, table: Table) -> io::Result<()> {
        let sizes: Vec<u64> = self.tables.iter().map(|table| table.entries()).collect();
        let keep = sizes.len() - how_many(&sizes, table.entries());
        self.tables.push(Arc::new(table));
        if keep + 1 < self.tables.len() {
            let folded = self.workshop.fold(&self.tables[keep..], None, &self.alive, &Cancel::new())?;
            self.replace_tables(keep, folded);
        }
        Ok(())
    }

    /// Writes everything to the directory.
    pub(super) fn store(&mut self) -> io::Result<()> {
        let Some((dir, _)) = &self.writable else { return Ok(()) };
        let dir = dir.clone();
        if self.is_damaged() {
            return state::forget(&dir);
        }
        if !self.changed {
            return Ok(());
        }
        if self.delta.len() > 0 {
            let table = self.workshop.fold(&[], Some(&self.delta), &self.alive, &Cancel::new())?;
            self.delta = Delta::new(self.delta.end_bag());
            self.append(table)?;
        }
        self.tables.iter().try_for_each(|table| table.sync())?;
        let segments = self.segments.iter().map(|(id, merged)| SegmentState {
            id: *id,
            bags: merged.bags.clone(),
            entries: merged.entries,
        });
        let tables = self.tables.iter().map(|table| table.state().clone()).collect();
        let state = State::new(tables, segments.collect());
        state.write(&dir)?;
        self.changed = false;
        state::sweep(&dir, &state)
    }

    /// Begins from nothing.
    pub(super) fn reset(&mut self) -> io::Result<()> {
        let mut workshop = self.workshop.clone();
        workshop.damaged = Arc::default();
        let writable = self.writable.take();
        if let Some((dir, _)) = &writable {
            state::forget(dir)?;
            state::sweep(dir, &State::default())?;
        }
        *self = Self::empty(workshop, writable);
        Ok(())
    }
}

/// How many entries a bag makes.
pub(super) fn entries_of(bag: &SegmentBag) -> u64 {
    u64::try_from(bag.fingerprints().len()).unwrap_or(u64::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::testing::{Remote, bag, knows, knows_none, numbered, object};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_added_is_known_while_tables_are_folded_and_after() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = Remote::default().open(Some(dir.path())).unwrap();
        let bags: Vec<SegmentBag> = (0..100).map(|i| bag(i, numbered(i * 1000..i * 1000 + 1000))).collect();
        for (number, added) in (0..).zip(&bags) {
            index.insert(added).unwrap();
            assert!(knows(&index, added, number * 1000..number * 1000 + 1000));
        }
        assert!(index.growth.is_some() || index.tables.len() == 1, "nothing was folded");
        index.settle().unwrap();
        assert!(!index.tables.is_empty());
        for (number, added) in (0..).zip(&bags) {
            assert!(knows(&index, added, number * 1000..number * 1000 + 1000));
        }
        assert!(knows_none(&index, 100_000..200_000));
        assert_eq!(index.len(), 100_100);
    }

    #[test]
    fn excluded_bags_are_never_proposed() {
        let mut index = Remote::default().open(None).unwrap();
        let (one, two) = (bag(1, numbered(0..10)), bag(2, numbered(5..15)));
        index.insert(&one).unwrap();
        index.insert(&two).unwrap();
        index.exclude(&HashSet::from([two.entry().bag, bag(3, vec![]).entry().bag]));
        assert!(knows(&index, &one, 0..5));
        assert!(knows_none(&index, 10..15));
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// A bag with so many objects from here on.
        Insert(u64, u64),
        Fold,
        Flush,
        Publish,
        Merge,
        Reopen,
        Collect,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u64..300, 0_u64..40).prop_map(|(from, count)| Step::Insert(from, count)),
            1 => Just(Step::Fold),
            1 => Just(Step::Flush),
            2 => Just(Step::Publish),
            1 => Just(Step::Merge),
            2 => Just(Step::Reopen),
            1 => Just(Step::Collect),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Against plain maps, through everything that may happen between two questions.
        #[test]
        fn agrees_with_a_plain_map(steps in proptest::collection::vec(step(), 1..60), on_disk: bool) {
            let dir = tempfile::tempdir().unwrap();
            let dir = on_disk.then(|| dir.path());
            let mut remote = Remote::default();
            let mut index = remote.open(dir).unwrap();
            let mut published: HashMap<BagId, SegmentBag> = HashMap::new();
            let mut own: Vec<SegmentBag> = vec![];
            for (number, step) in (0..).zip(steps) {
                match step {
                    Step::Insert(from, count) => {
                        own.push(bag(number, numbered(from..from + count)));
                        index.insert(own.last().unwrap()).unwrap();
                    }
                    Step::Fold => {
                        if index.growth.is_none() && index.delta.len() > 0 {
                            let next = Delta::new(index.delta.end_bag());
                            let delta = Arc::new(std::mem::replace(&mut index.delta, next));
                            index.growth =
                                Some(Growth::start(&index.workshop, &index.tables, delta, &index.alive).unwrap());
                        }
                    }
                    Step::Flush => index.flush().unwrap(),
                    Step::Publish => {
                        let id = remote.put(&own);
                        index.published(id, &own);
                        published.extend(own.drain(..).map(|bag| (bag.entry().bag, bag)));
                    }
                    Step::Merge => remote.merge(|_| true),
                    Step::Reopen => {
                        drop(index);
                        own.clear();
                        index = remote.open(dir).unwrap();
                    }
                    Step::Collect => {
                        // Every third bag is condemned, and no segment names it afterwards.
                        drop(index);
                        own.clear();
                        published.retain(|bag, _| bag.0[0] % 3 != 0);
                        remote.merge(|bag| bag.0[0] % 3 != 0);
                        index = remote.open(dir).unwrap();
                    }
                }
                for number in 0..350 {
                    let mut found = index.candidates(&object(number));
                    found.sort_unstable();
                    let fingerprint = Fingerprint::of(&object(number));
                    let holders = published.values().chain(&own);
                    let mut expected: Vec<BagEntry> = holders
                        .filter(|bag| bag.fingerprints().contains(&fingerprint))
                        .map(|bag| *bag.entry())
                        .collect();
                    expected.sort_unstable();
                    // Of several bags with one object, those in memory show the latest only.
                    prop_assert!(found.iter().all(|bag| expected.contains(bag)), "{found:?} {expected:?}");
                    prop_assert_eq!(found.is_empty(), expected.is_empty());
                    prop_assert!(found.windows(2).all(|pair| pair[0] != pair[1]));
                }
            }
        }
    }
}
