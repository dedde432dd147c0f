//! Ctrl-C: the first asks everybody to stop, the second ends the program at once.

use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use super::error::Exit;
use super::screen::Screen;
use crate::base::cancel::Cancel;
use crate::base::time::{Clock as _, SystemClock};
use crate::store::{GiveUp, SharedStore, Store};

/// Set while a question waits for its answer. A question has nothing to wind up, so that one signal is enough then.
static ASKING: Mutex<Option<Asking>> = Mutex::new(None);

/// The terminal and its settings from before the question, where there is one.
struct Asking(Option<(File, Termios)>);

/// The store in use, which may have to be given up.
#[derive(Clone, Default)]
pub struct Reach(Arc<Mutex<Option<Weak<dyn Store>>>>);

impl Reach {
    /// This store is in use from now on.
    pub fn set(&self, store: &SharedStore) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(store));
    }

    /// Whoever waits for such a server shall not do so any more.
    fn give_up(&self, when: GiveUp) {
        let store = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(store) = store.and_then(|store| store.upgrade()) {
            store.give_up(when);
        }
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reach")
    }
}

/// How often it is looked, after the wish to stop, whether the server is out of reach.
const LOOK: Duration = Duration::from_millis(300);

/// Whoever has not ended so long after the wish to stop is told of.
const SOON: Duration = Duration::from_secs(1);

/// Answers that are still owed so long after the wish to stop are not waited for.
const OWED: Duration = Duration::from_secs(3);

/// How long what is under way may take at most after the wish to stop.
const LONGEST: Duration = Duration::from_secs(15);

/// From now on a file that would exceed the limit of the process (`ulimit -f`) is a failed write, which is told like any other, and not its end. Other programs
/// that are started keep the signal's meaning.
pub fn outlive_large_files() {
    // Ignored it would be inherited; who hears it and does nothing is as well off.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// From now on the first SIGINT, SIGTERM or SIGHUP sets `cancel`, lets nobody wait for a server that is out of reach, and gives what is under
/// way 15 seconds; the second ends the program with exit code 130. Where signals cannot be heard they keep their meaning.
pub fn listen(cancel: Cancel, reach: Reach, screen: Screen) {
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
            let (reach, screen) = (reach.clone(), screen.clone());
            // Without it a second signal is needed.
            let _ = thread::Builder::new().name("give-up".to_owned()).spawn(move || wind_up(&reach, &screen));
        }
    });
}

/// What happens while the program winds up, until it ends.
fn wind_up(reach: &Reach, screen: &Screen) {
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    let mut is_told = false;
    loop {
        let since = clock.monotonic().saturating_sub(begun);
        reach.give_up(match since {
            _ if since >= LONGEST => GiveUp::Anyway,
            // What was owed before the wish to stop may come yet.
            _ if since >= OWED => GiveUp::IfSilent,
            _ => GiveUp::IfGone,
        });
        if since >= SOON && !is_told {
            is_told = true;
            screen.say(&format!(
                "kitbag: stopping: what is under way has {} s to end; once more stops at once",
                LONGEST.as_secs()
            ));
        }
        thread::sleep(LOOK);
    }
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
