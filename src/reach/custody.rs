//! What garbage collection has condemned, and what may therefore not be referred to.
//!
//! A bag that is condemned when the session begins is never referred to afresh: the index does not propose it. What is taken over from a generation that is still
//! there needs no look as a rule. Only a generation that came into the world around the time when a list was made may itself have references
//! which that list does not know of; while they are not known to be let off, they must not be inherited.

use std::collections::HashSet;

use crate::bag::source::Source;
use crate::base::id::{BagId, GenerationId};
use crate::condemned::Sentence;
use crate::generation::baglist::BagListError;
use crate::generation::{Generation, baglist};
use crate::monitor::{Monitor, Problem, Severity};
use crate::store::StoreError;

use super::{Reached, references};

/// Why it cannot be told what may be referred to.
#[derive(Debug, thiserror::Error)]
pub enum CustodyError {
    /// The store is out of reach.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A bag list cannot be read.
    #[error(transparent)]
    BagList(#[from] BagListError),
}

/// The lists that were there when the session began.
#[derive(Debug, Default)]
pub struct Custody(pub Vec<Sentence>);

impl Custody {
    /// The bags that must not be referred to afresh.
    #[must_use]
    pub fn forbidden(&self) -> HashSet<BagId> {
        self.0.iter().flat_map(Sentence::forbidden).collect()
    }

    /// Those of the generations whose references may be taken over.
    ///
    /// # Errors
    /// When the store is out of reach.
    pub fn clean(
        &self,
        source: &Source,
        former: Vec<Generation>,
        monitor: &dyn Monitor,
    ) -> Result<Vec<Generation>, CustodyError> {
        let mut clean = Vec::new();
        for generation in former {
            if self.lets_pass(source, &generation)? {
                clean.push(generation);
                continue;
            }
            let text = format!(
                "generation {} refers to what garbage collection has condemned meanwhile, so it is not built upon",
                generation.id
            );
            monitor.problem(Problem::new(Severity::Note, b"", text));
        }
        Ok(clean)
    }

    fn lets_pass(&self, source: &Source, generation: &Generation) -> Result<bool, CustodyError> {
        let suspicious = self.0.iter().filter(|sentence| sentence.suspects(generation.id));
        let mut thinned = HashSet::new();
        for sentence in suspicious {
            let Ok(names) = names(source, generation) else { return Ok(false) };
            if names.iter().any(|bag| sentence.list.dead.contains(bag)) {
                return Ok(false);
            }
            thinned.extend(names.into_iter().filter(|bag| sentence.list.thinned.contains(bag)));
        }
        if thinned.is_empty() {
            return Ok(true);
        }
        let moves = source.reader().load_moves()?;
        let mut is_clean = true;
        let walked = references(source, generation, &mut Reached::default(), &mut |_, reference| {
            let place = &reference.place;
            is_clean &= !thinned.contains(&place.bag) || moves.resolve(place).is_some();
        });
        Ok(is_clean && walked.is_ok())
    }

    /// Whether what is held in memory may still be published by a session that begins now: references that were made afresh into these bags, and others that were taken over from
    /// these generations. `listed` is what is there of the latter.
    ///
    /// # Errors
    /// When a bag list cannot be read.
    pub fn holds_good(
        &self,
        source: &Source,
        fresh: &HashSet<BagId>,
        compared: &[&Generation],
        listed: &[GenerationId],
    ) -> Result<bool, CustodyError> {
        for sentence in &self.0 {
            let list = &sentence.list;
            // What was copied as a whole is good for ever.
            let is_condemned = |bag: &BagId| {
                sentence.forbids(*bag) && (list.dead.contains(bag) || list.thinned.contains(bag))
            };
            if fresh.iter().any(is_condemned) {
                return Ok(false);
            }
            for generation in compared {
                let is_clean = listed.contains(&generation.id) && !sentence.suspects(generation.id);
                if !is_clean && names(source, generation)?.iter().any(is_condemned) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// The bags that a generation names.
fn names(source: &Source, generation: &Generation) -> Result<HashSet<BagId>, CustodyError> {
    let list = &generation.bag_list;
    Ok(baglist::read(source, list)?.iter().map(|uses| uses.bag).chain(list.own_bags()).collect())
}
