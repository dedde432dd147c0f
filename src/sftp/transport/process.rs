//! A link over child processes: each channel is a process whose standard input and output speak SFTP.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::sftp::link::{ChannelId, Link, LinkError, LinkErrorKind, LinkEvent};

/// What a pipe is asked to hold; the system may grant less.
const PIPE_SIZE: usize = 1 << 20;

/// Bytes read from one channel in one pass.
const READ_SIZE: usize = 256 << 10;

/// How much of what a process says on standard error is kept.
const WORDS: usize = 16 << 10;

/// How long a process that was asked to end may take, in steps of [`STEP`], before it is killed.
const STEPS: u32 = 40;

/// See [`STEPS`].
const STEP: Duration = Duration::from_millis(5);

/// A process whose standard streams are pipes that never block. Ended and reaped when dropped.
#[derive(Debug)]
pub struct Piped {
    child: Child,
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    said: Vec<u8>,
    full: bool,
}

impl Piped {
    /// Starts a process.
    ///
    /// # Errors
    /// What the system says.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("a process without its pipes"));
        };
        let (stdin, stdout, stderr) = (OwnedFd::from(stdin), OwnedFd::from(stdout), OwnedFd::from(stderr));
        for pipe in [&stdin, &stdout, &stderr] {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        for pipe in [&stdin, &stdout] {
            // Users have a limit of pipe memory; smaller pipes are only slower.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_SIZE);
        }
        Ok(Self { child, stdin: Some(stdin), stdout, stderr, said: Vec::new(), full: false })
    }

    /// Whether it has ended, and how.
    ///
    /// # Errors
    /// What the system says.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// What it said on standard error so far, the beginning and the end of it.
    pub fn words(&mut self) -> String {
        let mut buffer = [0; 4096];
        while let Ok(some @ 1..) = rustix::io::read(&self.stderr, &mut buffer) {
            if self.said.len() < WORDS {
                self.said.extend_from_slice(buffer.get(..some).unwrap_or_default());
            }
        }
        String::from_utf8_lossy(&self.said).trim().to_owned()
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let written = match &self.stdin {
            Some(stdin) => rustix::io::write(stdin, bytes),
            None => return 0,
        };
        match written {
            Ok(some) => {
                self.full = some < bytes.len();
                some
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.full = true;
                0
            }
            // It has ended; its output, read to the end, says the rest.
            Err(_) => {
                self.stdin = None;
                0
            }
        }
    }

    /// Lets it end: by the end of its input, by a signal if it takes long, by force if that does not help.
    pub fn end(&mut self) -> Option<ExitStatus> {
        self.stdin = None;
        for step in 0..STEPS.saturating_mul(2) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if step == 2
                && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            {
                let _ = kill_process(pid, Signal::TERM);
            }
            thread::sleep(STEP);
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts the process of a channel.
pub type Spawn = Box<dyn FnMut(ChannelId) -> io::Result<Piped> + Send>;

/// A link whose channels are processes.
pub struct ProcessLink {
    about: String,
    spawn: Spawn,
    channels: BTreeMap<ChannelId, Piped>,
    news: Vec<LinkEvent>,
    scratch: Vec<u8>,
}

impl ProcessLink {
    /// A link that starts a process for each channel.
    #[must_use]
    pub fn new(about: String, spawn: Spawn) -> Self {
        Self { about, spawn, channels: BTreeMap::new(), news: Vec::new(), scratch: vec![0; READ_SIZE] }
    }

    /// Reads what a channel has, in one pass; tells whether it has come to its end.
    fn read(&mut self, id: ChannelId, events: &mut Vec<LinkEvent>) -> bool {
        let Some(channel) = self.channels.get(&id) else {
            return false;
        };
        match rustix::io::read(&channel.stdout, &mut self.scratch) {
            Ok(0) => true,
            Ok(some) => {
                let bytes = self.scratch.get(..some).unwrap_or_default();
                events.push(LinkEvent::Data(id, bytes.to_vec()));
                false
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => true,
        }
    }

    fn close(&mut self, id: ChannelId) -> Option<LinkEvent> {
        let mut channel = self.channels.remove(&id)?;
        let status = channel.end();
        let words = channel.words();
        let words = match (words.as_str(), status) {
            ("", Some(status)) => format!("its process ended with {status}"),
            ("", None) => "its process ended".to_owned(),
            (words, _) => words.to_owned(),
        };
        Some(LinkEvent::Closed(id, words))
    }
}

impl Link for ProcessLink {
    fn open_channel(&mut self, channel: ChannelId) {
        match (self.spawn)(channel) {
            Ok(piped) => {
                self.channels.insert(channel, piped);
                self.news.push(LinkEvent::Opened(channel));
            }
            Err(error) => self.news.push(LinkEvent::Refused(channel, error.to_string())),
        }
    }

    fn send(&mut self, channel: ChannelId, bytes: &[u8]) -> usize {
        self.channels.get_mut(&channel).map_or(0, |piped| piped.write(bytes))
    }

    fn poll(
        &mut self,
        waker: BorrowedFd<'_>,
        timeout: Duration,
        events: &mut Vec<LinkEvent>,
    ) -> Result<(), LinkError> {
        let timeout = if self.news.is_empty() { timeout } else { Duration::ZERO };
        events.append(&mut self.news);
        let (mut ready, mut chatty) = (Vec::new(), Vec::new());
        {
            let mut fds = vec![PollFd::new(&waker, PollFlags::IN)];
            let mut owners = Vec::new();
            for (id, piped) in &self.channels {
                fds.push(PollFd::new(&piped.stdout, PollFlags::IN));
                fds.push(PollFd::new(&piped.stderr, PollFlags::IN));
                owners.push(*id);
            }
            for piped in self.channels.values().filter(|piped| piped.full) {
                if let Some(stdin) = &piped.stdin {
                    fds.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT));
                }
            }
            let timeout = Timespec::try_from(timeout).ok();
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(LinkError::new(LinkErrorKind::Local, error)),
            }
            for (id, pair) in owners.iter().zip(fds.get(1..).unwrap_or_default().chunks(2)) {
                if let [stdout, stderr] = pair {
                    if !stdout.revents().is_empty() {
                        ready.push(*id);
                    }
                    if stderr.revents().contains(PollFlags::IN) {
                        chatty.push(*id);
                    }
                }
            }
        }
        for id in chatty {
            if let Some(piped) = self.channels.get_mut(&id) {
                piped.words();
            }
        }
        for id in ready {
            if self.read(id, events) {
                events.extend(self.close(id));
            }
        }
        Ok(())
    }

    fn close_channel(&mut self, channel: ChannelId) {
        self.channels.remove(&channel);
    }

    fn describe(&self) -> String {
        self.about.clone()
    }
}

impl Drop for ProcessLink {
    fn drop(&mut self) {
        // All are asked to end before any is waited for; the control channel last, since others may depend on it.
        for piped in self.channels.values_mut() {
            piped.stdin = None;
        }
        while self.channels.pop_last().is_some() {}
    }
}
