//! Borg, which runs its own program on the server.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Action, Place, Tool, quoted};

/// The `borg` program, version 1.
pub(super) struct Borg {
    program: PathBuf,
}

/// Archives need names; the time makes each one new.
const NEW: &str = "::{now}";

impl Borg {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// Runs a script in which `$name` is the latest archive's name.
    fn with_latest(&self, script: &str) -> Command {
        let borg = quoted(&self.program);
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("name=$({borg} list --short --last 1) && {borg} {script}"));
        command
    }
}

impl Tool for Borg {
    fn name(&self) -> &'static str {
        "borg"
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn command(&self, action: Action<'_>, place: &Place) -> Option<Command> {
        let mut plain = Command::new(&self.program);
        let mut command = match action {
            Action::Init => {
                plain.args(["init", "--encryption", "repokey-blake2"]);
                plain
            }
            Action::Backup(root) => {
                plain.args(["create", NEW]).arg(root);
                plain
            }
            Action::Generations => {
                plain.arg("list");
                plain
            }
            Action::Fsck => {
                plain.args(["check", "--repository-only"]);
                plain
            }
            Action::FsckData => {
                plain.args(["check", "--verify-data"]);
                plain
            }
            Action::Forget => {
                plain.args(["prune", "--keep-last", "1"]);
                plain
            }
            Action::Collect => {
                plain.arg("compact");
                plain
            }
            Action::Ls => self.with_latest("list \"::$name\""),
            Action::Cat(path) => {
                let inside = path.strip_prefix("/").unwrap_or(path);
                self.with_latest(&format!("extract --stdout \"::$name\" {}", quoted(inside)))
            }
            Action::Restore(to) => {
                let mut command = self.with_latest("extract \"::$name\"");
                // It extracts into the working directory, which is to exist.
                std::fs::create_dir_all(to).ok()?;
                command.current_dir(to);
                command
            }
            Action::Verify(_) | Action::Mount(_) | Action::Show(_) => return None,
        };
        command
            .env("BORG_PASSPHRASE", "benchmark")
            .env("BORG_BASE_DIR", &place.cache)
            .env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes")
            .env("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes");
        match &place.server {
            None => command.env("BORG_REPO", &place.repository),
            Some(server) => command
                .env("BORG_RSH", format!("ssh -F {}", quoted(&server.ssh_config)))
                .env("BORG_REPO", format!("ssh://{}{}", server.host, place.repository.display())),
        };
        Some(command)
    }
}
