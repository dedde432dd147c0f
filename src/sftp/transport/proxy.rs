//! A connection through a program: `ProxyCommand`, or `ssh -W` for `ProxyJump`.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::ssh_config::{Proxy, SshConfig};
use crate::base::program::program;
use crate::sftp::link::{ConnectError, ConnectErrorKind};

/// How much of what the program writes to its standard error is kept: the end of it.
const KEPT: usize = 4096;

/// The running program. Dropping it kills it.
pub(super) struct ProxyChild {
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
    listener: Option<JoinHandle<()>>,
}

impl ProxyChild {
    /// Starts the program with one end of a socket pair as its input and output; the other is the connection.
    pub(super) fn start(config: &SshConfig, proxy: &Proxy) -> Result<(Self, OwnedFd), ConnectError> {
        let mut command = command(config, proxy);
        Self::spawn(&mut command).map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            let sentence = format!("cannot start {program} to connect to {}: {error}", config.hostname);
            ConnectError::new(ConnectErrorKind::LocalConfig, sentence).caused_by(error)
        })
    }

    fn spawn(command: &mut Command) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs);
        let mut child = command.stdin(theirs.try_clone()?).stdout(theirs).stderr(Stdio::piped()).spawn()?;
        // The command keeps its copies of the program's end; without them its death would go unnoticed.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let said = Arc::new(Mutex::new(Vec::new()));
        let mut listener = None;
        if let Some(mut stderr) = child.stderr.take() {
            let said = Arc::clone(&said);
            let thread = thread::Builder::new().name("proxy-stderr".into()).spawn(move || {
                let mut chunk = [0; 512];
                while let Ok(count @ 1..) = stderr.read(&mut chunk) {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    said.extend_from_slice(chunk.get(..count).unwrap_or_default());
                    let surplus = said.len().saturating_sub(KEPT);
                    said.drain(..surplus);
                }
            })?;
            listener = Some(thread);
        }
        Ok((Self { child, said, listener }, ours.into()))
    }

    /// The last line that the program wrote to its standard error. Waits a moment for it: the connection ends before
    /// the program does.
    pub(super) fn last_words(&mut self) -> Option<String> {
        for _ in 0..20 {
            if self.listener.as_ref().is_none_or(JoinHandle::is_finished) {
                break;
            }
            thread::sleep(Duration::from_millis(25));
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&said);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(line.chars().filter(|character| !character.is_control()).collect())
    }
}

impl Drop for ProxyChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(config: &SshConfig, proxy: &Proxy) -> Command {
    match proxy {
        Proxy::Command(line) => {
            let mut command = program("/bin/sh");
            // In place of the shell, so that killing it ends the program itself.
            command.arg("-c").arg(format!("exec {line}"));
            command
        }
        Proxy::Jump(hops) => {
            let mut command = program("ssh");
            command.args(jump_arguments(config, hops));
            command
        }
    }
}

/// `ssh` to the last hop, through the ones before it, forwarding to the host. The options of the command line were
/// meant for the host and are not passed on, the file is: as with OpenSSH.
fn jump_arguments(config: &SshConfig, hops: &str) -> Vec<OsString> {
    let (before, last) = match hops.rsplit_once(',') {
        Some((before, last)) => (Some(before), last.trim()),
        None => (None, hops.trim()),
    };
    let mut arguments: Vec<OsString> = Vec::new();
    if let Some(file) = &config.options.config_file {
        arguments.extend(["-F".into(), file.into()]);
    }
    if let Some(before) = before {
        arguments.extend(["-J".into(), before.into()]);
    }
    arguments.extend(["-W".into(), format!("[{}]:{}", config.hostname, config.port).into()]);
    let last = last.strip_prefix("ssh://").unwrap_or(last).trim_end_matches('/');
    let (user, host) = match last.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, last),
    };
    let (host, port) = split_port(host);
    if let Some(user) = user {
        arguments.extend(["-l".into(), user.into()]);
    }
    if let Some(port) = port {
        arguments.extend(["-p".into(), port.into()]);
    }
    arguments.extend(["--".into(), host.into()]);
    arguments
}

/// `host:port`, `[host]:port`, or a bare host, which may be an IPv6 address.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':'));
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sftp::transport::ssh_config::{Destination, Environment, SshOptions};

    fn arguments(hops: &str) -> String {
        let destination = Destination { user: Some("u".into()), host: "h".into(), port: Some(2222) };
        let options = SshOptions { config_file: Some("/dev/null".into()), options: Vec::new() };
        let environment = Environment::new([("HOME", "/nowhere")]);
        let config = SshConfig::load_from_files(&destination, &options, &environment).unwrap();
        let arguments = jump_arguments(&config, hops);
        arguments.iter().map(|argument| argument.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn jumps() {
        assert_eq!(arguments("gate"), "-F /dev/null -W [h]:2222 -- gate");
        assert_eq!(arguments("a,me@b:2200"), "-F /dev/null -J a -W [h]:2222 -l me -p 2200 -- b");
        assert_eq!(arguments("ssh://me@[::1]:2200"), "-F /dev/null -W [h]:2222 -l me -p 2200 -- ::1");
        assert_eq!(arguments("fe80::1"), "-F /dev/null -W [h]:2222 -- fe80::1");
    }
}
