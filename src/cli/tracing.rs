//! What happens inside: on standard error for those who asked for it with `-v`, and in the log file.

use std::io;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::{Registry, fmt};

use super::log::Level;
use super::progress::Screen;
use super::settings::Verbosity;

/// From now on events up to the level that goes with `verbosity` are written above the display, and those that the log file shall have into that.
pub fn start(verbosity: Verbosity, screen: &Screen) {
    let level = match verbosity {
        Verbosity::Quiet => LevelFilter::ERROR,
        Verbosity::Normal => LevelFilter::WARN,
        Verbosity::Verbose => LevelFilter::INFO,
        Verbosity::Debug => LevelFilter::DEBUG,
        Verbosity::Trace => LevelFilter::TRACE,
    };
    let shown = fmt::layer()
        .with_writer(Lines(screen.clone(), Screen::show))
        .with_target(verbosity >= Verbosity::Debug)
        .with_level(verbosity >= Verbosity::Debug)
        .without_time()
        .with_filter(level);
    let logged = screen.logs().map(|most| {
        fmt::layer()
            .with_writer(Lines(screen.clone(), Screen::log))
            .with_ansi(false)
            .with_target(most >= Level::Debug)
            .with_level(false)
            .without_time()
            .with_filter(filter(most))
    });
    // A second start, which only tests could do, changes nothing.
    let _ = ::tracing::subscriber::set_global_default(Registry::default().with(shown).with(logged));
}

fn filter(most: Level) -> LevelFilter {
    match most {
        Level::Error => LevelFilter::ERROR,
        Level::Warning => LevelFilter::WARN,
        Level::Note | Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

/// What becomes of a line.
type Take = fn(&Screen, Level, &str);

struct Lines(Screen, Take);

/// Collects one event's text, and hands it on when dropped.
struct Event {
    screen: Screen,
    take: Take,
    level: Level,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Event;

    fn make_writer(&'a self) -> Event {
        Event { screen: self.0.clone(), take: self.1, level: Level::Info, text: Vec::new() }
    }

    fn make_writer_for(&'a self, about: &::tracing::Metadata<'_>) -> Event {
        let mut event = self.make_writer();
        event.level = (*about.level()).into();
        event
    }
}

impl io::Write for Event {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.text);
        let text = text.trim_end();
        if !text.is_empty() {
            (self.take)(&self.screen, self.level, text);
        }
    }
}
