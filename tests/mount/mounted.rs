//! The program at work on a mount, and the tools that look into it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use obbench::clock;

use crate::common::{Kitbag, Outcome};

/// No mount takes so long to come or go, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mount and the program behind it. Dropping it unmounts it.
pub struct Mounted {
    /// Where it is.
    pub at: PathBuf,
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The first line of JSON.
    pub began: String,
}

impl Mounted {
    /// Runs `kitbag mount` on the directory `name`, which is made.
    pub fn new(kitbag: &Kitbag, name: &str, arguments: &[&str]) -> Self {
        let mut command = kitbag.command();
        command.arg("mount").args(arguments);
        Self::start(kitbag, name, &mut command)
    }

    /// Runs this command with the directory as its last argument.
    pub fn start(kitbag: &Kitbag, name: &str, command: &mut Command) -> Self {
        let at = kitbag.path(name);
        std::fs::create_dir_all(&at).expect("a directory");
        command.arg("--json").arg(&at);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut began = String::new();
        stdout.read_line(&mut began).expect("a line");
        let mut mounted = Self { at, child, stdout, began };
        if mounted.began.is_empty() {
            panic!("it does not mount: {:?}", mounted.end());
        }
        mounted
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// A saved path of the latest generation.
    pub fn latest(&self, path: &Path) -> PathBuf {
        self.at.join("latest").join(path.strip_prefix("/").expect("absolute"))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        run("kill", &[signal, &self.child.id().to_string()]);
    }

    /// Unmounts it from outside.
    pub fn fusermount(&self, how: &str) -> bool {
        let status = Command::new("fusermount3").args([how, "-q", "--"]).arg(&self.at).status();
        status.expect("it runs").success()
    }

    /// Stops it as Ctrl-C does, and waits for the end.
    pub fn stop(mut self) -> Outcome {
        self.signal("-INT");
        self.end()
    }

    /// Waits for the end.
    pub fn end(&mut self) -> Outcome {
        let child = &mut self.child;
        let over = clock::wait_until(PATIENCE, || child.try_wait().expect("ours").is_some());
        assert!(over, "it does not end");
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).expect("UTF-8");
        self.child.stderr.as_mut().expect("piped").read_to_string(&mut stderr).expect("UTF-8");
        assert!(!is_mounted(&self.at), "it has ended and is still mounted");
        Outcome { code: self.child.wait().expect("ours").code(), stdout, stderr }
    }

    /// A line of the process's status: `VmHWM`, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("there");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("told");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It has ended, or its test has failed.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("-INT");
            let child = &mut self.child;
            clock::wait_until(Duration::from_secs(10), || matches!(child.try_wait(), Ok(Some(_))));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if is_mounted(&self.at) {
            self.fusermount("-uz");
        }
    }
}

/// Whether something is mounted there.
pub fn is_mounted(at: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there");
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

/// Runs a program; gives what it wrote if it succeeds.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {stdout}{stderr}");
    stdout.into_owned()
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A field of a line of JSON: `traffic.serial_waits`.
pub fn number(line: &str, path: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
    path.split('.').fold(&value, |value, name| &value[name]).as_u64().expect("a number")
}
