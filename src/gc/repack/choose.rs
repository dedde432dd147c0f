//! Which bags to repack: a pure decision.

use std::collections::{BTreeSet, HashMap};

use crate::bag::BagKind;
use crate::base::id::BagId;
use crate::gc::survey::Survey;
use crate::reach::Union;

/// When it pays to copy bags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of bags that are copied at most; 0 to repack nothing.
    pub most: u64,
    /// A bag below this many bytes is small.
    pub small: u64,
    /// As many small bags of one kind are too many.
    pub many: usize,
    /// Bytes that must be dead in bags that are mostly dead before trees are walked for them.
    pub waste: u64,
}

impl Default for Limits {
    /// At most 1 GiB in one run; bags below 4 MiB are small and 48 of a kind too many; 64 MiB of waste are worth a walk.
    fn default() -> Self {
        Self { most: 1 << 30, small: 4 << 20, many: 48, waste: 64 << 20 }
    }
}

/// The bags to copy, those of one kind together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Small bags, to be copied as a whole.
    pub small: Vec<(BagKind, BagId)>,
    /// Larger ones of which less than half is needed, by what the bag lists say.
    pub sparse: BTreeSet<BagId>,
}

struct Candidate {
    bag: BagId,
    kind: BagKind,
    size: u64,
    is_source: bool,
    needed: Option<u64>,
}

/// Chooses. Only bags come into question that an index segment describes, that somebody needs, that are not condemned, and that are not so `young` that whoever stores
/// them may still be at it.
pub fn choose(survey: &Survey, union: &Union, limits: &Limits, is_young: &dyn Fn(BagId) -> bool) -> Chosen {
    if limits.most == 0 {
        return Chosen::default();
    }
    let targets: BTreeSet<BagId> = survey
        .moves
        .sources()
        .filter(|bag| union.names(*bag))
        .flat_map(|bag| survey.moves.targets(bag))
        .collect();
    let mut candidates: HashMap<BagId, Candidate> = HashMap::new();
    for entry in survey.segments.iter().flat_map(|segment| &segment.bags) {
        let bag = entry.bag;
        let needed = union.need(bag);
        let is_there = survey.below.bags.contains_key(&bag) && !is_young(bag);
        let is_condemned = survey.sentences.iter().any(|sentence| sentence.list.names(bag));
        if is_there && !is_condemned && (needed.is_some() || targets.contains(&bag)) {
            let is_source = survey.moves.is_source(bag);
            let needed = needed.filter(|_| !targets.contains(&bag));
            candidates.insert(bag, Candidate { bag, kind: entry.kind, size: entry.size, is_source, needed });
        }
    }
    let mut chosen = Chosen::default();
    let mut left = limits.most;
    for kind in [BagKind::Data, BagKind::Tree] {
        let small = candidates.values().filter(|one| one.kind == kind && one.size < limits.small);
        let mut small: Vec<_> = small.map(|one| (one.size, one.bag)).collect();
        small.sort_unstable();
        for (size, bag) in few_enough(&small, limits.many) {
            left = left.saturating_sub(size);
            if left == 0 {
                break;
            }
            chosen.small.push((kind, bag));
        }
    }
    // The bag lists say how much of it the generation refers to that refers to most: all of them together need that much at least, so this is the most that can be dead.
    let sparse = candidates.values().filter(|one| {
        one.size >= limits.small && !one.is_source && one.needed.is_some_and(|bytes| bytes < one.size / 2)
    });
    let mut sparse: Vec<_> =
        sparse.map(|one| (one.size.saturating_sub(one.needed.unwrap_or(0)), one.size, one.bag)).collect();
    let waste = sparse.iter().map(|(waste, ..)| *waste).fold(0, u64::saturating_add);
    if waste >= limits.waste {
        sparse.sort_unstable_by(|one, other| other.cmp(one));
        for (_, size, bag) in sparse {
            left = left.saturating_sub(size);
            if left == 0 {
                break;
            }
            chosen.sparse.insert(bag);
        }
    }
    chosen
}

/// Of small bags, ascending, those to be put together when there are too many: as many as are above half of what is too many, and then each that is not larger than
/// all before it together. So what is copied about doubles each time, and nothing is copied often.
fn few_enough(small: &[(u64, BagId)], many: usize) -> Vec<(u64, BagId)> {
    if small.len() < many {
        return Vec::new();
    }
    let surplus = small.len().saturating_sub(many / 2);
    let mut together = 0u64;
    let mut chosen = Vec::new();
    for (at, (size, bag)) in small.iter().enumerate() {
        if at >= surplus && *size > together {
            break;
        }
        together = together.saturating_add(*size);
        chosen.push((*size, *bag));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_ones_are_put_together_and_large_ones_stay() {
        let bag = |number: u8| BagId([number; 16]);
        let mut small: Vec<_> = (0..15).map(|number| (1000, bag(number))).collect();
        small.push((500_000, bag(99)));
        assert_eq!(few_enough(&small[..15], 16), []);
        assert_eq!(few_enough(&small, 16), small[..15]);
    }

    #[test]
    fn nothing_is_copied_often() {
        // A bag of a kilobyte every night for ten years.
        let mut small: Vec<(u64, BagId)> = Vec::new();
        let (mut copied, mut most) = (0, 0);
        for night in 0..3650u64 {
            small.push((1000 + night % 7, BagId::random()));
            small.sort_unstable();
            let chosen = few_enough(&small, 16);
            if !chosen.is_empty() {
                let sum = chosen.iter().map(|(size, _)| size).sum();
                copied += sum;
                small.retain(|one| !chosen.contains(one));
                small.push((sum, BagId::random()));
            }
            most = most.max(small.len());
        }
        assert!(most <= 16, "{most}");
        assert!(copied < 3650 * 1000 * 10, "copied {} times", copied / 3_650_000);
    }
}
