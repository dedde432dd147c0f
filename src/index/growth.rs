//! Folds what a run has added into the tables, in the background.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::delta::Delta;
use super::fold::{Workshop, how_many};
use super::numbers::Bits;
use super::table::Table;
use crate::base::cancel::Cancel;

/// Fewest entries in memory for which folding is worth a thread.
const LEAST: u64 = 1 << 14;
/// Most entries in memory before they are folded: 32 MiB or so.
const MOST: u64 = 1 << 20;
/// Else this part of what the tables have: with another such part being folded, and the slack of a hash map, it keeps memory below
/// two bytes for each entry of the tables.
const PART: u64 = 128;

/// How many entries to hold in memory beside tables of so many.
pub(super) fn threshold(entries: u64) -> usize {
    usize::try_from((entries / PART).clamp(LEAST, MOST)).unwrap_or(usize::MAX)
}

/// A fold under way. Readers use the old tables and `delta` until it is done.
#[derive(Debug)]
pub(super) struct Growth {
    /// What is folded in.
    pub(super) delta: Arc<Delta>,
    /// How many of the newest tables the new one replaces.
    pub(super) replaces: usize,
    stop: Cancel,
    thread: Option<JoinHandle<io::Result<Table>>>,
}

impl Growth {
    /// Starts to fold `delta`, and as many of the tables as its size asks for.
    pub(super) fn start(
        workshop: &Workshop,
        tables: &[Arc<Table>],
        delta: Arc<Delta>,
        alive: &Bits,
    ) -> io::Result<Self> {
        let sizes: Vec<u64> = tables.iter().map(|table| table.entries()).collect();
        let replaces = how_many(&sizes, u64::try_from(delta.len()).unwrap_or(u64::MAX));
        let folded = tables[tables.len() - replaces..].to_vec();
        let stop = Cancel::new();
        let work = {
            let (workshop, delta, alive, stop) =
                (workshop.clone(), Arc::clone(&delta), alive.clone(), stop.clone());
            move || workshop.fold(&folded, Some(&delta), &alive, &stop)
        };
        let thread = thread::Builder::new().name("index".into()).spawn(work)?;
        Ok(Self { delta, replaces, stop, thread: Some(thread) })
    }

    /// Whether [`Growth::join`] would not wait.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the new table. A second call fails.
    pub(super) fn join(&mut self) -> io::Result<Table> {
        let panicked = || io::Error::other("the thread that folds the index ended early");
        self.thread.take().ok_or_else(panicked)?.join().unwrap_or_else(|_| Err(panicked()))
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.stop.cancel();
        let _ = self.join();
    }
}
