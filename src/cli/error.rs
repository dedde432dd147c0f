//! What went wrong, in the user's words, and the exit codes.
//!
//! Every layer below classifies its errors where they are born. Here, and only here, each kind becomes one
//! sentence that says what happened to what, a hint what to do about it, and an exit code.

mod operations;

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::bag::reader::ReadError;
use crate::base::cancel::Cancel;
use crate::dir::reader::TreeError;
use crate::forget::ForgetError;
use crate::generation::baglist::BagListError;
use crate::generation::tags::BadTag;
use crate::generation::{CatalogError, SessionError, SpecError};
use crate::live::exclude::BadPattern;
use crate::repo::keyring::KeyError;
use crate::repo::{InitError, OpenError};
use crate::sftp::RequestError;
use crate::sftp::link::ConnectErrorKind;
use crate::sftp::transport::ssh_config::ConfigError;
use crate::store::{ErrorKind, StoreError};

/// How a run ends. The numbers are an interface: scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// Failed.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// Done, but some files could not be saved or restored, or are not what they were.
    Incomplete,
    /// The repository is damaged.
    Damaged,
    /// There is no repository.
    NoRepository,
    /// Wrong passphrase.
    WrongPassphrase,
    /// Interrupted.
    Interrupted,
}

impl Exit {
    /// The number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Incomplete => 3,
            Self::Damaged => 4,
            Self::NoRepository => 10,
            Self::WrongPassphrase => 12,
            Self::Interrupted => 130,
        }
    }

    /// What ends with this number; `None` for a number that stands for nothing.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        let all = [
            Self::Done,
            Self::Failed,
            Self::Usage,
            Self::Incomplete,
            Self::Damaged,
            Self::NoRepository,
            Self::WrongPassphrase,
            Self::Interrupted,
        ];
        all.into_iter().find(|exit| exit.code() == code)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command ended before it was done.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// How the run ends.
    pub exit: Exit,
    /// What happened to what; empty when nothing shall be said.
    message: String,
    /// What to do.
    hint: Option<String>,
    /// The option whose value brought it about.
    option: Option<String>,
}

impl Failure {
    /// A failure that ends with `exit`.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, option: None }
    }

    /// A failure of the general kind.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// A command line that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The same failure, if nobody asked to stop before; else it is most likely what became of that.
    #[must_use]
    pub fn after(self, cancel: &Cancel) -> Self {
        match cancel.is_cancelled() && self.exit == Exit::Failed {
            true if self.is_quiet() => Self::interrupted(),
            true => Self::new(Exit::Interrupted, format!("interrupted ({})", self.message)),
            false => self,
        }
    }

    /// The same failure of `option`, which came when the backup was made: that is what counts.
    #[must_use]
    pub fn but_backed_up(mut self, option: &str) -> Self {
        let happened = if self.exit == Exit::Interrupted { "was interrupted" } else { "failed" };
        let why = match self.exit {
            Exit::Interrupted => String::new(),
            _ => format!(": {}", self.message),
        };
        self.message = format!("the backup was made, but {option} {happened}{why}");
        if self.exit == Exit::Failed {
            self.exit = Exit::Incomplete;
        }
        self
    }

    /// Somebody asked to stop.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted")
    }

    /// Standard output could not be written. Says nothing when its reader has gone away.
    #[must_use]
    pub fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(Exit::Failed, ""),
            _ => Self::failed(format!("cannot write to standard output: {error}")),
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says which option's value brought it about, so that it can be told where that was written. Dashes before the name are taken off.
    #[must_use]
    pub fn about(mut self, option: &str) -> Self {
        self.option = Some(option.trim_start_matches('-').to_owned());
        self
    }

    /// The option whose value brought it about.
    #[must_use]
    pub fn option(&self) -> Option<&str> {
        self.option.as_deref()
    }

    /// Says where that value was written.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let said = || error.to_string();
        match error.kind {
            ErrorKind::Cancelled => Self::interrupted(),
            ErrorKind::NoSpace => {
                Self::failed(said()).hint("the disk or the quota there is full: make room and run this again")
            }
            ErrorKind::Denied => Self::failed(said()).hint("check who may read and write there"),
            ErrorKind::AppendOnly => Self::failed(said()).hint(
                "the repository is append-only for this key: do this with the maintenance key, which may also change and remove",
            ),
            ErrorKind::ReadOnly => Self::failed(said()).hint("this key may only read the repository"),
            ErrorKind::Unreachable => Self::failed(said()).hint("run this again when it can be reached"),
            ErrorKind::NotFound | ErrorKind::Truncated | ErrorKind::TooLong => damage(&error),
            ErrorKind::Protocol if lacks_sftp(&error) => Self::failed(said()).hint(
                "if a forced command stands before this key in the server's authorized_keys, look there, and whether the server has that program",
            ),
            ErrorKind::Refused | ErrorKind::Exists | ErrorKind::Protocol | ErrorKind::Other => {
                Self::failed(said())
            }
        }
    }
}

/// Whether the server let the user in, and started nothing that speaks SFTP.
fn lacks_sftp(error: &StoreError) -> bool {
    let cause = error.source.as_ref().and_then(|source| source.downcast_ref::<RequestError>());
    matches!(cause, Some(RequestError::Down(down)) if down.kind == ConnectErrorKind::NoSftp)
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let said = error.to_string();
        match error {
            OpenError::NoRepository { .. } => {
                Self::new(Exit::NoRepository, said).hint("check the location, or make one with `kitbag init`")
            }
            OpenError::Replaced { .. } => Self::failed(said).hint("run this again"),
            OpenError::NewerFormat { .. } | OpenError::UnknownFeature { .. } => Self::failed(said),
            OpenError::DamagedConfig { .. } | OpenError::MissingConfig { .. } => {
                Self::new(Exit::Damaged, said).hint("put the file back from a copy of the repository")
            }
            OpenError::DamagedKeySlot { source, .. } if source.is_from_later() => {
                Self::failed(format!("{said}: {source}"))
            }
            OpenError::DamagedKeySlot { source, .. } => Self::new(Exit::Damaged, format!("{said}: {source}"))
                .hint("put the file back from a copy of the repository"),
            OpenError::NoKeySlot { .. } => Self::new(Exit::Damaged, said),
            OpenError::WrongPassphrase { .. } => Self::new(Exit::WrongPassphrase, said)
                .hint("check it, and by `kitbag key list` whether its key slot is still there"),
            OpenError::WrongKeyFile { .. } => Self::new(Exit::WrongPassphrase, said)
                .hint("`kitbag key list` lists the key slots that are there"),
            OpenError::KeyFileNeeded { .. } => Self::failed(said).hint("give it with --key-file"),
            OpenError::PassphraseNeeded { .. } => Self::failed(said).hint(
                "give it with --passphrase-file, --passphrase-fd, --passphrase-command or KITBAG_PASSPHRASE",
            ),
            OpenError::Store(error) => error.into(),
        }
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let said = error.to_string();
        match error {
            KeyError::None(_) => Self::failed(said).hint("`kitbag key list` lists them"),
            KeyError::Ambiguous(..) => Self::usage(said).hint("give more of the id"),
            KeyError::Last(_) => {
                Self::failed(said).hint("add another first, or say --even-last if that is meant")
            }
            KeyError::Contested => {
                Self::failed(said).hint("look at `kitbag key list`, and try again in ten minutes")
            }
            KeyError::Slot(_) => Self::failed(said),
            KeyError::Store(error) => error.into(),
        }
    }
}

impl From<InitError> for Failure {
    fn from(error: InitError) -> Self {
        match error {
            InitError::Exists { .. } => {
                Self::failed(error.to_string()).hint("use it, or choose another directory")
            }
            InitError::Store(error) if error.kind == ErrorKind::NotFound => {
                Self::failed(error.to_string()).hint("check the path")
            }
            InitError::Store(error) => error.into(),
            InitError::NotEmpty { .. } | InitError::Limits(_) | InitError::KeySlot(_) => {
                Self::failed(error.to_string())
            }
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        match error {
            SpecError::Form(_) | SpecError::Ambiguous(..) => Self::usage(error.to_string()),
            SpecError::None(_) => Self::failed(error.to_string()),
        }
    }
}

impl From<ForgetError> for Failure {
    fn from(error: ForgetError) -> Self {
        let said = error.to_string();
        match error {
            ForgetError::Spec(error) => error.into(),
            ForgetError::Pinned { .. } => Self::failed(said).hint("`kitbag tag remove` takes a tag off"),
            ForgetError::Empty { .. } => Self::failed(said).hint("say --allow-empty if that is meant"),
        }
    }
}

impl From<BadTag> for Failure {
    fn from(error: BadTag) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<BadPattern> for Failure {
    fn from(error: BadPattern) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Store(error) => error.into(),
            damaged => {
                Self::new(Exit::Damaged, damaged.to_string()).hint("`kitbag fsck` says what else is damaged")
            }
        }
    }
}

impl From<TreeError> for Failure {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Read(error) => error.into(),
            damaged => damage(&damaged),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => error.into(),
            damaged => damage(&damaged),
        }
    }
}

impl From<BagListError> for Failure {
    fn from(error: BagListError) -> Self {
        match error {
            BagListError::Read(error) => error.into(),
            damaged => damage(&damaged),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Store(error) => error.into(),
            lost => Self::failed(lost.to_string()).hint("run this again"),
        }
    }
}

fn damage(error: &dyn fmt::Display) -> Failure {
    Failure::new(Exit::Damaged, error.to_string()).hint("`kitbag fsck` says what else is damaged")
}
