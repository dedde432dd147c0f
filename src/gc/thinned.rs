//! Looking references through, one by one.

use std::collections::HashSet;

use super::GcError;
use super::known::Known;
use super::verdict;
use crate::bag::moved::Moves;
use crate::bag::source::Source;
use crate::base::id::{BagId, GenerationId};
use crate::condemned::Sentence;
use crate::monitor::{Monitor, Problem, Severity};
use crate::reach::{Reached, references};
use crate::store::layout;

/// The thinned bags of a list to which one of its waits refers where nothing was copied. A generation whose tree cannot be read counts as one that refers to all.
///
/// # Errors
/// When a record cannot be read.
pub fn unmoved(
    sentence: &Sentence,
    known: &Known<'_>,
    moves: &Moves,
    source: &Source,
    monitor: &dyn Monitor,
) -> Result<HashSet<BagId>, GcError> {
    let thinned = &sentence.list.thinned;
    let ids: Vec<GenerationId> = known.generations.iter().map(|(_, id)| *id).collect();
    let mut unmoved = HashSet::new();
    let mut reached = Reached::default();
    for id in verdict::suspects(sentence, ids.into_iter()) {
        for generation in known.generation(id)? {
            let walked = references(source, &generation, &mut reached, &mut |_, reference| {
                let place = &reference.place;
                if thinned.contains(&place.bag) && moves.resolve(place).is_none() {
                    unmoved.insert(place.bag);
                }
            });
            if let Err(error) = walked {
                let text = format!(
                    "what generation {id} of client {} needs cannot be told, so {} bags stay that could go ({error})",
                    generation.client,
                    thinned.len()
                );
                let name = layout::condemned(sentence.id);
                monitor.problem(Problem::new(Severity::Note, name.as_str().as_bytes(), text));
                unmoved.extend(thinned);
            }
        }
    }
    Ok(unmoved)
}
