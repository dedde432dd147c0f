//! Which bags of a list are removed: a pure decision, made once.

use std::collections::HashSet;

use super::listing::Held;
use super::plan;
use crate::bag::moved::Moves;
use crate::base::id::{BagId, GenerationId};
use crate::condemned::{Doomed, List, Sentence};
use crate::reach::Union;

/// Whether it is time: who may still refer to the bags of the list is known, and none of them is writing any more. `sessions` were listed before the generations were that
/// the verdict is made by.
#[must_use]
pub fn is_ripe(sentence: &Sentence, sessions: &[Held]) -> bool {
    let Some(waits) = &sentence.waits else { return false };
    sentence.doomed.is_none() && !sessions.iter().any(|held| waits.names(held.id))
}

/// What is removed of a list: all but what generations need after all. `union` is what they name now, `unmoved` those thinned bags to which one of the list's waits refers where nothing was copied.
#[must_use]
pub fn doomed(list: &List, union: &Union, moves: &Moves, unmoved: &HashSet<BagId>) -> Doomed {
    let is_needed = plan::is_needed(union, moves);
    let dead = list.dead.iter().filter(|bag| !is_needed(**bag));
    let thinned = list.thinned.iter().filter(|bag| !unmoved.contains(bag));
    Doomed { bags: dead.chain(&list.emptied).chain(thinned).copied().collect() }
}

/// The generations whose references must be looked at one by one before thinned bags are doomed.
#[must_use]
pub fn suspects(sentence: &Sentence, generations: impl Iterator<Item = GenerationId>) -> Vec<GenerationId> {
    if sentence.list.thinned.is_empty() {
        return Vec::new();
    }
    generations.filter(|id| sentence.suspects(*id)).collect()
}
