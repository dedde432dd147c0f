//! An OpenSSH server of one's own, on loopback, for tests and measurements.
//!
//! [`Sshd::start`] makes a directory with host keys, a user's key, `authorized_keys`, the server's configuration and
//! a client configuration that names the host [`HOST`]; it returns when the server answers. Nothing of the user's own
//! SSH set-up is read or touched. Whoever runs the tests logs in as himself, root or not. Dropping an [`Sshd`] kills
//! the server with every session it started and removes the directory.
//!
//! ```no_run
//! use obbench::sshd::{Sshd, SshdOptions};
//! let server = Sshd::start(SshdOptions { max_sessions: Some(2), ..SshdOptions::default() })?;
//! let status = std::process::Command::new("sftp")
//!     .arg("-F").arg(server.ssh_config()).args(["-b", "/dev/null", "kitbag-test"]).status();
//! # Ok::<(), obbench::sshd::SshdError>(())
//! ```

mod files;
mod server;

use std::io;
use std::path::PathBuf;

pub(crate) use files::sftp_server;
pub use server::Sshd;

/// The host's name in the client configuration of every [`Sshd`].
pub const HOST: &str = "kitbag-test";

/// Debian's SFTP server; other systems' places are looked for where this one is missing.
pub const SFTP_SERVER: &str = "/usr/lib/openssh/sftp-server";

/// What kind of server to start; [`Default`] is Debian's `sftp-server` behind one ed25519 host key.
#[derive(Clone, Debug, Default)]
pub struct SshdOptions {
    /// `MaxSessions`: channels of one connection; the server's default is 10.
    pub max_sessions: Option<u32>,
    /// `RekeyLimit`, such as `4M`: new keys after so many bytes.
    pub rekey_limit: Option<String>,
    /// What answers to `sftp`.
    pub subsystem: Subsystem,
    /// Host keys besides ed25519.
    pub more_host_keys: Vec<KeyKind>,
    /// `LogLevel`; the log stands in [`Sshd::log`]. `VERBOSE` where this is `None`.
    pub log_level: Option<String>,
    /// Lines for the server's configuration, before all others: the first one that names a keyword counts.
    pub config_lines: Vec<String>,
    /// Lines for the client's configuration, in the block of [`HOST`], before the others.
    pub client_lines: Vec<String>,
    /// What clients connect to where it is not the server's own port, such as a relay's.
    pub client_port: Option<u16>,
}

/// What answers to a request for the subsystem `sftp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subsystem {
    /// The system's `sftp-server` program.
    #[default]
    SftpServer,
    /// The server built into `sshd`.
    Internal,
    /// A command line, run by the user's shell with the client at its standard input and output.
    Command(String),
}

/// Kinds of host keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Ed25519.
    Ed25519,
    /// RSA of 2048 bits.
    Rsa,
    /// ECDSA on the curve P-256.
    Ecdsa,
}

impl KeyKind {
    /// The name that `ssh-keygen -t` takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::Rsa => "rsa",
            Self::Ecdsa => "ecdsa",
        }
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum SshdError {
    /// A program is not installed.
    #[error("{0} is not installed; it comes with the package openssh-server")]
    Missing(&'static str),
    /// A file or a process could not be made.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was to be done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// `ssh-keygen` failed.
    #[error("ssh-keygen could not make a key: {0}")]
    Keygen(String),
    /// The server ended or did not answer.
    #[error("sshd did not come up; its log {}:\n{text}", log.display())]
    NotUp {
        /// Where the log was.
        log: PathBuf,
        /// What it said.
        text: String,
    },
}

impl SshdError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
