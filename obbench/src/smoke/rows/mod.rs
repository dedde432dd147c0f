//! The rows.

mod large;
mod mounts;
mod sizes;
mod small;
mod upkeep;
mod waits;

use std::time::Duration;

use super::{Bench, Figure, Row, SmokeError};
use crate::measure::Measured;

type Figures = Result<Vec<Figure>, SmokeError>;

/// The distance at which waits are counted and delays compared.
const FAR: Duration = Duration::from_millis(50);

/// The distance that a single channel's window is much too small for.
const VERY_FAR: Duration = Duration::from_millis(200);

const fn row(name: &'static str, about: &'static str, run: fn(&mut Bench) -> Figures) -> Row {
    Row { name, about, is_long: false, run }
}

const fn long(name: &'static str, about: &'static str, run: fn(&mut Bench) -> Figures) -> Row {
    Row { name, about, is_long: true, run }
}

/// All rows, in the order in which they are measured.
pub const ROWS: &[Row] = &[
    row(
        "waits",
        "requests and waits of init, of runs that find little or nothing new, and without a cache",
        waits::runs,
    ),
    row("restore-waits", "waits of a whole restore without a cache", waits::restore),
    row("upkeep-waits", "waits of verify, fsck, forget and gc", upkeep::waits),
    row("small-local", "many small files, to a local directory, against tar", small::local),
    row("big-local", "a big random file, to a local directory, against cp and sync", large::local),
    row("big-sftp", "a big random file, over SFTP and back, against sftp put and get", large::direct),
    row("fsck-data", "all bytes of a repository over SFTP verified, against sftp get", upkeep::data),
    row("small-delay", "many small files over SFTP, with delay against without", small::delay),
    row("big-delay", "a big random file over SFTP at 50 ms and back, against sftp put and get", large::far),
    row(
        "mount-find",
        "find over a mounted tree of small files, against find over the tree itself",
        mounts::find,
    ),
    row("mount-copy", "a big random file out of a mount over SFTP, against its restore", mounts::copy),
    long("mount-huge-directory", "a mounted directory of a million files", mounts::huge_directory),
    long("big-far", "the same at 200 ms", large::very_far),
    long("line", "a big random file over a line of 5 and 50 Mbit/s, against its rate", large::line),
    long("drops", "a big random file over a line of 5 Mbit/s that is cut every 30 s", large::drops),
    long("million", "an unchanged tree of a million files, against find", sizes::million),
    long("huge-directory", "one file changed in a directory of a million", sizes::huge_directory),
    #[cfg(feature = "index")]
    row(
        "index",
        "kitbag's index of a million chunks: disk, memory, and look-ups against reads of memory",
        sizes::index,
    ),
    long("laptop", "a tree of a user's files at 50 ms, against restic where it is installed", sizes::laptop),
];

fn count(name: &str, measured: u64, limit: u32) -> Figure {
    Figure::at_most(name, float(measured), f64::from(limit), "")
}

/// Counts here are far below what a float holds exactly.
fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

fn megabytes(bytes: u64) -> f64 {
    float(bytes / 1_000_000)
}

/// `what` takes at most so many times the time of `yardstick`.
fn time_of(name: &str, what: &Measured, yardstick: &Measured, limit: f64) -> Figure {
    Figure::at_most(name, what.wall_s / yardstick.wall_s, limit, " ×").of(seconds(what, yardstick))
}

/// `what` is at least so many times as fast as `yardstick`.
fn speed_of(name: &str, what: &Measured, yardstick: &Measured, limit: f64) -> Figure {
    Figure::at_least(name, yardstick.wall_s / what.wall_s, limit, " ×").of(seconds(what, yardstick))
}

fn seconds(what: &Measured, yardstick: &Measured) -> String {
    format!("{:.2} s, {:.2} s", what.wall_s, yardstick.wall_s)
}
