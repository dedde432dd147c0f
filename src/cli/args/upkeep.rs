//! Commands that keep a repository in order.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

const FORGET_HELP: &str = "\
A policy is a list such as 72h,7d,5w,12m,3y: the newest generation is kept of each of the last 72 hours, 7 days, 5 weeks, 12 months and 3 years \
that have one; a bare number keeps the newest so many. It is applied to each set of roots by itself. Checkpoints, and generations dated in the \
future, are not counted; what has a tag is kept.

What was forgotten takes space until `kitbag gc` gives it back.";

/// `kitbag forget`
#[derive(Debug, Default, ClapArgs)]
#[command(after_help = FORGET_HELP)]
pub struct Forget {
    /// Forget these: latest, latest~2, an id or its beginning, a date
    #[arg(value_name = "SPEC", required_unless_present = "keep", conflicts_with = "keep")]
    pub generations: Vec<String>,

    /// Forget all that this does not keep, such as 72h,7d,5w,12m,3y
    #[arg(long, value_name = "POLICY")]
    pub keep: Option<String>,

    /// Apply the policy to all clients, each by itself
    #[arg(long, requires = "keep", conflicts_with = "generations")]
    pub all_clients: bool,

    /// Forget even the last generation of a set of roots
    #[arg(long, conflicts_with = "keep")]
    pub allow_empty: bool,

    /// Forget nothing: say what becomes of each generation, and why
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}

/// `kitbag tag`
#[derive(Debug, Subcommand)]
pub enum Tag {
    /// Add tags to a generation
    Add {
        /// Which: latest, latest~2, an id or its beginning, a date
        #[arg(value_name = "SPEC")]
        generation: String,
        /// The tags
        #[arg(value_name = "NAME", required = true)]
        tags: Vec<String>,
    },
    /// Remove tags from a generation
    Remove {
        /// Which: latest, latest~2, an id or its beginning, a date
        #[arg(value_name = "SPEC")]
        generation: String,
        /// The tags
        #[arg(value_name = "NAME", required = true)]
        tags: Vec<String>,
    },
    /// List the generations that have tags
    List,
}

const KEY_EXPORT_HELP: &str = "\
A new key is made, as if by `kitbag key add --new-key-file`, and written to standard output with what a person needs to know who finds it years later. It \
is kept nowhere else: print it, and lock it away. Its five lines, typed into a file, are a key file for --key-file; each line has a checksum, so that a mistake is found where it was \
made. `kitbag key remove` takes it away again.";

/// `kitbag key`
#[derive(Debug, Subcommand)]
pub enum Key {
    /// List the key slots
    List,
    /// Add a passphrase or a key file; the others go on to open the repository
    Add(NewKey),
    /// Take a passphrase or key file away: it opens nothing any more
    Remove {
        /// The slot's id, or its beginning
        #[arg(value_name = "ID")]
        slot: String,
        /// Even if no other can be used: nothing in the repository can ever be read again then
        #[arg(long)]
        even_last: bool,
    },
    /// Put a new passphrase or key file in the place of the one given
    Change(NewKey),
    /// Add a key, and write it for printing
    Export(ExportKey),
    /// Add a passphrase, opening the repository by a printed key or a key file
    Import(ImportKey),
}

/// A passphrase or key file to be added.
#[derive(Debug, Default, ClapArgs)]
pub struct NewKey {
    /// What to call it, for people
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// Read the new passphrase from this file (one newline at its end is taken off) instead of asking for it
    #[arg(long, value_name = "FILE", conflicts_with = "new_key_file")]
    pub new_passphrase_file: Option<PathBuf>,

    /// Make this file, which must not be there, with a new random key that --key-file takes, instead of a passphrase
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
}

/// `kitbag key export`
#[derive(Debug, Default, ClapArgs)]
#[command(after_help = KEY_EXPORT_HELP)]
pub struct ExportKey {
    /// What to call it, for people [default: paper]
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
}

/// `kitbag key import`
#[derive(Debug, Default, ClapArgs)]
pub struct ImportKey {
    /// Where the key is that was typed in from paper; - for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub key: PathBuf,

    /// What to call the new passphrase, for people
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// Read the new passphrase from this file (one newline at its end is taken off) instead of asking for it
    #[arg(long, value_name = "FILE")]
    pub new_passphrase_file: Option<PathBuf>,
}

/// `kitbag remove-client`
#[derive(Debug, Default, ClapArgs)]
pub struct RemoveClient {
    /// The client's name
    #[arg(value_name = "NAME")]
    pub client: String,

    /// Do not ask
    #[arg(long, short = 'y')]
    pub yes: bool,
}

/// `kitbag sessions`
#[derive(Debug, Subcommand)]
pub enum Sessions {
    /// Keep a session from publishing anything: for one whose machine will never come back
    Revoke {
        /// The session's id, or its beginning
        #[arg(value_name = "ID")]
        session: String,
    },
}

const VERIFY_HELP: &str = "\
Live files are read and hashed here, and compared with what the generation says of them. What was added since is no difference.

Exit codes: 0 nothing differs; 3 something differs, or could not be read here; 4 the repository is damaged; 1 the comparison came to no end.";

/// `kitbag verify`
#[derive(Debug, Default, ClapArgs)]
#[command(after_help = VERIFY_HELP)]
pub struct Verify {
    /// Which generation: latest, latest~2, an id or its beginning, a date
    #[arg(long, short = 'g', value_name = "SPEC", default_value = "latest")]
    pub generation: String,

    /// Compare only so many files, chosen at random
    #[arg(long, value_name = "N")]
    pub random: Option<usize>,

    /// Also fetch the contents from the repository and verify them
    #[arg(long)]
    pub read_data: bool,

    /// Compare only these files and what is below them: absolute paths, or paths below a saved root
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

const FSCK_HELP: &str = "\
What is damaged is told with the generations and paths that it hits. What was lost is stored again, where the live data still have it, by `kitbag backup --reread`: \
from the machine that has found the damage, or, after `kitbag fsck --read-data --repair`, from any; the generations that were hit stay as they are, can be restored but for what was lost, and are told until `kitbag forget` and `kitbag gc` have removed them. \
Damage in the contents of files shows only with --read-data.

Exit codes: 0 sound; 4 damage was found, be it repaired or not; 1 the check came to no end.";

/// `kitbag fsck`
#[derive(Debug, Default, ClapArgs)]
#[command(after_help = FSCK_HELP)]
pub struct Fsck {
    /// Also read all data: every block opens and every hash matches
    #[arg(long)]
    pub read_data: bool,

    /// With --read-data: read only this share of it, such as 5%, and go on from there the next time
    #[arg(long, value_name = "SHARE", requires = "read_data")]
    pub sample: Option<String>,

    /// With --read-data: begin nothing new after this time, such as 90s, 15m or 2h, and go on from there the next time
    #[arg(long, value_name = "TIME", requires = "read_data")]
    pub time_budget: Option<String>,

    /// Also make the index anew, from the bags that are sound
    #[arg(long)]
    pub rebuild_index: bool,

    /// Make the index anew, and take generations that cannot be read out of the way
    #[arg(long)]
    pub repair: bool,
}

/// `kitbag gc`
#[derive(Debug, Default, ClapArgs)]
#[command(
    long_about = "Give back the space of what no generation needs.\n\nOthers may go on backing up meanwhile. What they might still \
refer to is only marked, and removed by a later run."
)]
pub struct Gc {
    /// Change nothing: say what would be freed
    #[arg(long, short = 'n')]
    pub dry_run: bool,

    /// Copy at most so many bytes out of bags that are small or mostly dead, such as 500M; 0 to copy none [default: 1G]
    #[arg(long, value_name = "SIZE")]
    pub max_repack: Option<String>,
}
