//! The words of the live display: a pure function of what was counted.

use super::human;
use super::rate::Rate;
use crate::base::text::escape;

/// What is being done, which decides what is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Files are read and sent.
    Backup,
    /// Files are fetched and written.
    Restore,
    /// The repository is read and checked.
    Check,
    /// Files are read and compared.
    Verify,
}

/// The counts at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// What the operation says it is at: "walking"; empty at first.
    pub phase: &'static str,
    /// Files seen.
    pub files: u64,
    /// Bytes of these files.
    pub file_bytes: u64,
    /// Files whose contents were read.
    pub files_read: u64,
    /// Bytes read from them.
    pub bytes_read: u64,
    /// Bytes of contents that the repository did not have.
    pub new_bytes: u64,
    /// Bytes to send, as far as known.
    pub queued: u64,
    /// Bytes of these that the server has acknowledged.
    pub stored: u64,
    /// Files restored.
    pub restored_files: u64,
    /// Bytes of their contents.
    pub restored_bytes: u64,
    /// Objects checked.
    pub checked: u64,
    /// The file that work began on last.
    pub path: Vec<u8>,
}

impl Snapshot {
    /// The counter whose growth is the job's speed, in bytes.
    #[must_use]
    pub fn moved(&self, job: Job) -> u64 {
        match job {
            Job::Backup => self.stored,
            Job::Restore => self.restored_bytes,
            Job::Verify => self.bytes_read,
            Job::Check => 0,
        }
    }

    /// The first line: what was done so far.
    #[must_use]
    pub fn done(&self, job: Job) -> String {
        let text = match job {
            Job::Backup => format!(
                "{}, {} scanned",
                human::counted(self.files, "file", "files"),
                human::bytes(self.file_bytes)
            ),
            Job::Restore => format!(
                "{}, {} restored",
                human::counted(self.restored_files, "file", "files"),
                human::bytes(self.restored_bytes)
            ),
            Job::Verify => format!(
                "{}, {} compared",
                human::counted(self.files_read, "file", "files"),
                human::bytes(self.bytes_read)
            ),
            Job::Check => human::counted(self.checked, "object checked", "objects checked"),
        };
        if self.phase.is_empty() { text } else { format!("{}: {text}", self.phase) }
    }

    /// The second line: what goes over the wire, how fast, and how long the rest will take.
    ///
    /// Bytes to send grow while files are still being read, so the time left is that of what is known to be left. The
    /// share is never 100 %: while a byte is outstanding it is rounded down to 99, and when none is, more may come; the display is
    /// taken away when all is done.
    #[must_use]
    pub fn moving(&self, job: Job, rate: &Rate) -> String {
        let speed = rate.per_second().filter(|&speed| speed > 0);
        let speed = speed.map(|speed| format!(", {}/s", human::bytes(speed))).unwrap_or_default();
        match job {
            Job::Check => String::new(),
            Job::Restore | Job::Verify => speed.trim_start_matches(", ").to_owned(),
            Job::Backup => {
                let share = match self.share() {
                    Some(share) => format!(" ({share} %)"),
                    None => String::new(),
                };
                let rest = self.queued.saturating_sub(self.stored);
                let left = rate.time_for(rest).filter(|_| rest > 0);
                let left = left.map(|left| format!(", {} left", human::duration(left))).unwrap_or_default();
                format!(
                    "{} of {} sent{share}{speed}{left}",
                    human::bytes(self.stored),
                    human::bytes(self.queued)
                )
            }
        }
    }

    /// Per cent of what is to be sent that was sent, 99 at most; `None` when nothing is to be sent.
    #[must_use]
    pub fn share(&self) -> Option<u64> {
        let share = (u128::from(self.stored) * 100).checked_div(u128::from(self.queued))?;
        Some(u64::try_from(share).unwrap_or(99).min(99))
    }

    /// The third line: the current file, cut at its beginning to fit `width` columns.
    #[must_use]
    pub fn current(&self, width: usize) -> String {
        let path = escape(&self.path);
        let length = path.chars().count();
        if length <= width {
            return path;
        }
        let kept = width.saturating_sub(1);
        let mut text = String::from("…");
        text.extend(path.chars().skip(length - kept));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sending(stored: u64, queued: u64) -> Snapshot {
        Snapshot { files: 2, file_bytes: 3 << 20, stored, queued, ..Snapshot::default() }
    }

    #[test]
    fn never_at_100_per_cent() {
        assert_eq!(sending(0, 0).share(), None);
        assert_eq!(sending(999, 1000).share(), Some(99));
        assert_eq!(sending(1000, 1000).share(), Some(99));
        assert_eq!(sending(u64::MAX, u64::MAX).share(), Some(99));
    }

    #[test]
    fn a_backup_in_words() {
        let mut rate = Rate::default();
        rate.sample(Duration::ZERO, 0);
        rate.sample(Duration::from_secs(1), 1 << 20);
        let snapshot = sending(1 << 20, 4 << 20);
        assert_eq!(snapshot.done(Job::Backup), "2 files, 3.0 MiB scanned");
        let moving = snapshot.moving(Job::Backup, &rate);
        assert_eq!(moving, "1.0 MiB of 4.0 MiB sent (25 %), 1.0 MiB/s, 3.00 s left");
    }

    #[test]
    fn names_are_escaped_and_cut_at_their_beginning() {
        let snapshot = Snapshot { path: b"/home/ada/a\x1b[2Jb".to_vec(), ..Snapshot::default() };
        assert_eq!(snapshot.current(80), "/home/ada/a\\x1b[2Jb");
        assert_eq!(snapshot.current(5), "…[2Jb");
    }
}
