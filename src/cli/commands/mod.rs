//! One command a file: settings in, one operation, and words or JSON out.

pub mod backup;
pub mod cache;
pub mod cat;
pub mod clients;
pub mod config;
pub mod diff;
pub mod export;
pub mod find;
pub mod forget;
pub mod fsck;
pub mod gc;
pub mod generations;
pub mod init;
pub mod key;
pub mod last_backup_age;
pub mod ls;
pub mod man;
pub mod mount;
pub mod nightly;
pub mod remove_client;
pub mod restore;
pub mod serve;
pub mod sessions;
pub mod tag;
pub mod verify;

use super::error::Exit;
use super::progress::Progress;

/// How a run ends that came to its end with `exit`, after something else had ended with `earlier`: damage is not forgotten.
#[must_use]
pub fn worse(earlier: Exit, exit: Exit) -> Exit {
    if earlier == Exit::Damaged { earlier } else { exit }
}

/// How a run ends that came to its end: what was heard on the way decides.
#[must_use]
pub fn outcome(progress: &Progress) -> Exit {
    match (progress.damage(), progress.lost()) {
        (1.., _) => Exit::Damaged,
        (0, 1..) => Exit::Incomplete,
        (0, 0) => Exit::Done,
    }
}
