//! The command line as it was typed. What it means is decided in [`super::settings`].

#![expect(clippy::doc_markdown, reason = "these comments are the texts of --help")]

mod alone;
mod look;
mod nightly;
mod upkeep;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::base::id::RepositoryId;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand, ValueEnum};

pub use alone::{Serve, Shell};
pub use look::{Cat, Diff, Export, FileKind, Find, Ls, Mount};
pub use nightly::{LastBackupAge, Nightly};
pub use upkeep::{ExportKey, Forget, Fsck, Gc, ImportKey, Key, NewKey, RemoveClient, Sessions, Tag, Verify};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Yellow.on_default().bold())
    .usage(AnsiColor::Yellow.on_default().bold())
    .literal(AnsiColor::Green.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

const COMPLETIONS_HELP: &str = "\
The Debian package installs them. Else, for bash: kitbag completions bash > ~/.local/share/bash-completion/completions/kitbag; \
for fish: kitbag completions fish > ~/.config/fish/completions/kitbag.fish; for zsh, a file _kitbag in a directory of $fpath.";

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 usage, 3 done but some files could not be saved or restored, or differ, or what follows a backup failed, \
4 repository damaged, 10 no repository there, 12 wrong passphrase, 130 interrupted.

Options can be written into ~/.config/kitbag/config.toml or /etc/kitbag/config.toml, save those that are about one run, such as --dry-run, \
and those of serve: common ones as in repository = \"…\", those of a command below [backup] and the like, all of them below [profile.NAME], too. A variable stands for each common option: \
KITBAG_REPOSITORY, KITBAG_CLIENT_NAME and so on, and KITBAG_PASSPHRASE for the passphrase itself. Options win over variables, these over the profile, the user's \
file and the system's file; --FLAG=false takes a flag back that one of these sets. `kitbag config show` says what is in force, and why.";

/// Keeps generations of your files on a server that runs nothing but sshd, or in a local directory.
#[derive(Debug, Parser)]
#[command(name = "kitbag", version, styles = STYLES, after_help = AFTER_HELP, max_term_width = 110)]
#[command(propagate_version = true, subcommand_required = true)]
pub struct Args {
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "Common options")]
pub struct Common {
    /// Where the repository is.
    #[arg(
        help = "Where the repository is: a path, sftp://[user@]host[:port]/path, sftp://…/~/path, or user@host:path"
    )]
    #[arg(long, short = 'r', global = true, value_name = "WHERE")]
    pub repository: Option<OsString>,

    /// Read options from this file instead of ~/.config/kitbag/config.toml and /etc/kitbag/config.toml
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Let the options below [profile.NAME] of a configuration file hold, before others of such files
    #[arg(long, global = true, value_name = "NAME")]
    pub profile: Option<String>,

    /// The name under which generations are kept [default: the host name]
    #[arg(long, global = true, value_name = "NAME")]
    pub client_name: Option<String>,

    /// Say more; twice, three times: much more
    #[arg(long, short = 'v', global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// Say nothing but problems and what was asked for
    #[arg(long, short = 'q', global = true, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Write results as JSON (see doc/json.md)
    #[arg(long, global = true)]
    pub json: bool,

    /// How to show what is being done: a live display on a terminal, JSON lines on standard error (see doc/json.md), a line now and then, or not at all
    #[arg(long, global = true, value_name = "HOW")]
    pub progress: Option<ProgressForm>,

    /// Add what is said, and what happens, to this file
    #[arg(long, global = true, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// How much goes to the log file [default: info]
    #[arg(long, global = true, value_name = "LEVEL", requires = "log_file")]
    pub log_level: Option<LogLevel>,

    /// How to reach an SFTP server: by the ssh2 library or the system's ssh
    #[arg(long, global = true, value_name = "WHICH")]
    pub transport: Option<Transport>,

    /// Read SSH settings from this file instead of ~/.ssh/config
    #[arg(long, global = true, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,

    /// Set one SSH option, as in ssh_config(5); may be repeated
    #[arg(long = "ssh-option", global = true, value_name = "KEY=VALUE")]
    pub ssh_options: Vec<String>,

    /// Take a server that says nothing for so long for gone, and connect again [default: 30s]
    #[arg(long, global = true, value_name = "TIME")]
    pub link_timeout: Option<String>,

    /// Go on trying to connect again for so long, such as 90s, 15m or 8h [default: 15m]
    #[arg(long, global = true, value_name = "TIME")]
    pub give_up_after: Option<String>,

    /// Send at most so many bytes a second, such as 500K or 2M
    #[arg(long, global = true, value_name = "RATE")]
    pub limit_upload: Option<String>,

    /// Receive at most so many bytes a second
    #[arg(long, global = true, value_name = "RATE")]
    pub limit_download: Option<String>,

    /// Read the passphrase from this file (one newline at its end is taken off)
    #[arg(long, global = true, value_name = "FILE", group = "passphrase")]
    pub passphrase_file: Option<PathBuf>,

    /// Read the passphrase from this open file descriptor (one newline at its end is taken off)
    #[arg(long, global = true, value_name = "N", group = "passphrase")]
    pub passphrase_fd: Option<u32>,

    /// Run this command by sh and take the passphrase from its output (one newline at its end is taken off)
    #[arg(long, global = true, value_name = "COMMAND", group = "passphrase")]
    pub passphrase_command: Option<String>,

    /// Open the repository by this key file, or by a key that was typed into it from paper, instead of a passphrase; see `kitbag key`
    #[arg(long, global = true, value_name = "FILE", group = "passphrase")]
    pub key_file: Option<PathBuf>,

    /// Keep the local cache here [default: $XDG_CACHE_HOME/kitbag or ~/.cache/kitbag]
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "no_cache")]
    pub cache_dir: Option<PathBuf>,

    /// Let the local cache grow to this size, such as 500M or 10G [default: 2G]
    #[arg(long, global = true, value_name = "SIZE", conflicts_with = "no_cache")]
    pub cache_size: Option<String>,

    /// Use no local cache
    #[arg(long, global = true)]
    pub no_cache: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a new repository
    Init(Init),
    /// Save files as a new generation
    Backup(Backup),
    /// List the generations of a client, oldest first
    Generations,
    /// List the files of a generation
    Ls(Ls),
    /// Bring files of a generation back
    Restore(Restore),
    /// Write a file of a generation to standard output
    Cat(Cat),
    /// List the clients of the repository: how many generations each has, and the last one
    Clients,
    /// Tell a monitor how old the last backup is, as a Nagios plugin
    LastBackupAge(LastBackupAge),
    /// Forget generations: named ones, or all that a policy does not keep
    Forget(Forget),
    /// Give generations tags, which keep them from being forgotten
    #[command(subcommand)]
    Tag(Tag),
    /// List, add, remove and change the passphrases and key files that open the repository
    #[command(subcommand)]
    Key(Key),
    /// Forget all generations of a client
    RemoveClient(RemoveClient),
    /// List who is writing to the repository, and since when by the server's clock
    Sessions {
        /// What to do with them.
        #[command(subcommand)]
        what: Option<Sessions>,
    },
    /// Show generations as a file system
    Mount(Mount),
    /// Look for files in all generations
    Find(Find),
    /// Compare two generations, or a generation with the live data; ends with 1 when they differ
    Diff(Diff),
    /// Write files of a generation to standard output as a tar archive
    Export(Export),
    /// Compare a generation with the live data, without fetching what it holds
    Verify(Verify),
    /// Check the repository
    Fsck(Fsck),
    /// Give back the space of what no generation needs
    Gc(Gc),
    /// Look at the local caches, or clear them
    #[command(subcommand)]
    Cache(Cache),
    /// Look at what configuration files and variables set, or check the files
    #[command(subcommand)]
    Config(Config),
    /// Serve files over SFTP to a key that may only add, or only read
    Serve(Serve),
    /// Write a script that completes commands and options, for a shell to load
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// Which shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Write the manual pages below a directory
    #[command(hide = true)]
    Man {
        /// Where man1/ and man5/ are made
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// `kitbag init`
#[derive(Debug, Default, ClapArgs)]
pub struct Init {
    /// Whether a passphrase protects the repository [default: passphrase]
    #[arg(long, value_name = "HOW")]
    pub encryption: Option<Encryption>,
}

/// `kitbag backup`
#[derive(Debug, Default, ClapArgs)]
pub struct Backup {
    /// The directories and files to save
    #[arg(value_name = "ROOT", required = true)]
    pub roots: Vec<PathBuf>,

    /// Make the repository first when there is none
    #[arg(long)]
    pub init: bool,

    /// With --init: whether a passphrase protects the new repository [default: passphrase]
    #[arg(long, value_name = "HOW", requires = "init")]
    pub encryption: Option<Encryption>,

    /// Leave out what matches this pattern below a root, as in .gitignore; may be repeated
    #[arg(long = "exclude", value_name = "PATTERN")]
    pub excludes: Vec<String>,

    /// Leave out what matches a pattern of this file, one a line; may be repeated
    #[arg(long = "exclude-from", value_name = "FILE")]
    pub exclude_files: Vec<PathBuf>,

    /// Leave out the contents of directories that a CACHEDIR.TAG marks as caches
    #[arg(long)]
    pub exclude_caches: bool,

    /// Leave out the contents of directories that have an entry of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub exclude_if_present: Vec<PathBuf>,

    /// Stay on the file systems that the roots are on
    #[arg(long, short = 'x')]
    pub one_file_system: bool,

    /// How hard to compress [default: default]
    #[arg(long, value_name = "LEVEL")]
    pub compression: Option<Compression>,

    /// Read every file, whatever the last generation says of it; chunks that the repository lacks are stored again
    #[arg(long)]
    pub reread: bool,

    /// Do not compare inode numbers: some network file systems make them up at each mount
    #[arg(long)]
    pub ignore_inode: bool,

    /// Make no generation when nothing has changed since the last one
    #[arg(long)]
    pub skip_if_unchanged: bool,

    /// Make a checkpoint after this time or this much new data, such as 5m or 1G [default: both of these]
    #[arg(long, value_name = "TIME|SIZE")]
    pub checkpoint: Option<String>,

    /// Give the generation this tag, which keeps it from being forgotten; may be repeated
    #[arg(long = "tag", value_name = "NAME")]
    pub tags: Vec<String>,

    /// Afterwards forget what a policy such as 7d,5w,12m does not keep, as `kitbag forget --keep` does
    #[arg(long, value_name = "POLICY", conflicts_with = "dry_run")]
    pub forget: Option<String>,

    /// Afterwards give back the space of what no generation needs, as `kitbag gc` does
    #[arg(long, conflicts_with = "dry_run")]
    pub gc: bool,

    /// Do everything but send: say what would be saved
    #[arg(long, short = 'n')]
    pub dry_run: bool,

    /// What happens around it.
    #[command(flatten)]
    pub nightly: Nightly,
}

/// `kitbag restore`
#[derive(Debug, Default, ClapArgs)]
pub struct Restore {
    /// Restore below this directory
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,

    /// Which generation: latest, latest~2, an id or its beginning, a date
    #[arg(long, short = 'g', value_name = "SPEC", default_value = "latest")]
    pub generation: String,

    /// Leave out the leading directories of the original paths: the contents of one saved root come directly below DIR
    #[arg(long)]
    pub strip_root: bool,

    /// Find owners by their saved names where these exist here, instead of by their numbers
    #[arg(long)]
    pub owners_by_name: bool,

    /// Restore only these files and what is below them: absolute paths, or paths below a saved root
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `kitbag cache`
#[derive(Debug, Subcommand)]
pub enum Cache {
    /// Say what is kept of each repository, and how much of the disk that takes
    Info,
    /// Remove all that is kept, but for the turns of backups that are going on; the next run fetches what it needs again
    Clear {
        /// Only of the repositories with these ids
        #[arg(value_name = "ID")]
        repositories: Vec<RepositoryId>,
    },
}

/// `kitbag config`
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Say what is set, and where that was written
    Show,
    /// Say whether the files have mistakes
    Check,
}

/// `--progress`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ProgressForm {
    /// A live display if standard error is a terminal
    #[default]
    Auto,
    /// JSON lines
    Json,
    /// A line every ten seconds
    Plain,
    /// Nothing
    None,
}

/// `--log-level`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogLevel {
    /// What failed
    Error,
    /// And what may be wrong
    Warn,
    /// And the ordinary course of things
    #[default]
    Info,
    /// And what happens inside
    Debug,
    /// All of it
    Trace,
}

/// `--transport`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Transport {
    /// The library unless the host's settings need what it cannot do
    #[default]
    Auto,
    /// The ssh2 library
    Ssh2,
    /// The system's ssh program
    Openssh,
}

/// `--encryption`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Encryption {
    /// A passphrase opens the repository
    #[default]
    Passphrase,
    /// Whoever can read the repository can read what is in it
    None,
}

/// `--compression`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Compression {
    /// None
    Off,
    /// Fast
    Fast,
    /// A good bargain
    #[default]
    Default,
    /// As small as can be, slowly
    Max,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_each_command_writes_as_json_is_documented() {
        fn names(command: &clap::Command, before: &str, all: &mut Vec<String>) {
            for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
                let name = format!("{before}{}", one.get_name());
                match one.has_subcommands() {
                    true => names(one, &format!("{name} "), all),
                    false => all.push(name),
                }
            }
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/doc/json.md");
        let document = std::fs::read_to_string(path).expect("the document");
        let mut all = Vec::new();
        names(&Args::command(), "", &mut all);
        assert!(all.len() > 25, "{all:?}");
        // A heading, or, for a command of a family, a word on it in the family's section.
        all.retain(|name| !document.contains(&format!("`{name}`")));
        assert!(all.is_empty(), "doc/json.md lacks {all:?}");
    }

    #[test]
    fn common_options_stand_anywhere() {
        for line in ["kitbag -r /r backup --init .", "kitbag backup . --init -r /r"] {
            let args = Args::try_parse_from(line.split(' ')).expect("valid");
            assert_eq!(args.common.repository.as_deref(), Some("/r".as_ref()));
            let Command::Backup(backup) = args.command else { panic!("not a backup") };
            assert!(backup.init && backup.roots == [PathBuf::from(".")]);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in [
            "kitbag",
            "kitbag backup",
            "kitbag restore",
            "kitbag backup . --encryption none",
            "kitbag backup . --compression 9",
            "kitbag -q -v generations",
            "kitbag generations --passphrase-fd 3 --passphrase-file f",
            "kitbag generations --no-cache --cache-size 1G",
        ] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
