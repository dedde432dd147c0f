//! The tables of bags asked for lately: they decide what an index only proposes.

use std::collections::{HashMap, HashSet};

use lru::LruCache;

use super::{BagEntry, BagNumber, FetchError, Index, Waiting};
use crate::base::id::{BagId, ObjectId};
use crate::entry::{Place, Reference};

/// Asks for the objects of a bag, from the bag's own table; called for several before the first answer is waited for.
pub type FetchTable<'a> = dyn FnMut(&BagEntry) -> Waiting<Vec<Reference>> + 'a;

/// Tables of bags within a budget of bytes, the least recently used going first. They belong to one index, by whose numbers they
/// are kept.
#[derive(Debug)]
pub struct BagTables {
    tables: LruCache<BagNumber, Table>,
    /// Who had the object found last: most likely the next one's bag as well.
    last: Option<BagNumber>,
    budget: usize,
    held: usize,
}

impl BagTables {
    /// Keeps tables that take `budget` bytes of memory together.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self { tables: LruCache::unbounded(), last: None, budget, held: 0 }
    }

    /// Where these objects lie, for those that are in a bag which `index` proposes: one answer for each, in order.
    ///
    /// What lies in the same bag as the object before is found without asking the index. Tables that are not at hand are all asked
    /// for before the first is waited for: one round trip for a batch. A bag that is not
    /// there has no objects. What was asked for twice in a row is at hand, if it fits the budget.
    ///
    /// # Errors
    /// The first failure of `fetch`; what had been answered before is kept.
    pub fn locate(
        &mut self,
        index: &Index,
        ids: &[ObjectId],
        fetch: &mut FetchTable<'_>,
    ) -> Result<Vec<Option<Reference>>, FetchError> {
        let mut answers = vec![None; ids.len()];
        let mut open: HashMap<BagId, Vec<usize>> = HashMap::new();
        let mut missing: Vec<(BagNumber, BagEntry)> = vec![];
        for (at, (id, answer)) in ids.iter().zip(&mut answers).enumerate() {
            let last = self.last.filter(|&last| index.may_propose(last));
            if let Some(found) = last.and_then(|last| self.tables.get(&last)?.find(id)) {
                *answer = Some(found);
                continue;
            }
            let mut unread = vec![];
            index.propose(id, |number| match self.tables.get(&number) {
                Some(table) if answer.is_none() => {
                    *answer = table.find(id);
                    self.last = answer.map_or(self.last, |_| Some(number));
                }
                Some(_) => {}
                None => unread.push(number),
            });
            if answer.is_none() {
                for (number, bag) in
                    unread.into_iter().filter_map(|number| Some((number, index.bag(number)?)))
                {
                    let questions = open.entry(bag.bag).or_insert_with(|| {
                        missing.push((number, bag));
                        vec![]
                    });
                    // A bag may have two numbers.
                    if questions.last() != Some(&at) {
                        questions.push(at);
                    }
                }
            }
        }
        let waiting: Vec<(BagNumber, BagId, Waiting<Vec<Reference>>)> =
            missing.into_iter().map(|(number, bag)| (number, bag.bag, fetch(&bag))).collect();
        for (number, bag, answer) in waiting {
            // A bag that is not there is remembered as one without objects, or it would be asked for again and again.
            let table = Table::new(bag, answer()?.unwrap_or_default());
            for &at in open.get(&bag).into_iter().flatten() {
                if let (Some(answer @ None), Some(id)) = (answers.get_mut(at), ids.get(at)) {
                    *answer = table.find(id);
                    self.last = answer.map_or(self.last, |_| Some(number));
                }
            }
            self.keep(number, table);
        }
        Ok(answers)
    }

    /// Forgets bags that are gone or condemned.
    pub fn forget(&mut self, bags: &HashSet<BagId>) {
        let gone: Vec<BagNumber> = self
            .tables
            .iter()
            .filter(|(_, table)| bags.contains(&table.bag))
            .map(|(&number, _)| number)
            .collect();
        for number in gone {
            if let Some(table) = self.tables.pop(&number) {
                self.held = self.held.saturating_sub(table.bytes());
            }
        }
    }

    fn keep(&mut self, bag: BagNumber, table: Table) {
        self.held = self.held.saturating_add(table.bytes());
        if let Some(old) = self.tables.put(bag, table) {
            self.held = self.held.saturating_sub(old.bytes());
        }
        while self.held > self.budget {
            let Some((_, old)) = self.tables.pop_lru() else { break };
            self.held = self.held.saturating_sub(old.bytes());
        }
    }
}

/// The objects of one bag, by id.
#[derive(Debug)]
struct Table {
    bag: BagId,
    objects: Box<[Object]>,
}

#[derive(Debug)]
struct Object {
    id: ObjectId,
    offset: u64,
    stored: u32,
    start: u32,
    len: u32,
}

impl Table {
    fn new(bag: BagId, objects: Vec<Reference>) -> Self {
        let mut objects: Box<[Object]> = objects
            .into_iter()
            .map(|Reference { id, place: Place { bag: _, offset, stored, start, len } }| Object {
                id,
                offset,
                stored,
                start,
                len,
            })
            .collect();
        objects.sort_unstable_by_key(|object| object.id);
        Self { bag, objects }
    }

    fn find(&self, id: &ObjectId) -> Option<Reference> {
        let at = self.objects.binary_search_by_key(id, |object| object.id).ok()?;
        let &Object { id, offset, stored, start, len } = self.objects.get(at)?;
        Some(Reference { id, place: Place { bag: self.bag, offset, stored, start, len } })
    }

    /// Memory that it takes, with its place in the list.
    fn bytes(&self) -> usize {
        size_of_val(&*self.objects).saturating_add(128)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Files;
    use super::super::testing::{bag, numbered, object};
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    fn reference(entry: &BagEntry, number: u64) -> Reference {
        let place = Place { bag: entry.bag, offset: number, stored: 10, start: 0, len: 5 };
        Reference { id: object(number), place }
    }

    /// Bags 0 to 9 with a hundred objects each.
    fn index() -> Index {
        let mut index = Index::open(Files::Held, &[], &mut |_| unreachable!()).unwrap();
        for number in 0..10 {
            index.insert(&bag(number, numbered(number * 100..number * 100 + 100))).unwrap();
        }
        index
    }

    fn locate(tables: &mut BagTables, index: &Index, numbers: &[u64]) -> (Vec<Option<Reference>>, usize) {
        let asked = Cell::new(0);
        let answered = Rc::new(Cell::new(0));
        let ids: Vec<ObjectId> = numbers.iter().map(|&number| object(number)).collect();
        let answers = tables.locate(index, &ids, &mut |entry| {
            assert_eq!(answered.get(), 0, "asked after the first answer was waited for");
            asked.set(asked.get() + 1);
            let answered = Rc::clone(&answered);
            let number = entry.size - 1000;
            let all = (number * 100..number * 100 + 100).map(|number| reference(entry, number)).collect();
            Box::new(move || {
                answered.set(answered.get() + 1);
                Ok((number != 9).then_some(all))
            })
        });
        assert_eq!(asked.get(), answered.get());
        (answers.unwrap(), asked.get())
    }

    #[test]
    fn a_bag_is_asked_for_once_for_all_its_objects() {
        let index = index();
        let mut tables = BagTables::new(1 << 20);
        let (answers, asked) = locate(&mut tables, &index, &[5, 123, 17, 99_999, 950, 123]);
        let expected = [Some(5), Some(123), Some(17), None, None, Some(123)];
        assert_eq!(
            answers.iter().map(|answer| answer.map(|found| found.place.offset)).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(answers[1], Some(reference(bag(1, vec![]).entry(), 123)));
        assert_eq!(asked, 3);
        assert_eq!(locate(&mut tables, &index, &[99, 100, 901]).1, 0);
        tables.forget(&HashSet::from([bag(1, vec![]).entry().bag]));
        assert_eq!(locate(&mut tables, &index, &[99, 100, 901]).1, 1);
    }

    #[test]
    fn a_bag_that_is_excluded_is_not_found_by_its_table_at_hand() {
        let mut index = index();
        let mut tables = BagTables::new(1 << 20);
        assert!(locate(&mut tables, &index, &[5]).0[0].is_some());
        assert!(locate(&mut tables, &index, &[6]).0[0].is_some());
        index.exclude(&HashSet::from([bag(0, vec![]).entry().bag]));
        assert_eq!(locate(&mut tables, &index, &[7]), (vec![None], 0));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let index = index();
        let mut tables = BagTables::new(2 * (100 * size_of::<Object>() + 128));
        for (number, asked) in [(0, 1), (100, 1), (0, 0), (200, 1), (0, 0), (100, 1)] {
            assert_eq!(locate(&mut tables, &index, &[number]).1, asked, "{number}");
        }
        assert!(tables.held <= tables.budget);
    }

    #[test]
    fn a_fingerprint_alone_is_not_believed() {
        let mut index = index();
        index.insert(&bag(20, numbered(5000..5001))).unwrap();
        let answers =
            BagTables::new(0).locate(&index, &[object(5000)], &mut |_| Box::new(|| Ok(Some(vec![]))));
        assert_eq!(answers.unwrap(), [None]);
        let failure =
            BagTables::new(0).locate(&index, &[object(5000)], &mut |_| Box::new(|| Err("gone".into())));
        assert_eq!(failure.unwrap_err().to_string(), "gone");
    }
}
