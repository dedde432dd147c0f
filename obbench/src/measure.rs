//! One run of a command, measured: time, processor time, memory, local reads and writes of everything it starts.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::{Deserialize, Serialize};

use crate::{clock, interrupt, process};

/// How often memory is looked at.
const PERIOD: Duration = Duration::from_millis(10);

/// What a run cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// From start to end.
    pub wall_s: f64,
    /// Processor time in user mode, of the command and all its children that have ended. To a hundredth.
    pub user_s: f64,
    /// The same in the kernel.
    pub system_s: f64,
    /// The greatest sum of resident memory over the command and its descendants, looked at every 10 ms.
    pub peak_rss_bytes: u64,
    /// The same without what is mapped from files.
    pub peak_anonymous_bytes: u64,
    /// Bytes that were read from the disk rather than from memory.
    pub disk_read_bytes: u64,
    /// Bytes that were handed to the disk.
    pub disk_written_bytes: u64,
    /// The exit code; 128 and the signal's number where a signal ended it.
    pub exit_code: i32,
    /// Standard output.
    #[serde(skip)]
    pub stdout: String,
    /// Standard error.
    #[serde(skip)]
    pub stderr: String,
}

impl Measured {
    /// Whether the command said that all is well.
    #[must_use]
    pub fn good(&self) -> bool {
        self.exit_code == 0
    }

    /// Two runs one after the other as one: sums, and the greater of what is greatest.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self {
            wall_s: self.wall_s + next.wall_s,
            user_s: self.user_s + next.user_s,
            system_s: self.system_s + next.system_s,
            peak_rss_bytes: self.peak_rss_bytes.max(next.peak_rss_bytes),
            peak_anonymous_bytes: self.peak_anonymous_bytes.max(next.peak_anonymous_bytes),
            disk_read_bytes: self.disk_read_bytes + next.disk_read_bytes,
            disk_written_bytes: self.disk_written_bytes + next.disk_written_bytes,
            ..next
        }
    }

    /// The last lines of what it complained of.
    #[must_use]
    pub fn complaint(&self) -> String {
        let lines: Vec<&str> = self.stderr.trim().lines().collect();
        lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join("\n")
    }
}

/// Runs the command until it ends, or kills it with everything it started after `limit` (exit code 137). Its input
/// is empty, its output is kept.
///
/// # Errors
/// When it cannot be started, or this process was asked to end.
pub fn run(mut command: Command, limit: Duration) -> io::Result<Measured> {
    if interrupt::requested() {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "asked to end"));
    }
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).process_group(0);
    let begin = clock::now();
    let mut child = command.spawn()?;
    let memory = Memory::default();
    let status = thread::scope(|scope| {
        scope.spawn(|| memory.watch(child.id(), limit));
        let ended = wait_without_reaping(&child);
        memory.ended.store(true, Ordering::SeqCst);
        ended
    });
    let wall = begin.elapsed();
    let account = Account::read(child.id());
    // Now that its account is read, the zombie may go.
    let exit = child.wait()?;
    status?;
    Ok(Measured {
        wall_s: wall.as_secs_f64(),
        user_s: account.user_s,
        system_s: account.system_s,
        peak_rss_bytes: memory.rss.load(Ordering::Relaxed),
        peak_anonymous_bytes: memory.anonymous.load(Ordering::Relaxed),
        disk_read_bytes: account.read,
        disk_written_bytes: account.written,
        exit_code: code(exit),
        stdout: text(&mut stdout)?,
        stderr: text(&mut stderr)?,
    })
}

/// The exit code as a shell gives it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

fn text(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(file, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits for the end and leaves the zombie, whose account can be read as long as it is there.
fn wait_without_reaping(child: &Child) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(rustix::io::Errno::INTR) => {}
            result => return result.map(drop).map_err(io::Error::from),
        }
    }
}

#[derive(Default)]
struct Memory {
    rss: AtomicU64,
    anonymous: AtomicU64,
    ended: AtomicBool,
}

impl Memory {
    fn watch(&self, root: u32, limit: Duration) {
        let end = clock::now().checked_add(limit);
        let mut family = vec![root];
        let mut looks = 0u32;
        while !self.ended.load(Ordering::SeqCst) {
            // Looking for children costs more than looking at them.
            if looks.is_multiple_of(5) {
                family = process::descendants(root);
                family.push(root);
            }
            looks = looks.wrapping_add(1);
            let (mut rss, mut anonymous) = (0, 0);
            for &pid in &family {
                let (all, own) = resident(pid);
                rss += all;
                anonymous += own;
            }
            self.rss.fetch_max(rss, Ordering::Relaxed);
            self.anonymous.fetch_max(anonymous, Ordering::Relaxed);
            if end.is_some_and(|end| clock::now() >= end) {
                process::kill_all(|| {
                    let mut all = process::descendants(root);
                    all.push(root);
                    all
                });
                return;
            }
            thread::sleep(PERIOD);
        }
    }
}

/// Resident bytes, and those among them that are no file's.
fn resident(pid: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut pages = text.split_whitespace().skip(1).map(|field| field.parse().unwrap_or(0u64));
    let (all, shared) = (pages.next().unwrap_or_default(), pages.next().unwrap_or_default());
    let size = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    (all * size, all.saturating_sub(shared) * size)
}

/// What the kernel has written down about a process and the children it has waited for.
#[derive(Default)]
struct Account {
    user_s: f64,
    system_s: f64,
    read: u64,
    written: u64,
}

impl Account {
    fn read(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |place: usize| fields.get(place).and_then(|field| field.parse::<u32>().ok()).unwrap_or_default();
        let per_second = u32::try_from(rustix::param::clock_ticks_per_second()).map_or(100.0, f64::from);
        // Fields 14 to 17 of proc(5): own and children's; those before them end at the bracket, field 2.
        let seconds = |own: usize| (f64::from(ticks(own)) + f64::from(ticks(own + 2))) / per_second;
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let bytes = |name: &str| {
            io.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
                .unwrap_or_default()
        };
        Self {
            user_s: seconds(11),
            system_s: seconds(12),
            read: bytes("read_bytes"),
            written: bytes("write_bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn sees_time_memory_and_output() {
        let script = "echo out; echo err >&2; head -c 60000000 /dev/zero | tail -c 60000000 | (sleep 0.2; wc -c); exit 3";
        let measured = run(shell(script), LONG).expect("it runs");
        assert_eq!((measured.exit_code, measured.stderr.as_str()), (3, "err\n"));
        assert_eq!(measured.stdout, "out\n60000000\n");
        assert!(measured.wall_s > 0.2);
        assert!(measured.peak_rss_bytes > 50_000_000, "tail keeps them: {measured:?}");
        assert!(measured.peak_anonymous_bytes > 50_000_000);
        assert!(measured.user_s + measured.system_s > 0.01);
    }

    #[test]
    fn counts_processor_time_of_children() {
        let script = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; true";
        let measured = run(shell(script), LONG).expect("it runs");
        assert!(measured.user_s > 0.05, "{measured:?}");
    }

    #[test]
    fn ends_what_does_not_end() {
        let measured = run(shell("sleep 50 & sleep 50"), Duration::from_millis(200)).expect("it runs");
        assert_eq!(measured.exit_code, 137);
        assert!(measured.wall_s < 10.0);
    }
}
