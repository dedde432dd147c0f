//! A server, connections to it, and channels that are driven by hand.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kitbag::base::secret::Passphrase;
use kitbag::sftp::link::{ChannelId, ConnectError, Connector, Link, LinkError, LinkEvent};
use kitbag::sftp::transport::Ssh2Connector;
use kitbag::sftp::transport::prompt::{Nobody, Prompter};
use kitbag::sftp::transport::ssh_config::{Destination, Environment, SshConfig, SshOptions};
use obbench::sshd::{HOST, Sshd, SshdOptions};

/// A server, or none where there is no `sshd`.
pub fn server(options: SshdOptions) -> Option<Sshd> {
    obbench::need::program("sshd").then(|| Sshd::start(options).expect("sshd starts"))
}

/// The server's client configuration, with some settings put before it.
pub fn config(server: &Sshd, settings: &[(&str, &str)]) -> SshConfig {
    let options = SshOptions {
        config_file: Some(server.ssh_config()),
        options: settings
            .iter()
            .map(|(keyword, value)| ((*keyword).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let home = OsString::from(server.directory());
    let environment = Environment::new([("HOME", home), ("USER", OsString::from(server.user()))]);
    SshConfig::load(&Destination::host(HOST), &options, &environment).expect("the configuration is good")
}

/// Connects, with nobody to ask.
pub fn connect(server: &Sshd, settings: &[(&str, &str)]) -> Result<Box<dyn Link>, ConnectError> {
    connect_asking(server, settings, Arc::new(Nobody))
}

pub fn connect_asking(
    server: &Sshd,
    settings: &[(&str, &str)],
    prompter: Arc<dyn Prompter>,
) -> Result<Box<dyn Link>, ConnectError> {
    connector(server, settings, prompter).connect()
}

pub fn connector(server: &Sshd, settings: &[(&str, &str)], prompter: Arc<dyn Prompter>) -> Ssh2Connector {
    Ssh2Connector::new(config(server, settings), prompter, Duration::from_secs(15))
}

/// The error of a connection that must not come about.
pub fn refusal(result: Result<Box<dyn Link>, ConnectError>) -> ConnectError {
    match result {
        Ok(link) => panic!("it should not connect: {}", link.describe()),
        Err(error) => error,
    }
}

/// A person who answers from a list, and counts.
#[derive(Default)]
pub struct Person {
    pub passphrases: Mutex<Vec<&'static str>>,
    pub asked: AtomicUsize,
    pub trusts: bool,
    pub shown: Mutex<Vec<String>>,
}

impl Prompter for Person {
    fn trust_host(&self, host: &str, key_type: &str, fingerprint: &str) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.shown.lock().unwrap().push(format!("{host} {key_type} {fingerprint}"));
        self.trusts
    }

    fn passphrase(&self, _key: &Path, _again: bool) -> Option<Passphrase> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut left = self.passphrases.lock().unwrap();
        (!left.is_empty()).then(|| Passphrase::new(left.remove(0).as_bytes().to_vec()))
    }

    fn password(&self, _account: &str, _again: bool) -> Option<Passphrase> {
        None
    }

    fn answer(
        &self,
        _account: &str,
        _instructions: &str,
        _question: &str,
        _echo: bool,
    ) -> Option<Passphrase> {
        None
    }
}

/// Makes a key in the server's directory and, if wanted, lets it in.
pub fn keygen(server: &Sshd, name: &str, arguments: &[&str], authorize: bool) -> PathBuf {
    let path = server.directory().join(name);
    let status =
        Command::new("ssh-keygen").args(["-q", "-C", name, "-f"]).arg(&path).args(arguments).status();
    assert!(status.expect("ssh-keygen runs").success());
    if authorize {
        let mut keys = fs::read_to_string(server.authorized_keys()).unwrap();
        keys.push_str(&public(&path));
        fs::write(server.authorized_keys(), keys).unwrap();
    }
    path
}

pub fn public(key: &Path) -> String {
    let mut name = key.as_os_str().to_owned();
    name.push(".pub");
    fs::read_to_string(name).unwrap()
}

/// An agent of one's own, killed at the end.
pub struct Agent {
    child: Child,
    pub socket: PathBuf,
}

impl Agent {
    pub fn start(server: &Sshd, keys: &[&Path]) -> Self {
        let socket = server.directory().join("agent");
        let child = Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn();
        let agent = Self { child: child.expect("ssh-agent runs"), socket };
        // It is there a moment before it is listened to.
        let listens = || UnixStream::connect(&agent.socket).is_ok();
        assert!(obbench::clock::wait_until(Duration::from_secs(10), listens));
        for key in keys {
            let mut command = Command::new("ssh-add");
            command.arg("-q").arg(key).env("SSH_AUTH_SOCK", &agent.socket).stdin(Stdio::null());
            assert!(command.status().expect("ssh-add runs").success());
        }
        agent
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A link driven by hand.
pub struct Driven {
    pub link: Box<dyn Link>,
    waker: UnixStream,
    _other_end: UnixStream,
    deadline: Instant,
    pub received: HashMap<ChannelId, Vec<u8>>,
    pub opened: Vec<ChannelId>,
    pub refused: Vec<(ChannelId, String)>,
    pub closed: Vec<(ChannelId, String)>,
}

impl Driven {
    /// Everything has to be done within `limit`.
    pub fn new(link: Box<dyn Link>, limit: Duration) -> Self {
        let (waker, other) = UnixStream::pair().unwrap();
        let deadline = obbench::clock::now() + limit;
        Self {
            link,
            waker,
            _other_end: other,
            deadline,
            received: HashMap::new(),
            opened: Vec::new(),
            refused: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// One `poll`, its events sorted.
    pub fn step(&mut self) -> Result<(), LinkError> {
        let left = self.deadline.saturating_duration_since(obbench::clock::now());
        assert!(
            !left.is_zero(),
            "not done in time; open {:?}, closed {:?}, received {:?}",
            self.opened,
            self.closed,
            self.received.iter().map(|(id, data)| (id, data.len())).collect::<Vec<_>>()
        );
        let mut events = Vec::new();
        let result = self.link.poll(self.waker.as_fd(), left, &mut events);
        for event in events {
            match event {
                LinkEvent::Opened(id) => self.opened.push(id),
                LinkEvent::Refused(id, why) => self.refused.push((id, why)),
                LinkEvent::Data(id, data) => self.received.entry(id).or_default().extend(data),
                LinkEvent::Closed(id, why) => self.closed.push((id, why)),
                LinkEvent::Heard => {}
            }
        }
        result
    }

    /// Opens channels and waits for the outcome of all.
    pub fn open(&mut self, count: u32) {
        for id in 0..count {
            self.link.open_channel(ChannelId(id));
        }
        while self.opened.len() + self.refused.len() < count as usize {
            self.step().unwrap();
        }
    }
}

/// Bytes that differ from channel to channel and from place to place.
pub fn pattern(channel: u32, length: usize) -> Vec<u8> {
    let mut state = u64::from(channel) * 2 + 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}
