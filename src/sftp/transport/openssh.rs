//! The system's `ssh`, which honours all that `ssh_config` can say.
//!
//! Each channel is an `ssh -s HOST sftp`. They share one connection: that of the user's own master where one runs,
//! else the first process is the master of a private socket.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::private_dir::PrivateDir;
use super::process::{Piped, ProcessLink};
use crate::base::program::program;
use crate::sftp::link::{CONTROL, ConnectError, ConnectErrorKind, Connector, Link};

/// How often to look whether `ssh` is connected.
const LOOK: Duration = Duration::from_millis(5);

/// How long `ssh` may take to connect when there is nobody to be asked for a password, where nothing else is said.
const PATIENCE: Duration = Duration::from_secs(120);

/// Connects by `ssh`.
#[derive(Debug, Clone)]
pub struct OpenSshConnector {
    /// The program, `ssh` by default.
    pub program: PathBuf,
    /// The host (or its alias), as `user@host` or `host`.
    pub destination: String,
    /// Arguments in front of the destination: `-p 2222`, `-F FILE`, `-o KEY=VALUE`.
    pub arguments: Vec<String>,
    /// Nobody can be asked for a password or about an unknown host key.
    pub batch: bool,
    /// How long it may then take to connect and log in: `ssh` itself bounds the former only.
    pub patience: Duration,
    /// Where the directory for the private socket is made; its path must be short (a socket's has at most 108 bytes).
    pub runtime_dir: PathBuf,
}

impl OpenSshConnector {
    /// Connects to `destination` as `ssh` would, without asking anybody.
    #[must_use]
    pub fn new(destination: impl Into<String>) -> Self {
        Self {
            program: PathBuf::from("ssh"),
            destination: destination.into(),
            arguments: Vec::new(),
            batch: true,
            patience: PATIENCE,
            runtime_dir: std::env::temp_dir(),
        }
    }

    fn command(&self, options: &[String]) -> Command {
        let mut command = program(&self.program);
        for option in options {
            command.arg("-o").arg(option);
        }
        // The reasons of the system come in English, so that they can be told apart.
        command.env("LC_MESSAGES", "C").args(&self.arguments);
        command
    }

    /// A process for one channel. In its own process group: Ctrl-C is for us, and we still have to finish.
    fn channel(&self, options: &[String], own_group: bool) -> io::Result<Piped> {
        let mut command = self.command(options);
        command.arg("-s").arg("--").arg(&self.destination).arg("sftp");
        if own_group {
            command.process_group(0);
        }
        Piped::spawn(&mut command)
    }

    /// Whether the user's own master connection is there to be used.
    fn master_runs(&self) -> bool {
        let mut command = self.command(&[]);
        command.args(["-O", "check", "--"]).arg(&self.destination);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn cannot_start(&self, error: io::Error) -> ConnectError {
        let sentence = format!("cannot start {}: {error}", self.program.display());
        ConnectError::new(ConnectErrorKind::LocalConfig, sentence).caused_by(error)
    }

    /// Waits until the master's socket is there, which is when it has been let in.
    fn wait_for(&self, socket: &Path, master: &mut Piped) -> Result<(), ConnectError> {
        let mut waited = Duration::ZERO;
        loop {
            if socket.exists() {
                return Ok(());
            }
            match master.ended() {
                Ok(None) => {}
                Ok(Some(_)) => return Err(classify(&self.destination, &master.words())),
                Err(error) => return Err(self.cannot_start(error)),
            }
            if self.batch && waited >= self.patience {
                let sentence = format!(
                    "cannot connect to {}: ssh took more than {} seconds{}",
                    self.destination,
                    self.patience.as_secs(),
                    advice(ConnectErrorKind::TimedOut)
                );
                return Err(ConnectError::new(ConnectErrorKind::TimedOut, sentence));
            }
            thread::sleep(LOOK);
            waited = waited.saturating_add(LOOK);
        }
    }
}

impl Connector for OpenSshConnector {
    fn connect(&mut self) -> Result<Box<dyn Link>, ConnectError> {
        let this = self.clone();
        let batch = format!("BatchMode={}", if self.batch { "yes" } else { "no" });
        if self.master_runs() {
            let about = format!("ssh to {} through its running master", self.destination);
            let spawn = move |_| this.channel(&["BatchMode=yes".to_owned()], true);
            return Ok(Box::new(ProcessLink::new(about, Box::new(spawn))));
        }
        let dir = PrivateDir::new(&self.runtime_dir).map_err(|error| {
            let sentence = format!("cannot make a directory in {}: {error}", self.runtime_dir.display());
            ConnectError::new(ConnectErrorKind::LocalConfig, sentence).caused_by(error)
        })?;
        let path = format!("ControlPath={}", dir.socket().display());
        let options = ["ControlMaster=yes".to_owned(), path.clone(), "ControlPersist=no".to_owned(), batch];
        let started = self.channel(&options, self.batch);
        let mut master = started.map_err(|error| self.cannot_start(error))?;
        self.wait_for(&dir.socket(), &mut master)?;

        let mut master = Some(master);
        let spawn = move |channel| match master.take() {
            Some(master) if channel == CONTROL => Ok(master),
            _ => {
                // Never a connection of its own: where the master may not open another session, the channel is refused.
                let options = [
                    "ControlMaster=no".to_owned(),
                    format!("ControlPath={}", dir.socket().display()),
                    "ProxyCommand=false".to_owned(),
                    "BatchMode=yes".to_owned(),
                ];
                this.channel(&options, true)
            }
        };
        Ok(Box::new(ProcessLink::new(format!("ssh to {}", self.destination), Box::new(spawn))))
    }

    fn describe(&self) -> String {
        self.destination.clone()
    }
}

/// What `ssh` says when it ends is the only thing it tells its caller: the exit status is 255 for all of it. These are
/// its own words, unchanged for many years; an unknown reason counts as one that may pass.
const REASONS: [(&str, ConnectErrorKind); 19] = [
    ("REVOKED HOST KEY", ConnectErrorKind::HostKeyRevoked),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", ConnectErrorKind::HostKeyChanged),
    ("host key has changed", ConnectErrorKind::HostKeyChanged),
    ("Host key verification failed", ConnectErrorKind::HostKeyUnknown),
    ("Permission denied (", ConnectErrorKind::AuthRefused),
    ("Too many authentication failures", ConnectErrorKind::AuthRefused),
    ("Could not resolve hostname", ConnectErrorKind::NameNotFound),
    ("Connection refused", ConnectErrorKind::ConnectionRefused),
    ("timed out", ConnectErrorKind::TimedOut),
    ("No route to host", ConnectErrorKind::Unreachable),
    ("Network is unreachable", ConnectErrorKind::Unreachable),
    ("Connection reset", ConnectErrorKind::Unreachable),
    ("Connection closed", ConnectErrorKind::Unreachable),
    ("subsystem request failed", ConnectErrorKind::NoSftp),
    ("Unable to negotiate", ConnectErrorKind::Protocol),
    ("Bad configuration option", ConnectErrorKind::LocalConfig),
    ("Bad owner or permissions", ConnectErrorKind::LocalConfig),
    ("bad configuration options", ConnectErrorKind::LocalConfig),
    ("Can't open user config file", ConnectErrorKind::LocalConfig),
];

/// Why `ssh` could not connect, by its own words.
fn classify(destination: &str, words: &str) -> ConnectError {
    let found = REASONS.iter().find(|(reason, _)| words.contains(reason));
    let kind = found.map_or(ConnectErrorKind::Unreachable, |(_, kind)| *kind);
    let last = words.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it gave no reason");
    let advice = advice(kind);
    ConnectError::new(kind, format!("cannot connect to {destination}: ssh says \"{last}\"{advice}"))
}

/// What to do, to be put behind what happened.
fn advice(kind: ConnectErrorKind) -> &'static str {
    match kind {
        ConnectErrorKind::HostKeyUnknown => {
            "; its key is not in known_hosts: connect once with ssh and compare the fingerprint"
        }
        ConnectErrorKind::HostKeyChanged => {
            "; its key is not the one in known_hosts: find out why before you remove the old one"
        }
        ConnectErrorKind::HostKeyRevoked => {
            "; its key is marked as revoked in known_hosts: ask who runs the server for its new key"
        }
        ConnectErrorKind::AuthRefused => {
            "; check the user name, name the right key by IdentityFile, or add a public key to the server's authorized_keys"
        }
        ConnectErrorKind::NameNotFound => "; check its name and this machine's network",
        ConnectErrorKind::ConnectionRefused => "; check the port, and that an SSH server runs there",
        ConnectErrorKind::TimedOut | ConnectErrorKind::Unreachable => {
            "; check that it is switched on and reachable"
        }
        ConnectErrorKind::NoSftp => "; its sshd_config needs a Subsystem sftp",
        ConnectErrorKind::Protocol => "; see KexAlgorithms, Ciphers and MACs in ssh_config",
        ConnectErrorKind::LocalConfig => "; mend what it names",
        ConnectErrorKind::Cancelled => "",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reasons_are_told_apart() {
        let kind = |words| classify("h", words).kind;
        assert_eq!(
            kind("ssh: Could not resolve hostname h: Name or service not known"),
            ConnectErrorKind::NameNotFound
        );
        assert_eq!(
            kind("ssh: connect to host h port 22: Connection refused"),
            ConnectErrorKind::ConnectionRefused
        );
        assert_eq!(kind("u@h: Permission denied (publickey)."), ConnectErrorKind::AuthRefused);
        assert_eq!(
            kind("No ED25519 host key is known for h\nHost key verification failed."),
            ConnectErrorKind::HostKeyUnknown
        );
        assert_eq!(
            kind("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nx\nHost key verification failed."),
            ConnectErrorKind::HostKeyChanged
        );
        assert_eq!(kind(""), ConnectErrorKind::Unreachable);
    }

    #[test]
    fn each_reason_has_advice() {
        for (reason, kind) in REASONS {
            let error = classify("h", reason);
            assert_eq!(error.kind, kind, "{reason}");
            assert!(error.sentence.contains("\"; "), "{error}");
        }
    }

    #[test]
    fn a_host_that_does_not_answer_is_one_sentence() {
        // A port on which nothing listens: taken, and given back.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut connector = OpenSshConnector::new("127.0.0.1");
        connector.arguments = vec!["-F".into(), "none".into(), "-p".into(), port.to_string()];
        let dir = tempfile::tempdir().unwrap();
        connector.runtime_dir = dir.path().to_owned();
        let Err(error) = connector.connect() else {
            panic!("it connected");
        };
        assert_eq!(error.kind, ConnectErrorKind::ConnectionRefused, "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the socket's directory is gone");
    }

    #[test]
    fn a_program_that_is_missing() {
        let mut connector = OpenSshConnector::new("127.0.0.1");
        connector.program = PathBuf::from("/nonexistent/ssh");
        assert!(connector.connect().is_err_and(|error| error.kind == ConnectErrorKind::LocalConfig));
    }
}
