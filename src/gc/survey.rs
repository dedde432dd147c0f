//! What is read of the repository before anything is decided.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::GcError;
use super::known::Known;
use super::listing::{Below, Held, Top};
use super::plan::{Facts, Plan};
use super::segments::{Asked, Read};
use crate::bag::moved::Moves;
use crate::bag::moved::follow::{self, Record};
use crate::bag::reader::BagReader;
use crate::base::id::{BagId, ClientId, CollectionId, GenerationId};
use crate::condemned::{CondemnedError, Sentence, reading};
use crate::monitor::{Monitor, Problem, Severity};
use crate::repo::Repository;
use crate::store::{Name, layout};

/// What there is.
pub struct Survey {
    /// The top of the repository.
    pub top: Top,
    /// Bags and generations.
    pub below: Below,
    /// What is condemned.
    pub sentences: Vec<Sentence>,
    /// Lists that nobody can read.
    pub damaged: Vec<CollectionId>,
    /// What was moved, by record.
    pub records: Vec<Record>,
    /// The same.
    pub moves: Moves,
    /// The index.
    pub segments: Vec<Read>,
}

/// Reads all of it, and into `known` what generations need. Those that are listed already (`own`) need two flights beside the others, the rest two more; fewer with a warm cache.
///
/// # Errors
/// When the store fails, or it cannot be told what a generation needs.
pub fn read(
    repository: &Repository,
    reader: &BagReader,
    monitor: &dyn Monitor,
    known: &mut Known<'_>,
    (mut top, own): (Top, Vec<(ClientId, GenerationId)>),
) -> Result<Survey, GcError> {
    let (store, cached, sealing) = (&**repository.store(), repository.cached(), repository.sealing());
    let asked = top.ask_below(store);
    let lists = reading::ask(cached, &sealing, &top.condemned);
    let segments = Asked::ask(repository, &top.segments);
    known.learn(&own.into_iter().collect())?;
    let records = loop {
        let read = follow::read(&**cached, &sealing, &top.moved)?;
        if read.iter().all(Option::is_some) {
            break read.into_iter().flatten().collect::<Vec<_>>();
        }
        // One was folded into another meanwhile, which may not be listed; but what is needed must be known.
        top.moved = follow::ids(&store.list(&layout::directory("moved")).wait()?);
    };
    let moves: Moves = records.iter().flat_map(|record| record.moves.iter().copied()).collect();
    reader.know_moves(Arc::new(moves.clone()));
    let (mut sentences, mut damaged) = (Vec::new(), Vec::new());
    for answer in lists.wait_each() {
        match answer {
            Ok(sentence) => sentences.extend(sentence),
            Err(CondemnedError::Damaged { id, name, reason }) => {
                let text = format!("{reason}; it is removed as soon as nobody else is writing");
                monitor.problem(Problem::new(Severity::Note, name.as_str().as_bytes(), text));
                damaged.push(id);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let below = asked.wait()?;
    let segments = segments.wait(repository, monitor)?;
    monitor.phase("reading what generations need");
    known.learn(&below.generations)?;
    Ok(Survey { top, below, sentences, damaged, records, moves, segments })
}

impl Survey {
    /// Whether a bag may belong to one of these sessions, which has not published it yet.
    pub fn is_young(&self, bag: BagId, others: &[Held]) -> bool {
        let oldest = others.iter().map(|held| held.since).min();
        let modified = self.below.bags.get(&bag).map(|file| file.modified);
        oldest.is_some_and(|oldest| modified.is_none_or(|modified| modified >= oldest))
    }

    /// Takes in what was moved just now.
    pub fn moved(&mut self, records: Vec<Record>, replaced: &[CollectionId]) {
        self.records.retain(|record| !replaced.contains(&record.id));
        self.records.extend(records);
        self.moves = self.records.iter().flat_map(|record| record.moves.iter().copied()).collect();
    }

    /// What is to be condemned, beside these other sessions.
    pub fn plan(&self, known: &Known<'_>, others: &[Held]) -> Plan {
        let indexed: HashSet<BagId> =
            self.segments.iter().flat_map(|segment| segment.bags.iter().map(|entry| entry.bag)).collect();
        let facts = Facts {
            bags: &self.below.bags,
            union: &known.union,
            moves: &self.moves,
            records: &self.records,
            sentences: &self.sentences,
            indexed: &indexed,
            oldest: others.iter().map(|held| held.since).min(),
        };
        facts.plan()
    }

    /// What dead uploads have left, with the bytes of each: nobody who is writing began before it was written.
    pub fn remains(&self, others: &[Held]) -> Vec<(Name, u64)> {
        let oldest = others.iter().map(|held| held.since).min();
        let is_dead = |modified: i64| oldest.is_none_or(|oldest| modified < oldest);
        let parts = self.below.parts.iter().filter(|(_, file)| is_dead(file.modified));
        let mut all: Vec<_> = parts.map(|(name, file)| (name.clone(), file.size)).collect();
        // A listing is no snapshot: while somebody else collects, what he says of a list may be seen and the list be missed.
        let alone = self.top.condemned.stray.iter().chain(&self.top.cut_off).filter(|_| others.is_empty());
        all.extend(self.top.sessions.stray.iter().chain(alone).map(|name| (name.clone(), 0)));
        all
    }

    /// Records of moves that nobody needs when these dead bags are gone.
    pub fn needless<'a>(&'a self, dead: &'a BTreeSet<BagId>) -> impl Iterator<Item = CollectionId> + 'a {
        let is_needless = |record: &&Record| record.moves.iter().all(|one| dead.contains(&one.from.bag));
        self.records.iter().filter(is_needless).map(|record| record.id)
    }
}

/// The ids of generations that are known.
pub fn ids(known: &Known<'_>) -> BTreeSet<GenerationId> {
    known.generations.iter().map(|(_, id)| *id).collect()
}
