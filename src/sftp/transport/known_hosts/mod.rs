//! Which key a host is known by.
//!
//! libssh2 has a matcher of its own, which fails on a whole file for one bad line, knows no wildcards and accepts keys
//! that are marked as revoked; hence this one. It follows OpenSSH, with two differences on the safe side: a host known
//! by a key of another type counts as changed, and a key revoked under the bare name is revoked on every port.

mod entry;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use self::entry::{Entry, Marker};

/// Files beyond this size are not read: no list of hosts is that long.
const MAX_FILE: u64 = 64 << 20;

/// Under which names a host may be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    /// The name with its port, as it is written down: `host` or `[host]:port`.
    name: String,
    /// The bare name, where the first has a port.
    bare: Option<String>,
}

impl HostName {
    /// The names of a host; an alias stands for host and port.
    #[must_use]
    pub fn new(host: &str, port: u16, alias: Option<&str>) -> Self {
        let host = host.to_ascii_lowercase();
        match (alias, port) {
            (Some(alias), _) => Self { name: alias.to_ascii_lowercase(), bare: None },
            (None, 22) => Self { name: host, bare: None },
            (None, port) => Self { name: format!("[{host}]:{port}"), bare: Some(host) },
        }
    }

    /// The name that is written down.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

/// What the files say about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is the host's.
    Known,
    /// Nothing is known of the host.
    Unknown {
        /// A line that names an authority for the host's keys, which is not asked.
        authority: Option<Place>,
    },
    /// The host is known by another key.
    Changed(Place),
    /// The key must not be trusted.
    Revoked(Place),
}

/// What is known of one host.
#[derive(Debug, Clone)]
pub struct KnownHosts {
    /// Lines for the host's full name, and whether they are for its bare name instead.
    entries: Vec<(Entry, Place, bool)>,
}

impl KnownHosts {
    /// Collects what the files say of a host. Files that do not exist or cannot be read and lines that make no sense
    /// are passed over: they make nothing known.
    #[must_use]
    pub fn read<'a>(files: impl IntoIterator<Item = &'a PathBuf>, host: &HostName) -> Self {
        let mut entries = Vec::new();
        for file in files {
            let mut bytes = Vec::new();
            let Ok(opened) = fs::File::open(file) else { continue };
            if opened.take(MAX_FILE).read_to_end(&mut bytes).is_err() {
                continue;
            }
            for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
                let Some(entry) = std::str::from_utf8(line).ok().and_then(Entry::parse) else { continue };
                let by_name = entry.hosts.matches(&host.name);
                let by_bare = !by_name && host.bare.as_deref().is_some_and(|bare| entry.hosts.matches(bare));
                if by_name || by_bare {
                    entries.push((entry, Place { file: file.clone(), line: number }, by_bare));
                }
            }
        }
        Self { entries }
    }

    /// The types of the keys it is known by: to be asked for first, so that a host known by an RSA key is not taken
    /// for changed because it has an Ed25519 key too.
    #[must_use]
    pub fn key_types(&self) -> Vec<&str> {
        let mut types: Vec<&str> = Vec::new();
        // Lines for the full name decide; the bare name counts only where nothing else does.
        let named = self.entries.iter().any(|(entry, _, bare)| entry.marker == Marker::None && !bare);
        for (entry, _, bare) in &self.entries {
            let counts = entry.marker == Marker::None && !(named && *bare);
            if counts && !types.contains(&entry.key_type.as_str()) {
                types.push(&entry.key_type);
            }
        }
        types
    }

    /// A line that names a certificate authority for the host.
    #[must_use]
    pub fn authority(&self) -> Option<&Place> {
        self.entries.iter().find(|(entry, _, _)| entry.marker == Marker::Authority).map(|(_, place, _)| place)
    }

    /// Judges a key, as it came over the wire.
    #[must_use]
    pub fn check(&self, key: &[u8]) -> Verdict {
        let mut changed = None;
        let mut known = false;
        for (entry, place, bare) in &self.entries {
            let same = entry.key == key;
            match entry.marker {
                Marker::Revoked if same => return Verdict::Revoked(place.clone()),
                Marker::None if same => known = true,
                // Another server may be listening on the standard port.
                Marker::None if !bare && changed.is_none() => changed = Some(place.clone()),
                _ => {}
            }
        }
        match (known, changed) {
            (true, _) => Verdict::Known,
            (false, Some(place)) => Verdict::Changed(place),
            (false, None) => Verdict::Unknown { authority: self.authority().cloned() },
        }
    }
}

/// Appends a host's key to a file, which is made (with its directory, for the user alone) if it does not exist.
///
/// # Errors
/// If the key is none, or the file cannot be written.
pub fn remember(file: &Path, host: &HostName, hashed: bool, key: &[u8]) -> io::Result<()> {
    let line = Entry::line(&host.name, hashed, key)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is no host key"))?;
    if let Some(directory) = file.parent().filter(|directory| !directory.exists()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut opened = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(file)?;
    let mut text = String::new();
    if opened.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        opened.seek(SeekFrom::End(-1))?;
        opened.read_exact(&mut last)?;
        if last != *b"\n" {
            text.push('\n');
        }
    }
    text.push_str(&line);
    // In one write, so that two programs do not mix their lines.
    opened.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests;
