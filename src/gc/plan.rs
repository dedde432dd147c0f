//! What is to be condemned: a pure decision.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::listing::BagFile;
use crate::bag::moved::Moves;
use crate::bag::moved::follow::Record;
use crate::base::id::{BagId, CollectionId};
use crate::condemned::Sentence;
use crate::reach::Union;

/// What was read.
pub struct Facts<'a> {
    /// The bags that are there.
    pub bags: &'a BTreeMap<BagId, BagFile>,
    /// What generations name.
    pub union: &'a Union,
    /// What was moved.
    pub moves: &'a Moves,
    /// The same by record.
    pub records: &'a [Record],
    /// What is condemned already.
    pub sentences: &'a [Sentence],
    /// Bags that segments name.
    pub indexed: &'a HashSet<BagId>,
    /// When the other session that has been there longest began, by the server's clock; `None` when there is none.
    pub oldest: Option<i64>,
}

/// What is to be condemned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The bags that no generation needs; see [`crate::condemned::List::dead`].
    pub dead: BTreeSet<BagId>,
    /// Records of moves that nobody needs once these are gone.
    pub records: Vec<CollectionId>,
}

/// The bags that generations need: those that they name, and those that what they name was moved to.
pub fn is_needed<'a>(union: &'a Union, moves: &Moves) -> impl Fn(BagId) -> bool + use<'a> {
    let sources = moves.sources().filter(|bag| union.names(*bag));
    let targets: HashSet<BagId> = sources.flat_map(|bag| moves.targets(bag)).collect();
    move |bag| union.names(bag) || targets.contains(&bag)
}

impl Facts<'_> {
    /// What is to be condemned now.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let is_needed = is_needed(self.union, self.moves);
        let is_condemned = |bag: BagId| self.sentences.iter().any(|sentence| sentence.forbids(bag));
        let is_garbage = |bag: BagId, file: &BagFile| {
            !is_needed(bag) && !is_condemned(bag) && !self.may_be_under_way(bag, file)
        };
        let garbage = self.bags.iter().filter(|(bag, file)| is_garbage(**bag, file));
        let mut dead: BTreeSet<BagId> = garbage.map(|(bag, _)| *bag).collect();
        let is_dead = |dead: &BTreeSet<BagId>, bag: BagId| {
            dead.contains(&bag) || (!self.bags.contains_key(&bag) && !is_needed(bag) && !is_condemned(bag))
        };
        let mut records = Vec::new();
        for record in self.records {
            let sources: BTreeSet<BagId> = record.moves.iter().map(|one| one.from.bag).collect();
            if sources.iter().all(|bag| is_dead(&dead, *bag)) {
                records.push(record.id);
                dead.extend(sources);
            }
        }
        // Whoever refers to a bag refers to what was moved from it. So those go together with what they were moved to, though they may be gone themselves.
        for source in self.moves.sources() {
            if self.moves.targets(source).iter().any(|target| dead.contains(target)) {
                dead.insert(source);
            }
        }
        Plan { dead, records }
    }

    /// Whether a bag may belong to a session that has not come to name it yet. It would do no harm to condemn it: it would be let off. But whoever is writing for days
    /// could not refer to what he has stored.
    fn may_be_under_way(&self, bag: BagId, file: &BagFile) -> bool {
        !self.indexed.contains(&bag) && self.oldest.is_some_and(|oldest| file.modified >= oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bag::BagKind;
    use crate::bag::moved::Move;
    use crate::base::id::ObjectId;
    use crate::condemned::{Doomed, List};
    use crate::entry::{Place, Reference};
    use crate::generation::format::encode_bucket;
    use crate::generation::{BagListRef, BagUse};

    fn bag(number: u8) -> BagId {
        BagId([number; 16])
    }

    fn place(number: u8) -> Place {
        Place { bag: bag(number), offset: 32, stored: 50, start: 0, len: 5 }
    }

    fn union(named: &[u8]) -> Union {
        let mut union = Union::default();
        // The bucket lies in bag 99.
        let reference = Reference { id: ObjectId([1; 32]), place: place(99) };
        let buckets = union.wanted(&BagListRef { bits: 0, buckets: vec![reference] });
        let uses: Vec<_> = named
            .iter()
            .map(|number| BagUse { bag: bag(*number), kind: BagKind::Data, objects: 1, bytes: 5 })
            .collect();
        union.add(&[(buckets[0], &encode_bucket(&uses))]).unwrap();
        union
    }

    fn plan(named: &[u8], there: &[u8], moved: &[(u8, u8)], sentences: &[Sentence]) -> Plan {
        let records: Vec<_> = moved
            .iter()
            .zip(1..)
            .map(|((from, to), id)| Record {
                id: CollectionId([id; 16]),
                moves: vec![Move { from: place(*from), to: place(*to) }],
            })
            .collect();
        let moves = records.iter().flat_map(|record| record.moves.clone()).collect();
        let bags = there.iter().map(|number| (bag(*number), BagFile { size: 10, modified: 100 })).collect();
        let (union, indexed) = (union(named), there.iter().map(|number| bag(*number)).collect());
        let facts = Facts {
            bags: &bags,
            union: &union,
            moves: &moves,
            records: &records,
            sentences,
            indexed: &indexed,
            oldest: None,
        };
        facts.plan()
    }

    fn dead(plan: &Plan) -> Vec<u8> {
        plan.dead.iter().map(|bag| bag.0[0]).collect()
    }

    #[test]
    fn what_nobody_names_is_dead() {
        assert_eq!(dead(&plan(&[1, 2], &[1, 2, 3, 99], &[], &[])), [3]);
        assert_eq!(dead(&plan(&[1, 2], &[1, 2, 99], &[], &[])), Vec::<u8>::new());
    }

    #[test]
    fn what_was_moved_is_needed_where_it_is_now() {
        // 1 was emptied into 2, that into 3; 4 into 5, which nobody needs.
        let found = plan(&[1], &[2, 3, 5, 99], &[(1, 2), (2, 3), (4, 5)], &[]);
        assert_eq!(dead(&found), [4, 5]);
        assert_eq!(found.records, [CollectionId([3; 16])]);
    }

    #[test]
    fn a_record_alone_is_dead_when_nobody_names_its_sources() {
        let found = plan(&[2], &[2, 99], &[(1, 2)], &[]);
        assert_eq!((dead(&found), found.records.len()), (vec![1], 1));
    }

    #[test]
    fn nothing_is_condemned_twice() {
        let list = List { dead: [bag(3), bag(4)].into(), ..List::default() };
        let mut sentence = Sentence { id: CollectionId([9; 16]), list, waits: None, doomed: None };
        assert_eq!(dead(&plan(&[1], &[1, 3, 4, 5, 99], &[], std::slice::from_ref(&sentence))), [5]);
        sentence.doomed = Some(Doomed { bags: [bag(3)].into() });
        assert_eq!(dead(&plan(&[1], &[1, 3, 4, 5, 99], &[], &[sentence])), [4, 5], "what was let off");
    }

    #[test]
    fn what_a_session_may_be_storing_is_left_alone() {
        let bags = [(bag(1), 99), (bag(2), 100), (bag(3), 100)]
            .map(|(bag, modified)| (bag, BagFile { size: 10, modified }))
            .into();
        let (union, indexed) = (union(&[]), [bag(3)].into());
        let facts = Facts {
            bags: &bags,
            union: &union,
            moves: &Moves::default(),
            records: &[],
            sentences: &[],
            indexed: &indexed,
            oldest: Some(100),
        };
        assert_eq!(dead(&facts.plan()), [1, 3]);
    }
}
