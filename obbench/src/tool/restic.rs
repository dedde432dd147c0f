//! restic.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::script::look_through;
use super::{Action, Place, Tool, quoted};

/// The `restic` program, which always encrypts.
pub(super) struct Restic {
    program: PathBuf,
}

impl Restic {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }
}

impl Tool for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn command(&self, action: Action<'_>, place: &Place) -> Option<Command> {
        let mut command = Command::new(&self.program);
        command.env("RESTIC_PASSWORD", "benchmark").arg("--quiet").arg("--cache-dir").arg(&place.cache);
        match &place.server {
            None => command.arg("--repo").arg(&place.repository),
            Some(server) => {
                let ssh = format!("ssh -F {} {} -s sftp", quoted(&server.ssh_config), server.host);
                command.arg("--repo").arg(format!("sftp:{}:{}", server.host, place.repository.display()));
                command.arg("--option").arg(format!("sftp.command={ssh}"))
            }
        };
        match action {
            Action::Init => command.arg("init"),
            Action::Backup(root) => command.args(["backup", "--host", &place.client]).arg(root),
            Action::Generations => command.arg("snapshots"),
            Action::Ls => command.args(["ls", "latest"]),
            Action::Cat(path) => command.args(["dump", "latest"]).arg(path),
            Action::Restore(to) => command.args(["restore", "latest", "--target"]).arg(to),
            Action::Verify(_) | Action::Show(_) => return None,
            Action::Fsck => command.arg("check"),
            Action::FsckData => command.args(["check", "--read-data"]),
            Action::Forget => command.args(["forget", "--keep-last", "1"]),
            Action::Collect => command.arg("prune"),
            Action::Mount(at) => {
                command.arg("mount").arg(at);
                return Some(look_through(&command, at, &at.join("snapshots/latest")));
            }
        };
        Some(command)
    }
}
