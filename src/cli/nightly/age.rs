//! How old the last backup is, judged for a monitor: the rules and the line of a Nagios plugin.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::base::id::GenerationId;
use crate::base::text::escape;
use crate::base::time::Timestamp;
use crate::cli::human::{counted, duration, rfc3339};

/// What the monitor is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// All is well.
    Ok,
    /// Somebody should look.
    Warning,
    /// Somebody must.
    Critical,
    /// It could not be found out.
    Unknown,
}

/// From which age on it is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A warning when older.
    pub warn: Duration,
    /// Critical when older.
    pub critical: Duration,
}

/// What is known of a client.
#[derive(Debug, Clone, Default)]
pub struct Client {
    /// Its name.
    pub name: String,
    /// Its newest generation that is complete and not dated in the future, and when that began.
    pub newest: Option<(GenerationId, Timestamp)>,
    /// Generations that are dated in the future.
    pub future: u64,
    /// Generations that cannot be read.
    pub unreadable: u64,
}

/// One client, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    client: String,
    /// What the monitor is told of it.
    pub state: State,
    age_seconds: Option<u64>,
    warn_seconds: u64,
    critical_seconds: u64,
    last: Option<String>,
    last_started: Option<String>,
    future: u64,
    unreadable: u64,
}

impl State {
    /// As Nagios writes it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

impl Client {
    /// Judges it at `now`. No backup at all is critical. What is dated in the future, or cannot be read, is worth a warning.
    #[must_use]
    pub fn judge(&self, limits: Limits, now: Timestamp) -> Judgement {
        let age = self.newest.map(|(_, started)| {
            // A clock that was set back by less than a minute makes it no older than now.
            Duration::from_secs(u64::try_from(now.secs.saturating_sub(started.secs)).unwrap_or(0))
        });
        let by_age = match age {
            None => State::Critical,
            Some(age) if age > limits.critical => State::Critical,
            Some(age) if age > limits.warn => State::Warning,
            Some(_) => State::Ok,
        };
        let is_odd = self.future > 0 || self.unreadable > 0;
        Judgement {
            client: escape(self.name.as_bytes()),
            state: by_age.max(if is_odd { State::Warning } else { State::Ok }),
            age_seconds: age.map(|age| age.as_secs()),
            warn_seconds: limits.warn.as_secs(),
            critical_seconds: limits.critical.as_secs(),
            last: self.newest.map(|(id, _)| id.to_string()),
            last_started: self.newest.map(|(_, started)| rfc3339(started)),
            future: self.future,
            unreadable: self.unreadable,
        }
    }
}

impl Judgement {
    fn words(&self) -> String {
        let age =
            self.age_seconds.map(|age| format!("last backup {} ago", duration(Duration::from_secs(age))));
        let mut text = format!("{}: {}", self.client, age.as_deref().unwrap_or("no complete backup"));
        let mut odd = |count: u64, what: &str| {
            if count > 0 {
                // Writing to a string does not fail.
                let _ = write!(text, ", {} {what}", counted(count, "generation", "generations"));
            }
        };
        odd(self.future, "dated in the future");
        odd(self.unreadable, "unreadable");
        // What stands behind a bar is data, and the line is one.
        text.replace(['|', '\n'], "_")
    }

    fn figures(&self, label: &str) -> Option<String> {
        let label = label.replace('\'', "''").replace(['=', '|', '\n'], "_");
        let is_plain = !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let label = if is_plain { label } else { format!("'{label}'") };
        self.age_seconds.map(|age| format!("{label}={age}s;{};{}", self.warn_seconds, self.critical_seconds))
    }
}

/// The state of all of them, which is that of the worst; critical when there are none.
#[must_use]
pub fn worst(judged: &[Judgement]) -> State {
    judged.iter().map(|one| one.state).max().unwrap_or(State::Critical)
}

/// The plugin's line, the worst clients first. Of one client the figure is called `age`, of several it has the client's name.
#[must_use]
pub fn line(judged: &[Judgement]) -> String {
    let mut sorted: Vec<_> = judged.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse(one.state));
    let words: Vec<_> = sorted.iter().map(|one| one.words()).collect();
    let figures: Vec<_> = judged
        .iter()
        .filter_map(|one| one.figures(if judged.len() == 1 { "age" } else { &one.client }))
        .collect();
    let words = if words.is_empty() { "no client has a backup".to_owned() } else { words.join("; ") };
    let bar = if figures.is_empty() { "" } else { " | " };
    format!("{} - {words}{bar}{}", worst(judged).word(), figures.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { secs: 1_000_000, nanos: 0 };
    const LIMITS: Limits =
        Limits { warn: Duration::from_secs(93_600), critical: Duration::from_secs(180_000) };

    fn client(name: &str, age: Option<i64>) -> Client {
        let newest = age.map(|age| {
            (GenerationId::from_slice(&[7; 8]).expect("an id"), Timestamp { secs: NOW.secs - age, nanos: 0 })
        });
        Client { name: name.to_owned(), newest, ..Client::default() }
    }

    #[test]
    fn ages_at_their_limits() {
        for (age, state) in [
            (Some(-30), State::Ok),
            (Some(0), State::Ok),
            (Some(93_600), State::Ok),
            (Some(93_601), State::Warning),
            (Some(180_000), State::Warning),
            (Some(180_001), State::Critical),
            (None, State::Critical),
        ] {
            assert_eq!(client("laptop", age).judge(LIMITS, NOW).state, state, "{age:?}");
        }
    }

    #[test]
    fn the_line_of_one() {
        let judged = [client("laptop", Some(12_000)).judge(LIMITS, NOW)];
        assert_eq!(line(&judged), "OK - laptop: last backup 3 h 20 min ago | age=12000s;93600;180000");
        let judged = [client("laptop", None).judge(LIMITS, NOW)];
        assert_eq!(line(&judged), "CRITICAL - laptop: no complete backup");
        assert_eq!(line(&[]), "CRITICAL - no client has a backup");
    }

    #[test]
    fn what_is_odd_is_a_warning_at_least() {
        for (future, unreadable, words) in
            [(1, 0, "1 generation dated in the future"), (0, 2, "2 generations unreadable")]
        {
            let judged = Client { future, unreadable, ..client("laptop", Some(1)) }.judge(LIMITS, NOW);
            assert_eq!(judged.state, State::Warning);
            assert!(line(&[judged]).contains(words));
        }
        let judged = Client { future: 1, ..client("laptop", None) }.judge(LIMITS, NOW);
        assert_eq!(judged.state, State::Critical);
    }

    #[test]
    fn the_worst_of_several_comes_first() {
        let judged =
            [client("a", Some(1)).judge(LIMITS, NOW), client("b's|=\n", Some(100_000)).judge(LIMITS, NOW)];
        let line = line(&judged);
        assert!(line.starts_with("WARNING - b's_=\\n: last backup 27 h 46 min ago; a: last"), "{line}");
        assert!(line.ends_with(" | a=1s;93600;180000 'b''s__\\n'=100000s;93600;180000"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
