//! The environment variables that kitbag heeds: read once, here, and handed on.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::base::secret::Passphrase;
use crate::sftp::transport::ssh_config;

/// What the environment says.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `KITBAG_REPOSITORY`
    pub repository: Option<OsString>,
    /// `KITBAG_CLIENT_NAME`
    pub client_name: Option<String>,
    /// `KITBAG_SSH_CONFIG`
    pub ssh_config: Option<PathBuf>,
    /// `KITBAG_PASSPHRASE`, all of it
    pub passphrase: Option<Passphrase>,
    /// `XDG_CACHE_HOME`, when it is an absolute path
    pub cache_home: Option<PathBuf>,
    /// `TMPDIR`, when it is an absolute path
    pub temporary: Option<PathBuf>,
    /// `HOME`
    pub home: Option<PathBuf>,
    /// Whether another kitbag has started this one to run in the background
    pub in_background: bool,
    /// All of it, for the settings of SSH, which may refer to any variable
    pub ssh: ssh_config::Environment,
}

impl Environment {
    /// Reads the environment of the process.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn of_process() -> Self {
        Self {
            ssh: ssh_config::Environment::new(std::env::vars_os()),
            ..Self::from(|name| std::env::var_os(name))
        }
    }

    /// What these variables say. An empty one counts as unset, save the passphrase.
    pub fn from(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| set(name).map(|value| value.to_string_lossy().into_owned());
        let path = |name: &str| set(name).map(PathBuf::from);
        Self {
            repository: set("KITBAG_REPOSITORY"),
            client_name: text("KITBAG_CLIENT_NAME"),
            ssh_config: path("KITBAG_SSH_CONFIG"),
            passphrase: variable("KITBAG_PASSPHRASE").map(|value| Passphrase::new(value.into_vec())),
            in_background: set(super::daemon::VARIABLE).is_some(),
            cache_home: path("XDG_CACHE_HOME").filter(|dir| dir.is_absolute()),
            temporary: path("TMPDIR").filter(|dir| dir.is_absolute()),
            home: path("HOME"),
            ssh: ssh_config::Environment::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_relative_values_do_not_count() {
        let environment = Environment::from(|name| match name {
            "KITBAG_REPOSITORY" => Some(OsString::new()),
            "XDG_CACHE_HOME" => Some("relative".into()),
            "HOME" => Some("/home/ada".into()),
            _ => None,
        });
        assert_eq!(environment.repository, None);
        assert_eq!(environment.cache_home, None);
        assert_eq!(environment.home, Some("/home/ada".into()));
    }
}
