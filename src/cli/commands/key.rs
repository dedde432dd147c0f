//! `kitbag key`: the passphrases that open the repository.

use serde::Serialize;

use crate::base::text::escape;
use crate::base::time::SystemClock;
use crate::cli::Context;
use crate::cli::args::{Key, NewKey};
use crate::cli::error::{Exit, Failure};
use crate::cli::human::{bytes, local_time, rfc3339};
use crate::cli::output::Output;
use crate::cli::passphrase::Source;
use crate::cli::settings::Verbosity;
use crate::crypto::{Cost, KeySlot, Protection};
use crate::repo::Stored;
use crate::repo::keyring::{Keyring, ListedSlot};
use crate::store::SharedStore;

#[derive(Serialize)]
struct Report {
    id: String,
    label: Option<String>,
    created: Option<String>,
    passphrase: Option<bool>,
    memory_kib: Option<u32>,
    passes: Option<u32>,
    damaged: bool,
}

/// Lists, adds, removes or changes key slots.
///
/// # Errors
/// When the repository does not open, or it cannot be done.
pub fn run(context: &Context, what: &Key) -> Result<Exit, Failure> {
    let store = context.store()?;
    let stored = Stored::read(&*store)?;
    match what {
        Key::List => return list(context, &stored),
        Key::Add(new) => {
            let keyring = context.keyring(&stored, &store)?;
            let label = new.label.as_deref().unwrap_or_default();
            let id = add(context, &keyring, &store, new, label)?;
            say(context, &format!("added the key slot {id}"))?;
            if keyring.has_clear() {
                context.screen.say(
                    "kitbag: another key slot needs no passphrase, so whoever has read the repository until now may have its key; `kitbag key remove` takes that slot away",
                );
            }
        }
        Key::Change(new) => {
            let keyring = context.keyring(&stored, &store)?;
            let label = new.label.as_deref().unwrap_or(keyring.label());
            let (old, id) = (keyring.opened(), add(context, &keyring, &store, new, label)?);
            keyring.remove(&*store, old, Some(id), false)?;
            say(context, &format!("the key slot {id} takes the place of {old}"))?;
        }
        Key::Remove { slot, even_last } => {
            let keyring = context.keyring(&stored, &store)?;
            let id = keyring.find(slot)?;
            keyring.remove(&*store, id, None, *even_last)?;
            say(context, &format!("removed the key slot {id}"))?;
        }
    }
    // What was kept to open it is out of date.
    context.forget();
    Ok(Exit::Done)
}

fn add(
    context: &Context,
    keyring: &Keyring,
    store: &SharedStore,
    new: &NewKey,
    label: &str,
) -> Result<crate::base::id::KeySlotId, Failure> {
    let source = new.new_passphrase_file.clone().map_or(Source::Prompt, Source::File);
    let passphrase = source.new_one(&context.screen)?;
    let clock = SystemClock::new();
    Ok(keyring.add(&**store, &passphrase, Cost::calibrated(&clock), label, &clock)?)
}

fn say(context: &Context, text: &str) -> Result<(), Failure> {
    let mut output = Output::new();
    if context.settings.verbosity > Verbosity::Quiet && !context.settings.json {
        output.line(text)?;
    }
    output.finish()
}

fn list(context: &Context, stored: &Stored) -> Result<Exit, Failure> {
    let mut output = Output::new();
    let mut exit = Exit::Done;
    for one in stored.slots() {
        if one.slot.is_err() {
            exit = Exit::Damaged;
        }
        if context.settings.json {
            output.json(&report(&one))?;
        } else {
            output.line(line(&one))?;
        }
    }
    output.finish()?;
    Ok(exit)
}

fn cost(slot: &KeySlot) -> Option<Cost> {
    match slot.protection() {
        Protection::None => None,
        Protection::Argon2id { cost, .. } => Some(cost),
    }
}

fn report(one: &ListedSlot) -> Report {
    let slot = one.slot.as_ref().ok();
    let cost = slot.and_then(cost);
    Report {
        id: one.id.to_string(),
        label: slot.map(|slot| escape(slot.label().as_bytes())),
        created: slot.map(|slot| rfc3339(slot.created())),
        passphrase: slot.map(KeySlot::needs_passphrase),
        memory_kib: cost.map(Cost::memory_kib),
        passes: cost.map(Cost::passes),
        damaged: slot.is_none(),
    }
}

fn line(one: &ListedSlot) -> String {
    let slot = match &one.slot {
        Ok(slot) => slot,
        Err(error) => return format!("{}\t{error}", one.id),
    };
    let how = match cost(slot) {
        None => "no passphrase".to_owned(),
        Some(cost) => {
            format!(
                "passphrase, {} and {} passes a guess",
                bytes(u64::from(cost.memory_kib()) << 10),
                cost.passes()
            )
        }
    };
    let label = match slot.label() {
        "" => String::new(),
        label => format!("\t{}", escape(label.as_bytes())),
    };
    format!("{}\t{}\t{how}{label}", one.id, local_time(slot.created()))
}
