//! Backup programs, each behind a small adapter that knows how its commands are spelled.
//!
//! A [`Tool`] turns an [`Action`] at a [`Place`] into a command to be run; it returns `None` where the program has
//! nothing of the kind. Nothing of the user's own configuration is used, and caches stand in the place's directory.

mod borg;
mod copy;
mod kitbag;
mod restic;
mod script;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::need;

use script::quoted;

pub use script::together;

/// Where a repository is, and what is kept beside it on the client.
#[derive(Clone, Debug)]
pub struct Place {
    /// The repository's directory, local or on the server.
    pub repository: PathBuf,
    /// The client's cache. Deleting it is what a new machine looks like.
    pub cache: PathBuf,
    /// The client's name, for programs that keep generations by it.
    pub client: String,
    /// How the server is reached; `None` is this machine's file system.
    pub server: Option<Server>,
}

/// A server that is reached by SSH.
#[derive(Clone, Debug)]
pub struct Server {
    /// The host's name in the configuration.
    pub host: String,
    /// The client configuration.
    pub ssh_config: PathBuf,
}

/// What a program is to do.
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// Make the repository.
    Init,
    /// Save a tree.
    Backup(&'a Path),
    /// List the generations.
    Generations,
    /// List all files of the latest generation.
    Ls,
    /// Write one file of it, named with its full path, to standard output.
    Cat(&'a Path),
    /// Bring the latest generation of everything back below a directory.
    Restore(&'a Path),
    /// Compare the latest generation with the tree, contents included.
    Verify(&'a Path),
    /// Check the repository's structure.
    Fsck,
    /// Check all of it, every byte.
    FsckData,
    /// Forget all generations but the latest.
    Forget,
    /// Remove what no generation needs.
    Collect,
    /// Show the latest generation as a file system in a directory, find all files, read a thousand, and end it.
    Mount(&'a Path),
    /// Show the latest generation as a file system in an empty directory, until a signal comes; standard output tells by a line when it is there.
    Show(&'a Path),
}

/// An adapter.
pub trait Tool {
    /// Its name in specs and reports.
    fn name(&self) -> &'static str;

    /// The program to be run.
    fn program(&self) -> &Path;

    /// The command for an action; `None` where there is no such thing.
    fn command(&self, action: Action<'_>, place: &Place) -> Option<Command>;

    /// What the program says of its version, in one line.
    fn version(&self) -> String {
        let said = |argument| Command::new(self.program()).arg(argument).stdin(Stdio::null()).output().ok();
        ["--version", "version"]
            .into_iter()
            .filter_map(said)
            .find(|output| output.status.success())
            .and_then(|output| String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_string))
            .unwrap_or_else(|| "unknown".into())
    }
}

/// All names that [`find`] knows.
pub const NAMES: [&str; 5] = ["kitbag", "restic", "borg", "rsync", "tar"];

/// The adapter of that name; `None` where it is unknown or the program is not installed. `kitbag` names the program
/// to be measured, where it is not the one in the path or beside this one.
#[must_use]
pub fn find(name: &str, kitbag: Option<&Path>) -> Option<Box<dyn Tool>> {
    match name {
        "kitbag" => self::kitbag(kitbag, None),
        "restic" => Some(Box::new(restic::Restic::new(need::find(name)?))),
        "borg" => Some(Box::new(borg::Borg::new(need::find(name)?))),
        "rsync" => Some(Box::new(copy::Rsync::new(need::find(name)?))),
        "tar" => Some(Box::new(copy::Tar::new(need::find(name)?))),
        _ => None,
    }
}

/// The adapter of `kitbag`, as [`find`] finds it, that uses this transport.
#[must_use]
pub fn kitbag(program: Option<&Path>, transport: Option<&str>) -> Option<Box<dyn Tool>> {
    let program = program.map(Path::to_path_buf).or_else(beside).or_else(|| need::find("kitbag"))?;
    Some(Box::new(kitbag::Kitbag::new(program, transport.map(str::to_owned))))
}

/// The `kitbag` that was built together with this program.
fn beside() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name("kitbag");
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests;
