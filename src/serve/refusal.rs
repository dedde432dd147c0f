//! Why a request is not carried out, as a status.

use rustix::io::Errno;

use crate::sftp::reply::{Code, Reply, Status};

/// A request that is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    code: Code,
    message: String,
}

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Not permitted.
    pub(super) fn denied(message: &str) -> Self {
        Self::new(Code::PermissionDenied, message)
    }

    /// A handle that is none.
    pub(super) fn bad_handle() -> Self {
        Self::new(Code::Failure, "there is no such handle")
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
        Self::new(code, std::io::Error::from(error).to_string())
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Status(Status { code: refusal.code, message: refusal.message })
    }
}
