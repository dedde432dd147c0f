//! Which objects of some bags generations refer to.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::bag::moved::Moves;
use crate::bag::source::Source;
use crate::base::id::BagId;
use crate::gc::GcError;
use crate::gc::known::Known;
use crate::monitor::{Monitor, Problem, Severity};
use crate::reach::{Reached, references};

/// What is referred to in some bags.
#[derive(Default)]
pub struct Live {
    objects: HashMap<BagId, HashSet<(u64, u32)>>,
    unknown: BTreeSet<BagId>,
}

impl Live {
    /// Whether the object at this place is referred to.
    pub fn is_live(&self, bag: BagId, offset: u64, start: u32) -> bool {
        self.objects.get(&bag).is_some_and(|objects| objects.contains(&(offset, start)))
    }

    /// Whether it cannot be told what is referred to in a bag.
    pub fn is_unknown(&self, bag: BagId) -> bool {
        self.unknown.contains(&bag)
    }
}

/// Walks all generations that are known.
///
/// # Errors
/// When a record cannot be read. A tree that cannot be read makes the bags unknown.
pub fn find(
    source: &Source,
    known: &Known<'_>,
    bags: &BTreeSet<BagId>,
    moves: &Moves,
    monitor: &dyn Monitor,
) -> Result<Live, GcError> {
    let mut live = Live::default();
    let mut reached = Reached::default();
    for (_, id) in &known.generations {
        for generation in known.generation(*id)? {
            let walked = references(source, &generation, &mut reached, &mut |_, reference| {
                let place = moves.resolve(&reference.place).unwrap_or(reference.place);
                if bags.contains(&place.bag) {
                    live.objects.entry(place.bag).or_default().insert((place.offset, place.start));
                }
            });
            if let Err(error) = walked {
                let text = format!(
                    "bags that are mostly dead are not repacked: a generation cannot be read ({error})"
                );
                monitor.problem(Problem::new(Severity::Note, b"", text));
                live.unknown.extend(bags);
                return Ok(live);
            }
        }
    }
    Ok(live)
}
