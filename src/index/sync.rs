//! Brings the local index in step with the segments that are listed.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::fold::Workshop;
use super::format::{self, SegmentError};
use super::home::Home;
use super::lookup::{Index, Merged, entries_of};
use super::numbers::{Bits, Ranks};
use super::shard::Entry;
use super::sorter::Sorter;
use super::state::{self, Lock, State};
use super::table::{Table, TableWriter};
use super::{Files, Fingerprint, IndexError, ListedSegment, Waiting};
use crate::base::id::SegmentId;

/// Bytes of segments asked for at a time; a larger one is asked for alone.
const IN_FLIGHT: u64 = 16 << 20;
/// Entries of dead bags that are never worth the work of dropping them.
const FEW: u64 = 1 << 14;

/// Asks for the contents of a segment; called for several before the first answer is waited for.
pub type FetchSegment<'a> = dyn FnMut(SegmentId) -> Waiting<Vec<u8>> + 'a;

/// What opening an index found and did.
#[derive(Debug, Default)]
pub struct Synced {
    /// Segments merged in.
    pub added: usize,
    /// Segments that are not listed any more.
    pub removed: usize,
    /// Listed, but not there when they were asked for: merged or collected meanwhile.
    pub vanished: usize,
    /// Segments that are none. Their bags are unknown here, so what lies in them may be stored again.
    pub unreadable: Vec<(SegmentId, SegmentError)>,
    /// Files of the local index were missing or damaged: it was made from nothing.
    pub rebuilt: bool,
    /// Another process is writing to the directory: what this one learns is not kept.
    pub read_only: bool,
}

impl Index {
    /// Opens the index kept in a directory, or makes one that is not kept, and brings it in step with the segments listed:
    /// fetches those that are new, and forgets bags that none names any more.
    ///
    /// Two processes may open one directory at once: the second reads what is there, and what it adds goes with it.
    /// Missing or damaged files are no failure, the index is then made from nothing. It takes some 30 MiB of memory at most, of
    /// the disk 12 to 16 bytes for each object, and as much again while tables are folded.
    ///
    /// # Errors
    /// When files cannot be written, and when `fetch` fails.
    pub fn open(
        files: Files<'_>,
        listed: &[ListedSegment],
        fetch: &mut FetchSegment<'_>,
    ) -> Result<Self, IndexError> {
        let dir = match files {
            Files::Kept(dir) | Files::Passing(dir) => Some(dir.to_owned()),
            Files::Held => None,
        };
        let mut index =
            Self::open_local(files).map_err(|source| IndexError::Local { dir: dir.clone(), source })?;
        match index.sync(listed, fetch) {
            Err(IndexError::Local { .. }) if index.is_damaged() => {
                index.reset().map_err(|source| index.local(source))?;
                index.synced.rebuilt = true;
                index.sync(listed, fetch)?;
            }
            other => other?,
        }
        Ok(index)
    }

    /// What is in the directory, whatever is listed.
    fn open_local(files: Files<'_>) -> io::Result<Self> {
        let workshop = |home| Workshop { home, damaged: Arc::default() };
        let dir = match files {
            Files::Kept(dir) => dir,
            Files::Passing(dir) => return Ok(Self::empty(workshop(Home::Nameless(dir.to_owned())), None)),
            Files::Held => return Ok(Self::empty(workshop(Home::Memory), None)),
        };
        let home = Home::directory(dir)?;
        let lock = Lock::try_take(dir)?;
        let mut index = match lock {
            Some(lock) => Self::empty(workshop(home.clone()), Some((dir.to_owned(), lock))),
            None => Self::empty(workshop(Home::Nameless(dir.to_owned())), None),
        };
        let read_only = index.writable.is_none();
        match index.load(dir, &home) {
            Ok(()) => {}
            // The other one may have replaced the tables after we read of them.
            Err(_) if read_only && index.load(dir, &home).is_ok() => {}
            Err(_) => {
                index.reset()?;
                index.synced.rebuilt = true;
            }
        }
        index.synced.read_only = read_only;
        Ok(index)
    }

    fn load(&mut self, dir: &Path, home: &Home) -> io::Result<()> {
        let state = State::read(dir)?.unwrap_or_default();
        if self.writable.is_some() {
            state::sweep(dir, &state)?;
        }
        let open = |table| Table::open(home, table, &self.workshop.damaged).map(Arc::new);
        let tables = state.tables.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        self.delta = super::delta::Delta::new(tables.last().map_or(0, |table| table.numbers().end));
        self.tables = tables;
        let merged = |segment: state::SegmentState| {
            (segment.id, Merged { bags: segment.bags, entries: segment.entries })
        };
        self.segments = state.segments.into_iter().map(merged).collect();
        Ok(())
    }

    fn sync(&mut self, listed: &[ListedSegment], fetch: &mut FetchSegment<'_>) -> Result<(), IndexError> {
        let names: BTreeSet<SegmentId> = listed.iter().map(|segment| segment.id).collect();
        let added: Vec<ListedSegment> =
            listed.iter().filter(|segment| !self.segments.contains_key(&segment.id)).copied().collect();
        // First what is new, then what is gone: a merged segment names the bags of those it was made from.
        self.revive();
        if !added.is_empty() {
            self.add_segments(&added, fetch)?;
        }
        let before = self.segments.len();
        self.segments.retain(|id, _| names.contains(id));
        self.synced.removed = before - self.segments.len();
        self.changed |= self.synced.removed > 0;
        self.revive();
        self.compact().and_then(|()| self.store()).map_err(|source| self.local(source))
    }

    /// Takes for alive what segments name.
    fn revive(&mut self) {
        self.alive = Bits::default();
        for merged in self.segments.values() {
            merged.bags.ranges().for_each(|range| self.alive.insert(range));
        }
    }

    /// Streams segments through a sort into a new table.
    fn add_segments(
        &mut self,
        added: &[ListedSegment],
        fetch: &mut FetchSegment<'_>,
    ) -> Result<(), IndexError> {
        let first = self.delta.first_bag();
        let mut table = TableWriter::new(&self.workshop.home, &self.workshop.damaged, first)
            .map_err(|source| self.local(source))?;
        let mut sorter = Sorter::new(self.workshop.home.clone());
        let mut answers = Answers { waiting: VecDeque::new(), later: added.iter(), in_flight: 0 };
        while let Some((segment, answer)) = answers.next(fetch) {
            let contents = answer().map_err(|source| IndexError::Fetch { segment: segment.id, source })?;
            let Some(contents) = contents else {
                self.synced.vanished += 1;
                continue;
            };
            let merged = self.add_segment(&contents, &mut table, &mut sorter);
            match merged.map_err(|source| self.local(source))? {
                Ok(merged) => {
                    self.synced.added += 1;
                    self.segments.insert(segment.id, merged);
                }
                Err(error) => self.synced.unreadable.push((segment.id, error)),
            }
        }
        let made = (|| {
            let end = table.end_bag();
            let table = table.finish(sorter.entries(), sorter.finish()?)?;
            for segment in added.iter().filter_map(|segment| self.segments.get(&segment.id)) {
                segment.bags.ranges().for_each(|range| self.alive.insert(range));
            }
            self.delta = super::delta::Delta::new(end);
            self.changed = true;
            self.append(table)
        })();
        made.map_err(|source: io::Error| self.local(source))
    }

    fn add_segment(
        &self,
        contents: &[u8],
        table: &mut TableWriter,
        sorter: &mut Sorter,
    ) -> io::Result<Result<Merged, SegmentError>> {
        let bags = match format::bags(contents) {
            Ok(bags) => bags,
            Err(error) => return Ok(Err(error)),
        };
        let mut merged = Merged::default();
        for bag in bags {
            let bag = match bag {
                Ok(bag) => bag,
                // What came before is in the table now, but no segment names it: dead.
                Err(error) => return Ok(Err(error)),
            };
            merged.entries = merged.entries.saturating_add(entries_of(&bag));
            if let Some(known) = self.number_of(&bag.entry().bag, &Bits::default()) {
                merged.bags.push(known);
                continue;
            }
            let number = table.add_bag(bag.entry())?;
            merged.bags.push(number);
            let own = Fingerprint::of_bag(&bag.entry().bag);
            for fingerprint in bag.fingerprints().iter().chain([&own]) {
                sorter.push(Entry { fingerprint: fingerprint.0, bag: number })?;
            }
        }
        Ok(Ok(merged))
    }

    /// Drops the bags that no segment names any more, when a quarter of all entries is theirs.
    fn compact(&mut self) -> io::Result<()> {
        let living: u64 = self.segments.values().map(|merged| merged.entries).sum();
        let dead = self.stored().saturating_sub(living);
        if dead < FEW || dead < self.stored() / 4 {
            return Ok(());
        }
        let ranks = Ranks::of(self.alive.clone());
        let table = self.workshop.compact(&self.tables, &ranks)?;
        self.alive = Bits::default();
        self.alive.insert(table.numbers());
        for merged in self.segments.values_mut() {
            merged.bags = merged.bags.renumbered(&ranks);
        }
        self.delta = super::delta::Delta::new(table.numbers().end);
        self.tables = vec![Arc::new(table)];
        self.changed = true;
        Ok(())
    }
}

/// Segments asked for, a bounded number of bytes at a time.
struct Answers<'a> {
    waiting: VecDeque<(ListedSegment, Waiting<Vec<u8>>)>,
    later: std::slice::Iter<'a, ListedSegment>,
    in_flight: u64,
}

impl Answers<'_> {
    /// The next segment, and how to wait for it.
    fn next(&mut self, fetch: &mut FetchSegment<'_>) -> Option<(ListedSegment, Waiting<Vec<u8>>)> {
        while let Some(segment) = self.later.as_slice().first() {
            if !self.waiting.is_empty() && self.in_flight.saturating_add(segment.size) > IN_FLIGHT {
                break;
            }
            self.in_flight = self.in_flight.saturating_add(segment.size);
            self.waiting.push_back((*segment, fetch(segment.id)));
            self.later.next();
        }
        let next = self.waiting.pop_front()?;
        self.in_flight = self.in_flight.saturating_sub(next.0.size);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::testing::{Remote, bag, knows, knows_none, numbered, object};
    use super::*;

    /// Three segments of a bag each, of a thousand objects; the index of them stored in a directory.
    fn remote(dir: &Path) -> Remote {
        let mut remote = Remote::default();
        for number in 0..3 {
            remote.put(&[bag(number, numbered(number * 1000..number * 1000 + 1000))]);
        }
        assert_whole(&remote.open(Some(dir)).unwrap());
        remote.fetched.clear();
        remote
    }

    fn assert_whole(index: &Index) {
        for number in 0..3 {
            assert!(knows(index, &bag(number, vec![]), number * 1000..number * 1000 + 1000), "{number}");
        }
        assert!(knows_none(index, 3000..6000));
    }

    fn files(dir: &Path) -> Vec<PathBuf> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn a_second_opening_fetches_nothing_and_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = remote(dir.path());
        let before: Vec<_> = files(dir.path());
        let index = remote.open(Some(dir.path())).unwrap();
        assert_whole(&index);
        assert!(remote.fetched.is_empty());
        assert_eq!(index.synced().added + index.synced().removed, 0);
        assert_eq!(files(dir.path()), before);
        assert_eq!(before.len(), 5, "state, lock, and one table");
    }

    #[test]
    fn a_new_segment_alone_is_fetched() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = remote(dir.path());
        let new = remote.put(&[bag(7, numbered(7000..7010))]);
        let index = remote.open(Some(dir.path())).unwrap();
        assert_eq!(remote.fetched, [new]);
        assert!(knows(&index, &bag(7, vec![]), 7000..7010));
        assert_whole(&index);
    }

    #[test]
    fn what_was_published_need_not_be_fetched_and_the_rest_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = remote(dir.path());
        let mut index = remote.open(Some(dir.path())).unwrap();
        let (published, lost) = (bag(7, numbered(7000..7010)), bag(8, numbered(8000..8010)));
        index.insert(&published).unwrap();
        index.insert(&lost).unwrap();
        index.published(remote.put(std::slice::from_ref(&published)), [&published]);
        index.flush().unwrap();
        assert!(knows(&index, &lost, 8000..8010), "a checkpoint forgets nothing");
        drop(index);
        let index = remote.open(Some(dir.path())).unwrap();
        assert!(remote.fetched.is_empty());
        assert!(knows(&index, &published, 7000..7010));
        assert!(knows_none(&index, 8000..8010));
        drop(index);
        // The bag was published after all.
        remote.put(std::slice::from_ref(&lost));
        assert!(knows(&remote.open(Some(dir.path())).unwrap(), &lost, 8000..8010));
    }

    #[test]
    fn merging_moves_bags_and_collecting_removes_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = remote(dir.path());
        remote.merge(|_| true);
        let index = remote.open(Some(dir.path())).unwrap();
        assert_whole(&index);
        assert_eq!((index.synced().added, index.synced().removed, index.stored()), (1, 3, 3003));
        drop(index);
        let gone = bag(1, vec![]).entry().bag;
        remote.merge(|bag| *bag != gone);
        let index = remote.open(Some(dir.path())).unwrap();
        assert!(knows_none(&index, 1000..2000));
        assert!(knows(&index, &bag(2, vec![]), 2000..3000));
    }

    #[test]
    fn many_dead_bags_are_dropped_from_the_tables() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = Remote::default();
        let dying = remote.put(&[bag(0, numbered(0..30_000))]);
        remote.put(&[bag(1, numbered(30_000..60_000)), bag(2, numbered(60_000..61_000))]);
        assert_eq!(remote.open(Some(dir.path())).unwrap().stored(), 61_003);
        remote.remove(dying);
        for _ in 0..2 {
            let index = remote.open(Some(dir.path())).unwrap();
            assert_eq!(index.stored(), 31_002);
            assert!(knows_none(&index, 0..30_000));
            assert!(knows(&index, &bag(1, vec![]), 30_000..60_000));
            assert!(knows(&index, &bag(2, vec![]), 60_000..61_000));
        }
    }

    #[test]
    fn segments_that_vanish_or_are_damaged_do_not_stop_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = remote(dir.path());
        let mut listed = remote.listed();
        listed.push(ListedSegment { id: SegmentId::random(), size: 10 });
        let damaged = remote.put_bytes(vec![1, 2, 3]);
        listed.push(ListedSegment { id: damaged, size: 3 });
        let index = remote.open_as(Some(dir.path()), &listed).unwrap();
        assert_eq!(index.synced().vanished, 1);
        assert_eq!(index.synced().unreadable[0].0, damaged);
        assert_whole(&index);
    }

    #[test]
    fn a_failure_to_fetch_is_told_and_harms_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = remote(dir.path());
        let new = ListedSegment { id: SegmentId::random(), size: 10 };
        let failed =
            Index::open(Files::Kept(dir.path()), &[new], &mut |_| Box::new(|| Err("no route".into())));
        assert!(matches!(failed, Err(IndexError::Fetch { segment, .. }) if segment == new.id));
        assert_whole(&remote.open(Some(dir.path())).unwrap());
        assert!(remote.fetched.is_empty());
        assert_eq!(files(dir.path()).len(), 5);
    }

    #[test]
    fn no_more_is_asked_for_than_fits() {
        let mut left: Vec<ListedSegment> = vec![];
        for size in [IN_FLIGHT / 2, IN_FLIGHT / 2, 1, IN_FLIGHT * 2, 1] {
            left.push(ListedSegment { id: SegmentId::random(), size });
        }
        let mut answers = Answers { waiting: VecDeque::new(), later: left.iter(), in_flight: 0 };
        let mut counts = vec![];
        let mut asked = 0;
        while answers
            .next(&mut |_| {
                asked += 1;
                Box::new(|| Ok(None))
            })
            .is_some()
        {
            counts.push(answers.waiting.len());
        }
        assert_eq!(counts, [1, 1, 0, 0, 0]);
        assert_eq!(asked, 5);
    }

    #[derive(Debug, Clone, Copy)]
    enum Damage {
        Delete,
        Empty,
        Cut,
        Flip(usize),
    }

    /// Every kind of file, every kind of damage: the next index is whole, without a word from the caller.
    #[test]
    fn damaged_files_are_noticed_and_made_again() {
        let names = |dir: &Path| {
            let mut names: Vec<_> = files(dir).into_iter().filter(|path| !path.ends_with("lock")).collect();
            names.sort_by_key(|path| path.extension().map(ToOwned::to_owned));
            names
        };
        for file in 0..4 {
            for damage in [
                Damage::Delete,
                Damage::Empty,
                Damage::Cut,
                Damage::Flip(0),
                Damage::Flip(1),
                Damage::Flip(2),
            ] {
                let dir = tempfile::tempdir().unwrap();
                let mut remote = remote(dir.path());
                let path = names(dir.path()).swap_remove(file);
                let mut bytes = fs::read(&path).unwrap();
                match damage {
                    Damage::Delete => fs::remove_file(&path).unwrap(),
                    Damage::Empty => fs::write(&path, []).unwrap(),
                    Damage::Cut => fs::write(&path, &bytes[..bytes.len() - 1]).unwrap(),
                    Damage::Flip(where_) => {
                        let at = (bytes.len() - 1) * where_ / 2;
                        bytes[at] ^= 0x10;
                        fs::write(&path, &bytes).unwrap();
                    }
                }
                let context = format!("{damage:?} {}", path.display());
                let mut index = remote.open(Some(dir.path())).unwrap();
                if !index.synced().rebuilt && !remote.fetched.is_empty() {
                    assert!(matches!(damage, Damage::Delete) && path.ends_with("state"), "{context}");
                }
                if remote.fetched.is_empty() {
                    // A flip in a block is met by who looks there; the next one starts anew.
                    assert!(matches!(damage, Damage::Flip(_)), "{context}");
                    for number in 0..3000 {
                        let _ = index.candidates(&object(number));
                    }
                    assert!(index.is_damaged(), "{context}");
                    assert!(knows_none(&index, 3000..6000), "{context}");
                    index.flush().unwrap();
                    drop(index);
                    index = remote.open(Some(dir.path())).unwrap();
                }
                assert_whole(&index);
                assert_eq!(remote.fetched.len(), 3, "{context}");
                drop(index);
                assert_whole(&remote.open(Some(dir.path())).unwrap());
                assert_eq!((remote.fetched.len(), files(dir.path()).len()), (3, 5), "{context}");
            }
        }
    }

    #[test]
    fn damage_met_while_folding_starts_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = remote(dir.path());
        let path = files(dir.path()).into_iter().find(|path| path.extension().is_some_and(|e| e == "shards"));
        let mut bytes = fs::read(path.as_ref().unwrap()).unwrap();
        bytes[100] ^= 1;
        fs::write(path.unwrap(), bytes).unwrap();
        remote.put(&[bag(7, numbered(7000..8000))]);
        let index = remote.open(Some(dir.path())).unwrap();
        assert!(index.synced().rebuilt && !index.is_damaged());
        assert_whole(&index);
        assert!(knows(&index, &bag(7, vec![]), 7000..8000));
    }

    /// An older copy of the whole directory is as good as any: only what it lacks is fetched.
    #[test]
    fn an_old_copy_is_brought_up_to_date() {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut remote = remote(dir.path());
        for file in files(dir.path()) {
            fs::copy(&file, copy.path().join(file.file_name().unwrap())).unwrap();
        }
        let new = remote.put(&[bag(7, numbered(7000..8000))]);
        drop(remote.open(Some(dir.path())).unwrap());
        // And a state that is older than the tables beside it.
        fs::copy(copy.path().join("state"), dir.path().join("state")).unwrap();
        for dir in [copy.path(), dir.path()] {
            let index = remote.open(Some(dir)).unwrap();
            assert_whole(&index);
            assert!(knows(&index, &bag(7, vec![]), 7000..8000));
        }
        assert_eq!(remote.fetched[..2], [new, new]);
    }

    #[test]
    fn a_second_process_reads_and_keeps_what_it_adds_to_itself() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = remote(dir.path());
        let mut first = remote.open(Some(dir.path())).unwrap();
        let (one, two) = (bag(7, numbered(7000..7500)), bag(8, numbered(8000..8500)));
        let late = remote.put(&[bag(9, numbered(9000..9500))]);
        let mut second = remote.open(Some(dir.path())).unwrap();
        assert!(second.synced().read_only && !first.synced().read_only);
        assert_eq!(remote.fetched, [late]);
        second.insert(&two).unwrap();
        second.published(remote.put(std::slice::from_ref(&two)), [&two]);
        first.insert(&one).unwrap();
        first.published(remote.put(std::slice::from_ref(&one)), [&one]);
        first.flush().unwrap();
        second.flush().unwrap();
        for index in [&first, &second] {
            assert_whole(index);
        }
        assert!(knows(&second, &two, 8000..8500) && knows(&second, &bag(9, vec![]), 9000..9500));
        drop((first, second));
        let index = remote.open(Some(dir.path())).unwrap();
        assert_eq!(index.synced().added, 2, "what the second one saw and made");
        assert!(knows(&index, &one, 7000..7500) && knows(&index, &two, 8000..8500));
    }

    #[test]
    fn one_that_is_not_kept_lies_in_files_without_names() {
        let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let remote = remote(kept.path());
        let fetch = |id: SegmentId| -> Waiting<Vec<u8>> {
            let bytes = remote.segments.get(&id).cloned();
            Box::new(move || Ok(bytes))
        };
        let mut index = Index::open(Files::Passing(dir.path()), &remote.listed(), &mut { fetch }).unwrap();
        let more = bag(7, numbered(100_000..200_000));
        index.insert(&more).unwrap();
        index.insert(&bag(8, numbered(8000..8010))).unwrap();
        index.flush().unwrap();
        assert_whole(&index);
        assert!(knows(&index, &more, 100_000..200_000));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let is_ours =
            |line: &&str| line.contains(dir.path().to_str().unwrap()) && line.ends_with("(deleted)");
        assert!(maps.lines().filter(is_ours).count() >= 3, "a table is three files:\n{maps}");
    }

    /// A process that is killed between two flushes leaves files behind; the next one removes them.
    #[test]
    fn what_a_killed_process_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut remote = remote(dir.path());
        for name in ["0123456789abcdef.shards", "0123456789abcdef.tmp", "state.0.tmp"] {
            fs::write(dir.path().join(name), "left").unwrap();
        }
        assert_whole(&remote.open(Some(dir.path())).unwrap());
        assert_eq!(files(dir.path()).len(), 5);
    }
}
