//! Results: one JSON object a line, with everything needed to compare it with others.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::measure::Measured;
use crate::meter::Counts;
use crate::workload::Size;

/// One measured step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// When, in seconds since 1970.
    pub time: u64,
    /// Where.
    pub machine: Machine,
    /// The commit of the working directory, where there is one.
    pub commit: String,
    /// The spec's name.
    pub spec: String,
    /// The workload's name.
    pub workload: String,
    /// What its tree held when it was made.
    pub tree: Size,
    /// The way's name.
    pub link: String,
    /// The link's round trip in microseconds.
    pub rtt_us: u64,
    /// The program.
    pub tool: String,
    /// What it says of its version.
    pub tool_version: String,
    /// The step's name.
    pub step: String,
    /// Which repetition, from 1.
    pub repeat: u64,
    /// Costs on the client.
    pub measured: Measured,
    /// Costs on the link, for programs that use SFTP.
    pub counts: Option<Counts>,
    /// Bytes over the relay, each way, for all programs.
    pub link_bytes: Option<[u64; 2]>,
    /// What the repository holds afterwards.
    pub repository: Size,
    /// What went wrong, if anything did.
    pub complaint: Option<String>,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// Kernel.
    pub kernel: String,
    /// Processors.
    pub processors: u64,
    /// The processor's name.
    pub processor: String,
}

/// The figures by which records are compared: name, unit, and where it is.
pub const METRICS: [&str; 7] = ["wall", "cpu", "memory", "requests", "waits", "bytes-up", "bytes-down"];

impl Record {
    /// A figure by its name in [`METRICS`]; `None` where it was not measured.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        let counts = self.counts.as_ref();
        match name {
            "wall" => Some(self.measured.wall_s),
            "cpu" => Some(self.measured.user_s + self.measured.system_s),
            "memory" => Some(float(self.measured.peak_rss_bytes)),
            "requests" => counts.map(|counts| float(counts.requests)),
            "waits" => counts.map(|counts| float(counts.serial_waits)),
            "bytes-up" => counts.map(|counts| float(counts.bytes_up)),
            "bytes-down" => counts.map(|counts| float(counts.bytes_down)),
            _ => None,
        }
    }
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        let names = rustix::system::uname();
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            host: names.nodename().to_string_lossy().into_owned(),
            kernel: names.release().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism()
                .map_or(1, |n| u64::try_from(n.get()).unwrap_or(1)),
            processor: processor.map_or_else(|| std::env::consts::ARCH.into(), |pair| pair.1.to_string()),
        }
    }
}

/// The commit of the working directory, marked where it has changes; empty where there is none.
#[must_use]
pub fn commit() -> String {
    let output =
        Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]).output();
    output
        .ok()
        .filter(|output| output.status.success())
        .map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Appends a record to the file.
///
/// # Errors
/// Whatever the file system says.
pub fn append(file: &Path, record: &Record) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    File::options().create(true).append(true).open(file)?.write_all(&line)
}

/// All records of all `.jsonl` files in the directory, or of one file.
///
/// # Errors
/// Whatever the file system says, and the place of a line that is no record.
pub fn read(path: &Path) -> io::Result<Vec<Record>> {
    let mut files: Vec<PathBuf> = if path.is_dir() {
        let entries: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
        entries
            .iter()
            .map(fs::DirEntry::path)
            .filter(|path| path.extension().is_some_and(|e| e == "jsonl"))
            .collect()
    } else {
        vec![path.to_path_buf()]
    };
    files.sort();
    let mut records = Vec::new();
    for file in files {
        for (number, line) in (1u64..).zip(BufReader::new(File::open(&file)?).lines()) {
            let record = serde_json::from_str(&line?);
            let wrong = |error| io::Error::other(format!("{} line {number}: {error}", file.display()));
            records.push(record.map_err(wrong)?);
        }
    }
    Ok(records)
}

/// The middle value; of an even number, the lower of the two.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// For display and ratios, for which 53 bits are plenty.
#[must_use]
pub fn float(value: u64) -> f64 {
    let high = u32::try_from(value >> 32).unwrap_or_default();
    let low = u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default();
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}
