//! The environment variables that kitbag heeds: read once, here, and handed on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::base::program::PASSPHRASE;
use crate::base::secret::Passphrase;
use crate::sftp::transport::ssh_config;

/// What the environment says.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// All variables whose names begin with `KITBAG_`, save the passphrase: those of common options are settings, see [`super::config`]
    pub kitbag: BTreeMap<String, OsString>,
    /// `KITBAG_CONFIG`: as `--config`
    pub config: Option<PathBuf>,
    /// `KITBAG_SYSTEM_CONFIG`: a file instead of `/etc/kitbag/config.toml`
    pub system_config: Option<PathBuf>,
    /// `KITBAG_PROFILE`: as `--profile`
    pub profile: Option<String>,
    /// `KITBAG_PASSPHRASE`, all of it
    pub passphrase: Option<Passphrase>,
    /// `XDG_CONFIG_HOME`, when it is an absolute path
    pub config_home: Option<PathBuf>,
    /// `XDG_CACHE_HOME`, when it is an absolute path
    pub cache_home: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`, when it is an absolute path
    pub runtime_dir: Option<PathBuf>,
    /// `JOURNAL_STREAM`: the device and inode of the journal's socket
    pub journal_stream: Option<String>,
    /// `TMPDIR`, when it is an absolute path
    pub temporary: Option<PathBuf>,
    /// `HOME`
    pub home: Option<PathBuf>,
    /// Whether another kitbag has started this one to run in the background
    pub in_background: bool,
    /// All of it, save the passphrase, for the settings of SSH, which may refer to any variable
    pub ssh: ssh_config::Environment,
}

impl Environment {
    /// Reads the environment of the process.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn of_process() -> Self {
        Self::from(|name| std::env::var_os(name)).with_all(std::env::vars_os())
    }

    /// With what is kept of all variables. The passphrase is not: it is kept where it is wiped, and shown to nobody.
    fn with_all(self, variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let all: Vec<_> = variables.filter(|(name, _)| name != PASSPHRASE).collect();
        let kitbag = all
            .iter()
            .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.clone())))
            .filter(|(name, _)| name.starts_with("KITBAG_"))
            .collect();
        Self { kitbag, ssh: ssh_config::Environment::new(all), ..self }
    }

    /// Whether standard error goes to the systemd journal: `JOURNAL_STREAM` names it, and it is still what the variable names.
    #[must_use]
    pub fn in_journal(&self) -> bool {
        let Ok(stderr) = rustix::fs::fstat(std::io::stderr()) else { return false };
        self.journal_stream
            .as_ref()
            .is_some_and(|stream| *stream == format!("{}:{}", stderr.st_dev, stderr.st_ino))
    }

    /// What these variables say. An empty one counts as unset, save the passphrase.
    pub fn from(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| set(name).map(|value| value.to_string_lossy().into_owned());
        let path = |name: &str| set(name).map(PathBuf::from);
        Self {
            kitbag: BTreeMap::new(),
            config: path("KITBAG_CONFIG"),
            system_config: path("KITBAG_SYSTEM_CONFIG"),
            profile: text("KITBAG_PROFILE"),
            passphrase: variable(PASSPHRASE).map(|value| Passphrase::new(value.into_vec())),
            in_background: set(super::daemon::VARIABLE).is_some(),
            config_home: path("XDG_CONFIG_HOME").filter(|dir| dir.is_absolute()),
            cache_home: path("XDG_CACHE_HOME").filter(|dir| dir.is_absolute()),
            runtime_dir: path("XDG_RUNTIME_DIR").filter(|dir| dir.is_absolute()),
            journal_stream: text("JOURNAL_STREAM"),
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
    fn the_passphrase_is_not_shown() {
        let variables = [("KITBAG_PASSPHRASE", "hunter2"), ("KITBAG_CLIENT_NAME", "laptop")];
        let found = |wanted: &str| variables.iter().find(|(name, _)| *name == wanted).map(|one| one.1.into());
        let all = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let environment = Environment::from(found).with_all(all);
        assert!(environment.passphrase.is_some() && environment.kitbag.contains_key("KITBAG_CLIENT_NAME"));
        let shown = format!("{environment:?}");
        assert!(shown.contains("laptop") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn empty_and_relative_values_do_not_count() {
        let environment = Environment::from(|name| match name {
            "KITBAG_PROFILE" => Some(OsString::new()),
            "XDG_CACHE_HOME" => Some("relative".into()),
            "HOME" => Some("/home/ada".into()),
            _ => None,
        });
        assert_eq!(environment.profile, None);
        assert_eq!(environment.cache_home, None);
        assert_eq!(environment.home, Some("/home/ada".into()));
    }
}
