//! The log file: what is said and what happens inside, with the time, for whoever looks later.
//!
//! It is opened anew by each run and only ever appended to, a line at a time, so it can be rotated and shared by several runs. Nobody
//! but its owner may read it: paths are in it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::error::Failure;
use crate::base::text::{escape, system};
use crate::base::time::{Clock as _, SystemClock, Timestamp};

/// How much a line matters; the first matter most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed, or could not be done wholly.
    Error,
    /// Something may be wrong.
    Warning,
    /// Worth saying.
    Note,
    /// The ordinary course of things.
    Info,
    /// What happens inside.
    Debug,
    /// All of it.
    Trace,
}

impl Level {
    /// The number of syslog and the journal.
    #[must_use]
    pub fn priority(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Note => 5,
            Self::Info => 6,
            Self::Debug | Self::Trace => 7,
        }
    }

    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl From<tracing::Level> for Level {
    fn from(level: tracing::Level) -> Self {
        match level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warning,
            tracing::Level::INFO => Self::Info,
            tracing::Level::DEBUG => Self::Debug,
            tracing::Level::TRACE => Self::Trace,
        }
    }
}

/// An open log file.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    most: Level,
}

impl LogFile {
    /// Opens it for appending, and makes it (0600) where there is none. What matters less than `most` is left out.
    ///
    /// # Errors
    /// When it cannot be written to, in a sentence.
    pub fn open(path: &Path, most: Level) -> Result<Self, Failure> {
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let file = opened.map_err(|error| {
            let path = escape(path.as_os_str().as_encoded_bytes());
            let failure = Failure::failed(format!("cannot write the log file {path}: {}", system(&error)));
            failure.about("log-file").hint("--log-file names a file in a directory that is there and yours")
        })?;
        Ok(Self { file, most })
    }

    /// The level that is written down to.
    #[must_use]
    pub fn most(&self) -> Level {
        self.most
    }

    /// Adds a line (several for a text of several).
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, level: Level, text: &str) -> io::Result<()> {
        if level > self.most {
            return Ok(());
        }
        let (time, process) = (stamp(SystemClock::new().now()), std::process::id());
        text.lines().try_for_each(|line| {
            let line = format!("{time} kitbag[{process}] {}: {line}\n", level.word());
            // In one piece, so that those of other processes do not come in between.
            (&self.file).write_all(line.as_bytes())
        })
    }
}

/// The time in UTC, to the millisecond.
fn stamp(time: Timestamp) -> String {
    match i32::try_from(time.nanos).map(|nanos| jiff::Timestamp::new(time.secs, nanos)) {
        Ok(Ok(stamp)) => stamp.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
        _ => format!("@{}", time.secs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn lines_are_appended_for_nobody_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        for text in ["one", "two\nlines"] {
            let log = LogFile::open(&path, Level::Info).expect("opened");
            log.write(Level::Error, text).expect("written");
            log.write(Level::Debug, "too much").expect("left out");
        }
        let text = std::fs::read_to_string(&path).expect("read");
        let ends: Vec<_> = text.lines().map(|line| line.split_once("] ").expect("a stamp").1).collect();
        assert_eq!(ends, ["error: one", "error: two", "error: lines"]);
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(LogFile::open(dir.path(), Level::Info).is_err());
    }

    #[test]
    fn stamps_can_be_sorted() {
        assert_eq!(stamp(Timestamp { secs: 1, nanos: 2_000_000 }), "1970-01-01T00:00:01.002Z");
        assert_eq!(stamp(Timestamp { secs: i64::MAX, nanos: 0 }), "@9223372036854775807");
    }
}
