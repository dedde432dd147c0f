//! The process that stands between `sshd` and the SFTP server, one for each channel.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::event::{Event, SIZE};
use super::frame::Frames;
use crate::clock;

/// What is passed on at once, and what the pipes to the server are made to hold.
const BLOCK: usize = 256 << 10;
/// Events are reported in batches of this many, or so often.
const BATCH: usize = 512 * SIZE;
const PERIOD: Duration = Duration::from_millis(100);

/// Runs the server's command with standard input and output passed through, and reports to the meter at `socket`.
/// Returns how the server ended.
///
/// # Errors
/// When the meter cannot be reached, or the server cannot be started.
pub fn run(socket: &Path, command: &[OsString]) -> io::Result<ExitStatus> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no server's command to run"));
    };
    let reporter: &'static Reporter = Box::leak(Box::new(Reporter::connect(socket)?));
    let mut server =
        Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(input), Some(output)) = (server.stdin.take(), server.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    widen(&input);
    widen(&output);
    // Neither is waited for: they end with the process. The client's side may stay silent for ever.
    thread::spawn(move || reporter.keep_reporting());
    thread::spawn(move || {
        // An end on either side ends this direction; the server then sees its input closed and ends as well.
        let _ = pass(standard_input(), input, reporter, false);
    });
    let passed = pass(output, standard_output(), reporter, true);
    let status = server.wait()?;
    reporter.flush();
    // A client that is gone already is how most sessions end.
    match passed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(status),
    }
}

fn pass(mut from: impl Read, mut to: impl Write, reporter: &Reporter, answers: bool) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut buffer = vec![0; BLOCK];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        // Before it is passed on: nobody can react to it sooner than it is noted.
        reporter.note(&mut frames, bytes, answers);
        to.write_all(bytes)?;
        to.flush()?;
    }
}

/// Unbuffered: the standard library's handles would copy, and look for line ends.
fn standard_input() -> impl Read {
    struct Input;
    impl Read for Input {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            Ok(rustix::io::read(rustix::stdio::stdin(), buffer)?)
        }
    }
    Input
}

fn standard_output() -> impl Write {
    struct Output;
    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    Output
}

/// Users may only have so much of pipes; then it is a little slower.
fn widen(pipe: impl AsFd) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, 1 << 20);
}

/// Collects events and sends them to the meter.
struct Reporter {
    state: Mutex<Batch>,
}

struct Batch {
    socket: UnixStream,
    events: Vec<u8>,
}

impl Reporter {
    fn connect(socket: &Path) -> io::Result<Self> {
        let socket = UnixStream::connect(socket)?;
        Ok(Self { state: Mutex::new(Batch { socket, events: Vec::with_capacity(2 * BATCH) }) })
    }

    fn note(&self, frames: &mut Frames, bytes: &[u8], answer: bool) {
        let mut batch = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that times of a channel never run backwards.
        let at = clock::since_boot();
        frames.push(bytes, |packet| {
            let event = Event { at, answer, kind: packet.kind, bytes: packet.bytes };
            batch.events.extend_from_slice(&event.encode());
        });
        if batch.events.len() >= BATCH {
            batch.send();
        }
    }

    fn flush(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).send();
    }

    fn keep_reporting(&self) {
        loop {
            thread::sleep(PERIOD);
            self.flush();
        }
    }
}

impl Batch {
    fn send(&mut self) {
        if !self.events.is_empty() {
            // Without a meter the session goes on; whoever measures finds the counts missing.
            let _ = self.socket.write_all(&self.events);
            self.events.clear();
        }
    }
}
