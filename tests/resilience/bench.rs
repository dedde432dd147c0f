//! A tree to save, a server behind a relay, and the program run against it.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use obbench::clock;
use obbench::need;
use obbench::random::Random;
use obbench::relay::{Link, Relay};
use obbench::sshd::{Sshd, SshdOptions, Subsystem};

use crate::common::{Kitbag, Outcome, manifest};

/// No run takes so long, unless it hangs.
fn patience() -> Duration {
    Duration::from_secs(if is_long() { 3600 } else { 150 })
}

/// `--link-timeout` of the runs that are about silence. On a loaded machine a connection may take as long.
pub const LINK_TIMEOUT: Duration = Duration::from_secs(3);

/// The ways to speak SSH.
pub const TRANSPORTS: [&str; 2] = ["ssh2", "openssh"];

/// A program's home, a server, and the line between them.
pub struct Bench {
    pub kitbag: Kitbag,
    pub sshd: Sshd,
    pub relay: Relay,
    pub transport: &'static str,
    /// `--link-timeout` of its runs.
    pub link_timeout: Duration,
}

/// Whether the long forms were asked for.
#[expect(clippy::disallowed_methods, reason = "whoever runs tests says so by the environment")]
pub fn is_long() -> bool {
    std::env::var_os("KITBAG_TEST_LONG").is_some()
}

/// The server built into sshd: it does not depend on what the user's shell does at its start.
pub fn internal() -> SshdOptions {
    SshdOptions { subsystem: Subsystem::Internal, ..SshdOptions::default() }
}

impl Bench {
    /// A server of this kind behind such a line, and a repository on it; none where a program is missing.
    pub fn start(options: SshdOptions, link: Link, transport: &'static str) -> Option<Self> {
        if !need::program("sshd") || !need::program("ssh") {
            return None;
        }
        let mut sshd = Sshd::start(options).expect("a server");
        let relay = Relay::start(sshd.address(), link).expect("a relay");
        sshd.set_client_port(relay.port()).expect("set");
        let kitbag = Kitbag::new();
        let bench = Self { kitbag, sshd, relay, transport, link_timeout: LINK_TIMEOUT };
        bench.local(&["init", "--encryption", "none"]).code(0);
        Some(bench)
    }

    /// Where the server keeps the repository.
    pub fn repository(&self) -> PathBuf {
        self.kitbag.path("repository")
    }

    /// The tree that is saved.
    pub fn live(&self) -> PathBuf {
        self.kitbag.path("live")
    }

    /// Adds a file that does not compress.
    pub fn add_noise(&self, name: &str, bytes: u64) {
        let path = self.live().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        let mut file = fs::File::create(path).expect("created");
        let mut random = Random::new(bytes ^ u64::try_from(name.len()).expect("small"));
        let mut piece = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            random.fill(&mut piece);
            let some = usize::try_from(left.min(1 << 20)).expect("small");
            file.write_all(&piece[..some]).expect("written");
            left -= left.min(1 << 20);
        }
    }

    /// A large file, and some small ones.
    pub fn make_tree(&self, bytes: u64) {
        self.add_noise("large", bytes);
        for number in 0..40 {
            self.add_noise(&format!("small/{number}/file"), 1000 + number * 7);
        }
    }

    /// For what is not about silence: a loaded machine may take its time.
    pub fn patient(mut self) -> Self {
        self.link_timeout = Duration::from_secs(30);
        self
    }

    /// The program on the repository beside it, past server and line, with another cache: as if by somebody else.
    pub fn local(&self, arguments: &[&str]) -> Outcome {
        let repository = self.repository();
        let mut command = self.kitbag.command();
        command.arg("--cache-dir").arg(self.kitbag.path("cache-of-somebody-else"));
        Outcome::of(command.arg("--repository").arg(repository).args(arguments))
    }

    /// The program on the repository over the line.
    pub fn remote(&self, arguments: &[&str]) -> Command {
        let mut command = self.kitbag.command();
        command.args(["--repository", &self.sshd.url(&self.repository())]);
        command.arg("--ssh-config").arg(self.sshd.ssh_config());
        command.args(["--transport", self.transport]);
        command.args(["--link-timeout", &format!("{}s", self.link_timeout.as_secs())]);
        command.args(arguments);
        command
    }

    /// Begins a backup over the line.
    pub fn backup(&self, more: &[&str]) -> Running {
        let live = self.live();
        let live = live.to_str().expect("UTF-8");
        Running::start(self.remote(&["backup", "--json", live]).args(more))
    }

    /// Begins a restore over the line, into an empty directory.
    pub fn restore(&self) -> Running {
        let to = self.restored();
        let _ = fs::remove_dir_all(&to);
        let to = to.to_str().expect("UTF-8");
        Running::start(&mut self.remote(&["restore", "--strip-root", "--to", to]))
    }

    fn restored(&self) -> PathBuf {
        self.kitbag.path("restored")
    }

    /// The restored tree is the saved one.
    pub fn assert_restored(&self) {
        assert!(manifest(&self.live()) == manifest(&self.restored()), "the trees differ");
    }

    /// Nothing is damaged, and the latest generation is the tree as it is; which reads all of its data.
    pub fn assert_sound(&self) {
        self.local(&["fsck"]).code(0);
        let to = self.restored();
        let _ = fs::remove_dir_all(&to);
        self.local(&["restore", "--strip-root", "--to", to.to_str().expect("UTF-8")]).code(0);
        self.assert_restored();
    }

    /// Names of files in the repository that are under way.
    pub fn parts(&self) -> Vec<PathBuf> {
        files_below(&self.repository())
            .into_iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "part"))
            .collect()
    }

    /// Bytes of all files in the repository.
    pub fn stored(&self) -> u64 {
        files_below(&self.repository())
            .iter()
            .filter_map(|path| fs::metadata(path).ok())
            .map(|metadata| metadata.len())
            .sum()
    }

    /// Waits until so many bytes have reached the server.
    pub fn wait_for_upload(&self, bytes: u64) {
        let arrived = || self.relay.traffic().bytes_up >= bytes;
        assert!(clock::wait_until(patience(), arrived), "{:?}", self.relay.traffic());
    }
}

/// All files below a directory; those that vanish meanwhile are none.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                Ok(_) => files.push(entry.path()),
                Err(_) => {}
            }
        }
    }
    files
}

/// The program at work. Killed when dropped.
pub struct Running {
    child: Child,
    started: Instant,
}

impl Running {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        Self { child, started: clock::now() }
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("ours").is_some()
    }

    /// As Ctrl-C does.
    pub fn interrupt(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a process"), rustix::process::Signal::INT).expect("ours");
    }

    /// Kills it as a power cut would.
    pub fn kill(mut self) {
        self.child.kill().expect("ours");
        self.child.wait().expect("ours");
    }

    /// Waits for the end.
    pub fn end(mut self) -> Outcome {
        let in_time = clock::wait_until(patience(), || self.is_over());
        if !in_time {
            self.child.kill().expect("ours");
        }
        let read = |stream: &mut dyn std::io::Read| {
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("UTF-8");
            text
        };
        let stdout = read(self.child.stdout.as_mut().expect("piped"));
        let stderr = read(self.child.stderr.as_mut().expect("piped"));
        let status = self.child.wait().expect("ours");
        assert!(in_time, "it hangs; stdout:\n{stdout}\nstderr:\n{stderr}");
        assert!(status.signal().is_none(), "killed by {status}: {stderr}");
        Outcome { code: status.code(), stdout, stderr }
    }

    /// How long it has been running.
    pub fn time(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or its test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes of SFTP that a run says it has sent.
pub fn bytes_up(outcome: &Outcome) -> u64 {
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    report["traffic"]["bytes_up"].as_u64().expect("a number")
}
