//! Threads that wait for blocks, so that those who talk with the kernel need not.

use std::io;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::contents::blocks::{Blocks, Slot};

/// Reads that may wait at once. More wait for one of these to end.
const WAITING: usize = 32;

/// Something that waits for bytes and answers the kernel.
pub type Answer = Box<dyn FnOnce() + Send>;

/// The threads. They end when this is dropped and what was handed over is done.
pub struct Readers {
    answers: Sender<Answer>,
    slots: Sender<Arc<Slot>>,
}

impl Readers {
    /// Starts them: some that wait for whoever reads now, and `openers` that open what will be read soon.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn start(blocks: &Arc<Blocks>, openers: usize) -> io::Result<Self> {
        let (answers, answering): (_, Receiver<Answer>) = unbounded();
        let (slots, opening): (_, Receiver<Arc<Slot>>) = unbounded();
        for number in 0..WAITING {
            let answering = answering.clone();
            let thread = thread::Builder::new().name(format!("reader-{number}"));
            thread.spawn(move || answering.iter().for_each(|answer| answer()))?;
        }
        for number in 0..openers.max(1) {
            let (opening, blocks) = (opening.clone(), Arc::clone(blocks));
            let thread = thread::Builder::new().name(format!("opener-{number}"));
            thread.spawn(move || opening.iter().for_each(|slot| blocks.open(&slot)))?;
        }
        Ok(Self { answers, slots })
    }

    /// Hands over a read that has to wait.
    pub fn wait_for(&self, answer: Answer) {
        // Its receivers live as long as this; an answer that is dropped is an I/O error to the kernel.
        let _ = self.answers.send(answer);
    }

    /// Hands over blocks to be opened, in this order.
    pub fn open_soon(&self, slots: Vec<Arc<Slot>>) {
        for slot in slots {
            let _ = self.slots.send(slot);
        }
    }
}
