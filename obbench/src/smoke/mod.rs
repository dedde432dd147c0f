//! The promises that hold on every machine: counts that are exact, and ratios that are generous.
//!
//! Each [`Row`] makes what it needs through the [`Bench`], which keeps trees and yardsticks for the rows after it, and
//! gives [`Figure`]s with their limits. Ratios are always against something measured in the same run on the same
//! machine, so they say something on a loaded one as well; where two runs are compared, the better of several counts.

mod bench;
mod mounted;
mod rows;

use std::fmt;

pub use bench::{Bench, Options};
pub use rows::ROWS;

/// A group of figures that are measured together.
pub struct Row {
    /// What `--only` takes.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// Takes minutes: measured only where all is measured at full size, or where it is named.
    pub is_long: bool,
    /// Measures.
    pub run: fn(&mut Bench) -> Result<Vec<Figure>, SmokeError>,
}

/// Something measured, and what it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The figure.
    pub measured: f64,
    /// The limit, which is allowed itself.
    pub limit: f64,
    /// Which side of the limit is good.
    pub good: Good,
    /// Behind the numbers.
    pub unit: &'static str,
    /// What a ratio was made of; empty where there is nothing to add.
    pub of: String,
}

/// Which side of a limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Good {
    /// At most the limit.
    Low,
    /// At least the limit.
    High,
}

/// How much worse than its limit a time may be where all of this has to pass: what else the machine does is in it.
const LENIENCE: f64 = 2.0;

impl Figure {
    /// A figure that is to be at most the limit.
    #[must_use]
    pub fn at_most(name: impl Into<String>, measured: f64, limit: f64, unit: &'static str) -> Self {
        Self { name: name.into(), measured, limit, good: Good::Low, unit, of: String::new() }
    }

    /// A figure that is to be at least the limit.
    #[must_use]
    pub fn at_least(name: impl Into<String>, measured: f64, limit: f64, unit: &'static str) -> Self {
        Self { name: name.into(), measured, limit, good: Good::High, unit, of: String::new() }
    }

    /// The same figure, with what it was made of.
    #[must_use]
    pub fn of(self, of: impl Into<String>) -> Self {
        Self { of: of.into(), ..self }
    }

    /// Whether it fails: a count that does not keep to its limit does, a time or a ratio of times only if it is far from it.
    #[must_use]
    pub fn fails(&self) -> bool {
        let is_near = match self.good {
            Good::Low => self.measured <= self.limit * LENIENCE,
            Good::High => self.measured >= self.limit / LENIENCE,
        };
        let is_time = matches!(self.unit, " ×" | " s");
        !(self.holds() || is_time && is_near)
    }

    /// Whether it keeps to its limit. What is no number does not.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self.good {
            Good::Low => self.measured <= self.limit,
            Good::High => self.measured >= self.limit,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.good == Good::Low { "≤" } else { "≥" };
        let verdict = match (self.holds(), self.fails()) {
            (true, _) => "ok",
            (false, false) => "MISSED",
            (false, true) => "FAIL",
        };
        let (measured, limit) = (number(self.measured), number(self.limit));
        write!(out, "{}: {measured} / {sign} {limit}{} {verdict}", self.name, self.unit)?;
        if self.of.is_empty() { Ok(()) } else { write!(out, " ({})", self.of) }
    }
}

fn number(value: f64) -> String {
    if (value - value.round()).abs() < 1e-9 || value.abs() >= 1000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// Why a row has no figures.
#[derive(Debug, thiserror::Error)]
pub enum SmokeError {
    /// A file or a process of the benchmark itself.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was to be done.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// No server.
    #[error(transparent)]
    Sshd(#[from] crate::sshd::SshdError),
    /// No meter.
    #[error(transparent)]
    Meter(#[from] crate::meter::MeterError),
    /// A command that was measured failed.
    #[error("{what} ended with {code}: {complaint}")]
    Failed {
        /// Which.
        what: String,
        /// Its exit code.
        code: i32,
        /// The last it said.
        complaint: String,
    },
    /// The program has no such command.
    #[error("{0} cannot do that")]
    Unable(&'static str),
}

impl SmokeError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Measures the rows whose names `only` holds, all (long ones at full size only) where it is empty, and says each figure as
/// soon as it is known. Whether all of them hold.
pub fn run(bench: &mut Bench, only: &[String], mut say: impl FnMut(&str)) -> bool {
    let mut good = true;
    let is_full = bench.options.is_full;
    let wanted = |row: &&Row| match only {
        [] => is_full || !row.is_long,
        names => names.iter().any(|name| name == row.name),
    };
    for row in ROWS.iter().filter(wanted) {
        match (row.run)(bench) {
            Ok(figures) => {
                for figure in figures {
                    good &= !figure.fails();
                    say(&figure.to_string());
                }
            }
            Err(error) => {
                good = false;
                say(&format!("{}: {error} FAIL", row.name));
            }
        }
    }
    if only.is_empty() {
        let memory = bench.memory();
        good &= memory.holds();
        say(&memory.to_string());
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_whether_it_holds() {
        let waits = Figure::at_most("waits", 4.0, 5.0, "");
        assert_eq!(waits.to_string(), "waits: 4 / ≤ 5 ok");
        let speed = Figure::at_least("speed of put", 0.513, 0.7, " ×");
        assert_eq!(speed.to_string(), "speed of put: 0.51 / ≥ 0.70 × MISSED");
        assert!(!speed.fails());
        assert_eq!(speed.of("2 s, 4 s").to_string(), "speed of put: 0.51 / ≥ 0.70 × MISSED (2 s, 4 s)");
        assert!(Figure::at_least("speed of put", 0.34, 0.7, " ×").fails());
        assert!(Figure::at_most("time", f64::NAN, 0.7, " s").fails());
        assert!(Figure::at_most("waits", 6.0, 5.0, "").fails());
        assert!(!Figure::at_most("nothing", f64::NAN, 1.0, "").holds());
    }

    #[test]
    fn names_of_rows_are_different() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
