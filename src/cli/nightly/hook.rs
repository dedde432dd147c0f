//! Commands of the user that run before and after a backup.
//!
//! A hook is run by `sh` in a process group of its own, so that Ctrl-C does not hit it and a time-out hits all of it. Its standard input
//! is a file that lies in memory: a hook that does not read it hangs nobody. Nor does one that asks at the terminal, which the kernel stops, since
//! its group is not the terminal's: it is ended. What it prints goes to standard error, since
//! standard output is the command's result. It gets the environment, save the passphrase.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use serde::Serialize;

use crate::base::cancel::Cancel;
use crate::base::program::program;
use crate::base::time::{Clock as _, SystemClock};

/// How often to look whether somebody asked to stop.
const LOOK: Duration = Duration::from_millis(100);

/// How long a hook that was told to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// Which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// `--before`
    Before,
    /// `--after`
    After,
    /// `--on-failure`
    OnFailure,
}

/// A command to run.
#[derive(Debug, Clone, Copy)]
pub struct Hook<'a> {
    /// Which one it is.
    pub name: Name,
    /// What `sh` is given.
    pub command: &'a str,
    /// How long it may take.
    pub timeout: Duration,
}

/// Why a hook did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// It cannot be run at all.
    #[error("cannot run the hook {0}: {1}")]
    Start(Name, io::Error),
    /// It ended with something else than 0.
    #[error("the hook {0} failed ({1})")]
    Status(Name, Told),
    /// It took too long.
    #[error("the hook {0} was killed, with all that it had started, since it took longer than {1}")]
    TimedOut(Name, String),
    /// It wanted something of the terminal.
    #[error("the hook {0} was ended, since it asked something at the terminal, where nobody answers a hook")]
    Asks(Name),
    /// Somebody asked to stop meanwhile.
    #[error("the hook {0} was stopped")]
    Interrupted(Name),
}

/// How a process ended, in words.
#[derive(Debug)]
pub struct Told(ExitStatus);

/// How waiting ended.
#[derive(Debug)]
pub enum Ended {
    /// The process did.
    Exited(ExitStatus),
    /// The time was over.
    TimedOut,
    /// The kernel has stopped it, since it wanted something of a terminal that is not its own.
    Asks,
    /// Somebody asked to stop.
    Cancelled,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "--before",
            Self::After => "--after",
            Self::OnFailure => "--on-failure",
        })
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "exit status {code}"),
            (None, Some(signal)) => write!(f, "killed by signal {signal}"),
            (None, None) => write!(f, "{}", self.0),
        }
    }
}

impl Hook<'_> {
    /// Runs it with `input` as JSON on its standard input, and waits for its end; not longer than its time, and not when `cancel` is set:
    /// then it is asked to end, and killed with its whole process group when it does not.
    ///
    /// # Errors
    /// Why it did not succeed, in a sentence.
    pub fn run(&self, input: &impl Serialize, cancel: &Cancel) -> Result<(), HookError> {
        let start = |error: io::Error| HookError::Start(self.name, error);
        let input = in_memory(input).map_err(start)?;
        let mut command = program("/bin/sh");
        command.args(["-c", self.command]).stdin(input).stdout(io::stderr()).process_group(0);
        let mut child = command.spawn().map_err(start)?;
        let ended = wait_for(&mut child, self.timeout, cancel).map_err(start);
        let failure = match ended {
            Ok(Ended::Exited(status)) if status.success() => return Ok(()),
            Ok(Ended::Exited(status)) => return Err(HookError::Status(self.name, Told(status))),
            Ok(Ended::TimedOut) => HookError::TimedOut(self.name, crate::cli::human::duration(self.timeout)),
            Ok(Ended::Asks) => HookError::Asks(self.name),
            Ok(Ended::Cancelled) => HookError::Interrupted(self.name),
            Err(error) => error,
        };
        end(&mut child);
        Err(failure)
    }
}

/// A file with this value in it, read from its beginning.
fn in_memory(value: &impl Serialize) -> io::Result<Stdio> {
    let mut file = File::from(rustix::fs::memfd_create("kitbag-hook", rustix::fs::MemfdFlags::CLOEXEC)?);
    serde_json::to_writer(&mut file, value).map_err(io::Error::from)?;
    file.write_all(b"\n")?;
    file.rewind()?;
    Ok(file.into())
}

/// Waits for the end of a process: for a time, and until `cancel` is set.
///
/// # Errors
/// What the system says.
pub fn wait_for(child: &mut Child, patience: Duration, cancel: &Cancel) -> io::Result<Ended> {
    let clock = SystemClock::new();
    // Only a help to wake up at once: a kernel without such descriptors is looked at in turns.
    let pid = Pid::from_child(child);
    let ending = pidfd_open(pid, PidfdFlags::empty()).ok();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        if cancel.is_cancelled() {
            return Ok(Ended::Cancelled);
        }
        if asks(pid) {
            return Ok(Ended::Asks);
        }
        let left = patience.saturating_sub(clock.monotonic()).min(LOOK);
        if left.is_zero() {
            return Ok(Ended::TimedOut);
        }
        let mut fds: Vec<_> = ending.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
    }
}

/// Whether a process was stopped since it wanted to read from its terminal, or to set it, while another group has it. Other stops may be meant.
fn asks(pid: Pid) -> bool {
    let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG).ok().flatten();
    let signal = stopped.and_then(|stopped| stopped.stopping_signal());
    signal.is_some_and(|signal| [Signal::TTIN, Signal::TTOU].iter().any(|one| one.as_raw() == signal))
}

/// Ends a process and its group: asks first, then kills.
fn end(child: &mut Child) {
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    // What is stopped does not hear of it.
    let _ = kill_process_group(group, Signal::CONT);
    let _ = wait_for(child, GRACE, &Cancel::new());
    // Whoever is left of the group, too.
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, timeout: Duration) -> Result<(), HookError> {
        let hook = Hook { name: Name::Before, command, timeout };
        hook.run(&serde_json::json!({ "client": "laptop" }), &Cancel::new())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_hook_is_given_json_and_gives_its_status() {
        run("grep -q '\"client\":\"laptop\"'", LONG).expect("it reads it");
        run("true", LONG).expect("it need not read it");
        let error = run("exit 7", LONG).expect_err("it fails");
        assert_eq!(error.to_string(), "the hook --before failed (exit status 7)");
        let error = run("kill -9 $$", LONG).expect_err("it is killed");
        assert_eq!(error.to_string(), "the hook --before failed (killed by signal 9)");
    }

    #[test]
    fn input_of_any_length_hangs_nobody() {
        let hook = Hook { name: Name::After, command: "sleep 0", timeout: LONG };
        hook.run(&"x".repeat(10 << 20), &Cancel::new()).expect("it ends");
    }

    #[test]
    fn a_hook_that_hangs_is_killed_with_what_it_has_started() {
        let dir = tempfile::tempdir().expect("a directory");
        let pid = dir.path().join("pid");
        let command = format!("trap '' TERM; sleep 600 & echo $! >{}; wait", pid.display());
        let error = run(&command, Duration::from_millis(300)).expect_err("it takes too long");
        assert!(matches!(error, HookError::TimedOut(Name::Before, _)), "{error}");
        let pid = std::fs::read_to_string(pid).expect("written");
        // It dies when it is its turn to run, and stays as an orphan until its new parent has reaped it.
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.is_empty() || stat.contains(" Z ")
        };
        assert!((0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            is_gone()
        }));
    }

    #[test]
    fn a_hook_that_asks_at_the_terminal_is_ended_at_once() {
        // As the kernel does when the terminal is another group's.
        let error = run("kill -TTIN 0; sleep 600", LONG).expect_err("nobody answers");
        assert!(matches!(error, HookError::Asks(Name::Before)), "{error}");
    }

    #[test]
    fn whoever_asks_to_stop_need_not_wait() {
        let cancel = Cancel::new();
        cancel.cancel();
        let hook = Hook { name: Name::After, command: "sleep 600", timeout: LONG };
        assert!(matches!(hook.run(&(), &cancel), Err(HookError::Interrupted(Name::After))));
    }
}
