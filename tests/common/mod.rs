//! Runs the program the way a person does, with a home of its own.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::expect_used, reason = "a test says so by failing")]
#![allow(clippy::disallowed_methods, reason = "a test hands its own environment on")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The program, with a home directory, a repository beside it that need not exist, and nothing of the machine's environment.
pub struct Kitbag {
    dir: TempDir,
    variables: Vec<(String, String)>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit code; `None` when a signal killed it.
    pub code: Option<i32>,
    /// What it wrote.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
}

impl Kitbag {
    /// A fresh home.
    pub fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        std::fs::create_dir(dir.path().join("home")).expect("a home");
        Self { dir, variables: Vec::new() }
    }

    /// A fresh home, and a repository without encryption.
    pub fn with_repository() -> Self {
        let kitbag = Self::new().set("KITBAG_REPOSITORY", "repository");
        kitbag.run(["init", "--encryption", "none"]).code(0);
        kitbag
    }

    /// Sets an environment variable.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A path in the directory that the program runs in.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file there, with the directories above it.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, contents).expect("written");
    }

    /// Writes a file there that nobody else can read, as a passphrase's should be.
    pub fn secret(&self, name: &str, contents: impl AsRef<[u8]>) {
        use std::os::unix::fs::PermissionsExt as _;
        self.write(name, contents);
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(self.path(name), private).expect("changed");
    }

    /// Waits until what was written is believed: what changes in the tick in which a backup begins is read again by the next one.
    pub fn settle(&self) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }

    /// The command, to be changed further.
    pub fn command(&self) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kitbag"));
        command.current_dir(self.dir.path()).env_clear().stdin(std::process::Stdio::null());
        for name in ["PATH", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // Whatever this machine's says.
        command.env("KITBAG_SYSTEM_CONFIG", self.path("etc/config.toml"));
        command.env("HOME", self.path("home")).env("TZ", "UTC").env("KITBAG_CLIENT_NAME", "laptop");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs it.
    pub fn run(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
        Outcome::of(self.command().args(arguments))
    }
}

impl Outcome {
    /// Runs a command.
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().expect("it runs");
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// The same, if it ended with this code.
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// It said one sentence, with all these words in it.
    pub fn says(&self, words: &[&str]) {
        assert_eq!(self.stderr.lines().count(), 1, "not one line: {:?}", self.stderr);
        assert!(self.stderr.starts_with("kitbag: "), "{:?}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{:?}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in {:?}", self.stderr);
        }
    }
}

/// The manifest of a tree.
pub fn manifest(path: &Path) -> String {
    obbench::manifest::of(path).expect("a manifest")
}

/// The files below a directory, ascending; none when there is no such directory.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![dir.to_owned()], Vec::new());
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// Revokes all sessions, as somebody does who knows that nobody is writing.
pub fn revoke_all(kitbag: &Kitbag) {
    let mut ids: Vec<String> = Vec::new();
    for file in files_below(&kitbag.path("repository/sessions")) {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        ids.extend(name.split('.').nth(1).map(str::to_owned));
    }
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        kitbag.run(["sessions", "revoke", &id]).code(0);
    }
}

/// The value of a field, a number or a plain text, of a line of JSON; of the first one of that name.
pub fn json_field<'a>(line: &'a str, name: &str) -> &'a str {
    let rest = line.split_once(&format!("\"{name}\":")).expect(name).1;
    rest.split([',', '}']).next().expect("a value").trim_matches('"')
}
