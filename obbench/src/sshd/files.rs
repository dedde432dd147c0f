//! What stands in the server's directory: keys, who may log in, and both configurations.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{HOST, KeyKind, SFTP_SERVER, SshdError, SshdOptions, Subsystem};
use crate::need;

/// The paths of a server's files.
pub(super) struct Files {
    pub root: PathBuf,
    kinds: Vec<KeyKind>,
}

impl Files {
    /// Makes the keys, which stay the same for the life of the server.
    pub(super) fn create(root: PathBuf, options: &SshdOptions) -> Result<Self, SshdError> {
        let mut kinds = vec![KeyKind::Ed25519];
        for &kind in &options.more_host_keys {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let files = Self { root, kinds };
        for &kind in &files.kinds {
            keygen(kind, &files.host_key(kind), "host")?;
        }
        keygen(KeyKind::Ed25519, &files.identity(), "user")?;
        let public = read(&files.identity().with_extension("pub"))?;
        write(&files.path("authorized_keys"), &public)?;
        Ok(files)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn identity(&self) -> PathBuf {
        self.path("id_ed25519")
    }

    fn host_key(&self, kind: KeyKind) -> PathBuf {
        self.path(&format!("host_{}", kind.name()))
    }

    /// Writes `sshd_config`; `mark` goes into the environment of every session.
    pub(super) fn write_server_config(
        &self,
        options: &SshdOptions,
        port: u16,
        mark: &str,
    ) -> Result<(), SshdError> {
        let mut lines = options.config_lines.clone();
        lines.push(format!("Port {port}"));
        lines.push("ListenAddress 127.0.0.1".into());
        lines.extend(self.kinds.iter().map(|&kind| format!("HostKey {}", self.host_key(kind).display())));
        lines.push(format!("AuthorizedKeysFile {}", self.path("authorized_keys").display()));
        lines.push(format!("LogLevel {}", options.log_level.as_deref().unwrap_or("VERBOSE")));
        lines.extend(options.max_sessions.map(|count| format!("MaxSessions {count}")));
        lines.extend(options.rekey_limit.as_ref().map(|limit| format!("RekeyLimit {limit}")));
        lines.push(format!("Subsystem sftp {}", subsystem(&options.subsystem)?));
        // The user's shell runs the SFTP server, and bash reads ~/.bashrc before that unless it takes itself for an inner
        // shell: whatever a developer has there would be part of every test, and of every measurement.
        lines.push(format!("SetEnv {mark} SHLVL=2"));
        let fixed = [
            "StrictModes no",
            "UsePAM no",
            "PidFile none",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UseDNS no",
            "PrintMotd no",
            "PrintLastLog no",
            "MaxStartups 200",
        ];
        lines.extend(fixed.map(String::from));
        write(&self.path("sshd_config"), &(lines.join("\n") + "\n"))
    }

    /// Writes `known_hosts` and `ssh_config` for clients that connect to `port`.
    pub(super) fn write_client_config(&self, options: &SshdOptions, port: u16) -> Result<(), SshdError> {
        let mut hosts = String::new();
        for &kind in &self.kinds {
            let public = read(&self.host_key(kind).with_extension("pub"))?;
            let mut words = public.split_whitespace();
            let (name, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            hosts.push_str(&format!("[127.0.0.1]:{port} {name} {key}\n"));
        }
        write(&self.path("known_hosts"), &hosts)?;
        let mut text = format!("Host {HOST} 127.0.0.1\n");
        for line in &options.client_lines {
            text.push_str(&format!("    {line}\n"));
        }
        text.push_str(&format!(
            "    HostName 127.0.0.1\n    Port {port}\n    User {}\n    IdentityFile {}\n    IdentitiesOnly yes\n    \
             IdentityAgent none\n    UserKnownHostsFile {}\n    GlobalKnownHostsFile /dev/null\n    \
             StrictHostKeyChecking yes\n    BatchMode yes\n",
            user_name(),
            self.identity().display(),
            self.path("known_hosts").display(),
        ));
        write(&self.path("ssh_config"), &text)
    }
}

/// The system's `sftp-server`.
pub(crate) fn sftp_server() -> Result<PathBuf, SshdError> {
    need::find(SFTP_SERVER).or_else(|| need::find("sftp-server")).ok_or(SshdError::Missing("sftp-server"))
}

/// The name of the user who runs this.
pub(crate) fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let by_number = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_string())
    });
    by_number.or_else(|| need::variable("USER")).unwrap_or_else(|| "root".into())
}

fn subsystem(subsystem: &Subsystem) -> Result<String, SshdError> {
    Ok(match subsystem {
        Subsystem::SftpServer => sftp_server()?.display().to_string(),
        Subsystem::Internal => "internal-sftp".into(),
        Subsystem::Command(line) => line.clone(),
    })
}

fn keygen(kind: KeyKind, path: &Path, comment: &str) -> Result<(), SshdError> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", kind.name(), "-N", "", "-C", comment, "-f"]).arg(path);
    if kind == KeyKind::Rsa {
        command.args(["-b", "2048"]);
    }
    let output = command.output().map_err(SshdError::io("run ssh-keygen"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(SshdError::Keygen(String::from_utf8_lossy(&output.stderr).trim().to_string()))
}

fn read(path: &Path) -> Result<String, SshdError> {
    fs::read_to_string(path).map_err(SshdError::io(format!("read {}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<(), SshdError> {
    fs::write(path, text).map_err(SshdError::io(format!("write {}", path.display())))
}
