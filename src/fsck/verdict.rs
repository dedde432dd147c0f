//! From what was read to sentences: which files are damaged, what that hits, and what to do.

use std::collections::{BTreeMap, BTreeSet};

use super::FsckError;
use super::bags::{BagNo, Bags, cancelled};
use super::blame::{Blame, Paths};
use super::graph::Graph;
use super::listing::Listing;
use super::reach::{Found, Held, Reach};
use super::report::{Report, Unreadable, given};
use super::small::Contents;
use crate::bag::BagKind;
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::id::{BagId, ClientId, GenerationId};
use crate::base::text::escape;
use crate::base::time::Timestamp;
use crate::generation::leases;
use crate::generation::spec::is_from_future;
use crate::repo::Repository;
use crate::store::layout;

/// Generations, paths and bags named in one sentence.
const NAMED: usize = 8;

/// Orphans told one by one.
const ORPHANS: usize = 20;

/// What it takes to judge.
pub struct Verdict<'a> {
    /// The repository.
    pub repository: &'a Repository,
    /// Its bags.
    pub bags: &'a Bags,
    /// What tree bags hold.
    pub graph: &'a Graph<'a>,
    /// Where pages are read again.
    pub source: &'a Source,
    /// Who hears.
    pub report: &'a Report<'a>,
    /// Whether the index is made anew afterwards, without the bags that are damaged.
    pub repairs: bool,
    /// The time.
    pub now: Timestamp,
    /// Whether to go on.
    pub cancel: &'a Cancel,
}

/// What a damaged bag hits.
#[derive(Default)]
struct Hit {
    wrongs: Vec<String>,
    generations: Vec<usize>,
}

impl Verdict<'_> {
    /// Walks all generations and tells what is wrong.
    ///
    /// # Errors
    /// When the store is out of reach.
    pub fn pronounce(&self, contents: Contents, listing: &Listing) -> Result<(), FsckError> {
        let held: Vec<_> =
            contents.generations.into_iter().map(|(client, record)| self.hold(client, record)).collect();
        let claimed: BTreeSet<_> =
            contents.claims.iter().map(|claim| self.bags.number_of(claim.entry.bag)).collect();
        let mut reach = Reach::new(self.bags, self.graph);
        let mut hits: BTreeMap<BagNo, Hit> = BTreeMap::new();
        for (number, wrongs) in self.bags.wrongs() {
            hits.insert(number, Hit { wrongs, generations: Vec::new() });
        }
        let mut unlisted = Vec::new();
        for (at, one) in held.iter().enumerate() {
            cancelled(self.cancel)?;
            let found = reach.walk(one);
            self.blame_bags(at, &found, &mut hits);
            self.about_list(one, &found);
            if !found.unlisted.is_empty() {
                unlisted.push((at, found.unlisted));
            }
        }
        let gone = self.gone(&held, &hits, &unlisted)?;
        for (at, bags) in &unlisted {
            if let Some(one) = held.get(*at).filter(|_| !gone.contains(at)) {
                self.unlisted(one, bags);
            }
        }
        self.tell_hits(&held, hits, &gone, &claimed)?;
        if contents.lost_records == 0 {
            self.tell_orphans(&reach, &claimed, listing);
        }
        self.tell_sessions(&held, listing);
        self.tell_strays(listing);
        Ok(())
    }

    fn hold(&self, client: ClientId, record: crate::generation::Generation) -> Held {
        let roots = record.roots.iter().map(|root| self.graph.of_entry(&root.entry)).collect();
        let buckets = record.bag_list.buckets.iter().map(|bucket| self.graph.bucket(bucket)).collect();
        Held { client, record, roots, buckets }
    }

    fn blame_bags(&self, at: usize, found: &Found, hits: &mut BTreeMap<BagNo, Hit>) {
        let mut hit = |bag: BagNo, wrong: Option<String>| {
            let one = hits.entry(bag).or_default();
            one.wrongs.extend(wrong.filter(|wrong| !one.wrongs.contains(wrong)));
            if one.generations.last() != Some(&at) {
                one.generations.push(at);
            }
        };
        for bag in &found.culprits {
            hit(*bag, None);
        }
        for bag in &found.strange {
            hit(*bag, Some("it holds something else than what is referred to".to_owned()));
        }
        for (bag, wrong) in &found.wrongs {
            hit(*bag, Some(wrong.clone()));
        }
    }

    fn about_list(&self, held: &Held, found: &Found) {
        let name = layout::generation(held.client, held.record.id);
        if let Some(wrong) = found.list_wrong {
            let text = format!("{wrong}; {}", self.keep(held));
            self.report.damage(&name, text);
        }
        if !found.unneeded.is_empty() {
            let bags = list(found.unneeded.iter().map(ToString::to_string));
            self.report.note(
                name.as_str(),
                format!(
                    "its bag list names bags that it does not need ({bags}); they take space and do no harm"
                ),
            );
        }
        if !found.miscounted.is_empty() {
            let bags = list(found.miscounted.iter().map(ToString::to_string));
            let text = format!(
                "its bag list is wrong about how much it needs of some bags ({bags}); repacking goes by it, and nothing else"
            );
            self.report.note(name.as_str(), text);
        }
        if is_from_future(&held.record, self.now) {
            self.report
                .note(name.as_str(), "it is dated in the future, so it is never the latest generation");
        }
    }

    fn unlisted(&self, held: &Held, bags: &[BagId]) {
        let name = layout::generation(held.client, held.record.id);
        let bags = list(bags.iter().map(ToString::to_string));
        let text = format!("its bag list leaves out bags that it needs ({bags}); {}", self.keep(held));
        self.report.damage(&name, text);
    }

    fn keep(&self, held: &Held) -> String {
        format!(
            "garbage collection could take what generation {} of client {} needs: collect none, back up that client again and forget this generation",
            held.record.id,
            shown(held)
        )
    }

    /// The damaged generations that are not there any more: forgotten while they were checked.
    fn gone(
        &self,
        held: &[Held],
        hits: &BTreeMap<BagNo, Hit>,
        unlisted: &[(usize, Vec<BagId>)],
    ) -> Result<BTreeSet<usize>, FsckError> {
        let mut at_stake: BTreeSet<usize> =
            hits.values().flat_map(|hit| hit.generations.iter().copied()).collect();
        at_stake.extend(unlisted.iter().map(|(at, _)| *at));
        let clients: BTreeSet<_> = at_stake.iter().filter_map(|at| Some(held.get(*at)?.client)).collect();
        let store = self.repository.store();
        let asked: Vec<_> =
            clients.into_iter().map(|client| (client, store.list(&layout::generations(client)))).collect();
        let mut there = BTreeSet::new();
        for (client, files) in asked {
            let ids = files.wait()?.into_iter().filter_map(|file| file.name.parse::<GenerationId>().ok());
            there.extend(ids.map(|id| (client, id)));
        }
        at_stake.retain(|at| held.get(*at).is_some_and(|one| !there.contains(&(one.client, one.record.id))));
        Ok(at_stake)
    }

    /// Of the missing bags, those that are there by now.
    fn appeared(&self, hits: &BTreeMap<BagNo, Hit>) -> Result<BTreeSet<BagNo>, FsckError> {
        let missing = hits.keys().filter(|number| self.bags.get(**number).is_none());
        let store = self.repository.store();
        let asked: Vec<_> = missing
            .filter_map(|number| Some((*number, store.read_tail(&layout::bag(self.bags.id_of(*number)?), 1))))
            .collect();
        let mut appeared = BTreeSet::new();
        for (number, answer) in asked {
            if given(answer.wait())?.is_ok() {
                appeared.insert(number);
            }
        }
        Ok(appeared)
    }

    fn tell_hits(
        &self,
        held: &[Held],
        hits: BTreeMap<BagNo, Hit>,
        gone: &BTreeSet<usize>,
        claimed: &BTreeSet<BagNo>,
    ) -> Result<(), FsckError> {
        let appeared = self.appeared(&hits)?;
        let mut blame = Blame::new(self.bags, self.graph, self.source, self.cancel);
        let hit: BTreeSet<_> = hits.values().flat_map(|hit| hit.generations.iter().copied()).collect();
        for one in hit.difference(gone).filter_map(|at| held.get(*at)) {
            blame.generation(one)?;
        }
        let paths = blame.finish();
        for (number, mut hit) in hits {
            let Some(id) = self.bags.id_of(number) else { continue };
            let name = layout::bag(id);
            hit.generations.retain(|at| !gone.contains(at));
            let kind = match self.bags.get(number) {
                None if hit.generations.is_empty() => continue,
                None if appeared.contains(&number) => {
                    self.report.note(name.as_str(), "it appeared while the check ran; run it again");
                    continue;
                }
                None => {
                    hit.wrongs.push("it is missing".to_owned());
                    None
                }
                // It was listed and is gone: collected meanwhile, unless somebody needs it.
                Some(_) if hit.generations.is_empty() && hit.wrongs == [Unreadable::Missing.to_string()] => {
                    continue;
                }
                Some(bag) => bag.sound.as_ref().map(|sound| sound.entry.kind),
            };
            let is_given_up = hit.wrongs.is_empty() && self.bags.is_given_up(number);
            if hit.wrongs.is_empty() {
                if hit.generations.is_empty() {
                    continue;
                }
                if is_given_up {
                    hit.wrongs.push("garbage collection has given it up, and will remove it, though what generations refer to in it was not moved: do not run `kitbag gc`, and copy this file".to_owned());
                }
            }
            if hit.wrongs.is_empty() {
                hit.wrongs.push("it does not hold all that generations refer to in it".to_owned());
            }
            let what = hit.wrongs.join("; ");
            let advice = match self.is_offered(number, claimed).then(|| repair(kind)) {
                // Collecting is the last thing to do.
                _ if is_given_up => store_again(kind),
                repair if hit.generations.is_empty() => remove(repair),
                repair if is_followed(held, &hit.generations) => forget(repair),
                _ => store_again(kind),
            };
            let affected = self.affected(held, &hit.generations, paths.get(&number), &advice);
            self.report.damage(&name, format!("{what}; {affected}"));
        }
        Ok(())
    }

    /// Whether backups may refer to a damaged bag: the index claims it, and a repair would end that. (Of one that is missing, a claim does no harm.)
    fn is_offered(&self, number: BagNo, claimed: &BTreeSet<BagNo>) -> bool {
        let is_left_out = self.bags.get(number).is_some() && self.bags.wrongs().contains_key(&number);
        is_left_out && claimed.contains(&number) && !self.repairs
    }

    fn affected(&self, held: &[Held], hit: &[usize], paths: Option<&Paths>, advice: &str) -> String {
        if hit.is_empty() {
            return format!("no generation needs it: {advice}");
        }
        let mut by_client: BTreeMap<String, Vec<&Held>> = BTreeMap::new();
        for one in hit.iter().filter_map(|at| held.get(*at)) {
            by_client.entry(shown(one)).or_default().push(one);
        }
        let clients = by_client.into_iter().map(|(client, generations)| {
            let noun = if generations.len() == 1 { "generation" } else { "generations" };
            // The newest first.
            let mut newest: Vec<_> = generations;
            newest.sort_by_key(|one| std::cmp::Reverse((one.record.started, one.record.id)));
            format!("{noun} {} of client {client}", list(newest.iter().map(|one| one.record.id.to_string())))
        });
        let clients: Vec<_> = clients.collect();
        let clients = clients.join(" and ");
        let what = match paths.filter(|paths| !paths.some.is_empty()) {
            None => "only records of which bags it needs, no files".to_owned(),
            Some(paths) => {
                let mut text = list(paths.some.iter().map(|path| escape(path)));
                if paths.more {
                    text.push_str(" (and over a thousand)");
                }
                text
            }
        };
        format!("it is needed by {clients}, for {what}; {advice}")
    }

    fn tell_orphans(&self, reach: &Reach<'_>, claimed: &BTreeSet<BagNo>, listing: &Listing) {
        let is_orphan = |number: &BagNo| !claimed.contains(number) && !reach.is_used(*number);
        let orphans: Vec<_> = (0..).take(self.bags.existing().len()).filter(is_orphan).collect();
        let why = if listing.sessions.is_empty() {
            "no generation and no index segment names it: a backup was cut off; garbage collection takes it"
        } else {
            "no generation and no index segment names it yet: a backup is under way, or was cut off"
        };
        for id in orphans.iter().take(ORPHANS).filter_map(|number| self.bags.id_of(*number)) {
            self.report.note(layout::bag(id).as_str(), why);
        }
        if let Some(more) = orphans.len().checked_sub(ORPHANS).filter(|more| *more > 0) {
            self.report.note("bags", format!("{more} more bags that nothing names"));
        }
    }

    fn tell_strays(&self, listing: &Listing) {
        for (client, id, tags) in &listing.tags {
            if listing.generations.binary_search(&(*client, *id)).is_err() {
                let name = layout::tags(*client, *id, *tags);
                self.report.note(
                    name.as_str(),
                    "tags of a generation that was forgotten; the next `kitbag forget` removes them",
                );
            }
        }
    }

    fn tell_sessions(&self, held: &[Held], listing: &Listing) {
        for (client, id, modified) in &listing.sessions {
            let name =
                held.iter().find(|one| one.client == *client).map_or_else(|| client.to_string(), shown);
            let file = layout::session(*client, *id);
            let text = format!(
                "client {name} is writing, or was cut off: its session was last renewed at {} by the server's clock",
                leases::moment(*modified)
            );
            self.report.note(file.as_str(), text);
        }
    }
}

/// Whether each of these generations has a later one of the same client and roots that is not among them: what was lost has been stored again.
fn is_followed(held: &[Held], hit: &[usize]) -> bool {
    fn roots(one: &Held) -> impl Iterator<Item = &[u8]> {
        one.record.roots.iter().map(|root| &root.path[..])
    }
    let follows = |one: &Held, other: &Held| {
        let at = |held: &Held| (held.record.started, held.record.id);
        other.client == one.client
            && !other.record.partial
            && at(other) > at(one)
            && roots(other).eq(roots(one))
    };
    let has_later = |one: &Held| {
        held.iter().enumerate().any(|(number, other)| !hit.contains(&number) && follows(one, other))
    };
    hit.iter().filter_map(|at| held.get(*at)).all(has_later)
}

/// What finds the damage of a bag of this kind again, and takes the bag out of the index.
fn repair(kind: Option<BagKind>) -> &'static str {
    match kind {
        Some(BagKind::Tree) | None => "kitbag fsck --repair",
        Some(BagKind::Data) => "kitbag fsck --read-data --repair",
    }
}

/// What to do where generations that were hit are not whole anew.
fn store_again(kind: Option<BagKind>) -> String {
    format!(
        "run `{}` and then `kitbag backup --reread`, which stores what is still there again, for generations from then on",
        repair(kind)
    )
}

/// What to do where later generations are whole. Only this machine's cache may know that the bag is not to be relied on: as long as the index claims it, others refer to it.
fn forget(repair: Option<&str>) -> String {
    let first = repair.map_or_else(String::new, |repair| {
        format!("run `{repair}`, so that no later backup refers to it again; ")
    });
    format!(
        "later generations do without it, and these can be restored but for that: {first}when they are not needed any more, forget them by `kitbag forget`, and `kitbag gc` removes it"
    )
}

/// What to do where no generation needs the bag.
fn remove(repair: Option<&str>) -> String {
    match repair {
        Some(repair) => format!("run `{repair}` so that none ever will, and `kitbag gc` removes it"),
        None => "`kitbag gc` removes it".to_owned(),
    }
}

/// A client's name for people.
fn shown(held: &Held) -> String {
    escape(held.record.client.as_bytes())
}

/// Some of many words.
fn list(words: impl ExactSizeIterator<Item = String>) -> String {
    let more = words.len().saturating_sub(NAMED);
    let some: Vec<_> = words.take(NAMED).collect();
    match more {
        0 => some.join(", "),
        _ => format!("{} and {more} more", some.join(", ")),
    }
}
