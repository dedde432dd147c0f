//! What the local index consists of: the one file that is replaced, atomically.
//!
//! ```text
//! BLAKE3 of the rest (32 bytes), CBOR of { 0: version, 1: tables, 2: segments }
//! ```

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::numbers::Runs;
use super::table::TableState;
use crate::base::id::SegmentId;
use crate::base::{atomic_file, codec};

/// Changes whenever files of the local index are to be read differently: others are dropped.
const VERSION: u32 = 1;
const NAME: &str = "state";
const LOCK: &str = "lock";
const LIMIT: usize = 1 << 30;

/// Everything that the files of the local index do not say themselves.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    version: u32,
    /// The tables, oldest first.
    pub(super) tables: Vec<TableState>,
    /// The segments that are merged in.
    pub(super) segments: Vec<SegmentState>,
}

/// A segment that is merged in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SegmentState {
    pub(super) id: SegmentId,
    /// The numbers of the bags that it names.
    pub(super) bags: Runs,
    /// Entries of these bags in the tables.
    pub(super) entries: u64,
}

impl State {
    pub(super) fn new(tables: Vec<TableState>, segments: Vec<SegmentState>) -> Self {
        Self { version: VERSION, tables, segments }
    }

    /// The state of this directory: `Ok(None)` when there is none yet; `InvalidData` for one that is damaged or of another
    /// version.
    pub(super) fn read(dir: &Path) -> io::Result<Option<Self>> {
        let bytes = match fs::read(dir.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let invalid =
            || io::Error::new(io::ErrorKind::InvalidData, "the state of the local index is damaged");
        let (sum, rest) = bytes.split_first_chunk::<32>().ok_or_else(invalid)?;
        if blake3::hash(rest) != *sum {
            return Err(invalid());
        }
        let state: Self = codec::decode(rest, "state of the local index", LIMIT).map_err(io::Error::other)?;
        if state.version == VERSION { Ok(Some(state)) } else { Err(invalid()) }
    }

    /// Makes this the state of the directory, durably.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let rest = codec::encode(self);
        let mut bytes = blake3::hash(&rest).as_bytes().to_vec();
        bytes.extend(rest);
        atomic_file::replace(&dir.join(NAME), &bytes, true)
    }
}

/// Drops the state: the next one to open the directory begins from nothing.
pub(super) fn forget(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes what this state does not name. Only for the one who holds the lock.
pub(super) fn sweep(dir: &Path, state: &State) -> io::Result<()> {
    let named: HashSet<String> = state.tables.iter().flat_map(TableState::files).collect();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let kept = name.to_str().is_some_and(|name| name == NAME || name == LOCK || named.contains(name));
        if !kept {
            fs::remove_file(dir.join(name))?;
        }
    }
    Ok(())
}

/// The right to write to a directory; given back when dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it, if nobody has it.
    pub(super) fn try_take(dir: &Path) -> io::Result<Option<Self>> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(dir.join(LOCK))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
