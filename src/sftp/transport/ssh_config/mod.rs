//! What the user's SSH configuration says about one host.
//!
//! The system's `ssh` is asked where there is one ([`query`]), else the files are read strictly ([`mod@file`]). Paths come
//! out absolute and without tokens. Nothing here touches the network.

mod environment;
mod file;
mod query;
mod settings;
mod tokens;
mod values;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use self::environment::Environment;
use self::settings::Settings;
use self::tokens::Tokens;
use self::values::{
    address_family, check_names, identity_agent, identity_files, needs_openssh, paths, proxy, seconds,
    strictness,
};

/// Where to connect to, as the user typed it; what is missing comes from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The user there.
    pub user: Option<String>,
    /// A host name, an address, or a name that only the configuration knows.
    pub host: String,
    /// The port.
    pub port: Option<u16>,
}

impl Destination {
    /// A host, everything else being left to the configuration.
    #[must_use]
    pub fn host(host: &str) -> Self {
        Self { user: None, host: host.to_owned(), port: None }
    }

    /// As arguments of `ssh`, the host last.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        if let Some(user) = &self.user {
            arguments.extend(["-l".into(), user.into()]);
        }
        if let Some(port) = self.port {
            arguments.extend(["-p".into(), port.to_string().into()]);
        }
        arguments.extend(["--".into(), OsString::from(&self.host)]);
        arguments
    }
}

/// What the user said about the SSH configuration itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SshOptions {
    /// Read instead of `~/.ssh/config` and the system's.
    pub config_file: Option<PathBuf>,
    /// Keyword and value; they come before what any file says.
    pub options: Vec<(String, String)>,
}

impl SshOptions {
    /// As arguments of `ssh`.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        if let Some(file) = &self.config_file {
            arguments.extend(["-F".into(), file.into()]);
        }
        for (keyword, value) in &self.options {
            arguments.extend(["-o".into(), format!("{keyword}={value}").into()]);
        }
        arguments
    }
}

/// What to do with a host whose key is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Refuse.
    Strict,
    /// Ask a person; refuse if there is none.
    Ask,
    /// Take it and remember it; a changed one is refused.
    AcceptNew,
    /// Take any key, even a changed one; a revoked one is refused all the same.
    Off,
}

/// How the connection is made when not by TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// A command line for the shell whose standard input and output are the connection; tokens replaced.
    Command(String),
    /// Hosts to jump through, as `ssh -J` takes them.
    Jump(String),
}

/// Which addresses may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFamily {
    /// Any.
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// The settings of one host.
#[derive(Debug, Clone)]
pub struct SshConfig {
    /// What the user asked for.
    pub destination: Destination,
    /// How the configuration was found; needed again for programs that are to see the same.
    pub options: SshOptions,
    /// The real name or address.
    pub hostname: String,
    /// The port.
    pub port: u16,
    /// The user there.
    pub user: String,
    /// The name under which its host key is known, if not its own.
    pub host_key_alias: Option<String>,
    /// Private keys to try, in order, whether or not they exist.
    pub identity_files: Vec<PathBuf>,
    /// Certificates beside those that lie next to their keys.
    pub certificate_files: Vec<PathBuf>,
    /// Use only the keys of `identity_files`, even if the agent has more.
    pub identities_only: bool,
    /// The agent's socket.
    pub identity_agent: Option<PathBuf>,
    /// The user's `known_hosts` files; new keys go into the first.
    pub user_known_hosts: Vec<PathBuf>,
    /// The system's.
    pub global_known_hosts: Vec<PathBuf>,
    /// What to do with unknown host keys.
    pub strictness: Strictness,
    /// Write new `known_hosts` entries hashed.
    pub hash_known_hosts: bool,
    /// A proxy.
    pub proxy: Option<Proxy>,
    /// A socket for a shared connection is configured.
    pub control_path: bool,
    /// For each address.
    pub connect_timeout: Option<Duration>,
    /// Which addresses may be used.
    pub address_family: AddressFamily,
    /// After how much silence the peer is asked for a sign of life.
    pub server_alive_interval: Option<Duration>,
    /// How many such questions may stay unanswered.
    pub server_alive_count_max: u32,
    /// The methods to try, if the user restricts them.
    pub preferred_authentications: Option<Vec<String>>,
    /// Whether keys may be used.
    pub pubkey_authentication: bool,
    /// Whether a password may be used.
    pub password_authentication: bool,
    /// Whether questions of the server may be answered.
    pub kbd_interactive_authentication: bool,
    /// How often to ask for a passphrase or password.
    pub password_prompts: u32,
    /// Never ask anything.
    pub batch_mode: bool,
    /// Algorithms that are allowed, by kind.
    pub algorithms: Algorithms,
    /// What only the system's `ssh` can do: keyword and value of settings that ask for it.
    pub needs_openssh: Vec<String>,
    /// There may be Kerberos tickets, and the configuration lets them be used.
    pub gssapi: bool,
}

/// Comma-separated lists as the configuration gives them; none where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// Key exchange.
    pub kex: Option<String>,
    /// Host keys.
    pub host_key: Option<String>,
    /// Ciphers.
    pub ciphers: Option<String>,
    /// Message authentication.
    pub macs: Option<String>,
}

/// Where a setting was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In a file.
    File {
        /// Its path.
        path: PathBuf,
        /// The line, from 1.
        line: u32,
    },
    /// Given on kitbag's command line.
    Option,
    /// Printed by `ssh -G`.
    Program,
    /// Nowhere.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Option => f.write_str("--ssh-option"),
            Self::Program => f.write_str("the SSH configuration"),
            Self::Default => f.write_str("the defaults"),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The host or user cannot be one.
    #[error("{0:?} is no host or user name; write sftp://user@host:port/path")]
    Name(String),
    /// A file cannot be read.
    #[error("cannot read the SSH configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A line of a file is not understood by the strict reader.
    #[error(
        "{origin} has {what}, which kitbag does not understand by itself; install OpenSSH's ssh, or name a simpler file with --ssh-config"
    )]
    NotUnderstood {
        /// What.
        what: String,
        /// Where.
        origin: Origin,
    },
    /// A value makes no sense.
    #[error("{origin} sets {keyword} to {value:?}, which is not {expected}")]
    Value {
        /// Which setting.
        keyword: String,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
        /// Where.
        origin: Origin,
    },
    /// A `%` token or a variable in a value is not known.
    #[error("the SSH configuration sets {keyword} to {value:?}, of which a part cannot be replaced")]
    Token {
        /// Which setting.
        keyword: &'static str,
        /// Its value.
        value: String,
    },
    /// No user was named, and the environment has none.
    #[error("no user name is known for {0}; write user@host")]
    NoUser(String),
    /// `ssh` could not be run.
    #[error("cannot run ssh to ask for its configuration: {source}")]
    Run {
        /// Why not.
        source: io::Error,
    },
    /// `ssh -G` failed.
    #[error("ssh does not accept its configuration: {detail}")]
    Refused {
        /// What it said.
        detail: String,
    },
}

impl SshConfig {
    /// The settings for a destination: from `ssh -G` (a few milliseconds) or, without an `ssh`, from the files.
    ///
    /// # Errors
    /// If the configuration cannot be read or understood.
    pub fn load(
        destination: &Destination,
        options: &SshOptions,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        check_names(destination)?;
        let settings = match query::query(destination, options)? {
            Some(settings) => settings,
            None => file::read(destination, options, environment)?,
        };
        Self::from_settings(&settings, destination, options, environment)
    }

    /// The same from the files alone, as if there were no `ssh` program.
    ///
    /// # Errors
    /// If a file cannot be read, or has a line that is not understood.
    pub fn load_from_files(
        destination: &Destination,
        options: &SshOptions,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        check_names(destination)?;
        let settings = file::read(destination, options, environment)?;
        Self::from_settings(&settings, destination, options, environment)
    }

    /// `user@host`, with the port if it is not the usual one: for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.port {
            22 => format!("{}@{}", self.user, self.hostname),
            port => format!("{}@{}:{port}", self.user, self.hostname),
        }
    }

    fn from_settings(
        settings: &Settings,
        destination: &Destination,
        options: &SshOptions,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let port = match destination.port {
            Some(port) => port,
            None => settings.number("port", 22)?,
        };
        let user = destination.user.clone().or_else(|| settings.text("user"));
        let user = user.or_else(|| environment.user().map(str::to_owned));
        let user = user.ok_or_else(|| ConfigError::NoUser(destination.host.clone()))?;
        let alias = settings.text("hostkeyalias");
        let mut tokens = Tokens {
            typed: destination.host.clone(),
            hostname: destination.host.clone(),
            port,
            user: user.clone(),
            alias: alias.clone().unwrap_or_else(|| destination.host.clone()),
            jump: settings.text("proxyjump").unwrap_or_default(),
            environment: environment.clone(),
        };
        if let Some(hostname) = settings.text("hostname") {
            tokens.hostname = tokens.expand("hostname", &hostname)?;
        }
        let gssapi = settings.flag("gssapiauthentication", false)? && environment.has_kerberos_tickets();
        Ok(Self {
            destination: destination.clone(),
            options: options.clone(),
            hostname: tokens.hostname.clone(),
            port,
            user,
            host_key_alias: alias,
            identity_files: identity_files(settings, &tokens)?,
            certificate_files: paths(settings, "certificatefile", &[], &tokens)?,
            identities_only: settings.flag("identitiesonly", false)?,
            identity_agent: identity_agent(settings, &tokens)?,
            user_known_hosts: paths(
                settings,
                "userknownhostsfile",
                &["~/.ssh/known_hosts", "~/.ssh/known_hosts2"],
                &tokens,
            )?,
            global_known_hosts: paths(
                settings,
                "globalknownhostsfile",
                &["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"],
                &tokens,
            )?,
            strictness: strictness(settings)?,
            hash_known_hosts: settings.flag("hashknownhosts", false)?,
            proxy: proxy(settings, &tokens)?,
            control_path: settings.text("controlpath").is_some(),
            connect_timeout: seconds(settings, "connecttimeout")?,
            address_family: address_family(settings)?,
            server_alive_interval: seconds(settings, "serveraliveinterval")?,
            server_alive_count_max: settings.number("serveralivecountmax", 3)?,
            preferred_authentications: settings
                .text("preferredauthentications")
                .map(|list| list.split(',').map(str::to_owned).collect()),
            pubkey_authentication: !matches!(
                settings.text("pubkeyauthentication").as_deref(),
                Some("no" | "false")
            ),
            password_authentication: settings.flag("passwordauthentication", true)?,
            kbd_interactive_authentication: settings.flag("kbdinteractiveauthentication", true)?,
            password_prompts: settings.number("numberofpasswordprompts", 3)?,
            batch_mode: settings.flag("batchmode", false)?,
            algorithms: Algorithms {
                kex: settings.text("kexalgorithms"),
                host_key: settings.text("hostkeyalgorithms"),
                ciphers: settings.text("ciphers"),
                macs: settings.text("macs"),
            },
            needs_openssh: needs_openssh(settings),
            gssapi,
        })
    }
}

#[cfg(test)]
mod tests;
