//! What went wrong in an operation, as a failure of the command that asked for it.

use std::io;

use rustix::io::Errno;

use super::{Exit, Failure};
use crate::backup::BackupError;
use crate::base::text::escape;
use crate::cli::human;
use crate::condemned::CondemnedError;
use crate::fsck::FsckError;
use crate::gc::GcError;
use crate::live::LiveError;
use crate::look::ExportError;
use crate::look::find::BadGlob;
use crate::look::live::Stop;
use crate::mount::{MountError, PlaceError};
use crate::restore::{CatError, RestoreError};
use crate::verify::VerifyError;

fn is_no_directory(error: &LiveError) -> bool {
    matches!(error, LiveError::Replaced) || error.errno().is_some_and(|errno| errno == Errno::EXIST)
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        let said = error.to_string();
        match error {
            RestoreError::Store(error) => error.into(),
            RestoreError::Interrupted => Self::new(Exit::Interrupted, said),
            RestoreError::Target { to, source } if is_no_directory(&source) => {
                let to = escape(to.as_os_str().as_encoded_bytes());
                Self::failed(format!("cannot restore into {to}: it is not a directory"))
                    .hint("--to names a directory, which is made where there is none")
            }
            RestoreError::Target { .. } | RestoreError::NoSpace { .. } => Self::failed(said),
            RestoreError::NotHeld { .. } => Self::failed(said).hint("`kitbag ls` lists what it holds"),
            RestoreError::Clash { .. } => Self::new(Exit::Usage, said),
        }
    }
}

impl From<CatError> for Failure {
    fn from(error: CatError) -> Self {
        let said = error.to_string();
        match error {
            CatError::NotFound(_) => Self::failed(said).hint("`kitbag ls` lists what it holds"),
            CatError::NotAFile(_) => Self::failed(said).hint("restore it instead"),
            CatError::Tree(error) => error.into(),
            CatError::Read(error) => error.into(),
            CatError::Write(error) => Self::output(&error),
            CatError::Interrupted => Self::interrupted(),
        }
    }
}

impl From<BadGlob> for Failure {
    fn from(error: BadGlob) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<Stop> for Failure {
    fn from(error: Stop) -> Self {
        match error {
            Stop::Tree(error) => error.into(),
            Stop::Interrupted => Self::interrupted(),
        }
    }
}

impl From<ExportError> for Failure {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(error) => error.into(),
            ExportError::Write(error) => Self::output(&error),
            ExportError::Interrupted => Self::interrupted(),
        }
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        let failure = Self::failed(error.to_string());
        match error {
            MountError::Place(PlaceError::Missing(at)) => {
                failure.hint(format!("make it with mkdir {}", escape(at.as_os_str().as_encoded_bytes())))
            }
            MountError::Place(PlaceError::Abandoned(at)) => failure.hint(format!(
                "take it away with fusermount3 -u {}",
                escape(at.as_os_str().as_encoded_bytes())
            )),
            MountError::Place(PlaceError::NotEmpty(_) | PlaceError::Within { .. }) => {
                failure.hint("name an empty directory elsewhere")
            }
            MountError::System { source, for_others, .. } => match source.kind() {
                io::ErrorKind::NotFound => failure.hint("it takes /dev/fuse and fusermount3: install fuse3"),
                io::ErrorKind::PermissionDenied if for_others => failure
                    .hint("unless root asks, --allow-other takes a line user_allow_other in /etc/fuse.conf"),
                io::ErrorKind::PermissionDenied => {
                    failure.hint("you need read and write access to /dev/fuse")
                }
                _ => failure,
            },
            MountError::Place(_) | MountError::Threads(_) => failure,
        }
    }
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Store(error) => error.into(),
            VerifyError::Tree(error) => error.into(),
            VerifyError::Interrupted => Self::interrupted(),
        }
    }
}

impl From<GcError> for Failure {
    fn from(error: GcError) -> Self {
        match error {
            GcError::Store(error) => error.into(),
            GcError::Open(error) => error.into(),
            GcError::Session(error) => error.into(),
            GcError::Condemned(CondemnedError::Store(error)) => error.into(),
            GcError::Interrupted => Self::interrupted(),
            damaged @ (GcError::Condemned(_) | GcError::Unreadable { .. }) => {
                Self::new(Exit::Damaged, damaged.to_string())
            }
        }
    }
}

impl From<FsckError> for Failure {
    fn from(error: FsckError) -> Self {
        match error {
            FsckError::Store(error) => error.into(),
            FsckError::Session(error) => error.into(),
            FsckError::Open(error) => error.into(),
            FsckError::Interrupted { damages: 0, .. } => Self::interrupted(),
            FsckError::Interrupted { damages, .. } => Self::new(
                Exit::Damaged,
                format!(
                    "interrupted, and damage had been found: {}",
                    human::counted(damages, "file", "files")
                ),
            ),
        }
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        let said = error.to_string();
        match error {
            BackupError::Interrupted => Self::interrupted(),
            BackupError::Store(error) => error.into(),
            BackupError::Session(error) => error.into(),
            BackupError::Tree(error) => error.into(),
            BackupError::Catalog(error) => error.into(),
            BackupError::BagList(error) => error.into(),
            BackupError::Open(error) => error.into(),
            BackupError::Condemned(CondemnedError::Store(error)) => error.into(),
            BackupError::Condemned(_) => Self::new(Exit::Damaged, said),
            BackupError::NoRoots
            | BackupError::Index(_)
            | BackupError::Table(_)
            | BackupError::Overtaken
            | BackupError::Stopped => Self::failed(said),
        }
    }
}
