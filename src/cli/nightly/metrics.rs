//! What came of a run, in a file for node-exporter's textfile collector.
//!
//! The collector reads whatever ends in `.prom`, at any time; so the file is replaced as a whole, and everybody may read it. A file is of one client and
//! repository. The time of the last success is taken over from the file that is replaced, so that an alert on its age works
//! through failures. The format is version 0.0.4 of Prometheus' text format.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::base::atomic_file;
use crate::base::time::Timestamp;
use crate::cli::error::Exit;
use crate::store::Traffic;

/// A file that is longer is not one of ours.
const LONGEST: u64 = 64 << 10;

/// The name under which the time of the last success stands.
const LAST_SUCCESS: &str = "kitbag_backup_last_success_timestamp_seconds";

/// A run that came to its end.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// Whose.
    pub client: &'a str,
    /// Where to.
    pub repository: &'a str,
    /// When it ended.
    pub ended: Timestamp,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How it ended.
    pub exit: Exit,
    /// What it did, if it made a backup, or found that there was nothing to do.
    pub figures: Option<Figures>,
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// Files in the generation.
    pub files: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Bytes of contents that the repository did not have.
    pub new_bytes: u64,
    /// Bytes that it was sent to store.
    pub stored_bytes: u64,
    /// Files that could not be saved.
    pub problems: u64,
    /// What went over the wire.
    pub traffic: Traffic,
}

/// Replaces the file at `path` by one on this run.
///
/// # Errors
/// What the system says; the old file stands then.
pub fn write(path: &Path, run: &Run<'_>) -> io::Result<()> {
    let mut before = String::new();
    if let Ok(file) = File::open(path) {
        // What cannot be read says nothing of an earlier success.
        let _ = file.take(LONGEST).read_to_string(&mut before);
    }
    atomic_file::replace_with_mode(path, run.text(&before).as_bytes(), false, 0o644)
}

impl Run<'_> {
    /// The file's text, after one that had the text `before`.
    fn text(&self, before: &str) -> String {
        let labels =
            format!("{{client=\"{}\",repository=\"{}\"}}", escape(self.client), escape(self.repository));
        let mut text = String::new();
        let mut gauge = |name: &str, help: &str, value: &dyn std::fmt::Display| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name}{labels} {value}");
        };
        let ended = format!("{}.{:03}", self.ended.secs, self.ended.nanos / 1_000_000);
        gauge("kitbag_backup_last_run_timestamp_seconds", "When the last run ended.", &ended);
        let success =
            if self.figures.is_some() { Some(ended.as_str()) } else { last_success(before, &labels) };
        if let Some(success) = success {
            gauge(LAST_SUCCESS, "When the last run ended that made a backup.", &success);
        }
        gauge("kitbag_backup_duration_seconds", "How long the last run took.", &self.seconds);
        gauge("kitbag_backup_exit_code", "Exit code of the last run.", &self.exit.code());
        if let Some(Figures { files, bytes, new_bytes, stored_bytes, problems, traffic }) = self.figures {
            let Traffic { requests, serial_waits, bytes_up, bytes_down } = traffic;
            let all = [
                ("files", "Files in the last generation.", files),
                ("bytes", "Bytes of the contents of the files in the last generation.", bytes),
                ("new_bytes", "Bytes of contents that the repository did not have.", new_bytes),
                ("stored_bytes", "Bytes that the last run has stored, after compression.", stored_bytes),
                ("problems", "Files that could not be saved.", problems),
                ("requests", "Requests that the last run has sent.", requests),
                ("serial_waits", "Waits for the server with nothing else in flight.", serial_waits),
                ("sent_bytes", "Bytes of the requests that the last run has sent.", bytes_up),
                ("received_bytes", "Bytes of the answers that the last run has received.", bytes_down),
            ];
            for (name, help, value) in all {
                gauge(&format!("kitbag_backup_{name}"), help, &value);
            }
        }
        text
    }
}

/// The value of the last success in such a text, of the same client and repository.
fn last_success<'a>(text: &'a str, labels: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(LAST_SUCCESS)?.strip_prefix(labels)?.strip_prefix(' ')?;
        value.parse::<f64>().ok().filter(|value| value.is_finite()).map(|_| value)
    })
}

/// A label's value as the format wants it.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(exit: Exit, secs: i64) -> Run<'static> {
        let figures = (exit != Exit::Failed).then(|| Figures { files: 7, ..Figures::default() });
        let ended = Timestamp { secs, nanos: 250_000_000 };
        Run { client: "a \"b\" \\ c", repository: "/r", ended, seconds: 1.5, exit, figures }
    }

    fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
        line.rsplit_once(' ').map(|(_, value)| value)
    }

    #[test]
    fn the_last_success_outlives_failures() {
        let first = run(Exit::Done, 1000).text("");
        assert_eq!(value(&first, LAST_SUCCESS), Some("1000.250"));
        assert_eq!(value(&first, "kitbag_backup_files"), Some("7"));
        let second = run(Exit::Failed, 2000).text(&first);
        assert_eq!(value(&second, LAST_SUCCESS), Some("1000.250"));
        assert_eq!(value(&second, "kitbag_backup_last_run_timestamp_seconds"), Some("2000.250"));
        assert_eq!(value(&second, "kitbag_backup_exit_code"), Some("1"));
        assert_eq!(value(&second, "kitbag_backup_files"), None);
        let third = run(Exit::Incomplete, 3000).text(&second);
        assert_eq!(value(&third, LAST_SUCCESS), Some("3000.250"));
    }

    #[test]
    fn what_is_anothers_or_nonsense_is_not_taken_over() {
        let mut other = run(Exit::Done, 1000);
        other.client = "other";
        assert_eq!(value(&run(Exit::Failed, 2000).text(&other.text("")), LAST_SUCCESS), None);
        let nonsense = run(Exit::Done, 1000).text("").replace("1000.250", "inf");
        assert_eq!(value(&run(Exit::Failed, 2000).text(&nonsense), LAST_SUCCESS), None);
    }

    #[test]
    fn labels_are_escaped() {
        assert!(run(Exit::Done, 1).text("").contains("{client=\"a \\\"b\\\" \\\\ c\",repository=\"/r\"} "));
        assert_eq!(escape("a\nb"), "a\\nb");
    }

    #[test]
    fn everybody_may_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("kitbag.prom");
        write(&path, &run(Exit::Done, 1000)).expect("written");
        write(&path, &run(Exit::Failed, 2000)).expect("written");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o644);
        assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 1);
        assert!(std::fs::read_to_string(&path).expect("read").contains("1000.250"));
    }
}
