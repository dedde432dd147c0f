//! `kitbag key`: what opens the repository.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;

use serde::Serialize;

use crate::base::id::KeySlotId;
use crate::base::secret::Key32;
use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock};
use crate::cli::args::{ExportKey, ImportKey, Key, NewKey};
use crate::cli::error::{Exit, Failure};
use crate::cli::human::{bytes, local_time, rfc3339};
use crate::cli::output::Output;
use crate::cli::passphrase::{Purpose, Source};
use crate::cli::settings::Verbosity;
use crate::cli::ssh::Address;
use crate::cli::{Context, key_file};
use crate::crypto::{Cost, KeySlot, Protection, Secret, letters};
use crate::repo::Stored;
use crate::repo::keyring::{KeyError, Keyring, ListedSlot};
use crate::store::SharedStore;

#[derive(Serialize)]
struct Report {
    id: String,
    label: Option<String>,
    created: Option<String>,
    opened_by: Option<&'static str>,
    passphrase: Option<bool>,
    memory_kib: Option<u32>,
    passes: Option<u32>,
    damaged: bool,
}

#[derive(Serialize)]
struct Changed {
    added: Option<String>,
    removed: Option<String>,
}

/// Lists, adds, removes or changes key slots.
///
/// # Errors
/// When the repository does not open, or it cannot be done.
pub fn run(context: &Context, what: &Key) -> Result<Exit, Failure> {
    let store = context.store()?;
    let stored = Stored::read(&*store)?;
    let keyring = match what {
        Key::List => return list(context, &stored),
        Key::Import(args) => open_by_key(context, args, &stored, &store)?,
        _ => context.keyring(&stored, &store)?,
    };
    let changed = change(context, what, &keyring, &store);
    // However it ended: what was kept to open it may be out of date.
    context.forget();
    changed.map(|()| Exit::Done)
}

fn change(context: &Context, what: &Key, keyring: &Keyring, store: &SharedStore) -> Result<(), Failure> {
    match what {
        // It changes nothing.
        Key::List => {}
        Key::Add(new) => {
            let id = add(context, keyring, store, new, new.label.as_deref().unwrap_or_default())?;
            say(context, &format!("added the key slot {id}"), Some(id), None)?;
            warn_of_clear(context, keyring);
        }
        Key::Change(new) => {
            let label = new.label.as_deref().unwrap_or(keyring.label());
            let (old, id) = (keyring.opened(), add(context, keyring, store, new, label)?);
            keyring.remove(&**store, old, Some(id), false).map_err(|error| half_changed(id, old, error))?;
            say(context, &format!("the key slot {id} takes the place of {old}"), Some(id), Some(old))?;
            warn_of_old(context);
        }
        Key::Remove { slot, even_last } => {
            let id = keyring.find(slot)?;
            keyring.remove(&**store, id, None, *even_last)?;
            say(context, &format!("removed the key slot {id}"), None, Some(id))?;
        }
        Key::Export(args) => {
            export(context, keyring, store, args)?;
            warn_of_clear(context, keyring);
        }
        Key::Import(args) => {
            let label = args.label.as_deref().unwrap_or_default();
            let id = add_passphrase(context, keyring, store, args.new_passphrase_file.as_deref(), label)?;
            say(context, &format!("added the key slot {id}"), Some(id), None)?;
        }
    }
    Ok(())
}

/// The new slot is there, and the old one was not taken away.
fn half_changed(new: KeySlotId, old: KeySlotId, error: KeyError) -> Failure {
    Failure::from(error).at(format!(
        "the new key slot {new} was added and opens the repository, but the old one, {old}, may still open it, too"
    ))
}

/// Where what opened the repository stands somewhere, that does not open it any more.
fn warn_of_old(context: &Context) {
    let shown = |path: &Path| escape(path.as_os_str().as_encoded_bytes());
    let said = match &context.settings.passphrase {
        Source::File(path) => {
            format!(
                "the passphrase file {0} no longer opens the repository: write the new one into it, or name another file by passphrase-file",
                shown(path)
            )
        }
        Source::KeyFile(path) => {
            format!(
                "the key file {} no longer opens the repository: name the new one by key-file",
                shown(path)
            )
        }
        Source::Command(_) => "what the passphrase command prints no longer opens the repository".to_owned(),
        Source::Prompt | Source::Descriptor(_) | Source::Given(_) => return,
    };
    context.screen.say(&format!("kitbag: {said}"));
}

fn warn_of_clear(context: &Context, keyring: &Keyring) {
    if keyring.has_clear() {
        context.screen.say(
            "kitbag: another key slot needs no passphrase, so whoever has read the repository until now may have its key; kitbag will want a passphrase or a key all the same from now on, and `kitbag key remove` takes that slot away",
        );
    }
}

fn add(
    context: &Context,
    keyring: &Keyring,
    store: &SharedStore,
    new: &NewKey,
    label: &str,
) -> Result<KeySlotId, Failure> {
    let Some(path) = &new.new_key_file else {
        return add_passphrase(context, keyring, store, new.new_passphrase_file.as_deref(), label);
    };
    let (secret, clock) = (Key32::random(), SystemClock::new());
    let remark = key_file::remark(keyring.repository(), &local_time(clock.now()), label);
    // The file first: a slot that nothing opens would be of no use.
    key_file::make(path, &secret, &remark)?;
    let added = keyring.add(&**store, Protection::KeyFile, &Secret::Key(secret), label, &clock);
    if added.is_err() {
        let _ = fs::remove_file(path);
    }
    Ok(added?)
}

fn add_passphrase(
    context: &Context,
    keyring: &Keyring,
    store: &SharedStore,
    file: Option<&Path>,
    label: &str,
) -> Result<KeySlotId, Failure> {
    let source = file.map_or(Source::Prompt, |file| Source::File(file.to_owned()));
    let passphrase = source.new_one(&context.screen, Purpose::Add)?;
    let clock = SystemClock::new();
    let protection = Protection::argon2id(Cost::calibrated(&clock));
    Ok(keyring.add(&**store, protection, &passphrase.into(), label, &clock)?)
}

/// The key slots, opened by a key that was typed in.
fn open_by_key(
    context: &Context,
    args: &ImportKey,
    stored: &Stored,
    store: &SharedStore,
) -> Result<Keyring, Failure> {
    let key = match args.key.as_os_str() == "-" {
        true => {
            if io::stdin().is_terminal() {
                context.screen.say("Type the five lines of the key, and then Ctrl-D:");
            }
            key_file::read_from(io::stdin().lock(), "the key on standard input")?
        }
        false => key_file::read(&args.key)?,
    };
    let mut secret = Some(Secret::Key(key));
    Ok(stored.keyring(&store.describe(), &mut |_| secret.take())?)
}

/// A key for printing.
#[derive(Serialize)]
struct Exported<'a> {
    id: String,
    repository: String,
    label: String,
    created: String,
    at: String,
    way: Option<String>,
    lines: [&'a str; letters::LINES],
}

fn export(
    context: &Context,
    keyring: &Keyring,
    store: &SharedStore,
    args: &ExportKey,
) -> Result<(), Failure> {
    // The paper outlives this machine, and what its settings call the server.
    let Address { at, way } = context.address()?;
    let (key, clock) = (Key32::random(), SystemClock::new());
    let label = args.label.as_deref().unwrap_or("paper");
    let id = keyring.add(&**store, Protection::KeyFile, &Secret::Key(key.clone()), label, &clock)?;
    let (now, repository) = (clock.now(), keyring.repository());
    let mut output = Output::new();
    let written = if context.settings.json {
        let lines = letters::encode(&key);
        let lines = lines.each_ref().map(|line| line.as_str());
        let (label, created) = (escape(label.as_bytes()), rfc3339(now));
        output.json(&Exported {
            id: id.to_string(),
            repository: repository.to_string(),
            label,
            created,
            at,
            way,
            lines,
        })
    } else {
        let remark = key_file::remark(repository, &local_time(now), label);
        let way = way.map_or_else(String::new, |way| format!("{way}\n\n"));
        output.line(format_args!(
            "A key of kitbag. Whoever has it, and the repository's files, can read what is in them.\n\
             {remark}\n\n{}\n\
             {way}To use it, type these five lines into a file that only you can read (chmod 600), and say\n\n    \
             kitbag -r {at} --key-file FILE generations\n\n\
             or set a new passphrase with\n\n    \
             kitbag -r {at} key import FILE\n\n\
             Each line has a checksum: a mistake is found, and its line named. If this paper is lost, take the key away with\n\n    \
             kitbag -r {at} key remove {id}",
            *key_file::numbered(&key)
        ))
    };
    let written = written.and_then(|()| output.finish());
    if written.is_err() {
        // What nobody has read opens nothing for anybody.
        let _ = keyring.remove(&**store, id, None, true);
    }
    written
}

/// Says what was changed: which slot was added, and which removed.
fn say(
    context: &Context,
    text: &str,
    added: Option<KeySlotId>,
    removed: Option<KeySlotId>,
) -> Result<(), Failure> {
    let mut output = Output::new();
    if context.settings.json {
        let (added, removed) = (added.map(|id| id.to_string()), removed.map(|id| id.to_string()));
        output.json(&Changed { added, removed })?;
    } else if context.settings.verbosity > Verbosity::Quiet {
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
        Protection::None | Protection::KeyFile => None,
        Protection::Argon2id { cost, .. } => Some(cost),
    }
}

fn opened_by(slot: &KeySlot) -> &'static str {
    match slot.protection() {
        Protection::None => "nothing",
        Protection::Argon2id { .. } => "passphrase",
        Protection::KeyFile => "key file",
    }
}

fn report(one: &ListedSlot) -> Report {
    let slot = one.slot.as_ref().ok();
    let cost = slot.and_then(cost);
    Report {
        id: one.id.to_string(),
        label: slot.map(|slot| escape(slot.label().as_bytes())),
        created: slot.map(|slot| rfc3339(slot.created())),
        opened_by: slot.map(opened_by),
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
        None if slot.needs_key_file() => "key file".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_stopped_half_way_names_both_slots() {
        let (new, old) = (KeySlotId::random(), KeySlotId::random());
        let failure = half_changed(new, old, KeyError::Last(old));
        let said = failure.to_string();
        assert!(said.contains(&format!("the new key slot {new} was added")), "{said}");
        assert!(
            said.contains(&format!("the old one, {old}")) && said.contains("no other key slot"),
            "{said}"
        );
        assert_eq!(failure.exit, Exit::Failed);
    }
}
