//! One run of a backup at a time, as far as this machine knows: of these roots, of this client, to this repository.
//!
//! Two at once would do no harm to the repository, but the second would do the first one's work again. So a run locks a small file that is
//! named after all three. It lies where only this user can put anything, lest others make it stand for a file of this user, which would be overwritten. (Runs with other roots go beside it: to leave those to it would be to leave them out.) The lock is the kernel's, on an open file: it goes with the process, however that ends, and is never stale. The
//! file stays until nobody has asked for it in a month, and is removed only by who holds its lock; so who gets the lock looks whether the file is still there. Where files cannot be locked (some network file systems), or none can be made, everybody has a turn.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::base::cancel::Cancel;
use crate::base::time::{Clock as _, SystemClock};
use crate::cache::own::{TURNS, home_directory};
use crate::cache::private_directory;

/// How often to look whether the other one is done.
const LOOK: Duration = Duration::from_millis(200);

/// How long a file stays that nobody asks for.
const UNUSED_SECS: i64 = 30 * 24 * 3600;

/// The right to back up, until dropped.
#[derive(Debug)]
pub struct Turn {
    /// Holds the lock.
    _file: Option<File>,
}

/// What asking for a turn has brought.
#[derive(Debug)]
pub enum Asked {
    /// It is ours.
    Ours(Turn),
    /// Another process has it; its id, where that could be read.
    Taken(Option<u32>),
}

/// Where the turns of one user are taken.
#[derive(Debug, Clone)]
pub struct Turns(Vec<PathBuf>);

impl Turns {
    /// In a directory `turns` in the first of these directories that can be had. They should not depend on options, or runs with different ones would
    /// not meet.
    #[must_use]
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(directories.into_iter().map(|dir| dir.join(TURNS)).collect())
    }

    /// Asks for the turn of the backup that these words tell from all others, without waiting.
    #[must_use]
    pub fn ask(&self, backup: &[&str]) -> Asked {
        let Some((mut file, dir)) = self.file(backup) else { return Asked::Ours(Turn { _file: None }) };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // It was removed meanwhile: whoever comes next would not see the lock.
            Ok(()) if file.metadata().is_ok_and(|metadata| metadata.nlink() == 0) => self.ask(backup),
            Ok(()) => {
                let now = SystemClock::new().now().secs;
                sweep(dir, |metadata| now.saturating_sub(metadata.mtime()) > UNUSED_SECS);
                // Who it is helps the others, and nothing depends on it.
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                Asked::Ours(Turn { _file: Some(file) })
            }
            Err(Errno::WOULDBLOCK) => Asked::Taken(holder(&mut file)),
            Err(error) => {
                ::tracing::debug!(%error, "files cannot be locked here: whether another backup is going is not known");
                Asked::Ours(Turn { _file: None })
            }
        }
    }

    /// Removes the files of all turns that nobody has.
    pub fn clear(&self) {
        for dir in &self.0 {
            sweep(dir, |_| true);
            // It stays where a turn is taken.
            let _ = fs::remove_dir(dir);
        }
    }

    /// Waits for the turn; `None` when somebody asked to stop meanwhile.
    #[must_use]
    pub fn wait(&self, backup: &[&str], cancel: &Cancel) -> Option<Turn> {
        self.wait_by(backup, cancel, || std::thread::sleep(LOOK))
    }

    /// Asks again and again, with a pause after each time that it is taken.
    fn wait_by(&self, backup: &[&str], cancel: &Cancel, mut pause: impl FnMut()) -> Option<Turn> {
        while !cancel.is_cancelled() {
            match self.ask(backup) {
                Asked::Ours(turn) => return Some(turn),
                Asked::Taken(_) => pause(),
            }
        }
        None
    }

    /// The file of a backup, and the directory that it is in.
    fn file(&self, backup: &[&str]) -> Option<(File, &Path)> {
        let mut name = blake3::Hasher::new();
        for part in backup {
            name.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes()).update(part.as_bytes());
        }
        let name = name.finalize().to_hex();
        self.0.iter().find_map(|dir| match open(dir, name.as_str()) {
            Ok(file) => Some((file, dir.as_path())),
            Err(error) => {
                ::tracing::debug!(%error, dir = %dir.display(), "no place for turns");
                None
            }
        })
    }
}

/// Removes files that nobody has locked. One that cannot be removed does no harm.
fn sweep(dir: &Path, is_unwanted: impl Fn(&Metadata) -> bool) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_turn = entry.file_name().to_str().is_some_and(|name| blake3::Hash::from_hex(name).is_ok());
        if !is_turn || !entry.metadata().is_ok_and(|metadata| metadata.is_file() && is_unwanted(&metadata)) {
            continue;
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        if let Ok(file) = options.open(entry.path()) {
            remove(&file, &entry.path());
        }
    }
}

/// Removes the file at `path` if it is this one, and nobody has locked it.
fn remove(file: &File, path: &Path) {
    // Since it was opened, it may have been removed by another, and the file there now be somebody's turn.
    let is_there = || {
        let (Ok(this), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
        (this.dev(), this.ino()) == (there.dev(), there.ino())
    };
    // Only who holds the lock removes it, so while it is ours it stays what is there.
    if flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_there() {
        let _ = fs::remove_file(path);
    }
}

fn open(dir: &Path, name: &str) -> io::Result<File> {
    if let Some(above) = dir.parent() {
        home_directory(above).map_err(io::Error::other)?;
    }
    private_directory(dir).map_err(io::Error::other)?;
    // Not truncated: it may be another's.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(dir.join(name))?;
    let metadata = file.metadata()?;
    match metadata.is_file() && metadata.uid() == rustix::process::geteuid().as_raw() {
        true => Ok(file),
        false => Err(io::Error::other(format!("{name} there is no file of this user"))),
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_of_each_backup() {
        let dir = tempfile::tempdir().expect("a directory");
        let turns = Turns::new([PathBuf::from("/proc/no-such-place"), dir.path().to_owned()]);
        let Asked::Ours(turn) = turns.ask(&["sftp://server/backup", "laptop"]) else { panic!("not taken") };
        let Asked::Taken(holder) = turns.ask(&["sftp://server/backup", "laptop"]) else { panic!("taken") };
        assert_eq!(holder, Some(std::process::id()));
        assert!(matches!(turns.ask(&["sftp://server/backup", "desktop"]), Asked::Ours(_)));
        assert!(matches!(turns.ask(&["sftp://server/backupl", "aptop"]), Asked::Ours(_)));
        drop(turn);
        assert!(matches!(turns.ask(&["sftp://server/backup", "laptop"]), Asked::Ours(_)));
    }

    #[test]
    fn waiting_ends_with_the_others_turn_or_with_a_wish_to_stop() {
        let dir = tempfile::tempdir().expect("a directory");
        let turns = Turns::new([dir.path().to_owned()]);
        let Asked::Ours(turn) = turns.ask(&["/r", "laptop"]) else { panic!("not taken") };
        let (cancel, mut turns_of_the_other, mut pauses) = (Cancel::new(), vec![turn], 0);
        let ours = turns.wait_by(&["/r", "laptop"], &cancel, || {
            pauses += 1;
            if pauses == 2 {
                turns_of_the_other.clear();
            }
        });
        assert!(ours.is_some() && pauses == 2, "{pauses}");
        assert!(turns.wait_by(&["/r", "laptop"], &cancel, || cancel.cancel()).is_none());
        drop(ours);
        assert!(turns.wait(&["/r", "laptop"], &cancel).is_none(), "who asked to stop gets no turn");
    }

    #[test]
    fn files_go_when_nobody_has_asked_for_them_for_long() {
        let dir = tempfile::tempdir().expect("a directory");
        let turns = Turns::new([dir.path().to_owned()]);
        let names = || {
            let entries = fs::read_dir(dir.path().join("turns")).into_iter().flatten();
            entries.map(|entry| entry.expect("an entry").path()).collect::<std::collections::BTreeSet<_>>()
        };
        let Asked::Ours(long) = turns.ask(&["/r", "long"]) else { panic!("not taken") };
        let held = names();
        for client in ["old", "new"] {
            drop(turns.ask(&["/r", client]));
        }
        fs::write(dir.path().join("turns/another's"), "x").expect("written");
        let age = |path: &PathBuf, days: u64| {
            let file = File::options().write(true).open(path).expect("there");
            let now = dir.path().metadata().and_then(|metadata| metadata.modified()).expect("a time");
            file.set_modified(now - Duration::from_secs(days * 24 * 3600)).expect("set");
        };
        let before = names();
        before.iter().for_each(|path| age(path, 31));
        let Asked::Ours(new) = turns.ask(&["/r", "new"]) else { panic!("not taken") };
        let after = names();
        assert_eq!((before.len(), after.len()), (4, 3), "{after:?}");
        assert!(after.is_superset(&held), "a turn is taken however long it takes");
        after.iter().for_each(|path| age(path, 29));
        drop((new, turns.ask(&["/r", "newer"])));
        assert_eq!(names().len(), 4);
        turns.clear();
        assert_eq!(names().len(), 2, "the one that is held, and what is not kitbag's");
        drop(long);
        fs::remove_file(dir.path().join("turns/another's")).expect("removed");
        turns.clear();
        assert!(!dir.path().join("turns").exists());
    }

    #[test]
    fn a_file_that_was_removed_is_no_turn() {
        let dir = tempfile::tempdir().expect("a directory");
        let turns = Turns::new([dir.path().to_owned()]);
        let backup = ["/r", "laptop"];
        let (waiting, _) = turns.file(&backup).expect("opened, and not locked yet");
        turns.clear();
        assert_eq!(waiting.metadata().expect("open").nlink(), 0);
        let Asked::Ours(turn) = turns.ask(&backup) else { panic!("not taken") };
        assert!(matches!(turns.ask(&backup), Asked::Taken(_)));
        drop(turn);
    }

    #[test]
    fn whoever_was_late_to_remove_a_file_leaves_the_next_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let turns = Turns::new([dir.path().to_owned()]);
        let backup = ["/r", "laptop"];
        let (late, place) = turns.file(&backup).expect("opened, and not locked yet");
        let places = fs::read_dir(place).expect("it was made");
        let path = places.map(|entry| entry.expect("an entry").path()).next().expect("a file");
        turns.clear();
        let Asked::Ours(turn) = turns.ask(&backup) else { panic!("not taken") };
        remove(&late, &path);
        assert!(path.exists(), "it is another one by now");
        assert!(matches!(turns.ask(&backup), Asked::Taken(_)));
        drop(turn);
        remove(&File::open(&path).expect("there"), &path);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_link_leads_to_is_left_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let turns = Turns::new([dir.path().to_owned()]);
        drop(turns.ask(&["/r", "laptop"]));
        let places = fs::read_dir(dir.path().join("turns")).expect("it was made");
        let place = places.map(|entry| entry.expect("an entry").path()).next().expect("a file");
        let precious = dir.path().join("precious");
        fs::write(&precious, "precious").expect("written");
        fs::remove_file(&place).expect("removed");
        std::os::unix::fs::symlink(&precious, &place).expect("a link");
        assert!(matches!(turns.ask(&["/r", "laptop"]), Asked::Ours(Turn { _file: None })));
        assert_eq!(fs::read_to_string(&precious).expect("it is there"), "precious");
    }

    #[test]
    fn a_directory_of_another_user_is_no_place() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: only root can give directories away");
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let turns = dir.path().join("turns");
        fs::create_dir(&turns).expect("made");
        std::os::unix::fs::chown(&turns, Some(1), None).expect("given away");
        let asked = Turns::new([dir.path().to_owned()]).ask(&["/r", "laptop"]);
        assert!(matches!(asked, Asked::Ours(Turn { _file: None })));
    }

    #[test]
    fn without_a_place_everybody_has_a_turn() {
        let turns = Turns::new([PathBuf::from("/proc/no-such-place")]);
        let _first = turns.ask(&["/r", "laptop"]);
        assert!(matches!(turns.ask(&["/r", "laptop"]), Asked::Ours(Turn { _file: None })));
    }
}
