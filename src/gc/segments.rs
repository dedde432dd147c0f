//! Keeping the index segments few, and without bags that are gone.
//!
//! A segment that names a bag which is gone does no harm: whoever means to refer to an object of it asks the bag itself first. It costs that question, and its place in everybody's index.
//! So segments are written again when that is cheap, or when much of them is dead.

use std::collections::{BTreeMap, HashSet};

use crate::base::id::{BagId, SegmentId};
use crate::crypto::Kind;
use crate::index::format::{self, MAX_SEGMENT};
use crate::index::{BagEntry, ListedSegment, SegmentError, merge};
use crate::monitor::{Monitor, Problem, Severity};
use crate::repo::Repository;
use crate::sealed;
use crate::store::{ErrorKind, Pending, StoreError, layout};

/// A segment of at most this many bytes is written again for a single bag.
const CHEAP: u64 = 1 << 20;

/// Bytes that segments made from several have at most.
const LONGEST: u64 = 16 << 20;

/// Bytes of segments that are kept for being written again; beyond that they are read twice.
const KEPT: u64 = 64 << 20;

/// A segment that was read.
pub struct Read {
    /// As it is listed.
    pub listed: ListedSegment,
    /// The bags that it names.
    pub bags: Vec<BagEntry>,
    plaintext: Option<Vec<u8>>,
}

/// Segments that become one, without some of their bags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Those that it is made from, which go.
    pub old: Vec<SegmentId>,
    /// Whether anything is left.
    pub is_left: bool,
}

/// Segments asked for.
pub struct Asked(Vec<(ListedSegment, Pending<Vec<u8>>)>);

impl Asked {
    /// Asks for all of these.
    pub fn ask(repository: &Repository, listed: &[ListedSegment]) -> Self {
        let limit = u64::try_from(MAX_SEGMENT).unwrap_or(u64::MAX);
        let read = |one: &ListedSegment| repository.cached().read_all(&layout::segment(one.id), limit);
        Self(listed.iter().map(|one| (*one, read(one))).collect())
    }

    /// Which bags each names. Those that are gone are left out; those that are damaged are told and left alone.
    ///
    /// # Errors
    /// What the store says.
    pub fn wait(self, repository: &Repository, monitor: &dyn Monitor) -> Result<Vec<Read>, StoreError> {
        let mut kept = 0u64;
        let mut all = Vec::new();
        for (listed, answer) in self.0 {
            let opened = match answer.wait() {
                Ok(bytes) => open(repository, listed.id, bytes),
                Err(error) if error.kind == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let named = opened.and_then(|plaintext| {
                let bags = names(&plaintext).map_err(|error| error.to_string())?;
                Ok((plaintext, bags))
            });
            match named {
                Ok((plaintext, bags)) => {
                    kept = kept.saturating_add(u64::try_from(plaintext.len()).unwrap_or(u64::MAX));
                    let plaintext = (kept <= KEPT).then_some(plaintext);
                    all.push(Read { listed, bags, plaintext });
                }
                Err(reason) => {
                    let name = layout::segment(listed.id);
                    let text = format!("{reason}; run `kitbag fsck --rebuild-index`");
                    monitor.problem(Problem::new(Severity::Damage, name.as_str().as_bytes(), text));
                }
            }
        }
        Ok(all)
    }
}

fn open(repository: &Repository, id: SegmentId, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let name = layout::segment(id);
    let decode =
        |bytes| sealed::decode(repository.keys(), repository.id(), Kind::Segment, &name, bytes, MAX_SEGMENT);
    decode(bytes).or_else(|error| {
        // Should a copy in the local cache be what is damaged, the store has a better one.
        repository.cached().forget(&name);
        let limit = u64::try_from(MAX_SEGMENT).unwrap_or(u64::MAX);
        let again = repository.cached().read_all(&name, limit).wait();
        again
            .map_err(|_again| error.to_string())
            .and_then(|bytes| decode(bytes).map_err(|error| error.to_string()))
    })
}

fn names(plaintext: &[u8]) -> Result<Vec<BagEntry>, SegmentError> {
    format::bags(plaintext)?.map(|bag| bag.map(|bag| *bag.entry())).collect()
}

/// Which segments to write again when these bags are gone.
#[must_use]
pub fn plan(segments: &[Read], is_gone: impl Fn(BagId) -> bool) -> Vec<Group> {
    let merged: HashSet<SegmentId> =
        merge::which(&segments.iter().map(|one| one.listed).collect::<Vec<_>>()).into_iter().collect();
    let mut groups = Vec::new();
    let mut together: Vec<&Read> = Vec::new();
    for one in segments {
        let gone = one.bags.iter().filter(|bag| is_gone(bag.bag)).count();
        let is_cheap = one.listed.size <= CHEAP && gone > 0;
        if merged.contains(&one.listed.id) || is_cheap {
            together.push(one);
        } else if gone > 0 && gone >= one.bags.len() / 4 {
            groups.push(vec![one]);
        }
    }
    together.sort_by_key(|one| (one.listed.size, one.listed.id));
    let (mut open, mut bytes) = (Vec::new(), 0u64);
    for one in together {
        if !open.is_empty() && bytes.saturating_add(one.listed.size) > LONGEST {
            groups.push(std::mem::take(&mut open));
            bytes = 0;
        }
        bytes = bytes.saturating_add(one.listed.size);
        open.push(one);
    }
    groups.push(open);
    let group = |some: Vec<&Read>| Group {
        is_left: some.iter().any(|one| one.bags.iter().any(|bag| !is_gone(bag.bag))),
        old: some.iter().map(|one| one.listed.id).collect(),
    };
    groups.into_iter().filter(|some| !some.is_empty()).map(group).collect()
}

/// The plaintext of what a group becomes; `None` when one of its segments cannot be had any more.
///
/// # Errors
/// What the store says.
pub fn write(
    repository: &Repository,
    segments: &[Read],
    group: &Group,
    is_gone: impl Fn(BagId) -> bool,
) -> Result<Option<Vec<u8>>, StoreError> {
    let by_id: BTreeMap<SegmentId, &Read> = segments.iter().map(|one| (one.listed.id, one)).collect();
    let limit = u64::try_from(MAX_SEGMENT).unwrap_or(u64::MAX);
    let asked: Vec<_> = group
        .old
        .iter()
        .map(|id| match by_id.get(id).and_then(|one| one.plaintext.as_ref()) {
            Some(plaintext) => (*id, Ok(plaintext.clone())),
            None => (*id, Err(repository.cached().read_all(&layout::segment(*id), limit))),
        })
        .collect();
    let mut parts = Vec::new();
    for (id, part) in asked {
        parts.push(match part {
            Ok(plaintext) => plaintext,
            Err(asked) => match asked.wait() {
                Ok(bytes) => match open(repository, id, bytes) {
                    Ok(plaintext) => plaintext,
                    Err(_) => return Ok(None),
                },
                Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            },
        });
    }
    Ok(format::merge(parts.iter().map(Vec::as_slice), |bag| !is_gone(*bag)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u8, size: u64, bags: &[u8]) -> Read {
        let listed = ListedSegment { id: SegmentId([number; 16]), size };
        let entry = |bag: &u8| BagEntry {
            bag: BagId([*bag; 16]),
            kind: crate::bag::BagKind::Data,
            size: 100,
            table_offset: 50,
            table_len: 10,
        };
        Read { listed, bags: bags.iter().map(entry).collect(), plaintext: None }
    }

    fn planned(segments: &[Read], gone: &[u8]) -> Vec<(Vec<u8>, bool)> {
        let groups = plan(segments, |bag| gone.contains(&bag.0[0]));
        let short = |group: Group| (group.old.iter().map(|id| id.0[0]).collect(), group.is_left);
        groups.into_iter().map(short).collect()
    }

    #[test]
    fn few_segments_without_dead_bags_stay() {
        assert!(planned(&[segment(1, 100, &[1]), segment(2, 100, &[2])], &[]).is_empty());
    }

    #[test]
    fn small_ones_are_written_again_for_a_single_bag_and_large_ones_for_a_quarter() {
        let all = [
            segment(1, 100, &[1, 2]),
            segment(2, 100, &[3]),
            segment(3, 2 << 20, &[4, 5, 6, 7]),
            segment(4, 2 << 20, &[8, 9, 10, 11, 12, 13, 14, 15]),
        ];
        assert_eq!(planned(&all, &[1, 4, 8]), [(vec![3], true), (vec![1], true)]);
        assert_eq!(planned(&all, &[1, 2, 3]), [(vec![1, 2], false)]);
    }

    #[test]
    fn many_are_merged() {
        let all: Vec<_> = (0..20).map(|number| segment(number, 1000, &[number])).collect();
        let groups = planned(&all, &[]);
        assert_eq!(groups.len(), 1);
        assert!(groups[0].0.len() > 8 && groups[0].1);
    }
}
