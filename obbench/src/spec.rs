//! What to measure: the form of a spec.
//!
//! ```yaml
//! name: laptop over cable
//! seed: 1
//! repeats: 3
//! workloads:
//!   - laptop: { files: 5000 }
//! links: [local, direct, cable, 50ms, { name: satellite, rtt-ms: 600, jitter-ms: 20, up-mbit: 3, down-mbit: 20 }]
//! tools: [kitbag, restic]
//! steps: [init, first, unchanged, edited, nights, clients, generations, ls, cat, restore, restore-cold, mount, fsck]
//! nights: 365
//! clients: 10
//! ```
//!
//! A link of one's own may also have `cut-every-s`, `cut-after-mb` (all connections are reset, again and again, or once after so many
//! megabytes from the client), and `silent-every-s` with `silent-for-s` (what is sent vanishes, and nobody is told).
//!
//! Each workload is run over each link with each tool, step by step, as often as `repeats` says.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::relay::{Link, Trouble};
use crate::workload::Workload;

/// A spec.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// A name for the report.
    pub name: String,
    /// The seed of trees and edits.
    #[serde(default = "one")]
    pub seed: u64,
    /// How often everything is done, each time from the beginning.
    #[serde(default = "one")]
    pub repeats: u64,
    /// Minutes that a command may take.
    #[serde(default = "hour")]
    pub limit_minutes: u64,
    /// How many nights the step `nights` has.
    #[serde(default = "month")]
    pub nights: u64,
    /// How many clients the step `clients` has.
    #[serde(default = "few")]
    pub clients: u64,
    /// The trees.
    #[serde(with = "serde_norway::with::singleton_map_recursive")]
    pub workloads: Vec<Workload>,
    /// The ways to the repository.
    pub links: Vec<Way>,
    /// The programs, by the names of [`crate::tool::NAMES`].
    pub tools: Vec<String>,
    /// What is done, in this order.
    pub steps: Vec<Step>,
}

/// A way to the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// A directory of this machine.
    Local,
    /// SFTP to this machine, with nothing between.
    Direct,
    /// SFTP over an emulated link, which has a name.
    Link(String, Link),
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Make the repository.
    Init,
    /// The first backup.
    First,
    /// A backup of the same tree again.
    Unchanged,
    /// A backup after a round of edits, which is not measured.
    Edited,
    /// A backup after a round of edits, as often as the spec says: sums, and the most memory of all.
    Nights,
    /// Backups of the tree by as many clients as the spec says, all at once, each with a name and a cache of its own.
    Clients,
    /// List generations.
    Generations,
    /// List files.
    Ls,
    /// Write one file.
    Cat,
    /// Restore everything into an empty directory.
    Restore,
    /// The same without the local cache.
    RestoreCold,
    /// Restore onto what the step before restored.
    RestoreOnto,
    /// Compare with the tree.
    Verify,
    /// Check the repository.
    Fsck,
    /// Forget all generations but the latest.
    Forget,
    /// Remove what nothing needs.
    Gc,
    /// Mount the latest generation, find all files, read a thousand of them, unmount.
    Mount,
    /// A backup of the unchanged tree after the local cache was lost.
    Disaster,
}

/// Why a spec cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("cannot read the spec {}: {source}", path.display())]
    Read {
        /// Which.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not as it should be; the source says where.
    #[error("the spec {}: {source}", path.display())]
    Form {
        /// Which.
        path: std::path::PathBuf,
        /// Line, column, and what is wrong.
        source: serde_norway::Error,
    },
}

impl Spec {
    /// Reads a spec.
    ///
    /// # Errors
    /// When it cannot be read or is wrong, with the place.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| SpecError::Read { path: path.into(), source })?;
        serde_norway::from_str(&text).map_err(|source| SpecError::Form { path: path.into(), source })
    }

    /// How long a step may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_minutes.saturating_mul(60))
    }
}

impl Way {
    /// Its name in results.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Local => "local",
            Self::Direct => "direct",
            Self::Link(name, _) => name,
        }
    }

    /// The link that is emulated, if any.
    #[must_use]
    pub fn link(&self) -> Option<&Link> {
        match self {
            Self::Link(_, link) => Some(link),
            Self::Local | Self::Direct => None,
        }
    }
}

impl TryFrom<String> for Way {
    type Error = crate::relay::UnknownLink;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Ok(match name.as_str() {
            "local" => Self::Local,
            "direct" => Self::Direct,
            _ => Self::Link(name.clone(), name.parse()?),
        })
    }
}

impl<'de> Deserialize<'de> for Way {
    /// A name, or `{ name: …, rtt-ms: …, jitter-ms: …, up-mbit: …, down-mbit: … }` for a link of one's own.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NameOrLink)
    }
}

struct NameOrLink;

impl<'de> Visitor<'de> for NameOrLink {
    type Value = Way;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the name of a link, or { name, rtt-ms, … }")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Way, E> {
        Way::try_from(name.to_string()).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Way, A::Error> {
        let own = OwnLink::deserialize(de::value::MapAccessDeserializer::new(map))?;
        let micros =
            |milliseconds: f64| Duration::try_from_secs_f64(milliseconds / 1e3).map_err(de::Error::custom);
        let bits = |mbit: u64| mbit.saturating_mul(1_000_000);
        let link = Link {
            up_bits_per_second: own.up_mbit.map(bits),
            down_bits_per_second: own.down_mbit.map(bits),
            jitter_us: u64::try_from(micros(own.jitter_ms)?.as_micros()).unwrap_or(u64::MAX),
            trouble: Trouble {
                cut_every_ms: own.cut_every_s.saturating_mul(1000),
                cut_after_bytes: own.cut_after_mb.saturating_mul(1_000_000),
                silent_every_ms: own.silent_every_s.saturating_mul(1000),
                silent_for_ms: own.silent_for_s.saturating_mul(1000),
            },
            ..Link::delayed(micros(own.rtt_ms)?)
        };
        Ok(Way::Link(own.name, link))
    }
}

/// A link as a spec describes it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct OwnLink {
    name: String,
    #[serde(default)]
    rtt_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    up_mbit: Option<u64>,
    down_mbit: Option<u64>,
    #[serde(default)]
    cut_every_s: u64,
    #[serde(default)]
    cut_after_mb: u64,
    #[serde(default)]
    silent_every_s: u64,
    #[serde(default = "minute")]
    silent_for_s: u64,
}

impl Step {
    /// Its name in specs and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::First => "first",
            Self::Unchanged => "unchanged",
            Self::Edited => "edited",
            Self::Nights => "nights",
            Self::Clients => "clients",
            Self::Generations => "generations",
            Self::Ls => "ls",
            Self::Cat => "cat",
            Self::Restore => "restore",
            Self::RestoreCold => "restore-cold",
            Self::RestoreOnto => "restore-onto",
            Self::Verify => "verify",
            Self::Fsck => "fsck",
            Self::Forget => "forget",
            Self::Gc => "gc",
            Self::Mount => "mount",
            Self::Disaster => "disaster",
        }
    }
}

fn one() -> u64 {
    1
}

fn hour() -> u64 {
    60
}

fn minute() -> u64 {
    60
}

fn month() -> u64 {
    30
}

fn few() -> u64 {
    8
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name: x\nworkloads:\n  - laptop: { files: 5 }\n  - many-files: { files: 3, bytes: 1 }\n\
                        links: [local, cable, 80ms]\ntools: [tar]\nsteps: [first, restore-cold]\n";

    fn error(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        Spec::read(file.path()).expect_err("it is wrong").to_string()
    }

    #[test]
    fn reads_what_it_shows() {
        let spec: Spec = serde_norway::from_str(GOOD).expect("a spec");
        assert_eq!(spec.workloads.len(), 2);
        assert_eq!(spec.links.iter().map(Way::name).collect::<Vec<_>>(), ["local", "cable", "80ms"]);
        assert_eq!((spec.seed, spec.repeats), (1, 1));
    }

    #[test]
    fn a_link_can_be_described() {
        let own = "{ name: satellite, rtt-ms: 600.5, jitter-ms: 20, up-mbit: 3 }";
        let spec: Spec = serde_norway::from_str(&GOOD.replace("80ms", own)).expect("a spec");
        let link = spec.links[2].link().expect("emulated");
        assert_eq!((spec.links[2].name(), link.rtt_us, link.jitter_us), ("satellite", 600_500, 20_000));
        assert_eq!((link.up_bits_per_second, link.down_bits_per_second), (Some(3_000_000), None));
        let own = "{ name: train, cut-every-s: 30, cut-after-mb: 5, silent-every-s: 20 }";
        let spec: Spec = serde_norway::from_str(&GOOD.replace("80ms", own)).expect("a spec");
        let trouble = spec.links[2].link().expect("emulated").trouble;
        assert_eq!((trouble.cut_every_ms, trouble.cut_after_bytes), (30_000, 5_000_000));
        assert_eq!((trouble.silent_every_ms, trouble.silent_for_ms), (20_000, 60_000));
        let wrong = error(&GOOD.replace("80ms", "{ name: x, rtt: 3 }"));
        assert!(wrong.contains("rtt") && wrong.contains("line 5 column"), "{wrong}");
    }

    #[test]
    fn says_where_it_is_wrong() {
        let step = error(&GOOD.replace("restore-cold", "restore-clod"));
        assert!(step.contains("restore-clod") && step.contains("line 7 column"), "{step}");
        let link = error(&GOOD.replace("80ms", "moon"));
        assert!(link.contains("moon") && link.contains("line 5 column"), "{link}");
        let field = error(&format!("{GOOD}steeps: 3\n"));
        assert!(field.contains("steeps") && field.contains("line 8"), "{field}");
    }
}
