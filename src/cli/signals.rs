//! Ctrl-C: the first asks everybody to stop, the second ends the program at once.

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::error::Exit;
use crate::base::cancel::Cancel;

/// Set while a question waits for its answer. A question has nothing to wind up, so that one signal is enough then.
static ASKING: Mutex<Option<Asking>> = Mutex::new(None);

/// The terminal and its settings from before the question, where there is one.
struct Asking(Option<(File, Termios)>);

/// From now on the first SIGINT, SIGTERM or SIGHUP sets `cancel`, and the second ends the program with exit code 130.
/// Where signals cannot be heard they keep their meaning.
pub fn listen(cancel: Cancel) {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    let listener = thread::Builder::new().name("signals".to_owned());
    // Without the thread the first signal would be swallowed; but then no operation could start its threads either.
    let _ = listener.spawn(move || {
        for _ in signals.forever() {
            let asking = ASKING.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(Asking(Some((terminal, before)))) = &asking {
                let _ = tcsetattr(terminal, OptionalActions::Now, before);
            }
            if cancel.is_cancelled() || asking.is_some() {
                signal_hook::low_level::exit(i32::from(Exit::Interrupted.code()));
            }
            cancel.cancel();
        }
    });
}

/// Runs `ask`, which may turn the terminal's echo off; a signal meanwhile restores the terminal and ends the program.
pub fn while_asking<T>(ask: impl FnOnce() -> T) -> T {
    let terminal =
        File::open("/dev/tty").ok().and_then(|terminal| tcgetattr(&terminal).ok().map(|now| (terminal, now)));
    *ASKING.lock().unwrap_or_else(PoisonError::into_inner) = Some(Asking(terminal));
    let answer = ask();
    *ASKING.lock().unwrap_or_else(PoisonError::into_inner) = None;
    answer
}
