//! What the SSH transports need to know of the environment. Only the command line reads it; everybody else is given it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A copy of the environment's variables, and the machine's name.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    local_host: String,
}

impl Environment {
    /// From variables, as `std::env::vars_os` gives them.
    pub fn new<K: Into<OsString>, V: Into<OsString>>(variables: impl IntoIterator<Item = (K, V)>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let local_host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { variables, local_host: local_host.trim().to_owned() }
    }

    /// The home directory (`HOME`).
    #[must_use]
    pub fn home(&self) -> Option<&Path> {
        self.path("HOME")
    }

    /// The user's name here.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.text("USER").or_else(|| self.text("LOGNAME"))
    }

    /// Where the SSH agent listens (`SSH_AUTH_SOCK`).
    #[must_use]
    pub fn agent(&self) -> Option<&Path> {
        self.path("SSH_AUTH_SOCK")
    }

    /// Whether there seem to be Kerberos tickets that GSSAPI could use.
    #[must_use]
    pub fn has_kerberos_tickets(&self) -> bool {
        match self.text("KRB5CCNAME") {
            Some(name) => match name.split_once(':') {
                Some(("FILE" | "DIR", path)) => Path::new(path).exists(),
                Some(_) => true,
                None => Path::new(name).exists(),
            },
            None => PathBuf::from(format!("/tmp/krb5cc_{}", rustix::process::getuid().as_raw())).exists(),
        }
    }

    /// A variable that is text and not empty.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.variables.get(std::ffi::OsStr::new(name))?.to_str().filter(|text| !text.is_empty())
    }

    /// The machine's own name.
    #[must_use]
    pub fn local_host(&self) -> &str {
        &self.local_host
    }

    fn path(&self, name: &str) -> Option<&Path> {
        let value = self.variables.get(std::ffi::OsStr::new(name))?;
        (!value.is_empty()).then_some(Path::new(value))
    }
}
