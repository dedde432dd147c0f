//! What happens inside, on standard error, for those who asked for it with `-v`.

use std::io;

use tracing_subscriber::fmt::MakeWriter;

use super::progress::Screen;
use super::settings::Verbosity;

/// From now on events up to the level that goes with `verbosity` are written above the display.
pub fn start(verbosity: Verbosity, screen: &Screen) {
    use tracing_subscriber::filter::LevelFilter;
    let level = match verbosity {
        Verbosity::Quiet => LevelFilter::ERROR,
        Verbosity::Normal => LevelFilter::WARN,
        Verbosity::Verbose => LevelFilter::INFO,
        Verbosity::Debug => LevelFilter::DEBUG,
        Verbosity::Trace => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(Above(screen.clone()))
        .with_target(verbosity >= Verbosity::Debug)
        .with_level(verbosity >= Verbosity::Debug)
        .without_time()
        .finish();
    // A second start, which only tests could do, changes nothing.
    let _ = ::tracing::subscriber::set_global_default(subscriber);
}

struct Above(Screen);

/// Collects one event's text, and says it when dropped.
struct Event(Screen, Vec<u8>);

impl<'a> MakeWriter<'a> for Above {
    type Writer = Event;

    fn make_writer(&'a self) -> Event {
        Event(self.0.clone(), Vec::new())
    }
}

impl io::Write for Event {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.1);
        let text = text.trim_end();
        if !text.is_empty() {
            self.0.say(text);
        }
    }
}
