//! Forgetting generations: those that are named, or those that a policy does not keep.
//!
//! A plan is made first ([`plan`]), a pure function of what the repository has: what becomes of each generation, and why. Then all records go in one flight ([`carry_out`]). What
//! they referred to stays until garbage is collected.
//!
//! - A policy is applied to each *group* by itself: the generations of a client that have the same roots.
//! - Counted are complete generations that are not dated in the future. One that is dated in the future is kept: a wrong clock shall neither push others out nor cost itself.
//! - A tag pins: what has one is kept, and cannot be named either before the tag is removed.
//! - No group loses its last generation that counts unless [`Options::allow_empty`] says so.
//! - A record that cannot be read is left alone by a policy, since nobody knows what it is; it can be named by its id.
//!
//! **No lease is held.** Removing a record publishes nothing. A backup that compares with a generation while it is forgotten has created its session before it read that
//! generation, so whoever collects waits for it.

pub mod policy;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::tz::TimeZone;

use crate::base::id::{ClientId, GenerationId, TagsId};
use crate::base::text::escape;
use crate::base::time::Timestamp;
use crate::generation::spec::{is_from_future, is_ordinary};
use crate::generation::{Found, Generation, Spec, SpecError, tags};
use crate::store::{ErrorKind, Listed, Name, Store, StoreError, layout};

pub use policy::{BadPolicy, Policy, Rule};

/// What to forget.
#[derive(Debug, Clone)]
pub enum What {
    /// These, of one client.
    Named(Vec<Spec>),
    /// What this policy does not keep, group by group.
    Policy(Policy),
}

/// What to forget, and how far that may go.
#[derive(Debug, Clone)]
pub struct Options {
    /// What to forget.
    pub what: What,
    /// Whether a group may lose its last generation.
    pub allow_empty: bool,
    /// Where days begin.
    pub zone: TimeZone,
}

/// Why something is kept or forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Kept: these rules keep it.
    Rules(Vec<Rule>),
    /// Kept: these tags pin it.
    Pinned(Vec<String>),
    /// Kept: it is dated in the future.
    Future,
    /// Kept: the next backup goes on from this checkpoint.
    Checkpoint,
    /// Kept: it cannot be read, or its tags cannot.
    Unreadable,
    /// Kept: it was not named.
    Spared,
    /// Forgotten: it was named.
    Named,
    /// Forgotten: no rule keeps it.
    NoRule,
    /// Forgotten: a checkpoint that a complete generation has made needless.
    Needless,
}

impl Why {
    /// Whether it is a reason to forget.
    #[must_use]
    pub fn forgets(&self) -> bool {
        matches!(self, Self::Named | Self::NoRule | Self::Needless)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(rules) => {
                let rules: Vec<_> = rules.iter().map(ToString::to_string).collect();
                write!(f, "kept by {}", rules.join(", "))
            }
            Self::Pinned(tags) => {
                let tags: Vec<_> = tags.iter().map(|tag| escape(tag.as_bytes())).collect();
                write!(f, "pinned by the tag {}", tags.join(", "))
            }
            Self::Future => f.write_str("dated in the future, which never counts; name it to forget it"),
            Self::Checkpoint => f.write_str("a checkpoint from which the next backup goes on"),
            Self::Unreadable => f.write_str("it cannot be read; `kitbag fsck` tells more"),
            Self::Spared => f.write_str("not named"),
            Self::Named => f.write_str("named"),
            Self::NoRule => f.write_str("no rule keeps it"),
            Self::Needless => f.write_str("a checkpoint that a complete generation has made needless"),
        }
    }
}

/// What becomes of all generations, in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan(pub Vec<Why>);

/// Why nothing is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgetError {
    /// A generation named is not there.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// One is pinned.
    #[error("generation {id} is pinned by the tag {tags}, so nothing was forgotten")]
    Pinned {
        /// Which.
        id: GenerationId,
        /// By what.
        tags: String,
    },
    /// No generation would be left.
    #[error("no generation of {roots} of client {client} would be left, so nothing was forgotten")]
    Empty {
        /// The client's name.
        client: String,
        /// What it has saved.
        roots: String,
    },
}

/// The generations of a client that have the same roots.
type Group = (ClientId, Vec<Vec<u8>>);

fn group_of(client: ClientId, generation: &Generation) -> Group {
    (client, generation.roots.iter().map(|root| root.path.clone()).collect())
}

/// Decides what becomes of each generation. Specs mean generations among all of `found`, which then are those of one client.
///
/// # Errors
/// Why nothing may be forgotten.
pub fn plan(found: &[Found], options: &Options, now: Timestamp) -> Result<Plan, ForgetError> {
    match &options.what {
        What::Named(specs) => named(found, specs, options.allow_empty, now),
        What::Policy(policy) => Ok(by_policy(found, policy, &options.zone, now)),
    }
}

fn named(found: &[Found], specs: &[Spec], allow_empty: bool, now: Timestamp) -> Result<Plan, ForgetError> {
    let readable: Vec<Generation> =
        found.iter().filter_map(|one| one.record.as_ref().ok()).cloned().collect();
    let mut chosen = BTreeSet::new();
    for spec in specs {
        chosen.insert(match spec {
            // An id names even what cannot be read.
            Spec::Id(beginning) => by_id(found, spec, beginning)?,
            _ => spec.find(&readable, now)?.id,
        });
    }
    for one in found.iter().filter(|one| chosen.contains(&one.id)) {
        match pinned(one) {
            None | Some(Why::Unreadable) => {}
            Some(_) => {
                let tags = one.record.as_ref().map_or(&[][..], |record| &record.tags);
                let tags: Vec<_> = tags.iter().map(|tag| escape(tag.as_bytes())).collect();
                return Err(ForgetError::Pinned { id: one.id, tags: tags.join(", ") });
            }
        }
    }
    if !allow_empty {
        stays_filled(found, &chosen, now)?;
    }
    let why = |one: &Found| if chosen.contains(&one.id) { Why::Named } else { Why::Spared };
    Ok(Plan(found.iter().map(why).collect()))
}

fn by_id(found: &[Found], spec: &Spec, beginning: &str) -> Result<GenerationId, SpecError> {
    let fitting: Vec<_> =
        found.iter().map(|one| one.id).filter(|id| id.to_string().starts_with(beginning)).collect();
    match fitting[..] {
        [] => Err(SpecError::None(spec.to_string())),
        [one] => Ok(one),
        _ => {
            let ids: Vec<_> = fitting.iter().map(ToString::to_string).collect();
            Err(SpecError::Ambiguous(beginning.to_owned(), ids.join(", ")))
        }
    }
}

/// Makes sure that each group which has a generation that counts has one afterwards.
fn stays_filled(found: &[Found], chosen: &BTreeSet<GenerationId>, now: Timestamp) -> Result<(), ForgetError> {
    let mut left: BTreeMap<Group, (bool, &Generation)> = BTreeMap::new();
    for one in found {
        let Some(record) = one.record.as_ref().ok().filter(|record| is_ordinary(record, now)) else {
            continue;
        };
        let stays = !chosen.contains(&one.id);
        left.entry(group_of(one.client, record)).or_insert((false, record)).0 |= stays;
    }
    match left.into_values().find(|(stays, _)| !stays) {
        None => Ok(()),
        Some((_, record)) => {
            let roots: Vec<_> = record.roots.iter().map(|root| escape(&root.path)).collect();
            Err(ForgetError::Empty { client: escape(record.client.as_bytes()), roots: roots.join(", ") })
        }
    }
}

/// Why no policy may take it: tags, or that these cannot be read.
fn pinned(found: &Found) -> Option<Why> {
    let Ok(record) = &found.record else { return Some(Why::Unreadable) };
    if !record.tags.is_empty() {
        return Some(Why::Pinned(record.tags.clone()));
    }
    found.tag_files.iter().any(|file| file.tags.is_err()).then_some(Why::Unreadable)
}

fn by_policy(found: &[Found], policy: &Policy, zone: &TimeZone, now: Timestamp) -> Plan {
    let mut groups: BTreeMap<Group, Vec<(usize, &Generation)>> = BTreeMap::new();
    for (at, one) in found.iter().enumerate() {
        if let Ok(record) = &one.record {
            groups.entry(group_of(one.client, record)).or_default().push((at, record));
        }
    }
    // What no group has cannot be read.
    let mut plan = vec![Why::Unreadable; found.len()];
    let mut decide = |at: usize, why: Why| {
        let why = found.get(at).and_then(pinned).unwrap_or(why);
        plan.get_mut(at).into_iter().for_each(|place| *place = why.clone());
    };
    for mut group in groups.into_values() {
        group.sort_by_key(|(_, record)| (record.started, record.id));
        let (counted, others): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|(_, record)| is_ordinary(record, now));
        let times: Vec<_> = counted.iter().map(|(_, record)| record.started).collect();
        let newest = times.last().copied();
        for ((at, _), rules) in counted.into_iter().zip(policy.keeps(&times, zone)) {
            decide(at, if rules.is_empty() { Why::NoRule } else { Why::Rules(rules) });
        }
        for (at, record) in others {
            decide(
                at,
                match newest {
                    _ if is_from_future(record, now) => Why::Future,
                    Some(newest) if record.started <= newest => Why::Needless,
                    _ => Why::Checkpoint,
                },
            );
        }
    }
    Plan(plan)
}

/// Tags whose generation is not there: left by whoever was killed while he forgot it.
#[must_use]
pub fn stray_tags(client: ClientId, listed: &[Listed]) -> Vec<Name> {
    let there: BTreeSet<GenerationId> = listed.iter().filter_map(|file| file.name.parse().ok()).collect();
    let of_others = listed.iter().filter_map(|file| tags::parse(&file.name));
    of_others.filter(|(id, _)| !there.contains(id)).map(|(id, one)| layout::tags(client, id, one)).collect()
}

/// Removes the records of what is to be forgotten, with their tags, and `strays`: all in one flight. What is gone already is as good as removed.
///
/// # Errors
/// The first that the store tells; all others are tried nevertheless.
pub fn carry_out(store: &dyn Store, found: &[Found], plan: &Plan, strays: &[Name]) -> Result<(), StoreError> {
    let chosen = found.iter().zip(&plan.0).filter(|(_, why)| why.forgets()).map(|(one, _)| one);
    remove(store, chosen, strays)
}

/// Removes these generations whatever they are; see [`carry_out`].
///
/// # Errors
/// As there.
pub fn remove<'a>(
    store: &dyn Store,
    chosen: impl IntoIterator<Item = &'a Found>,
    strays: &[Name],
) -> Result<(), StoreError> {
    let mut names = Vec::new();
    for one in chosen {
        // The record first: tags without one pin nothing.
        names.push(layout::generation(one.client, one.id));
        let of_tags = |tags: TagsId| layout::tags(one.client, one.id, tags);
        names.extend(one.tag_files.iter().map(|file| of_tags(file.id)));
    }
    names.extend_from_slice(strays);
    let removals: Vec<_> = names.iter().map(|name| store.remove(name)).collect();
    let mut outcome = Ok(());
    for removal in removals {
        match removal.wait() {
            Err(error) if error.kind != ErrorKind::NotFound => outcome = outcome.and(Err(error)),
            _ => {}
        }
    }
    outcome
}

#[cfg(test)]
mod tests;
