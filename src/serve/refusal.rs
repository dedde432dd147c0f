//! Why a request is not carried out, as a status.

use rustix::io::Errno;

use crate::sftp::reply::{Code, Reply, Status};

/// A request that is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    code: Code,
    message: String,
    /// Whether the system does not permit it, rather than the session.
    is_of_system: bool,
}

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_of_system: false }
    }

    /// Not permitted.
    pub(super) fn denied(message: &str) -> Self {
        Self::new(Code::PermissionDenied, message)
    }

    /// A handle that is none.
    pub(super) fn bad_handle() -> Self {
        Self::new(Code::Failure, "there is no such handle")
    }

    /// As it is told where the session's own refusals have a meaning of their own ("this key may only add"), which nobody shall read into a wrong
    /// owner or a file system that is mounted read-only: what the system does not permit is a failure like others then.
    pub(super) fn of_guarded(self) -> Self {
        match self.is_of_system {
            true => Self::new(Code::Failure, self.message),
            false => self,
        }
    }

    /// The end of a file or directory.
    pub(super) fn end() -> Self {
        Self::new(Code::Eof, "the end")
    }
}

impl From<Errno> for Refusal {
    /// As OpenSSH's server classifies them, which is what clients know; but what leads out of the directory, or through a symbolic
    /// link, is not permitted.
    fn from(error: Errno) -> Self {
        let code = match error {
            Errno::NOENT | Errno::NOTDIR | Errno::BADF => Code::NoSuchFile,
            Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::LOOP | Errno::XDEV => Code::PermissionDenied,
            Errno::NAMETOOLONG | Errno::INVAL => Code::BadMessage,
            Errno::NOSYS => Code::Unsupported,
            _ => Code::Failure,
        };
        let is_of_system = matches!(error, Errno::PERM | Errno::ACCESS | Errno::ROFS);
        Self { is_of_system, ..Self::new(code, std::io::Error::from(error).to_string()) }
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Status(Status { code: refusal.code, message: refusal.message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_does_not_permit_is_no_matter_of_the_key() {
        for error in [Errno::PERM, Errno::ACCESS, Errno::ROFS] {
            let refusal = Refusal::from(error);
            assert_eq!(refusal.code, Code::PermissionDenied);
            let told = refusal.clone().of_guarded();
            assert_eq!((told.code, &told.message), (Code::Failure, &refusal.message));
        }
        for refusal in [Refusal::denied("only add"), Errno::LOOP.into(), Errno::NOENT.into()] {
            assert_eq!(refusal.clone().of_guarded(), refusal);
        }
    }
}
