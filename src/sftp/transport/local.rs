//! An SFTP server program on this machine, on pipes: OpenSSH's `sftp-server` needs no `sshd`.

use std::path::{Path, PathBuf};

use super::process::{Piped, ProcessLink};
use crate::base::program::program;
use crate::sftp::link::{ConnectError, Connector, Link};

/// Where systems keep OpenSSH's `sftp-server`.
const PLACES: [&str; 5] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/local/libexec/sftp-server",
];

/// Starts a program for each channel.
#[derive(Debug, Clone)]
pub struct LocalConnector {
    program: PathBuf,
    arguments: Vec<String>,
}

impl LocalConnector {
    /// Starts `program` with `arguments`.
    #[must_use]
    pub fn new(program: PathBuf, arguments: Vec<String>) -> Self {
        Self { program, arguments }
    }

    /// OpenSSH's `sftp-server`, if it is installed.
    #[must_use]
    pub fn find() -> Option<Self> {
        let found = PLACES.iter().map(Path::new).find(|path| path.is_file())?;
        Some(Self::new(found.to_owned(), Vec::new()))
    }
}

impl Connector for LocalConnector {
    fn connect(&mut self) -> Result<Box<dyn Link>, ConnectError> {
        let this = self.clone();
        let spawn = move |_| Piped::spawn(program(&this.program).args(&this.arguments));
        Ok(Box::new(ProcessLink::new(self.describe(), Box::new(spawn))))
    }

    fn describe(&self) -> String {
        self.program.display().to_string()
    }
}
