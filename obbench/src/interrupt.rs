//! Ctrl-C and a polite kill: the program ends by its ordinary way out, so that servers are stopped and trees removed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::process;

fn asked() -> &'static AtomicBool {
    static ASKED: OnceLock<AtomicBool> = OnceLock::new();
    ASKED.get_or_init(|| AtomicBool::new(false))
}

/// From now on, such a signal kills everything this process has started and lets [`requested`] say so.
///
/// # Errors
/// When the signals or a thread are not to be had.
pub fn install() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let listen = move || {
        for _ in signals.forever() {
            asked().store(true, Ordering::SeqCst);
            process::kill_all(|| process::descendants(std::process::id()));
        }
    };
    thread::Builder::new().name("signals".into()).spawn(listen).map(drop)
}

/// Whether the program was asked to end; what runs commands one after another looks here between them.
#[must_use]
pub fn requested() -> bool {
    asked().load(Ordering::SeqCst)
}
