//! Plain copies, the yardsticks: `rsync` keeps one tree on the server, `tar` sends a stream.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Action, Place, Tool, quoted};

/// The `rsync` program, which runs its like on the server.
pub(super) struct Rsync {
    program: PathBuf,
}

impl Rsync {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }
}

impl Tool for Rsync {
    fn name(&self) -> &'static str {
        "rsync"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn command(&self, action: Action<'_>, place: &Place) -> Option<Command> {
        let mut command = Command::new(&self.program);
        command.args(["--archive", "--hard-links", "--delete", "--relative"]);
        let there = match &place.server {
            None => place.repository.display().to_string(),
            Some(server) => {
                command.arg("--rsh").arg(format!("ssh -F {}", quoted(&server.ssh_config)));
                format!("{}:{}", server.host, place.repository.display())
            }
        };
        match action {
            Action::Backup(root) => command.arg(root).arg(format!("{there}/")),
            Action::Restore(to) => command.arg(format!("{there}/./")).arg(to),
            _ => return None,
        };
        Some(command)
    }
}

/// The `tar` program with `cat` on the server: a full copy each time.
pub(super) struct Tar {
    program: PathBuf,
}

impl Tar {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }
}

impl Tool for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn command(&self, action: Action<'_>, place: &Place) -> Option<Command> {
        let tar = quoted(&self.program);
        let file = quoted(place.repository.with_extension("tar"));
        let (store, fetch) = match &place.server {
            None => (format!("cat > {file}"), format!("cat {file}")),
            Some(server) => {
                let ssh = format!("ssh -F {} {}", quoted(&server.ssh_config), server.host);
                (format!("{ssh} \"cat > {file}\""), format!("{ssh} \"cat {file}\""))
            }
        };
        let script = match action {
            Action::Backup(root) => format!("{tar} --create --absolute-names {} | {store}", quoted(root)),
            Action::Ls => format!("{fetch} | {tar} --list"),
            Action::Restore(to) => {
                let to = quoted(to);
                format!("mkdir -p {to} && {fetch} | {tar} --extract --directory {to}")
            }
            _ => return None,
        };
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        Some(command)
    }
}
