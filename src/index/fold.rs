//! Makes one table of several, and of what a run has added.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::delta::Delta;
use super::home::Home;
use super::numbers::{Bits, Ranks};
use super::shard::Entry;
use super::sorter::{Source, Union};
use super::table::{Table, TableWriter};
use crate::base::cancel::Cancel;

/// A table is rewritten when as much as a tenth of it was added behind it.
const TENTH: u64 = 10;

/// How many of the newest of these tables (given by their entries, oldest first) to fold together with `added` new entries.
///
/// Each table left behind is more than ten times all that follow, so there are at most log10(n) of them, and an
/// entry is rewritten at most ten times for each.
pub(super) fn how_many(tables: &[u64], added: u64) -> usize {
    let mut together = added;
    let mut count = 0;
    for &entries in tables.iter().rev() {
        if entries > together.saturating_mul(TENTH) {
            break;
        }
        together = together.saturating_add(entries);
        count += 1;
    }
    count
}

/// Where tables are made, and how it is told that one is damaged.
#[derive(Debug, Clone)]
pub(super) struct Workshop {
    pub(super) home: Home,
    pub(super) damaged: Arc<AtomicBool>,
}

impl Workshop {
    /// Folds neighbouring tables and what was added after them into one. Bags keep their numbers; entries of bags that are not
    /// in `alive` are left out.
    pub(super) fn fold(
        &self,
        tables: &[Arc<Table>],
        delta: Option<&Delta>,
        alive: &Bits,
        stop: &Cancel,
    ) -> io::Result<Table> {
        let first = tables.first().map(|table| table.numbers().start);
        let first = first.or(delta.map(Delta::first_bag)).unwrap_or(0);
        let mut writer = TableWriter::new(&self.home, &self.damaged, first)?;
        for table in tables {
            for number in table.numbers() {
                writer.add_bag(&table.bag(number).ok_or_else(damaged)?)?;
            }
        }
        for bag in delta.map(Delta::bags).unwrap_or_default() {
            writer.add_bag(bag)?;
        }
        let mut most = tables.iter().map(|table| table.entries()).sum::<u64>();
        let mut sources: Vec<Source<'_>> =
            tables.iter().map(|table| Box::new(table.iter()) as Source<'_>).collect();
        if let Some(delta) = delta {
            most = most.saturating_add(u64::try_from(delta.len()).unwrap_or(u64::MAX));
            sources.push(Box::new(delta.sorted().into_iter().map(Ok)));
        }
        let mut left = 0_u32;
        let entries = Union::of(sources)?.filter(|entry| kept(entry, alive)).map(move |entry| {
            left = left.wrapping_add(1);
            if left.is_multiple_of(1 << 14) && stop.is_cancelled() {
                return Err(io::Error::other("the index was closed"));
            }
            entry
        });
        writer.finish(most, entries)
    }

    /// Makes all tables one without the bags that are not in `alive`; those that stay are numbered anew, by `ranks`.
    pub(super) fn compact(&self, tables: &[Arc<Table>], ranks: &Ranks) -> io::Result<Table> {
        let mut writer = TableWriter::new(&self.home, &self.damaged, 0)?;
        for table in tables {
            for number in table.numbers().filter(|&number| ranks.rank(number).is_some()) {
                writer.add_bag(&table.bag(number).ok_or_else(damaged)?)?;
            }
        }
        let most = tables.iter().map(|table| table.entries()).sum();
        let sources = tables.iter().map(|table| Box::new(table.iter()) as Source<'_>).collect();
        let entries = Union::of(sources)?.filter_map(|entry| match entry {
            Ok(Entry { fingerprint, bag }) => ranks.rank(bag).map(|bag| Ok(Entry { fingerprint, bag })),
            Err(error) => Some(Err(error)),
        });
        writer.finish(most, entries)
    }
}

fn kept(entry: &io::Result<Entry>, alive: &Bits) -> bool {
    entry.as_ref().map_or(true, |entry| alive.contains(entry.bag))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a file of the local index is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_folded_in() {
        assert_eq!(how_many(&[], 5), 0);
        assert_eq!(how_many(&[1000], 99), 0);
        assert_eq!(how_many(&[1000], 100), 1);
        assert_eq!(how_many(&[1000, 50], 50), 2);
        assert_eq!(how_many(&[1_000_000, 1000, 50], 50), 2);
    }

    #[test]
    fn nights_of_any_size_leave_few_tables_and_little_writing() {
        for night in [1, 100, 5000] {
            let mut tables = vec![1_000_000];
            let (mut written, mut added, mut most) = (0, 0, 0);
            for _ in 0..1000 {
                let folded = tables.split_off(tables.len() - how_many(&tables, night));
                tables.push(night + folded.iter().sum::<u64>());
                added += night;
                written += tables.last().unwrap();
                most = most.max(tables.len());
            }
            assert!(most <= 7, "{most} tables");
            assert!(written < added * 40, "{} times", written / added);
        }
    }
}
