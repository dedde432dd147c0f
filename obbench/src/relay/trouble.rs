//! What goes wrong with a link by itself, again and again.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Direction, Fault, Shared};

/// Faults of a link that need nobody to call for them; those that are zero do not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trouble {
    /// Milliseconds between two cuts: all connections are reset, new ones are welcome.
    pub cut_every_ms: u64,
    /// Bytes from clients after which all connections are cut, once.
    pub cut_after_bytes: u64,
    /// Milliseconds after which the line falls silent (what is sent vanishes, and nobody is told), again and again.
    pub silent_every_ms: u64,
    /// For how many milliseconds it then stays so.
    pub silent_for_ms: u64,
}

/// Whoever makes the trouble; ended when dropped.
pub(super) struct Maker {
    /// Never used: that it is gone ends the threads.
    stop: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Maker {
    /// Starts what the link asks for.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let mut maker = Self { stop: Vec::new(), threads: Vec::new() };
        let Trouble { cut_every_ms, cut_after_bytes, silent_every_ms, silent_for_ms } = shared.link.trouble;
        if cut_after_bytes > 0 {
            shared.faults.plan(Direction::Up, cut_after_bytes, Fault::Cut);
        }
        if cut_every_ms > 0 {
            maker.every(shared, [cut_every_ms, 0], |shared, _| shared.faults.strike(Fault::Cut))?;
        }
        if silent_every_ms > 0 {
            maker.every(shared, [silent_every_ms, silent_for_ms], |shared, is_over| match is_over {
                false => shared.faults.strike(Fault::Swallow),
                true => shared.faults.heal(),
            })?;
        }
        Ok(maker)
    }

    /// Calls after the first and after the second of two times, in turn; a second time of zero is left out.
    fn every(&mut self, shared: &Arc<Shared>, times: [u64; 2], strike: fn(&Shared, bool)) -> io::Result<()> {
        let (stop, stopped) = channel::<()>();
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("relay-trouble".into()).spawn(move || {
            loop {
                for (time, is_second) in times.iter().zip([false, true]).filter(|(time, _)| **time > 0) {
                    match stopped.recv_timeout(Duration::from_millis(*time)) {
                        Err(RecvTimeoutError::Timeout) => strike(&shared, is_second),
                        _ => return,
                    }
                }
            }
        })?;
        self.stop.push(stop);
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
