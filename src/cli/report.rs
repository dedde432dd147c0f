//! What `--json` writes: `doc/json.md` has the meanings. The texts for people are made beside the commands.

use serde::Serialize;

use super::human::{self, rfc3339};
use crate::base::text::escape;
use crate::base::time::Timestamp;
use crate::generation::Generation;
use crate::generation::spec::is_from_future;
use crate::store::Traffic;

/// A generation.
#[derive(Debug, Serialize)]
pub struct GenerationReport {
    id: Option<String>,
    client: String,
    host: String,
    started: String,
    ended: String,
    partial: bool,
    future: bool,
    roots: Vec<String>,
    files: u64,
    directories: u64,
    others: u64,
    bytes: u64,
    failed: u64,
    new_bytes: u64,
    stored_bytes: u64,
    tags: Vec<String>,
}

impl GenerationReport {
    /// Of a generation, seen at `now`. One that was not published has no id.
    #[must_use]
    pub fn new(generation: &Generation, now: Timestamp, published: bool) -> Self {
        let counts = &generation.counts;
        Self {
            id: published.then(|| generation.id.to_string()),
            client: generation.client.clone(),
            host: generation.host.clone(),
            started: rfc3339(generation.started),
            ended: rfc3339(generation.ended),
            partial: generation.partial,
            future: is_from_future(generation, now),
            roots: generation.roots.iter().map(|root| escape(&root.path)).collect(),
            files: counts.files,
            directories: counts.directories,
            others: counts.others,
            bytes: counts.bytes,
            failed: counts.failed,
            new_bytes: counts.new_bytes,
            stored_bytes: counts.stored_bytes,
            tags: generation.tags.iter().map(|tag| escape(tag.as_bytes())).collect(),
        }
    }
}

/// Roots told at most, unless all are asked for.
const NAMED: usize = 3;

/// The roots of a generation, for people: all of them, or the first and how many more there are.
#[must_use]
pub fn roots(generation: &Generation, all: bool) -> String {
    let names = generation.roots.iter().map(|root| escape(&root.path));
    let told = if all { usize::MAX } else { NAMED };
    let mut text = names.take(told).collect::<Vec<_>>().join(", ");
    let more = generation.roots.len().saturating_sub(told);
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// What went over the wire.
#[derive(Debug, Serialize)]
pub struct TrafficReport {
    requests: u64,
    serial_waits: u64,
    bytes_up: u64,
    bytes_down: u64,
}

/// What went over the wire, for people; none of a store without one.
#[must_use]
pub fn traffic_line(traffic: Traffic) -> Option<String> {
    let Traffic { requests, serial_waits, bytes_up, bytes_down } = traffic;
    (requests > 0).then(|| {
        format!(
            "{}, {}, {} up, {} down",
            human::counted(requests, "request", "requests"),
            human::counted(serial_waits, "serial wait", "serial waits"),
            human::bytes(bytes_up),
            human::bytes(bytes_down)
        )
    })
}

impl From<Traffic> for TrafficReport {
    fn from(traffic: Traffic) -> Self {
        let Traffic { requests, serial_waits, bytes_up, bytes_down } = traffic;
        Self { requests, serial_waits, bytes_up, bytes_down }
    }
}
