//! `KITBAG_…`: a variable for each common option.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use super::definition::{Definition, Kind, Opt, PASSPHRASE, Place};
use super::{Origin, Setting, Value, checked, mistake};
use crate::base::text::escape;
use crate::cli::daemon;
use crate::cli::environment::Environment;
use crate::cli::error::Failure;
use crate::cli::nearest::nearest;
use crate::store::open::Location;

/// The variable that stands for an option.
#[must_use]
pub fn name_of(key: &str) -> String {
    format!("KITBAG_{}", key.replace('-', "_").to_uppercase())
}

/// What the variables say. An empty one counts as unset, save the passphrase.
///
/// # Errors
/// A value that cannot be meant.
pub fn settings(definition: &Definition, environment: &Environment) -> Result<Vec<Setting>, Failure> {
    let mut found = Vec::new();
    for option in definition.options(&[]).into_iter().filter(|option| option.is_settable) {
        let name = name_of(&option.key);
        let Some(text) = environment.kitbag.get(&name).filter(|text| !text.is_empty()) else { continue };
        let origin = Origin::Variable(name);
        if option.place == Place::Repository {
            // As in a file: a password in it is never shown.
            Location::parse(text).map_err(|error| mistake(&origin, error))?;
        }
        let value = value(&option, text, &origin)?;
        found.push(checked(
            definition,
            Setting { section: Vec::new(), option, value, origin, needs: BTreeSet::new() },
        )?);
    }
    if environment.passphrase.is_some() {
        found.push(passphrase());
    }
    Ok(found)
}

/// Variables that mean something besides those of the options.
const OTHERS: &[&str] =
    &["KITBAG_PASSPHRASE", "KITBAG_CONFIG", "KITBAG_SYSTEM_CONFIG", "KITBAG_PROFILE", daemon::VARIABLE];

/// The first variable that stands for nothing, but looks like one that does, with what was meant.
#[must_use]
pub fn mistyped(definition: &Definition, environment: &Environment) -> Option<(String, String)> {
    let options = definition.options(&[]).into_iter().filter(|option| option.is_settable);
    let known: Vec<String> = options
        .map(|option| name_of(&option.key))
        .chain(OTHERS.iter().map(|&name| name.to_owned()))
        .collect();
    let strange = environment.kitbag.keys().filter(|name| !known.contains(name));
    // Without what all have in common, which would make everything near.
    let short = |name: &str| name.strip_prefix("KITBAG_").unwrap_or(name).to_owned();
    let shorts: Vec<_> = known.iter().map(|name| short(name)).collect();
    strange.into_iter().find_map(|name| {
        let near = nearest(&short(name), shorts.iter().map(String::as_str))?;
        Some((name.clone(), format!("KITBAG_{near}")))
    })
}

fn value(option: &Opt, text: &OsStr, origin: &Origin) -> Result<Value, Failure> {
    let said = || format!("{:?}", escape(text.as_bytes()));
    Ok(match option.kind {
        Kind::Flag => match text.to_str().map(str::to_ascii_lowercase).as_deref() {
            Some("1" | "true" | "yes" | "on") => Value::Flag(true),
            Some("0" | "false" | "no" | "off") => Value::Flag(false),
            _ => return Err(mistake(origin, format!("{} is neither true nor false", said()))),
        },
        Kind::Count => match text.to_str().map(str::parse) {
            Some(Ok(times)) => Value::Count(times),
            _ => return Err(mistake(origin, format!("{} is no number of times", said()))),
        },
        Kind::One => Value::Texts(vec![text.to_owned()]),
        Kind::Many => {
            let lines = text.as_bytes().split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            Value::Texts(lines.map(|line| OsString::from_vec(line.to_vec())).collect())
        }
    })
}

/// `KITBAG_PASSPHRASE`: no option, since everybody on the machine could read it there; but it excludes the options that do the same.
fn passphrase() -> Setting {
    let option = Opt {
        id: PASSPHRASE.to_owned(),
        key: PASSPHRASE.to_owned(),
        kind: Kind::One,
        place: Place::No,
        is_positional: false,
        is_settable: false,
    };
    let origin = Origin::Variable(name_of(PASSPHRASE));
    Setting { section: Vec::new(), option, value: Value::Secret, origin, needs: BTreeSet::new() }
}
