//! kitbag itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::script::look_through;
use super::{Action, Place, Tool};

/// The `kitbag` program.
pub(super) struct Kitbag {
    program: PathBuf,
    transport: Option<String>,
}

impl Kitbag {
    /// `transport` is what `--transport` takes; the program decides where it is `None`.
    pub(super) fn new(program: PathBuf, transport: Option<String>) -> Self {
        Self { program, transport }
    }
}

impl Tool for Kitbag {
    fn name(&self) -> &'static str {
        "kitbag"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn command(&self, action: Action<'_>, place: &Place) -> Option<Command> {
        let mut command = Command::new(&self.program);
        // Neither a user's configuration nor his passphrase take part.
        command
            .env("XDG_CONFIG_HOME", &place.cache)
            .env_remove("KITBAG_PASSPHRASE")
            .env_remove("KITBAG_REPOSITORY");
        command.args(["--client-name", &place.client, "--cache-dir"]).arg(&place.cache);
        if let Some(transport) = &self.transport {
            command.arg("--transport").arg(transport);
        }
        match &place.server {
            None => command.arg("--repository").arg(&place.repository),
            Some(server) => command
                .arg("--ssh-config")
                .arg(&server.ssh_config)
                .arg("--repository")
                .arg(format!("sftp://{}{}", server.host, place.repository.display())),
        };
        match action {
            Action::Init => command.args(["init", "--encryption", "none"]),
            Action::Backup(root) => command.args(["--json", "backup"]).arg(root),
            Action::Generations => command.arg("generations"),
            Action::Ls => command.arg("ls"),
            Action::Cat(path) => command.arg("cat").arg(path),
            Action::Restore(to) => command.args(["restore", "--to"]).arg(to),
            Action::Verify(root) => command.arg("verify").arg(root),
            Action::Fsck => command.arg("fsck"),
            Action::FsckData => command.args(["fsck", "--read-data"]),
            Action::Forget => command.args(["forget", "--keep", "1h"]),
            Action::Collect => command.arg("gc"),
            Action::Mount(at) => {
                command.args(["mount", "--generation", "latest"]).arg(at);
                return Some(look_through(&command, at, at));
            }
            Action::Show(at) => command.args(["--json", "mount", "--generation", "latest"]).arg(at),
        };
        Some(command)
    }
}
