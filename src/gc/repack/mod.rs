//! Emptying bags into others: small ones, so that many nights do not leave many files, and those that are mostly dead.
//!
//! Small bags are copied as a whole: whatever anybody refers to in them was moved then. Of those that are mostly dead only that is copied which a generation
//! refers to, which takes walking all trees; so it is done only when it is worth that. What was moved is published before the old bags are condemned, and the records of moves into
//! bags that are emptied themselves are written anew, so that nobody has to follow more than one move.

pub mod choose;
mod copy;
mod live;

use std::collections::{BTreeMap, BTreeSet};

use super::GcError;
use super::known::Known;
use super::survey::Survey;
use crate::bag::moved::Move;
use crate::bag::moved::format::MOST_MOVES;
use crate::bag::reader::BagReader;
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::id::{BagId, CollectionId};
use crate::index::SegmentBag;
use crate::monitor::{Monitor, Problem, Severity};
use crate::repo::Repository;
use crate::store::ErrorKind;

pub use choose::Limits;

/// Bytes of opened blocks kept while trees are walked.
const OPENED: usize = 24 << 20;

/// What was copied, and nobody knows of yet.
#[derive(Default)]
pub struct Repacked {
    /// Bags all of whose objects were copied.
    pub emptied: BTreeSet<BagId>,
    /// Bags of which was copied what generations refer to.
    pub thinned: BTreeSet<BagId>,
    /// The new bags.
    pub bags: Vec<SegmentBag>,
    /// Records to be published: moves out of these bags, and those of older records that lead into them.
    pub records: Vec<Vec<Move>>,
    /// The older records, which these replace.
    pub replaced: Vec<CollectionId>,
}

impl Repacked {
    /// Whether nothing is to be given up.
    pub fn is_empty(&self) -> bool {
        self.emptied.is_empty() && self.thinned.is_empty()
    }
}

/// Chooses bags and copies them. That there is no room for copies is no failure.
///
/// # Errors
/// When the store fails otherwise, or a generation cannot be read.
pub fn run(
    (repository, reader): (&Repository, &BagReader),
    (known, survey): (&Known<'_>, &Survey),
    limits: &Limits,
    is_young: &dyn Fn(BagId) -> bool,
    (monitor, cancel): (&dyn Monitor, &Cancel),
) -> Result<Repacked, GcError> {
    let mut chosen = choose::choose(survey, &known.union, limits, is_young);
    if chosen.small.is_empty() && chosen.sparse.is_empty() {
        return Ok(Repacked::default());
    }
    let entries: BTreeMap<BagId, _> =
        survey.segments.iter().flat_map(|segment| &segment.bags).map(|entry| (entry.bag, *entry)).collect();
    let mut live = live::Live::default();
    if !chosen.sparse.is_empty() {
        monitor.phase("looking for what is still needed");
        let source = Source::new(reader.clone(), OPENED);
        live = live::find(&source, known, &chosen.sparse, &survey.moves, monitor)?;
        chosen.sparse.retain(|bag| !live.is_unknown(*bag));
    }
    if cancel.is_cancelled() {
        return Err(GcError::Interrupted);
    }
    monitor.phase("repacking");
    let copier = copy::Copier { repository, reader, entries: &entries, moves: &survey.moves };
    let copied = match copier.copy(&chosen, &live) {
        Ok(copied) => copied,
        Err(error) if error.kind == ErrorKind::NoSpace => {
            let text = format!("there is no room to repack bags ({})", error.detail);
            monitor.problem(Problem::new(Severity::Note, b"", text));
            return Ok(Repacked::default());
        }
        Err(error) => return Err(error.into()),
    };
    for (bag, reason) in &copied.damaged {
        let text = format!("it cannot be repacked: {reason}; run `kitbag fsck --read-data`");
        let name = crate::store::layout::bag(*bag);
        monitor.problem(Problem::new(Severity::Damage, name.as_str().as_bytes(), text));
    }
    Ok(fold(copied, survey))
}

/// Brings old records that lead into bags that are given up to where the objects are now.
fn fold(copied: copy::Copied, survey: &Survey) -> Repacked {
    let copy::Copied { emptied, thinned, bags, moves, damaged: _ } = copied;
    let given_up = |bag: &BagId| emptied.contains(bag) || thinned.contains(bag);
    let new: crate::bag::moved::Moves = moves.iter().copied().collect();
    let (mut all, mut replaced) = (moves, Vec::new());
    for record in &survey.records {
        if record.moves.iter().any(|one| given_up(&one.to.bag)) {
            replaced.push(record.id);
            let folded = record.moves.iter().map(|one| {
                let to = new.resolve(&one.to).unwrap_or(one.to);
                Move { from: one.from, to }
            });
            all.extend(folded);
        }
    }
    all.sort_unstable();
    all.dedup();
    let records = all.chunks(MOST_MOVES).map(<[Move]>::to_vec).collect();
    Repacked { emptied, thinned, bags, records, replaced }
}
