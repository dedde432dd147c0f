//! Commands that go by their own line alone.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use crate::serve::Rights;

const SERVE_HELP: &str = "\
This is an SFTP server at standard input and output. It is not started by hand: sshd does it for a key whose line in ~/.ssh/authorized_keys begins with

  restrict,command=\"kitbag serve --append-only --root /srv/backups\" ssh-ed25519 AAAA…

The directory is / for the client, whose repository is then sftp://user@host/NAME. Nothing else can be seen, and symbolic links are not followed.

With --append-only, backups and restores work as ever, but nothing that was published can be changed or removed: forget and gc need another key, with \
--full or without a forced command.";

/// `kitbag serve`
#[derive(Debug, Default, ClapArgs)]
#[command(after_help = SERVE_HELP)]
pub struct Serve {
    #[command(flatten)]
    rights: Which,

    /// Serve the files below this directory, and no others
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
}

#[derive(Debug, Default, ClapArgs)]
#[group(required = true, multiple = false)]
struct Which {
    /// Let the client add what a backup adds, and read; nothing that is there can be changed or removed
    #[arg(long)]
    append_only: bool,

    /// Let the client read
    #[arg(long)]
    read_only: bool,

    /// Let the client change and remove what it likes
    #[arg(long)]
    full: bool,
}

impl Serve {
    /// What the client may do.
    #[must_use]
    pub fn rights(&self) -> Rights {
        match (self.rights.full, self.rights.append_only) {
            (true, _) => Rights::Full,
            (false, true) => Rights::AppendOnly,
            (false, false) => Rights::ReadOnly,
        }
    }
}

/// `kitbag completions`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}
