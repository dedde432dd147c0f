//! What went wrong, in the user's words, and the exit codes.
//!
//! Every layer below classifies its errors where they are born. Here, and only here, each kind becomes one
//! sentence that says what happened to what, a hint what to do about it, and an exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// How a run ends. The numbers are an interface: scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// Failed.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// Done, but some files could not be saved or restored.
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
}

impl Failure {
    /// A failure that ends with `exit`.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// A failure of the general kind.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// A command line that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
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
