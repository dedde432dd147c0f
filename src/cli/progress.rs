//! The live display, and the ear that hears what an operation tells.
//!
//! An operation calls the [`Monitor`] from many threads and often, so hearing is an addition to an atomic number; ten times a second one thread of its own
//! looks at the numbers and draws. Without a terminal nothing is drawn. Problems are always told, above the display.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::lines::{Job, Snapshot};
use super::rate::Rate;
use super::settings::Verbosity;
use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock};
use crate::monitor::{Change, Counter, Monitor, Problem, Severity};

/// How often the display is drawn.
const TICK: Duration = Duration::from_millis(100);

/// Standard error, shared by the display and by what is said above it.
#[derive(Debug, Clone)]
pub struct Screen {
    bars: MultiProgress,
    live: bool,
}

impl Screen {
    /// Standard error; nothing is drawn on it when it is no terminal, or when nothing but problems shall be said.
    #[must_use]
    pub fn new(verbosity: Verbosity) -> Self {
        let live = verbosity > Verbosity::Quiet && std::io::stderr().is_terminal();
        let target = if live { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { bars: MultiProgress::with_draw_target(target), live }
    }

    /// The same, with nothing drawn on it: for commands whose results may go to the same terminal.
    #[must_use]
    pub fn without_display(&self) -> Self {
        Self { live: false, ..self.clone() }
    }

    /// Writes a line on standard error, above the display.
    #[expect(clippy::print_stderr, reason = "the one place that does")]
    pub fn say(&self, text: &str) {
        self.bars.suspend(|| eprintln!("{text}"));
    }

    /// Runs `ask` while the display is out of the way.
    pub fn pause<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.bars.suspend(ask)
    }
}

/// What was heard of one operation.
#[derive(Debug)]
pub struct Progress {
    heard: Arc<Heard>,
    screen: Screen,
    verbosity: Verbosity,
    drawing: Mutex<Option<JoinHandle<()>>>,
    live: bool,
}

#[derive(Debug, Default)]
struct Heard {
    counts: Counts,
    phase: Mutex<&'static str>,
    path: Mutex<Vec<u8>>,
    lost: AtomicU64,
    damage: AtomicU64,
    over: AtomicBool,
}

/// One number for each counter that is shown.
#[derive(Debug, Default)]
struct Counts {
    files: AtomicU64,
    files_read: AtomicU64,
    bytes_read: AtomicU64,
    new_bytes: AtomicU64,
    file_bytes: AtomicU64,
    queued: AtomicU64,
    stored: AtomicU64,
    restored_files: AtomicU64,
    restored_bytes: AtomicU64,
    checked: AtomicU64,
}

impl Counts {
    fn of(&self, counter: Counter) -> Option<&AtomicU64> {
        match counter {
            Counter::Files => Some(&self.files),
            Counter::FilesRead => Some(&self.files_read),
            Counter::BytesRead => Some(&self.bytes_read),
            Counter::NewBytes => Some(&self.new_bytes),
            Counter::FileBytes => Some(&self.file_bytes),
            Counter::BytesQueued => Some(&self.queued),
            Counter::BytesStored => Some(&self.stored),
            Counter::FilesRestored => Some(&self.restored_files),
            Counter::BytesRestored => Some(&self.restored_bytes),
            Counter::ObjectsChecked => Some(&self.checked),
            _ => None,
        }
    }
}

impl Heard {
    fn snapshot(&self) -> Snapshot {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Snapshot {
            phase: *self.phase.lock().unwrap_or_else(PoisonError::into_inner),
            files: read(&self.counts.files),
            files_read: read(&self.counts.files_read),
            bytes_read: read(&self.counts.bytes_read),
            new_bytes: read(&self.counts.new_bytes),
            file_bytes: read(&self.counts.file_bytes),
            // Before `queued`, so that no more seems to be sent than there is.
            stored: read(&self.counts.stored),
            queued: read(&self.counts.queued),
            restored_files: read(&self.counts.restored_files),
            restored_bytes: read(&self.counts.restored_bytes),
            checked: read(&self.counts.checked),
            path: self.path.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Progress {
    /// Begins to hear, and to show, an operation.
    #[must_use]
    pub fn begin(job: Job, screen: &Screen, verbosity: Verbosity) -> Self {
        let heard = Arc::new(Heard::default());
        let drawing = screen.live.then(|| {
            let (heard, screen) = (Arc::clone(&heard), screen.clone());
            thread::Builder::new().name("display".to_owned()).spawn(move || draw(job, &heard, &screen))
        });
        let drawing = drawing.and_then(Result::ok);
        let live = drawing.is_some();
        Self { heard, screen: screen.clone(), verbosity, drawing: Mutex::new(drawing), live }
    }

    /// Takes the display away. What is heard later is still told.
    pub fn end(&self) {
        self.heard.over.store(true, Ordering::Release);
        if let Some(drawing) = self.drawing.lock().unwrap_or_else(PoisonError::into_inner).take() {
            drawing.thread().unpark();
            // A display that panicked is no failure of the operation.
            let _ = drawing.join();
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.heard.snapshot()
    }

    /// How many things could not be saved, restored or checked.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.heard.lost.load(Ordering::Relaxed)
    }

    /// How many things of the repository were found damaged.
    #[must_use]
    pub fn damage(&self) -> u64 {
        self.heard.damage.load(Ordering::Relaxed)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

fn draw(job: Job, heard: &Heard, screen: &Screen) {
    let style =
        || ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bars = [(); 3].map(|()| screen.bars.add(ProgressBar::new_spinner().with_style(style())));
    let clock = SystemClock::new();
    let mut rate = Rate::default();
    while !heard.over.load(Ordering::Acquire) {
        let snapshot = heard.snapshot();
        rate.sample(clock.monotonic(), snapshot.moved(job));
        let width = usize::from(console_width());
        let lines = [snapshot.done(job), snapshot.moving(job, &rate), snapshot.current(width)];
        for (bar, line) in bars.iter().zip(lines) {
            bar.set_message(line);
        }
        thread::park_timeout(TICK);
    }
    for bar in &bars {
        bar.finish_and_clear();
        screen.bars.remove(bar);
    }
}

/// Columns of the terminal that standard error is.
fn console_width() -> u16 {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| size.ws_col.max(20))
}

impl Monitor for Progress {
    fn count(&self, counter: Counter, amount: u64) {
        if let Some(count) = self.heard.counts.of(counter) {
            count.fetch_add(amount, Ordering::Relaxed);
        }
    }

    fn phase(&self, name: &'static str) {
        *self.heard.phase.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    fn path(&self, path: &[u8]) {
        // Only shown, and the next one comes soon: nobody waits for the display.
        if self.live
            && let Ok(mut current) = self.heard.path.try_lock()
        {
            current.clear();
            current.extend_from_slice(path);
        }
    }

    fn follows_changes(&self) -> bool {
        self.verbosity >= Verbosity::Verbose
    }

    fn change(&self, path: &[u8], change: Change) {
        let word = match change {
            Change::New => "new",
            Change::Changed => "changed",
            Change::Metadata => "metadata",
            Change::Moved => "moved",
            Change::Unchanged => "unchanged",
        };
        if self.verbosity >= Verbosity::Verbose {
            self.screen.say(&format!("{word:9} {}", escape(path)));
        }
    }

    fn problem(&self, problem: Problem) {
        match problem.severity {
            Severity::Note if self.verbosity == Verbosity::Quiet => return,
            Severity::Note => {}
            Severity::Lost => drop(self.heard.lost.fetch_add(1, Ordering::Relaxed)),
            Severity::Damage => drop(self.heard.damage.fetch_add(1, Ordering::Relaxed)),
        }
        self.screen.say(&format!("kitbag: {problem}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden() -> Progress {
        let screen =
            Screen { bars: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()), live: false };
        Progress::begin(Job::Backup, &screen, Verbosity::Quiet)
    }

    #[test]
    fn counts_from_many_threads_add_up() {
        let progress = hidden();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| progress.count(Counter::Files, 2)));
            }
        });
        assert_eq!(progress.heard.snapshot().files, 8000);
    }

    #[test]
    fn problems_are_counted_by_how_bad_they_are() {
        let progress = hidden();
        for severity in [Severity::Note, Severity::Lost, Severity::Damage, Severity::Lost] {
            progress.problem(Problem::new(severity, b"/etc/shadow", "permission denied"));
        }
        progress.end();
        assert_eq!((progress.lost(), progress.damage()), (2, 1));
    }

    #[test]
    fn a_live_display_comes_and_goes() {
        let screen =
            Screen { bars: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()), live: true };
        let progress = Progress::begin(Job::Restore, &screen, Verbosity::Normal);
        progress.path(b"/a");
        progress.count(Counter::FilesRestored, 1);
        progress.end();
        assert!(progress.drawing.lock().expect("sound").is_none());
    }
}
