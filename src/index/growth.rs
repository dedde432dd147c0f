//! Folds what a run has added into the tables, in the background.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use super::delta::Delta;
use super::fold::{Workshop, how_many};
use super::numbers::Bits;
use super::table::Table;
use crate::base::cancel::Cancel;

/// Fewest entries in memory for which folding is worth a thread.
const LEAST: u64 = 1 << 14;
/// Most entries in memory before they are folded: 8 MiB or so. Twice as many are a hash map that grows within a few milliseconds.
const MOST: u64 = 1 << 18;
/// Else this part of what the tables have: twice it, the same being folded, and the slack of the hash maps stay below two bytes
/// for each entry of the tables.
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
    answer: Receiver<io::Result<Table>>,
    answered: Option<io::Result<Table>>,
    thread: Option<JoinHandle<()>>,
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
        let (done, answer) = bounded(1);
        let work = {
            let (workshop, delta, alive, stop) =
                (workshop.clone(), Arc::clone(&delta), alive.clone(), stop.clone());
            move || {
                let table = workshop.fold(&folded, Some(&delta), &alive, &stop);
                // Nobody there any more: the index was dropped.
                let _ = done.send(table);
            }
        };
        let thread = thread::Builder::new().name("index".into()).spawn(work)?;
        Ok(Self { delta, replaces, stop, answer, answered: None, thread: Some(thread) })
    }

    /// Whether the new table is there, after waiting so long for it at most.
    pub(super) fn is_done_within(&mut self, patience: Duration) -> bool {
        if self.answered.is_none() {
            self.answered = match self.answer.recv_timeout(patience) {
                Ok(table) => Some(table),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Err(ended())),
            };
        }
        self.answered.is_some()
    }

    /// The new table, waiting for it. A second call fails.
    pub(super) fn join(&mut self) -> io::Result<Table> {
        self.answered.take().unwrap_or_else(|| self.answer.recv().unwrap_or_else(|_| Err(ended())))
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that folds the index ended early")
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
