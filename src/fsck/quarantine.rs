//! Taking files out of the way that stand where only readable ones may.
//!
//! A generation record that cannot be read keeps garbage from being collected, since nobody knows what it needs. It is renamed to `quarantine/`, from where a person may take it back, should a better copy of
//! it turn up; nothing is ever removed. What was written by a later kitbag, or could not be fetched, is left alone: it may be sound.

use super::FsckError;
use super::report::Report;
use crate::base::id::TagsId;
use crate::store::{ErrorKind, Name, Store, layout};

/// Renames these files: three round trips. Gives how many were there to be renamed.
///
/// # Errors
/// What the store says. Those renamed until then stay so.
pub fn run(store: &dyn Store, broken: &[Name], report: &Report<'_>) -> Result<u64, FsckError> {
    if broken.is_empty() {
        return Ok(0);
    }
    store.make_dir(&layout::directory(layout::QUARANTINE)).wait()?;
    let moves: Vec<_> = broken
        .iter()
        .map(|name| {
            let to = layout::quarantined(name);
            (name, store.rename(name, &to), to)
        })
        .collect();
    let (mut moved, mut taken) = (0u64, Vec::new());
    for (name, renamed, to) in moves {
        match renamed.wait() {
            Ok(()) => {
                moved = moved.saturating_add(1);
                report.note(name.as_str(), format!("it is now {to}"));
            }
            // Somebody put it back from there, in vain.
            Err(error) if error.kind == ErrorKind::Exists => {
                let to = to.with_suffix(&format!(".{}", TagsId::random()));
                taken.push((name, store.rename(name, &to), to));
            }
            // It was forgotten meanwhile.
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    for (name, renamed, to) in taken {
        renamed.wait()?;
        moved = moved.saturating_add(1);
        report.note(name.as_str(), format!("it is now {to}"));
    }
    Ok(moved)
}
