//! Commands that look at generations.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

/// `kitbag ls`
#[derive(Debug, Default, ClapArgs)]
pub struct Ls {
    /// Which generation: latest, latest~2, an id or its beginning, a date
    #[arg(long, short = 'g', value_name = "SPEC", default_value = "latest")]
    pub generation: String,

    /// Show all that is known: owners as numbers, times to the nanosecond, extended attributes
    #[arg(long, short = 'l')]
    pub long: bool,

    /// List only these files and what is below them: absolute paths, or paths below a saved root
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `kitbag cat`
#[derive(Debug, Default, ClapArgs)]
pub struct Cat {
    /// Which generation: latest, latest~2, an id or its beginning, a date
    #[arg(long, short = 'g', value_name = "SPEC", default_value = "latest")]
    pub generation: String,

    /// The file: an absolute path, or one below a saved root
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}

/// `kitbag find`
#[derive(Debug, Default, ClapArgs)]
pub struct Find {
    /// Names to look for, such as '*.odt'; a pattern with a slash is matched against whole paths, '**' against any directories
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,

    /// Match names in any case
    #[arg(long, short = 'i')]
    pub ignore_case: bool,

    /// Look only in these generations; may be repeated [default: all of the client's]
    #[arg(long = "generation", short = 'g', value_name = "SPEC")]
    pub generations: Vec<String>,

    /// Look only at and below this path; may be repeated
    #[arg(long = "path", short = 'p', value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Only files of at least this size, such as 10M
    #[arg(long, value_name = "SIZE")]
    pub min_size: Option<String>,

    /// Only files of at most this size
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,

    /// Only what was changed then or later: a date, or a time and how long ago it is, such as 2026-11-30 or 7d
    #[arg(long, value_name = "WHEN")]
    pub newer: Option<String>,

    /// Only what was changed before that
    #[arg(long, value_name = "WHEN")]
    pub older: Option<String>,

    /// Only files of this kind; may be repeated
    #[arg(long = "type", value_name = "KIND")]
    pub kinds: Vec<FileKind>,
}

/// `kitbag diff`
#[derive(Debug, Default, ClapArgs)]
pub struct Diff {
    /// A generation: latest, latest~2, an id or its beginning, a date
    #[arg(value_name = "OLD")]
    pub old: String,

    /// Another one, or `live` for what is on the disk now
    #[arg(value_name = "NEW", default_value = "live")]
    pub new: String,

    /// Compare only these files and what is below them: absolute paths, or paths below a saved root
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Read live files, too, whose times say that they are unchanged
    #[arg(long)]
    pub reread: bool,
}

/// `kitbag export`
#[derive(Debug, Default, ClapArgs)]
pub struct Export {
    /// Which generation: latest, latest~2, an id or its beginning, a date
    #[arg(long, short = 'g', value_name = "SPEC", default_value = "latest")]
    pub generation: String,

    /// Export only these files and what is below them: absolute paths, or paths below a saved root
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// `kitbag mount`
#[derive(Debug, Default, ClapArgs)]
pub struct Mount {
    /// An empty directory
    #[arg(value_name = "DIR")]
    pub at: PathBuf,

    /// Show this generation alone, directly below DIR: latest, latest~2, an id or its beginning, a date
    #[arg(long, short = 'g', value_name = "SPEC")]
    pub generation: Option<String>,

    /// Show the generations of this client only
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,

    /// Let other users look, too; what was saved says who may read what
    #[arg(long)]
    pub allow_other: bool,

    /// Go to the background as soon as it is mounted
    #[arg(long)]
    pub daemon: bool,

    /// Keep so many bytes of contents in memory [default: 64M]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,

    /// Look for new generations when the list is so old [default: 1m]
    #[arg(long, value_name = "TIME")]
    pub refresh: Option<String>,
}

/// `--type`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileKind {
    /// Regular files
    File,
    /// Directories
    Directory,
    /// Symbolic links
    Symlink,
    /// Named pipes
    Fifo,
    /// Unix sockets
    Socket,
    /// Devices
    Device,
}
