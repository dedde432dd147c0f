//! The meter's end: takes the events of all channels.

use std::io::{self, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::Counts;
use super::count::count;
use super::event::{Event, SIZE};
use crate::clock;
use crate::sshd::{self, SshdError, Subsystem};

/// How long channels of a client that has ended may take to end as well.
const PATIENCE: Duration = Duration::from_secs(3);

/// Collects what the taps report. One meter serves one client at a time.
pub struct Meter {
    program: PathBuf,
    server: PathBuf,
    directory: TempDir,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    opened: u64,
    open: u64,
    ending: bool,
}

/// Why there is no meter.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// The program that is to stand between is not built.
    #[error("the obbench program is not beside {}: build it with `cargo build -p obbench`", .0.display())]
    NoProgram(PathBuf),
    /// No SFTP server is installed.
    #[error(transparent)]
    NoServer(#[from] SshdError),
    /// The socket could not be made.
    #[error("cannot listen for the channels' reports: {0}")]
    Io(#[from] io::Error),
}

impl Meter {
    /// A meter whose taps are the `obbench` program beside the running one.
    ///
    /// # Errors
    /// See [`MeterError`].
    pub fn start() -> Result<Self, MeterError> {
        Self::with_program(&beside()?)
    }

    /// A meter whose taps are that `obbench` program.
    ///
    /// # Errors
    /// See [`MeterError`].
    pub fn with_program(program: &Path) -> Result<Self, MeterError> {
        let directory = tempfile::Builder::new().prefix("obbench-meter-").tempdir()?;
        let state = Arc::new(Mutex::new(State::default()));
        let listener = UnixListener::bind(directory.path().join("socket"))?;
        let theirs = Arc::clone(&state);
        thread::Builder::new().name("meter".into()).spawn(move || accept(&listener, &theirs))?;
        Ok(Self { program: program.to_path_buf(), server: sshd::sftp_server()?, directory, state })
    }

    /// What to give to [`SshdOptions`](sshd::SshdOptions).
    #[must_use]
    pub fn subsystem(&self) -> Subsystem {
        Subsystem::Command(format!(
            "{} meter --socket {} -- {}",
            self.program.display(),
            self.socket().display(),
            self.server.display()
        ))
    }

    /// Counts what happened since the last call, and begins anew. Waits until the channels of the client have ended,
    /// for at most three seconds; the client itself is to have ended before. `rtt` is the link's.
    #[must_use]
    pub fn take(&self, rtt: Duration) -> Counts {
        clock::wait_until(PATIENCE, || self.lock().open == 0);
        let mut state = self.lock();
        let events = std::mem::take(&mut state.events);
        let channels = std::mem::take(&mut state.opened);
        drop(state);
        count(events, channels, rtt)
    }

    /// What has been reported so far, up to about a tenth of a second ago.
    #[must_use]
    pub fn peek(&self, rtt: Duration) -> Counts {
        let state = self.lock();
        let (events, channels) = (state.events.clone(), state.opened);
        drop(state);
        count(events, channels, rtt)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.lock().ending = true;
        // Wakes the thread that accepts, which then ends.
        let _ = UnixStream::connect(self.socket());
    }
}

fn accept(listener: &UnixListener, state: &Arc<Mutex<State>>) {
    for channel in listener.incoming().flatten() {
        let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.ending {
            return;
        }
        now.opened += 1;
        now.open += 1;
        drop(now);
        let state = Arc::clone(state);
        thread::spawn(move || {
            collect(channel, &state);
            let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
            now.open = now.open.saturating_sub(1);
        });
    }
}

fn collect(mut channel: UnixStream, state: &Mutex<State>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 512 * SIZE];
    while let Ok(count @ 1..) = channel.read(&mut buffer) {
        bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let (whole, _) = bytes.as_chunks::<SIZE>();
        let taken = whole.len() * SIZE;
        state.lock().unwrap_or_else(PoisonError::into_inner).events.extend(whole.iter().map(Event::decode));
        bytes.drain(..taken);
    }
}

/// The `obbench` program: the running one, or the one that cargo built beside the running test.
fn beside() -> Result<PathBuf, MeterError> {
    let running = std::env::current_exe()?;
    if running.file_name().is_some_and(|name| name == "obbench") {
        return Ok(running);
    }
    let found =
        running.ancestors().skip(1).take(2).map(|place| place.join("obbench")).find(|path| path.is_file());
    found.ok_or(MeterError::NoProgram(running))
}
