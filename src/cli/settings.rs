//! What the options mean. Whether they were typed or written elsewhere was decided before, in [`super::config`].

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use super::args::{Command, Common, LogLevel, ProgressForm, Transport};
use super::environment::Environment;
use super::error::Failure;
use super::human;
use super::log::Level;
use super::passphrase::Source;
use crate::sftp::transport::ssh_config;
use crate::store::throttle::Rates;

/// The local cache's limit unless said otherwise.
const CACHE_LIMIT: u64 = 2 << 30;

/// How long a server may say nothing, unless said otherwise.
const LINK_TIMEOUT: Duration = Duration::from_secs(30);

/// The least of it: an answer may take a few seconds on a line that is full.
const LEAST_LINK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to try to connect again, unless said otherwise.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15 * 60);

/// How much is said, on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Problems only.
    Quiet,
    /// A live display, notes, a summary.
    Normal,
    /// Also what became of each file that is new or changed, and how the server is reached.
    Verbose,
    /// Also what happens inside.
    Debug,
    /// All of it.
    Trace,
}

/// What every command needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    repository: Option<OsString>,
    /// The client's name.
    pub client: String,
    /// How much is said.
    pub verbosity: Verbosity,
    /// Whether results are written as JSON.
    pub json: bool,
    /// How servers are reached.
    pub ssh: Ssh,
    /// How fast bytes may go to the repository and come from it.
    pub rates: Rates,
    /// Where the passphrase comes from.
    pub passphrase: Source,
    /// The local cache; `None` to use none.
    pub cache: Option<Cache>,
    /// Whether standard error is the systemd journal.
    pub in_journal: bool,
    /// How it is shown what is being done.
    pub progress: ProgressForm,
    /// The log file, and the level down to which it is written.
    pub log: Option<(PathBuf, Level)>,
    /// Whether another kitbag waits for this one to be ready in the background.
    pub in_background: bool,
    /// Where large temporary files go, the first that takes them.
    pub scratch: Vec<PathBuf>,
    /// Directories in which runs can find out about each other, the first that can be had; they depend on no option but the last resort.
    pub turns: Vec<PathBuf>,
}

/// How servers are reached.
#[derive(Debug, Clone, Default)]
pub struct Ssh {
    /// By the library or the system's program.
    pub transport: Transport,
    /// A file instead of `~/.ssh/config`.
    pub config: Option<PathBuf>,
    /// Options as in `ssh_config(5)`: keyword and value.
    pub options: Vec<(String, String)>,
    /// What the SSH settings may refer to.
    pub environment: ssh_config::Environment,
    /// How long a server that owes an answer may say nothing.
    pub link_timeout: Duration,
    /// How long to try to connect again.
    pub give_up_after: Duration,
    /// Whether to try so long for the first connection, too.
    pub wait_for_network: bool,
}

/// The local cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// The directory, one level above the repositories'.
    pub dir: PathBuf,
    /// Bytes that each repository's may take.
    pub limit: u64,
}

impl Settings {
    /// Decides.
    ///
    /// # Errors
    /// Usage: a value that cannot be meant.
    pub fn decide(args: Common, environment: Environment) -> Result<Self, Failure> {
        let in_journal = environment.in_journal();
        let turns = turns(&environment, args.cache_dir.as_ref());
        Ok(Self {
            turns,
            repository: args.repository,
            client: args.client_name.map_or_else(host_name, |name| valid_client(&name).map(|()| name))?,
            verbosity: verbosity(args.quiet, args.verbose),
            json: args.json,
            in_journal,
            progress: args.progress.unwrap_or_default(),
            log: args.log_file.map(|path| (path, log_level(args.log_level.unwrap_or_default()))),
            in_background: environment.in_background,
            // At most one of the options is there.
            passphrase: (args.passphrase_file.map(Source::File))
                .or(args.passphrase_fd.map(Source::Descriptor))
                .or(args.passphrase_command.map(Source::Command))
                .or(args.key_file.map(Source::KeyFile))
                .or(environment.passphrase.map(Source::Given))
                .unwrap_or(Source::Prompt),
            cache: match args.no_cache {
                true => None,
                false => cache(
                    args.cache_dir,
                    args.cache_size.as_deref(),
                    &environment.cache_home,
                    &environment.home,
                )?,
            },
            // Not /tmp, which often is memory.
            scratch: environment.temporary.into_iter().chain([PathBuf::from("/var/tmp")]).collect(),
            rates: Rates {
                up: args.limit_upload.map(|text| rate("limit-upload", &text)).transpose()?,
                down: args.limit_download.map(|text| rate("limit-download", &text)).transpose()?,
            },
            ssh: Ssh {
                link_timeout: args.link_timeout.map_or(Ok(LINK_TIMEOUT), |text| link_timeout(&text))?,
                give_up_after: args.give_up_after.map_or(Ok(GIVE_UP_AFTER), |text| give_up_after(&text))?,
                wait_for_network: false,
                transport: args.transport.unwrap_or_default(),
                config: args.ssh_config,
                options: args.ssh_options.iter().map(|text| ssh_option(text)).collect::<Result<_, _>>()?,
                environment: environment.ssh,
            },
        })
    }

    /// The same, as this command needs it: a backup runs hooks, which shall not inherit the passphrase, and may wait for the network.
    ///
    /// # Errors
    /// When the passphrase cannot be read from its descriptor.
    pub fn fit(mut self, command: &Command) -> Result<Self, Failure> {
        if let Command::Backup(backup) = command {
            self.passphrase = self.passphrase.taken_over()?;
            self.ssh.wait_for_network = backup.nightly.wait_for_network || self.in_journal;
        }
        Ok(self)
    }

    /// Where the repository is, as it was written.
    ///
    /// # Errors
    /// Usage: nobody said.
    pub fn repository(&self) -> Result<&OsStr, Failure> {
        self.repository.as_deref().ok_or_else(|| {
            Failure::usage("no repository was named").hint(
                "say --repository WHERE, set KITBAG_REPOSITORY, or write repository = \"WHERE\" into ~/.config/kitbag/config.toml",
            )
        })
    }
}

fn verbosity(quiet: bool, verbose: u8) -> Verbosity {
    match (quiet, verbose) {
        (true, _) => Verbosity::Quiet,
        (_, 0) => Verbosity::Normal,
        (_, 1) => Verbosity::Verbose,
        (_, 2) => Verbosity::Debug,
        _ => Verbosity::Trace,
    }
}

fn log_level(level: LogLevel) -> Level {
    match level {
        LogLevel::Error => Level::Error,
        LogLevel::Warn => Level::Warning,
        LogLevel::Info => Level::Info,
        LogLevel::Debug => Level::Debug,
        LogLevel::Trace => Level::Trace,
    }
}

/// The machine's name.
///
/// # Errors
/// Usage: it cannot serve as a client's name.
pub fn host_name() -> Result<String, Failure> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match valid_client(&name) {
        Ok(()) => Ok(name),
        Err(failure) => Err(failure.hint("say --client-name NAME, since the host has no fitting one")),
    }
}

/// Whether this can be a client's name.
///
/// # Errors
/// Usage: it cannot.
pub fn valid_client(name: &str) -> Result<(), Failure> {
    if name.trim().is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
        return Err(Failure::usage(format!("{name:?} cannot be a client's name"))
            .about("client-name")
            .hint("it needs 1 to 255 bytes without control characters"));
    }
    Ok(())
}

/// Without a home directory there is no place for a cache, and it is never needed.
fn cache(
    dir: Option<PathBuf>,
    size: Option<&str>,
    cache_home: &Option<PathBuf>,
    home: &Option<PathBuf>,
) -> Result<Option<Cache>, Failure> {
    let limit = size.map_or(Ok(CACHE_LIMIT), cache_size)?;
    let standard = || {
        let home = cache_home.clone().or_else(|| home.as_ref().map(|home| home.join(".cache")))?;
        Some(home.join("kitbag"))
    };
    Ok(dir.or_else(standard).map(|dir| Cache { dir, limit }))
}

/// The ordinary cache directory, also of runs that use another one or none; where that cannot be had, others of this user.
fn turns(environment: &Environment, cache_dir: Option<&PathBuf>) -> Vec<PathBuf> {
    let home = environment.home.as_ref().map(|home| home.join(".cache"));
    let standard = environment.cache_home.clone().or(home);
    let kitbag = |dir: PathBuf| dir.join("kitbag");
    let runtime = environment.runtime_dir.clone();
    standard.map(kitbag).into_iter().chain(runtime.map(kitbag)).chain(cache_dir.cloned()).collect()
}

/// `--cache-size`, in bytes.
///
/// # Errors
/// Usage: it is no size.
pub fn cache_size(text: &str) -> Result<u64, Failure> {
    human::parse_bytes(text).ok_or_else(|| {
        Failure::usage(format!("--cache-size {text:?} is no size"))
            .about("cache-size")
            .hint("write it as in 500M or 10G")
    })
}

/// A rate in bytes a second.
///
/// # Errors
/// Usage: it is none.
pub fn rate(option: &str, text: &str) -> Result<u64, Failure> {
    human::parse_bytes(text).filter(|rate| *rate > 0).ok_or_else(|| {
        Failure::usage(format!("--{option} {text:?} is no rate"))
            .about(option)
            .hint("write it in bytes a second, as in 500K or 2M")
    })
}

/// `--link-timeout`
///
/// # Errors
/// Usage: it is no time, or too short.
pub fn link_timeout(text: &str) -> Result<Duration, Failure> {
    time("link-timeout", text, LEAST_LINK_TIMEOUT)
}

/// `--give-up-after`
///
/// # Errors
/// Usage: it is no time.
pub fn give_up_after(text: &str) -> Result<Duration, Failure> {
    time("give-up-after", text, Duration::ZERO)
}

fn time(option: &str, text: &str, least: Duration) -> Result<Duration, Failure> {
    human::parse_time(text).filter(|time| *time >= least).ok_or_else(|| {
        Failure::usage(format!("--{option} {text:?} is no time that makes sense"))
            .about(option)
            .hint("write it as in 90s, 15m or 8h")
    })
}

/// `KEY=VALUE`, or `KEY VALUE` as in the file.
///
/// # Errors
/// Usage: it is neither.
pub fn ssh_option(text: &str) -> Result<(String, String), Failure> {
    let split = text.split_once('=').or_else(|| text.split_once(char::is_whitespace));
    match split.map(|(key, value)| (key.trim(), value.trim())) {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format!("--ssh-option {text:?} is not KEY=VALUE"))
            .about("ssh-option")
            .hint("write it as in --ssh-option Port=2222")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::Passphrase;
    use crate::cli::error::Exit;

    fn with_home() -> Environment {
        Environment { home: Some("/home/ada".into()), ..Environment::default() }
    }

    #[test]
    fn a_repository_must_be_named() {
        let settings = Settings::decide(Common::default(), with_home()).expect("decided");
        assert_eq!(settings.repository().expect_err("unnamed").exit, Exit::Usage);
    }

    #[test]
    fn a_passphrase_option_wins_over_the_variable() {
        let environment = Environment { passphrase: Some(Passphrase::new(b"x".to_vec())), ..with_home() };
        let args = Common { passphrase_file: Some("f".into()), ..Common::default() };
        assert!(matches!(
            Settings::decide(args, environment.clone()).expect("ok").passphrase,
            Source::File(_)
        ));
        let decided = Settings::decide(Common::default(), environment).expect("ok");
        assert!(matches!(decided.passphrase, Source::Given(_)));
        let decided = Settings::decide(Common::default(), with_home()).expect("ok");
        assert!(matches!(decided.passphrase, Source::Prompt));
    }

    #[test]
    fn where_the_cache_lies() {
        let dir = |args: Common, environment: Environment| {
            Settings::decide(args, environment).expect("decided").cache.map(|cache| cache.dir)
        };
        assert_eq!(dir(Common::default(), with_home()), Some("/home/ada/.cache/kitbag".into()));
        let environment = Environment { cache_home: Some("/c".into()), ..with_home() };
        assert_eq!(dir(Common::default(), environment), Some("/c/kitbag".into()));
        assert_eq!(dir(Common::default(), Environment::default()), None);
        assert_eq!(dir(Common { no_cache: true, ..Common::default() }, with_home()), None);
        let decided = Settings::decide(Common::default(), with_home()).expect("decided");
        assert_eq!(decided.cache.map(|cache| cache.limit), Some(2 << 30));
    }

    #[test]
    fn what_cannot_be_meant_is_usage() {
        for args in [
            Common { cache_size: Some("much".to_owned()), ..Common::default() },
            Common { client_name: Some("a\nb".to_owned()), ..Common::default() },
            Common { link_timeout: Some("0s".to_owned()), ..Common::default() },
            Common { give_up_after: Some("soon".to_owned()), ..Common::default() },
            Common { limit_upload: Some("0".to_owned()), ..Common::default() },
            Common { limit_download: Some("fast".to_owned()), ..Common::default() },
            Common { client_name: Some(String::new()), ..Common::default() },
            Common { ssh_options: vec!["Port".to_owned()], ..Common::default() },
        ] {
            let failure = Settings::decide(args, with_home()).expect_err("refused");
            assert_eq!(failure.exit, Exit::Usage, "{failure}");
        }
    }

    #[test]
    fn how_long_and_how_fast() {
        let settings = Settings::decide(Common::default(), with_home()).expect("decided");
        assert_eq!(settings.rates, Rates::default());
        assert_eq!(settings.ssh.link_timeout, LINK_TIMEOUT);
        let args = Common {
            link_timeout: Some("5".to_owned()),
            give_up_after: Some("8h".to_owned()),
            limit_upload: Some("500K".to_owned()),
            ..Common::default()
        };
        let settings = Settings::decide(args, with_home()).expect("decided");
        assert_eq!(settings.rates, Rates { up: Some(500 << 10), down: None });
        assert_eq!(settings.ssh.link_timeout, Duration::from_secs(5));
        assert_eq!(settings.ssh.give_up_after, Duration::from_secs(8 * 3600));
    }

    #[test]
    fn ssh_options_in_both_forms() {
        for text in ["Port=2222", "Port 2222", " Port = 2222 "] {
            assert_eq!(ssh_option(text), Ok(("Port".to_owned(), "2222".to_owned())));
        }
    }
}
