//! One run of a backup at a time, as far as this machine knows: of these roots, of this client, to this repository.
//!
//! Two at once would do no harm to the repository, but the second would do the first one's work again. So a run locks a small file that is
//! named after all three. It lies where only this user can put anything, lest others make it stand for a file of this user, which would be overwritten. (Runs with other roots go beside it: to leave those to it would be to leave them out.) The lock is the kernel's, on an open file: it goes with the process, however that ends, and is never stale. The
//! file stays. Where files cannot be locked (some network file systems), or none can be made, everybody has a turn.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::base::cancel::Cancel;
use crate::cache::private_directory;

/// How often to look whether the other one is done.
const LOOK: Duration = Duration::from_millis(200);

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
        Self(directories.into_iter().map(|dir| dir.join("turns")).collect())
    }

    /// Asks for the turn of the backup that these words tell from all others, without waiting.
    #[must_use]
    pub fn ask(&self, backup: &[&str]) -> Asked {
        let Some(mut file) = self.file(backup) else { return Asked::Ours(Turn { _file: None }) };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
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

    fn file(&self, backup: &[&str]) -> Option<File> {
        let mut name = blake3::Hasher::new();
        for part in backup {
            name.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes()).update(part.as_bytes());
        }
        let name = name.finalize().to_hex();
        let open = |dir: &PathBuf| {
            open(dir, name.as_str())
                .map_err(|error| ::tracing::debug!(%error, dir = %dir.display(), "no place for turns"))
                .ok()
        };
        self.0.iter().find_map(open)
    }
}

fn open(dir: &Path, name: &str) -> io::Result<File> {
    for dir in dir.parent().into_iter().chain([dir]) {
        private_directory(dir).map_err(io::Error::other)?;
    }
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
    fn what_a_link_leads_to_is_left_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let turns = Turns::new([dir.path().to_owned()]);
        drop(turns.ask(&["/r", "laptop"]));
        let places = std::fs::read_dir(dir.path().join("turns")).expect("it was made");
        let place = places.map(|entry| entry.expect("an entry").path()).next().expect("a file");
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "precious").expect("written");
        std::fs::remove_file(&place).expect("removed");
        std::os::unix::fs::symlink(&precious, &place).expect("a link");
        assert!(matches!(turns.ask(&["/r", "laptop"]), Asked::Ours(Turn { _file: None })));
        assert_eq!(std::fs::read_to_string(&precious).expect("it is there"), "precious");
    }

    #[test]
    fn a_directory_of_another_user_is_no_place() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: only root can give directories away");
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let turns = dir.path().join("turns");
        std::fs::create_dir(&turns).expect("made");
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
