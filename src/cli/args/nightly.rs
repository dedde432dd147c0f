//! What makes a backup run by itself, and how to tell that it does.

use std::path::PathBuf;

use clap::Args as ClapArgs;

const AGE_HELP: &str = "\
For Nagios and its kin: one line on standard output, and the exit code says it: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (whatever went \
wrong, be it the command line). Checkpoints, and generations dated in the future, do not count; the latter, and what cannot be read, make a \
WARNING of an OK. Times are written as in 90m, 26h or 2d. The age is that of the beginning of the last backup.";

/// What `kitbag backup` does around the backup itself.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "Options for every night")]
pub struct Nightly {
    /// First run this command by sh; when it fails, nothing is backed up
    #[arg(long, value_name = "COMMAND")]
    pub before: Option<String>,

    /// When a backup was made, run this command by sh, with what --json would say on its standard input; when it fails, the run ends with 3
    #[arg(long, value_name = "COMMAND")]
    pub after: Option<String>,

    /// When the run failed, run this command by sh, with the reason as JSON on its standard input
    #[arg(long, value_name = "COMMAND")]
    pub on_failure: Option<String>,

    /// Kill a hook, and what it has started, after this time; what leaves its process group, as with setsid, lives on [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub hook_timeout: Option<String>,

    /// Do nothing while the machine runs on battery
    #[arg(long)]
    pub skip_on_battery: bool,

    /// Do nothing while NetworkManager calls the connection metered
    #[arg(long)]
    pub skip_on_metered: bool,

    /// When another run is making the same backup (roots, client, repository), wait for its end instead of leaving it to that one
    #[arg(long)]
    pub wait: bool,

    /// When the server cannot be reached at first, go on trying for --give-up-after, as is always done when the log goes to the journal
    #[arg(long)]
    pub wait_for_network: bool,

    /// Write what came of the run to this file, for node-exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
}

/// `kitbag last-backup-age`
#[derive(Debug, Default, ClapArgs)]
#[command(after_help = AGE_HELP)]
pub struct LastBackupAge {
    /// WARNING when the last backup is older than this, such as 26h
    #[arg(long, value_name = "AGE")]
    pub warn: String,

    /// CRITICAL when the last backup is older than this, such as 50h
    #[arg(long, value_name = "AGE")]
    pub critical: String,

    /// Ask for this client [default: --client-name]
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,

    /// Ask for all clients of the repository: the worst decides
    #[arg(long, conflicts_with = "client")]
    pub all_clients: bool,
}
