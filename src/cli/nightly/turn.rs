//! One run of a backup at a time, as far as this machine knows: of these roots, of this client, to this repository.
//!
//! Two at once would do no harm to the repository, but the second would do the first one's work again. So a run locks a small file that is
//! named after all three. (Runs with other roots go beside it: to leave those to it would be to leave them out.) The lock is the kernel's, on an open file: it goes with the process, however that ends, and is never stale. The
//! file stays. Where files cannot be locked (some network file systems), or none can be made, everybody has a turn.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::base::cancel::Cancel;

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
        while !cancel.is_cancelled() {
            match self.ask(backup) {
                Asked::Ours(turn) => return Some(turn),
                Asked::Taken(_) => std::thread::sleep(LOOK),
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
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Not truncated: it may be another's.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(dir.join(name))
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
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.wait(&["/r", "laptop"], &cancel).is_some());
            drop(turn);
            assert!(waiting.join().expect("no panic"));
        });
        let _turn = turns.ask(&["/r", "laptop"]);
        cancel.cancel();
        assert!(turns.wait(&["/r", "laptop"], &cancel).is_none());
    }

    #[test]
    fn without_a_place_everybody_has_a_turn() {
        let turns = Turns::new([PathBuf::from("/proc/no-such-place")]);
        let _first = turns.ask(&["/r", "laptop"]);
        assert!(matches!(turns.ask(&["/r", "laptop"]), Asked::Ours(Turn { _file: None })));
    }
}
