//! Directories made durable, many changes by one fsync.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Knows which changes of which directory the disk has.
///
/// A change takes a ticket after it was made; an fsync covers all tickets given before it began. Whoever finds his ticket covered need not fsync,
/// so a thousand files removed from a directory at once cost a few of them.
pub(super) struct Dirs {
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    next: u64,
    dirs: HashMap<PathBuf, Dir>,
}

#[derive(Default)]
struct Dir {
    /// The ticket of the last directory made in it.
    changed: u64,
    /// All tickets below this are durable.
    through: u64,
    running: bool,
}

impl Dirs {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { next: 1, dirs: HashMap::new() }), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ticket for changes that have been made.
    pub(super) fn ticket(&self) -> u64 {
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        ticket
    }

    /// Remembers that a directory was made in `dir`; who next needs that one durable settles it by [`Dirs::sync_above`].
    pub(super) fn changed(&self, dir: &Path) {
        let ticket = self.ticket();
        self.lock().dirs.entry(dir.to_owned()).or_default().changed = ticket;
    }

    /// Makes the changes of `dir` up to this ticket durable.
    pub(super) fn sync(&self, dir: &Path, ticket: u64) -> io::Result<()> {
        let mut state = self.lock();
        loop {
            let known = state.dirs.entry(dir.to_owned()).or_default();
            if known.through > ticket {
                return Ok(());
            }
            if !known.running {
                known.running = true;
                break;
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let covers = state.next;
        drop(state);
        let here = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let outcome = File::open(here).and_then(|dir| dir.sync_all());
        let mut state = self.lock();
        let known = state.dirs.entry(dir.to_owned()).or_default();
        known.running = false;
        if outcome.is_ok() {
            known.through = known.through.max(covers);
        }
        self.ended.notify_all();
        outcome
    }

    /// Makes the directories above `dir`, up to `top`, durable as far as this store has made directories in them.
    pub(super) fn sync_above(&self, dir: &Path, top: &Path) -> io::Result<()> {
        for above in dir.ancestors().skip(1).take_while(|above| above.starts_with(top)) {
            let changed = self.lock().dirs.get(above).map_or(0, |known| known.changed);
            if changed > 0 {
                self.sync(above, changed)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_fsync_covers_what_was_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = Dirs::new();
        let (first, second) = (dirs.ticket(), dirs.ticket());
        dirs.sync(dir.path(), first).unwrap();
        let through = |dirs: &Dirs| dirs.lock().dirs.get(dir.path()).unwrap().through;
        let covered = through(&dirs);
        assert!(covered > second);
        dirs.sync(dir.path(), second).unwrap();
        assert_eq!(through(&dirs), covered);
        let third = dirs.ticket();
        dirs.sync(dir.path(), third).unwrap();
        assert!(through(&dirs) > third);
    }

    #[test]
    fn the_parent_of_a_relative_name_is_here() {
        let dirs = Dirs::new();
        dirs.sync(Path::new("backup").parent().unwrap(), dirs.ticket()).unwrap();
    }

    #[test]
    fn a_failure_covers_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let dirs = Dirs::new();
        let ticket = dirs.ticket();
        assert!(dirs.sync(&missing, ticket).is_err());
        std::fs::create_dir(&missing).unwrap();
        dirs.sync(&missing, ticket).unwrap();
        std::fs::remove_dir(&missing).unwrap();
        dirs.sync(&missing, ticket).unwrap();
    }
}
