//! The steps of a collection, in their order.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::known::Known;
use super::listing::{Catalogues, First, Held, Second, Sessions, Top, clients, sessions};
use super::publish::{Drafts, Published};
use super::repack::{self, Repacked};
use super::survey::{self, Survey, ids};
use super::sweep::Sweep;
use super::{GcError, Options, Summary, thinned, verdict};
use crate::bag::moved::follow;
use crate::bag::reader::BagReader;
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::id::{BagId, ClientId, CollectionId, GenerationId};
use crate::condemned::{List, Sentence, Waits};
use crate::generation::{Catalog, Session, Started, leases};
use crate::monitor::{Monitor, Problem, Severity};
use crate::repo::Repository;
use crate::store::{ErrorKind, Store, StoreError, layout};

/// Bytes of opened blocks kept while trees are walked.
const OPENED: usize = 24 << 20;

/// A collection under way.
pub struct Collector<'a> {
    repository: &'a Repository,
    options: &'a Options,
    monitor: &'a dyn Monitor,
    cancel: &'a Cancel,
    reader: BagReader,
}

impl<'a> Collector<'a> {
    /// Nothing is asked yet.
    pub fn new(
        repository: &'a Repository,
        options: &'a Options,
        monitor: &'a dyn Monitor,
        cancel: &'a Cancel,
    ) -> Self {
        Self { repository, options, monitor, cancel, reader: repository.bags() }
    }

    fn store(&self) -> &'a dyn Store {
        &**self.repository.store()
    }

    fn check(&self) -> Result<(), GcError> {
        if self.cancel.is_cancelled() { Err(GcError::Interrupted) } else { Ok(()) }
    }

    /// Collects.
    pub fn run(&self) -> Result<Summary, GcError> {
        self.monitor.phase("listing");
        let mut known = Known::new(self.repository, &self.reader);
        if self.options.dry_run {
            let list = |name: &str| self.store().list(&layout::directory(name));
            let first = First { condemned: list("condemned"), index: list("index") };
            let top = Second::ask(self.store()).wait(first)?;
            self.repository.confirm()?;
            return self.look(&mut known, top);
        }
        let client = self.repository.keys().names().client_id(self.options.client.as_bytes());
        let begun = Session::begin(self.repository.cached(), &self.repository.sealing(), client);
        let Started { mut session, condemned, index, generations } = begun;
        let second = Second::ask(self.store());
        let top = second.wait(First { condemned, index })?;
        self.repository.confirm()?;
        session.created()?;
        let own: Vec<_> = Catalog::ids(&generations.wait()?).into_iter().map(|id| (client, id)).collect();
        let mut summary = Summary::default();
        let others = self.others(&session, &top.sessions, &mut summary)?;
        self.check()?;
        let mut drafts = Drafts::new(self.repository, &session, self.monitor);
        if others.is_empty() {
            drafts.prepare();
        }
        let survey = survey::read(self.repository, &self.reader, self.monitor, &mut known, (top, own))?;
        count(&known, &survey, &others, &mut summary);
        self.check()?;
        self.collect((&session, drafts), &mut known, survey, &others, summary)
    }

    /// What would be done.
    fn look(&self, known: &mut Known<'_>, top: Top) -> Result<Summary, GcError> {
        let others = top.sessions.held.clone();
        let survey = survey::read(self.repository, &self.reader, self.monitor, known, (top, Vec::new()))?;
        let mut summary = Summary::default();
        count(known, &survey, &others, &mut summary);
        let plan = survey.plan(known, &others);
        let condemned = survey.sentences.iter().flat_map(Sentence::forbidden);
        let all: BTreeSet<BagId> = plan.dead.into_iter().chain(condemned).collect();
        let amount = if others.is_empty() { &mut summary.removed } else { &mut summary.waiting };
        all.iter().filter_map(|bag| survey.below.bags.get(bag)).for_each(|bag| amount.add(bag.size));
        survey.remains(&others).iter().for_each(|(_, bytes)| summary.remains.add(*bytes));
        let is_young = |bag| survey.is_young(bag, &others);
        let chosen = repack::choose::choose(&survey, &known.union, &self.options.repack, &is_young);
        let copied = chosen.small.iter().map(|(_, bag)| bag).chain(&chosen.sparse);
        copied.filter_map(|bag| survey.below.bags.get(bag)).for_each(|bag| summary.repacked.add(bag.size));
        Ok(summary)
    }

    /// The other sessions; those that are stale are revoked.
    fn others(
        &self,
        session: &Session,
        sessions: &Sessions,
        summary: &mut Summary,
    ) -> Result<Vec<Held>, GcError> {
        let own = sessions.held.iter().find(|held| held.id == session.id());
        let now = own.map(|own| own.since).ok_or_else(|| lost(session))?;
        let stale = i64::try_from(self.options.stale.as_secs()).unwrap_or(i64::MAX);
        let mut others = Vec::new();
        for held in sessions.held.iter().filter(|held| held.id != session.id()) {
            let age = now.saturating_sub(held.since);
            if age <= stale {
                others.push(*held);
            } else if leases::revoke(self.store(), held.client, held.id)? {
                summary.revoked = summary.revoked.saturating_add(1);
                let text = format!("this session was not renewed for {} days and is revoked", age / 86400);
                let name = layout::session(held.client, held.id);
                self.monitor.problem(Problem::new(Severity::Note, name.as_str().as_bytes(), text));
            }
        }
        Ok(others)
    }

    fn collect(
        &self,
        (session, mut drafts): (&Session, Drafts<'_>),
        known: &mut Known<'_>,
        mut survey: Survey,
        others: &[Held],
        mut summary: Summary,
    ) -> Result<Summary, GcError> {
        // What needs no writing comes first, since the disk may be full.
        let mut early = Sweep::new(self.store(), self.monitor);
        survey.remains(others).into_iter().for_each(|(name, bytes)| early.remove(name, Some(bytes)));
        let mut late = Sweep::new(self.store(), self.monitor);
        for doomed in survey.sentences.iter().filter_map(|sentence| sentence.doomed.as_ref()) {
            remove_bags(&mut late, &survey, &doomed.bags);
        }

        let repacked = self.repack(session, known, &mut survey, others, (&mut drafts, &mut summary))?;
        self.monitor.phase("condemning");
        let mut dead = survey.plan(known, others).dead;
        dead.retain(|bag| !repacked.emptied.contains(bag) && !repacked.thinned.contains(bag));
        self.judge(&mut survey, known, others, &mut drafts)?;
        let mut new = None;
        if !dead.is_empty() || !repacked.is_empty() {
            let (emptied, thinned) = (repacked.emptied, repacked.thinned);
            let list = List { dead, emptied, thinned, seen: ids(known) };
            let (id, published) = drafts.list(&list);
            if others.is_empty() {
                // Most likely nobody comes in between.
                drafts.doom(id, verdict::doomed(&list, &known.union, &survey.moves, &HashSet::new()));
            }
            new = Some((Sentence { id, list, waits: None, doomed: None }, published));
        }
        let doomed = drafts.all_doomed();
        let is_gone = |bag| doomed.contains(&bag) || !survey.below.bags.contains_key(&bag);
        drafts.segments(&survey.segments, &is_gone)?;
        let is_idle = drafts.settle() && new.is_none();
        summary.remains = early.finish()?.removed;
        let new = match new {
            Some((sentence, published)) => {
                published.wait()?;
                Some(sentence)
            }
            None => None,
        };
        drafts.written()?;

        let mut last = Published::default();
        if !is_idle {
            self.look_again(session, known, &mut survey, new.as_ref(), &mut drafts)?;
            last = drafts.publish()?;
        }
        survey.sentences.extend(new);
        self.finish(&survey, &last, late, summary)
    }

    /// Copies bags into others, and publishes what was moved.
    fn repack(
        &self,
        session: &Session,
        known: &Known<'_>,
        survey: &mut Survey,
        others: &[Held],
        (drafts, summary): (&mut Drafts<'_>, &mut Summary),
    ) -> Result<Repacked, GcError> {
        let is_young = |bag| survey.is_young(bag, others);
        let limits = &self.options.repack;
        let to_whom = (self.monitor, self.cancel);
        let repacked =
            repack::run((self.repository, &self.reader), (known, survey), limits, &is_young, to_whom)?;
        if repacked.is_empty() {
            return Ok(repacked);
        }
        let records = drafts.moved(&repacked).publish(session)?;
        survey.moved(records, &repacked.replaced);
        self.reader.know_moves(Arc::new(survey.moves.clone()));
        let mut old = Sweep::new(self.store(), self.monitor);
        repacked.replaced.iter().for_each(|record| old.remove(layout::moved(*record), None));
        old.finish()?;
        for file in
            repacked.emptied.iter().chain(&repacked.thinned).filter_map(|bag| survey.below.bags.get(bag))
        {
            summary.repacked.add(file.size);
        }
        repacked.bags.iter().for_each(|bag| summary.written.add(bag.entry().size));
        Ok(repacked)
    }

    /// Goes on with the lists that are there: notes whom they wait for, and dooms what nobody is waited for any more.
    fn judge(
        &self,
        survey: &mut Survey,
        known: &Known<'_>,
        others: &[Held],
        drafts: &mut Drafts<'_>,
    ) -> Result<(), GcError> {
        let source = Source::new(self.reader.clone(), OPENED);
        for sentence in survey.sentences.iter_mut().filter(|sentence| sentence.doomed.is_none()) {
            if sentence.waits.is_none() {
                // The list was there when sessions and generations were listed.
                let waits = waits(&sentence.list, others, known);
                if !others.is_empty() {
                    drafts.wait(sentence.id, &waits);
                }
                sentence.waits = Some(waits);
            }
            if verdict::is_ripe(sentence, others) {
                let unmoved = thinned::unmoved(sentence, known, &survey.moves, &source, self.monitor)?;
                let doomed = verdict::doomed(&sentence.list, &known.union, &survey.moves, &unmoved);
                drafts.doom(sentence.id, doomed);
            }
        }
        Ok(())
    }

    /// Behind the publishing of a new list: who is there, and which generations are new? And is the session still held, now that all drafts are written?
    fn look_again(
        &self,
        session: &Session,
        known: &mut Known<'_>,
        survey: &mut Survey,
        new: Option<&Sentence>,
        drafts: &mut Drafts<'_>,
    ) -> Result<(), GcError> {
        let listed = self.store().list(&layout::directory("sessions"));
        let Some(new) = new else {
            let held = sessions(&listed.wait()?).held;
            return held
                .iter()
                .any(|held| held.id == session.id())
                .then_some(())
                .ok_or_else(|| lost(session));
        };
        // Behind the sessions, as what they publish always is.
        let moved = self.store().list(&layout::directory("moved"));
        let top = self.store().list(&layout::directory("generations"));
        let catalogues = Catalogues::ask(self.store(), &survey.top.clients);
        let held = sessions(&listed.wait()?).held;
        if !held.iter().any(|held| held.id == session.id()) {
            return Err(lost(session));
        }
        let others: Vec<Held> = held.into_iter().filter(|held| held.id != session.id()).collect();
        let mut generations = catalogues.wait()?;
        let more: Vec<ClientId> =
            clients(&top.wait()?).into_iter().filter(|client| !survey.top.clients.contains(client)).collect();
        generations.extend(Catalogues::ask(self.store(), &more).wait()?);
        let moved = follow::ids(&moved.wait()?);
        let unread: Vec<_> =
            moved.into_iter().filter(|id| survey.records.iter().all(|one| one.id != *id)).collect();
        let records = follow::read(&**self.repository.cached(), &self.repository.sealing(), &unread)?;
        survey.moved(records.into_iter().flatten().collect(), &[]);
        known.learn(&generations)?;
        let waits = waits(&new.list, &others, known);
        let written = drafts.doomed(new.id).cloned();
        if !others.is_empty() {
            drafts.spare(new.id);
            drafts.wait(new.id, &waits);
        } else {
            let sentence = Sentence { waits: Some(waits), ..new.clone() };
            let source = Source::new(self.reader.clone(), OPENED);
            let unmoved = thinned::unmoved(&sentence, known, &survey.moves, &source, self.monitor)?;
            let doomed = verdict::doomed(&new.list, &known.union, &survey.moves, &unmoved);
            if written.as_ref() == Some(&doomed) {
                return Ok(());
            }
            drafts.spare(new.id);
            drafts.doom(new.id, doomed);
        }
        drafts.written()?;
        session.still_held().wait().map_err(|error| session.failure(error).into())
    }

    /// Removes what is doomed, and then what is written of it.
    fn finish(
        &self,
        survey: &Survey,
        published: &Published,
        mut sweep: Sweep<'_>,
        mut summary: Summary,
    ) -> Result<Summary, GcError> {
        self.monitor.phase("removing");
        let mut old = Sweep::new(self.store(), self.monitor);
        for segment in published.segments.iter().flat_map(|group| &group.old) {
            old.remove(layout::segment(*segment), Some(0));
        }
        let mut dooms: Vec<(CollectionId, &BTreeSet<BagId>)> = Vec::new();
        for sentence in &survey.sentences {
            dooms.extend(sentence.doomed.as_ref().map(|doomed| (sentence.id, &doomed.bags)));
        }
        for (id, doomed) in &published.dooms {
            remove_bags(&mut sweep, survey, &doomed.bags);
            dooms.push((*id, &doomed.bags));
        }
        let dead_of = |id: &CollectionId| {
            survey.sentences.iter().find(|sentence| sentence.id == *id).map(|sentence| &sentence.list.dead)
        };
        let gone: BTreeSet<BagId> = dooms
            .iter()
            .flat_map(|(id, doomed)| dead_of(id).into_iter().flatten().filter(|bag| doomed.contains(bag)))
            .copied()
            .collect();
        for record in survey.needless(&gone) {
            sweep.remove(layout::moved(record), None);
        }
        let swept = sweep.finish()?;
        summary.removed = swept.removed;
        summary.segments_removed = old.finish()?.removed.files;
        summary.segments_written = published.written;
        let waiting = survey.sentences.iter().filter(|one| !dooms.iter().any(|(id, _)| *id == one.id));
        for bag in waiting.flat_map(|one| one.list.bags()).filter_map(|bag| survey.below.bags.get(&bag)) {
            summary.waiting.add(bag.size);
        }
        if swept.failed == 0 {
            self.tidy(survey, dooms.iter().map(|(id, _)| *id), summary.sessions == 0)?;
        }
        Ok(summary)
    }

    /// Removes lists of which nothing is left to do. The list itself goes before what is said of it: so whoever publishes a verdict of his own finds that it is gone.
    fn tidy(
        &self,
        survey: &Survey,
        done: impl Iterator<Item = CollectionId>,
        is_alone: bool,
    ) -> Result<(), GcError> {
        let mut sweep = Sweep::new(self.store(), self.monitor);
        let damaged = survey.damaged.iter().copied().filter(|_| is_alone);
        for id in done.chain(damaged) {
            for name in [layout::condemned(id), layout::condemned_waits(id), layout::condemned_doomed(id)] {
                sweep.remove(name, None);
            }
        }
        sweep.finish()?;
        Ok(())
    }
}

/// Whom a list waits for: those who are writing, and what was published since the generations were seen.
fn waits(list: &List, others: &[Held], known: &Known<'_>) -> Waits {
    let unseen: Vec<GenerationId> = ids(known).difference(&list.seen).copied().collect();
    others.iter().map(|held| held.id).chain(unseen).collect()
}

fn remove_bags(sweep: &mut Sweep<'_>, survey: &Survey, bags: &BTreeSet<BagId>) {
    for (bag, file) in bags.iter().filter_map(|bag| survey.below.bags.get_key_value(bag)) {
        sweep.remove(layout::bag(*bag), Some(file.size));
    }
}

fn count(known: &Known<'_>, survey: &Survey, others: &[Held], summary: &mut Summary) {
    let number = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    summary.generations = number(known.generations.len());
    summary.sessions = number(others.len());
    survey.below.bags.values().for_each(|bag| summary.bags.add(bag.size));
}

fn lost(session: &Session) -> GcError {
    session.failure(StoreError::new(ErrorKind::NotFound, "hold", "the session", "it was revoked")).into()
}
