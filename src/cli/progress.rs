//! What an operation tells of itself, counted, and shown in the form that was asked for.
//!
//! Operations call [`Monitor`] from many threads and often, so hearing is an addition to an atomic number; a thread of its own
//! looks at the numbers now and then and shows them. Problems are always told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::events::{Step, Trouble};
use super::lines::{Job, Snapshot};
use super::log::Level;
use super::rate::Rate;
use super::screen::Display;
pub use super::screen::Screen;
use super::settings::Verbosity;
use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock};
use crate::monitor::{Change, Counter, Monitor, Problem, Severity};

/// How often the live display is drawn.
const LIVE: Duration = Duration::from_millis(100);

/// How often an object is written.
const JSON: Duration = Duration::from_millis(500);

/// How often a line is written.
const PLAIN: Duration = Duration::from_secs(10);

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
    /// Waits for so long, or until the operation is over.
    fn rest(&self, time: Duration) {
        let clock = SystemClock::new();
        while !self.over.load(Ordering::Acquire) {
            match time.checked_sub(clock.monotonic()) {
                // It may return too early.
                Some(left) if !left.is_zero() => thread::park_timeout(left),
                _ => return,
            }
        }
    }

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
        let show: Option<fn(Job, &Heard, &Screen)> = match screen.display() {
            Display::None => None,
            Display::Live => Some(draw),
            Display::Plain => Some(write_lines),
            Display::Json => Some(write_objects),
        };
        let drawing = show.and_then(|show| {
            let (heard, screen) = (Arc::clone(&heard), screen.clone());
            let thread = thread::Builder::new().name("display".to_owned());
            thread.spawn(move || show(job, &heard, &screen)).ok()
        });
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

/// Draws on a terminal.
fn draw(job: Job, heard: &Heard, screen: &Screen) {
    let bars = screen.bars();
    let clock = SystemClock::new();
    let mut rate = Rate::default();
    while !heard.over.load(Ordering::Acquire) {
        let snapshot = heard.snapshot();
        rate.sample(clock.monotonic(), snapshot.moved(job));
        let width = usize::from(console_width());
        bars.draw([snapshot.done(job), snapshot.moving(job, &rate), snapshot.current(width)]);
        heard.rest(LIVE);
    }
}

/// Writes a line now and then. At the end there is a result to read.
fn write_lines(job: Job, heard: &Heard, screen: &Screen) {
    let clock = SystemClock::new();
    let mut rate = Rate::default();
    heard.rest(PLAIN);
    while !heard.over.load(Ordering::Acquire) {
        let snapshot = heard.snapshot();
        rate.sample(clock.monotonic(), snapshot.moved(job));
        let (done, moving) = (snapshot.done(job), snapshot.moving(job, &rate));
        let comma = if moving.is_empty() { "" } else { "; " };
        screen.show(Level::Info, &format!("kitbag: {done}{comma}{moving}"));
        heard.rest(PLAIN);
    }
}

/// Writes an object twice a second, and one at the end.
fn write_objects(job: Job, heard: &Heard, screen: &Screen) {
    let clock = SystemClock::new();
    loop {
        let is_over = heard.over.load(Ordering::Acquire);
        screen.event(&Step::new(job, &heard.snapshot(), clock.monotonic().as_secs_f64(), is_over));
        if is_over {
            return;
        }
        heard.rest(JSON);
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
            self.screen.tell(Level::Info, &format!("{word:9} {}", escape(path)));
        }
    }

    fn problem(&self, problem: Problem) {
        let level = match problem.severity {
            Severity::Note if self.verbosity == Verbosity::Quiet => return,
            Severity::Note => Level::Note,
            Severity::Lost => {
                self.heard.lost.fetch_add(1, Ordering::Relaxed);
                Level::Error
            }
            Severity::Damage => {
                self.heard.damage.fetch_add(1, Ordering::Relaxed);
                Level::Error
            }
        };
        let text = format!("kitbag: {problem}");
        self.screen.log(level, &text);
        match self.screen.is_json() {
            true => self.screen.event(&Trouble::from(&problem)),
            false => self.screen.show(level, &text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden() -> Progress {
        Progress::begin(Job::Backup, &Screen::hidden(Display::None), Verbosity::Quiet)
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
        let progress = Progress::begin(Job::Restore, &Screen::hidden(Display::Live), Verbosity::Normal);
        progress.path(b"/a");
        progress.count(Counter::FilesRestored, 1);
        progress.end();
        assert!(progress.drawing.lock().expect("sound").is_none());
    }
}
