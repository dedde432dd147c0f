//! Which of the two SSH transports to use for a host.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use super::key_file::KeyFile;
use super::known_hosts::{HostName, KnownHosts};
use super::ssh_config::SshConfig;
use super::wire;
use crate::base::program::program;

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// libssh2, unless the host's settings need what it cannot do.
    #[default]
    Auto,
    /// libssh2.
    Ssh2,
    /// The system's `ssh`.
    OpenSsh,
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "ssh2" => Ok(Self::Ssh2),
            "openssh" => Ok(Self::OpenSsh),
            other => Err(format!("{other} is no transport; there are auto, ssh2 and openssh")),
        }
    }
}

/// A way to speak SSH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// libssh2, in this process.
    Ssh2,
    /// The system's `ssh`.
    OpenSsh,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ssh2 => "ssh2",
            Self::OpenSsh => "openssh",
        })
    }
}

/// The transport to use, and why: "the configuration enables GSSAPI".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Which.
    pub transport: Transport,
    /// Why, as a clause.
    pub why: String,
}

/// Chooses. May run `ssh -O check` and ask the agent for its list; the network is not touched.
#[must_use]
pub fn choose(wish: Wish, config: &SshConfig) -> Choice {
    let wanted = || "it was asked for".to_owned();
    match wish {
        Wish::Ssh2 => Choice { transport: Transport::Ssh2, why: wanted() },
        Wish::OpenSsh => Choice { transport: Transport::OpenSsh, why: wanted() },
        Wish::Auto => match need(config) {
            Some(why) => Choice { transport: Transport::OpenSsh, why },
            None => Choice {
                transport: Transport::Ssh2,
                why: "nothing in the configuration needs more".to_owned(),
            },
        },
    }
}

/// What the host's settings need that libssh2 cannot do.
fn need(config: &SshConfig) -> Option<String> {
    if config.control_path && master_is_alive(config) {
        return Some("a shared connection to the host is open".to_owned());
    }
    if let Some(setting) = config.needs_openssh.first() {
        return Some(format!("the configuration sets {setting}"));
    }
    if config.gssapi {
        return Some("the configuration enables GSSAPI, and there are Kerberos tickets".to_owned());
    }
    if let Some(key) = token_key(config) {
        return Some(format!("the key {} needs its security key", key.display()));
    }
    let host = HostName::new(&config.hostname, config.port, config.host_key_alias.as_deref());
    let known = KnownHosts::read(config.user_known_hosts.iter().chain(&config.global_known_hosts), &host);
    match known.authority() {
        Some(place) if known.key_types().is_empty() => {
            Some(format!("{} line {} names an authority for its host key", place.file.display(), place.line))
        }
        _ => None,
    }
}

/// Whether a connection that `ssh` shares is there: only `ssh` knows all ways to name its socket.
fn master_is_alive(config: &SshConfig) -> bool {
    let mut command = program("ssh");
    command.args(["-O", "check"]).args(config.options.arguments()).args(config.destination.arguments());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A key in a security token that the agent does not hold.
fn token_key(config: &SshConfig) -> Option<&Path> {
    let mut agent: Option<Vec<Vec<u8>>> = None;
    config.identity_files.iter().map(AsRef::as_ref).find(|path| {
        let Ok(Some(KeyFile { public: Some(public), .. })) = KeyFile::read(path) else { return false };
        let held = || config.identity_agent.as_deref().and_then(agent_keys).unwrap_or_default();
        public.is_in_token() && !agent.get_or_insert_with(held).contains(&public.blob)
    })
}

/// The public keys that an agent holds; none if it does not answer soon.
fn agent_keys(socket: &Path) -> Option<Vec<Vec<u8>>> {
    const REQUEST_IDENTITIES: u8 = 11;
    const IDENTITIES_ANSWER: u8 = 12;
    const MAX_ANSWER: u32 = 1 << 20;
    let patience = Some(Duration::from_secs(5));
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(patience).ok()?;
    stream.set_write_timeout(patience).ok()?;
    stream.write_all(&[0, 0, 0, 1, REQUEST_IDENTITIES]).ok()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let length = u32::from_be_bytes(length);
    let mut answer = vec![0; usize::try_from(length).ok().filter(|_| length <= MAX_ANSWER)?];
    stream.read_exact(&mut answer).ok()?;
    let (kind, rest) = answer.split_first()?;
    let (count, mut rest) = rest.split_first_chunk::<4>().filter(|_| *kind == IDENTITIES_ANSWER)?;
    let mut keys = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        keys.push(wire::string(&mut rest)?.to_vec());
        wire::string(&mut rest)?;
    }
    Some(keys)
}
