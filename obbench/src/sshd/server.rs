//! The running server.

use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::files::{self, Files};
use super::{HOST, SshdError, SshdOptions};
use crate::{clock, need, process};

/// How long a server may take to come up on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often another port is tried when somebody took the one that was free a moment ago.
const ATTEMPTS: u32 = 5;

/// A server on 127.0.0.1 with a directory of its own; gone, with all its sessions, when it is dropped.
pub struct Sshd {
    files: Files,
    options: SshdOptions,
    program: PathBuf,
    mark: String,
    port: u16,
    child: Option<Child>,
    // Last: the directory outlives the processes that use it.
    _directory: TempDir,
}

impl Sshd {
    /// Makes keys and configuration, starts the server and waits until it answers.
    ///
    /// # Errors
    /// A missing program, a directory that cannot be written, or a server that does not come up (with its log).
    pub fn start(options: SshdOptions) -> Result<Self, SshdError> {
        let program = need::find("sshd").ok_or(SshdError::Missing("sshd"))?;
        let directory = tempfile::Builder::new()
            .prefix("obbench-sshd-")
            .tempdir()
            .map_err(SshdError::io("make a directory"))?;
        let files = Files::create(directory.path().to_path_buf(), &options)?;
        let mut server =
            Self { files, options, program, mark: mark(), port: 0, child: None, _directory: directory };
        make_privilege_directory()?;
        let mut attempt = 1;
        loop {
            server.port = free_port()?;
            server.files.write_client_config(&server.options, server.client_port())?;
            match server.launch() {
                Err(SshdError::NotUp { .. }) if attempt < ATTEMPTS => attempt += 1,
                result => return result.map(|()| server),
            }
        }
    }

    /// The port on 127.0.0.1 that the server itself listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port that the client configuration names: the server's own, or the one of a relay before it.
    #[must_use]
    pub fn client_port(&self) -> u16 {
        self.options.client_port.unwrap_or(self.port)
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// A client configuration with the host [`HOST`], which 127.0.0.1 is another name of.
    #[must_use]
    pub fn ssh_config(&self) -> PathBuf {
        self.files.path("ssh_config")
    }

    /// The host keys as `[127.0.0.1]:PORT` for [`Self::client_port`].
    #[must_use]
    pub fn known_hosts(&self) -> PathBuf {
        self.files.path("known_hosts")
    }

    /// The private key, without passphrase, that may log in; its public half has the extension `pub`.
    #[must_use]
    pub fn identity(&self) -> PathBuf {
        self.files.identity()
    }

    /// The keys that may log in; a test may add or remove some, and the server notices at once.
    #[must_use]
    pub fn authorized_keys(&self) -> PathBuf {
        self.files.path("authorized_keys")
    }

    /// The user to log in as: whoever runs this.
    #[must_use]
    pub fn user(&self) -> String {
        files::user_name()
    }

    /// The server's directory, for what a test wants to keep beside it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.files.root
    }

    /// `sftp://kitbag-test/PATH`, to be used together with [`Self::ssh_config`]. The path is absolute.
    #[must_use]
    pub fn url(&self, path: &Path) -> String {
        format!("sftp://{HOST}{}", path.display())
    }

    /// What the server has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.files.path("log"))
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .unwrap_or_default()
    }

    /// Rewrites the client configuration for another port, such as that of a relay made after the server.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn set_client_port(&mut self, port: u16) -> Result<(), SshdError> {
        self.options.client_port = Some(port);
        self.files.write_client_config(&self.options, port)
    }

    /// Changes the options, keys excepted, for the next [`Self::restart`].
    pub fn options_mut(&mut self) -> &mut SshdOptions {
        &mut self.options
    }

    /// Kills the server and all its sessions at once, as a crash of the machine would, but that the kernel closes
    /// their connections. Port and files stay. A frozen server is killed too.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let master = child.id();
        process::kill_all(|| self.everything(master));
        // It is killed already; this takes the zombie away.
        let _ = child.wait();
    }

    /// Stops the server if it runs, and starts it again on the same port, with the options as they are now.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn restart(&mut self) -> Result<(), SshdError> {
        self.stop();
        self.launch()
    }

    /// Kills every session, and leaves the server listening.
    pub fn kill_sessions(&self) {
        process::kill_all(|| self.sessions());
    }

    /// The processes of all sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<u32> {
        let Some(master) = self.child.as_ref().map(Child::id) else {
            return Vec::new();
        };
        self.everything(master).into_iter().filter(|&pid| pid != master).collect()
    }

    /// Stops server and sessions where they stand: connections stay open, nothing answers. [`Self::thaw`] ends it.
    pub fn freeze(&self) {
        if let Some(master) = self.child.as_ref().map(Child::id) {
            process::stop_all(|| self.everything(master));
        }
    }

    /// Stops all processes of this name that serve a session; the server itself goes on.
    pub fn freeze_programs(&self, name: &str) {
        let is_meant = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim_end() == name)
        };
        process::stop_all(|| self.sessions().into_iter().filter(is_meant).collect());
    }

    /// Lets frozen processes go on.
    pub fn thaw(&self) {
        if let Some(master) = self.child.as_ref().map(Child::id) {
            for pid in self.everything(master) {
                process::signal(pid, Signal::CONT);
            }
        }
    }

    fn everything(&self, master: u32) -> Vec<u32> {
        let mut all = process::descendants(master);
        all.push(master);
        all.extend(process::marked(&self.mark));
        all.sort_unstable();
        all.dedup();
        all
    }

    fn launch(&mut self) -> Result<(), SshdError> {
        self.files.write_server_config(&self.options, self.port, &self.mark)?;
        let config = self.files.path("sshd_config");
        let log_path = self.files.path("log");
        let log = File::options()
            .create(true)
            .append(true)
            .open(&log_path)
            .map_err(SshdError::io("make the server's log"))?;
        let child = Command::new(&self.program)
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .args(self.no_penalties(&config))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(SshdError::io("start sshd"))?;
        let master = self.child.insert(child);
        let port = self.port;
        let up = clock::wait_until(PATIENCE, || {
            // An ended server can no longer come up; the caller sees its log.
            !matches!(master.try_wait(), Ok(None)) || answers(port)
        });
        if up && matches!(master.try_wait(), Ok(None)) {
            return Ok(());
        }
        self.stop();
        Err(SshdError::NotUp { log: log_path, text: self.log() })
    }

    /// OpenSSH 9.8 and later shut out an address after failed logins, which tests make many of; earlier ones refuse
    /// the option.
    fn no_penalties(&self, config: &Path) -> &'static [&'static str] {
        const OPTION: &[&str] = &["-o", "PerSourcePenalties=no"];
        let known = Command::new(&self.program).arg("-t").args(OPTION).arg("-f").arg(config).output();
        if known.is_ok_and(|output| output.status.success()) { OPTION } else { &[] }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A mark in the environment of every session that no other server of this machine uses.
fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let started = clock::since_boot().as_nanos();
    format!("OBBENCH_SSHD={}-{}-{started}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A port that nobody listens on right now.
fn free_port() -> Result<u16, SshdError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(SshdError::io("find a free port"))
}

/// Whether an SSH server greets on the port.
fn answers(port: u16) -> bool {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
        return false;
    };
    let mut greeting = [0; 4];
    stream.set_read_timeout(Some(Duration::from_secs(5))).is_ok()
        && stream.read_exact(&mut greeting).is_ok()
        && greeting == *b"SSH-"
}

/// Debian's sshd, started by root, wants an empty directory that its service unit usually makes.
fn make_privilege_directory() -> Result<(), SshdError> {
    if !rustix::process::getuid().is_root() {
        return Ok(());
    }
    fs::create_dir_all("/run/sshd").map_err(SshdError::io("make /run/sshd"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sshd::{KeyKind, Subsystem};
    use std::io::Write;

    fn sftp(server: &Sshd, batch: &str) -> (bool, String) {
        let mut child = Command::new("sftp")
            .arg("-F")
            .arg(server.ssh_config())
            .args(["-b", "-", HOST])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sftp starts");
        child.stdin.take().expect("piped").write_all(batch.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    fn serves_files_and_leaves_nothing_behind() {
        if !need::program("sshd") {
            return;
        }
        let server = Sshd::start(SshdOptions::default()).expect("it starts");
        let directory = server.directory().to_path_buf();
        let master = server.child.as_ref().expect("it runs").id();
        let (good, error) = sftp(&server, &format!("put /etc/passwd {}/copy\n", directory.display()));
        assert!(good, "{error}\n{}", server.log());
        assert!(directory.join("copy").exists());
        drop(server);
        assert!(!directory.exists());
        assert!(!process::is_running(master));
    }

    #[test]
    fn every_host_key_and_the_built_in_server() {
        if !need::program("sshd") {
            return;
        }
        let options = SshdOptions {
            subsystem: Subsystem::Internal,
            more_host_keys: vec![KeyKind::Rsa, KeyKind::Ecdsa],
            max_sessions: Some(2),
            rekey_limit: Some("4M".into()),
            client_lines: vec!["HostKeyAlgorithms rsa-sha2-512".into()],
            ..SshdOptions::default()
        };
        let server = Sshd::start(options).expect("it starts");
        let (good, error) = sftp(&server, "pwd\n");
        assert!(good, "{error}");
        assert_eq!(fs::read_to_string(server.known_hosts()).expect("written").lines().count(), 3);
    }

    #[test]
    fn restarts_on_the_same_port_after_its_sessions_were_killed() {
        if !need::program("sshd") {
            return;
        }
        let mut server = Sshd::start(SshdOptions::default()).expect("it starts");
        let port = server.port();
        let mut client = Command::new("ssh")
            .arg("-F")
            .arg(server.ssh_config())
            .args([HOST, "sleep 100"])
            .stdin(Stdio::null())
            .spawn()
            .expect("ssh starts");
        assert!(clock::wait_until(Duration::from_secs(10), || !process::marked(&server.mark).is_empty()));
        let sessions = server.sessions();
        server.freeze();
        assert!(!answers_within(port, Duration::from_millis(300)));
        server.thaw();
        assert!(answers(port));
        server.kill_sessions();
        assert!(!client.wait().expect("ours").success());
        assert!(sessions.iter().all(|&pid| !process::is_running(pid)));
        assert!(answers(port), "the server itself goes on");
        server.restart().expect("the port is free again");
        assert_eq!(server.port(), port);
        assert!(sftp(&server, "pwd\n").0);
        server.stop();
        assert!(!answers(port));
    }

    fn answers_within(port: u16, limit: Duration) -> bool {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the kernel accepts");
        stream.set_read_timeout(Some(limit)).expect("a time-out");
        stream.read_exact(&mut [0; 4]).is_ok()
    }

    #[test]
    fn says_why_it_does_not_come_up() {
        if !need::program("sshd") {
            return;
        }
        let options =
            SshdOptions { config_lines: vec!["NoSuchKeyword yes".into()], ..SshdOptions::default() };
        let error = Sshd::start(options).err().expect("a wrong configuration");
        assert!(error.to_string().contains("NoSuchKeyword"), "{error}");
    }
}
