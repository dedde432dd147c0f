//! Standard error: what is said to whoever looks, and where it goes besides.
//!
//! Everything that is not a result passes here, in one of three forms: lines above a live display, lines with a priority for the
//! systemd journal, or JSON. A copy goes to the log file where there is one. A process that has gone to the background has nobody
//! who looks: without a log file it speaks to the system's log.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::args::ProgressForm;
use super::events::Message;
use super::log::{Level, LogFile};
use super::settings::Verbosity;
use super::syslog::{DEV_LOG, Syslog};

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As they are.
    Text,
    /// With their priority before them, as sd-daemon(3) has it.
    Journal,
    /// As objects.
    Json,
}

/// How it is shown what an operation is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Display {
    /// Not at all.
    None,
    /// On a terminal, ten times a second.
    Live,
    /// By a line now and then.
    Plain,
    /// By objects.
    Json,
}

/// What a screen shall be like.
#[derive(Debug)]
pub struct Look {
    /// How much is said.
    pub verbosity: Verbosity,
    /// `--progress`
    pub progress: ProgressForm,
    /// Whether standard error is the journal.
    pub in_journal: bool,
    /// Where a copy goes.
    pub log: Option<LogFile>,
}

/// Standard error, shared by the display and by what is said above it.
#[derive(Debug, Clone)]
pub struct Screen {
    inner: Arc<Inner>,
    display: Display,
}

#[derive(Debug)]
struct Inner {
    bars: MultiProgress,
    form: Form,
    log: Option<LogFile>,
    /// Whether it was told that the log file takes no more.
    log_failed: AtomicBool,
    /// Set in the background: the system's log, where it can be reached.
    behind: OnceLock<Option<Syslog>>,
}

impl Screen {
    /// Standard error as text; nothing is drawn on it when it is no terminal, or when nothing but problems shall be said.
    #[must_use]
    pub fn new(verbosity: Verbosity) -> Self {
        Self::with(Look { verbosity, progress: ProgressForm::Auto, in_journal: false, log: None })
    }

    /// Standard error that looks like this.
    #[must_use]
    pub fn with(look: Look) -> Self {
        let is_terminal = !look.in_journal && io::stderr().is_terminal();
        let display = match look.progress {
            ProgressForm::Auto if is_terminal && look.verbosity > Verbosity::Quiet => Display::Live,
            ProgressForm::Auto | ProgressForm::None => Display::None,
            ProgressForm::Plain => Display::Plain,
            ProgressForm::Json => Display::Json,
        };
        let form = match (display, look.in_journal) {
            (Display::Json, _) => Form::Json,
            (_, true) => Form::Journal,
            (_, false) => Form::Text,
        };
        Self::of(display, form, look.log)
    }

    fn of(display: Display, form: Form, log: Option<LogFile>) -> Self {
        let target = if display == Display::Live {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bars = MultiProgress::with_draw_target(target);
        let inner = Inner { bars, form, log, log_failed: AtomicBool::new(false), behind: OnceLock::new() };
        Self { inner: Arc::new(inner), display }
    }

    /// The same, with nothing drawn on it: for commands whose results may go to the same terminal.
    #[must_use]
    pub fn without_display(&self) -> Self {
        let display = if self.display == Display::Live { Display::None } else { self.display };
        Self { display, ..self.clone() }
    }

    /// The same, on which nothing tells what an operation is doing: for those that have no end.
    #[must_use]
    pub fn without_progress(&self) -> Self {
        Self { display: Display::None, ..self.clone() }
    }

    /// How it is shown what an operation is doing.
    #[must_use]
    pub fn display(&self) -> Display {
        self.display
    }

    /// Says something worth saying; see [`Self::tell`].
    pub fn say(&self, text: &str) {
        self.tell(Level::Note, text);
    }

    /// Writes lines on standard error, above the display, and into the log.
    pub fn tell(&self, level: Level, text: &str) {
        self.log(level, text);
        self.show(level, text);
    }

    /// Writes lines into the log only.
    pub fn log(&self, level: Level, text: &str) {
        let Some(log) = &self.inner.log else { return };
        if let Err(error) = log.write(level, without_name(text))
            && !self.inner.log_failed.swap(true, Ordering::Relaxed)
        {
            self.show(Level::Warning, &format!("kitbag: the log file takes no more: {error}"));
        }
    }

    /// The level down to which the log is written, if there is one.
    #[must_use]
    pub fn logs(&self) -> Option<Level> {
        self.inner.log.as_ref().map(LogFile::most)
    }

    /// Writes lines on standard error only.
    pub fn show(&self, level: Level, text: &str) {
        match self.inner.behind.get() {
            None => {}
            Some(Some(syslog)) if self.inner.log.is_none() => return syslog.send(level, without_name(text)),
            Some(_) => return,
        }
        match self.inner.form {
            Form::Text => self.write(&format!("{text}\n")),
            Form::Journal => {
                let lines = text.lines().map(|line| format!("<{}>{line}\n", level.priority()));
                self.write(&lines.collect::<String>());
            }
            Form::Json => self.event(&Message::new(level, without_name(text))),
        }
    }

    /// Whether lines are objects.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.inner.form == Form::Json && self.inner.behind.get().is_none()
    }

    /// Writes an object as a line, where lines are objects.
    pub fn event(&self, event: &impl Serialize) {
        if let (true, Ok(text)) = (self.is_json(), serde_json::to_string(event)) {
            self.write(&format!("{text}\n"));
        }
    }

    fn write(&self, text: &str) {
        // Where nobody listens any more there is nobody to tell.
        self.inner.bars.suspend(|| drop(io::stderr().write_all(text.as_bytes())));
    }

    /// From now on there is nobody who looks.
    pub fn go_behind(&self) {
        let _ = self.inner.behind.set(Syslog::connect(Path::new(DEV_LOG)).ok());
    }

    /// Runs `ask` while the display is out of the way.
    pub fn pause<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.inner.bars.suspend(ask)
    }

    /// Three lines at the bottom, to be drawn on.
    #[must_use]
    pub fn bars(&self) -> Bars {
        let style = || {
            ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner())
        };
        let bars = &self.inner.bars;
        Bars {
            bars: [(); 3].map(|()| bars.add(ProgressBar::new_spinner().with_style(style()))),
            all: bars.clone(),
        }
    }
}

/// The lines of a live display; gone when dropped.
#[derive(Debug)]
pub struct Bars {
    bars: [ProgressBar; 3],
    all: MultiProgress,
}

impl Bars {
    /// Draws these.
    pub fn draw(&self, lines: [String; 3]) {
        for (bar, line) in self.bars.iter().zip(lines) {
            bar.set_message(line);
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        for bar in &self.bars {
            bar.finish_and_clear();
            self.all.remove(bar);
        }
    }
}

/// The program's name is said on a terminal, and known elsewhere.
fn without_name(text: &str) -> &str {
    text.strip_prefix("kitbag: ").unwrap_or(text)
}

#[cfg(test)]
impl Screen {
    /// A screen that nobody sees.
    pub(crate) fn hidden(display: Display) -> Self {
        let mut screen = Self::of(Display::None, Form::Text, None);
        screen.display = display;
        screen
    }
}
