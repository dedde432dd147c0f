//! Files that are open, and how what is published is closed for good.
//!
//! A handle outlives a rename: who has a file open for writing could change it after it was published, and the process that renames it is not the one that has it open,
//! since each channel of a connection is a process. Therefore a published file loses its owner's permission to write, and every WRITE
//! of an append-only session looks for that, with the file locked against the one who takes it away. When the renaming is answered, no byte of the
//! file can change any more.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::refusal::Refusal;
use super::spot::Spot;
use super::tree::Tree;
use crate::sftp::attrs::Attrs;
use crate::sftp::packet::flag;
use crate::sftp::reply::Code;

/// The permission that what is being written has, and what is published has not.
const OWNER_WRITES: u32 = 0o200;

/// Bits that a client may set: neither set-user-id and its kind, nor types.
const PERMISSIONS: u32 = 0o777;

/// What a new file or directory of a client may do at least: else nobody could go on with it.
const OWN_FILE: u32 = 0o600;
const OWN_DIRECTORY: u32 = 0o700;

/// A regular file that a client has open.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: OwnedFd,
    /// Whether it is looked before each WRITE if the file was published meanwhile.
    is_guarded: bool,
    writes: bool,
    appends: bool,
}

/// How a new file's mode comes about.
pub(super) fn file_mode(attrs: Attrs) -> Mode {
    Mode::from_raw_mode(attrs.permissions.unwrap_or(0o666) & PERMISSIONS | OWN_FILE)
}

/// A new directory's.
pub(super) fn directory_mode(attrs: Attrs) -> Mode {
    Mode::from_raw_mode(attrs.permissions.unwrap_or(0o777) & PERMISSIONS | OWN_DIRECTORY)
}

impl OpenFile {
    /// Opens a file with these flags of the protocol. `is_guarded`: it is written to only until it is published.
    pub(super) fn open(
        tree: &Tree,
        spot: &Spot,
        (flags, attrs): (u32, Attrs),
        is_guarded: bool,
    ) -> Result<Self, Refusal> {
        let has = |bit| flags & bit != 0;
        let writes = has(flag::WRITE | flag::APPEND | flag::CREATE | flag::TRUNCATE);
        // Locks over NFS are given to those who may read and write.
        let mut how = match (writes, has(flag::READ) || is_guarded) {
            (true, true) => OFlags::RDWR,
            (true, false) => OFlags::WRONLY,
            (false, _) => OFlags::RDONLY,
        };
        // Nothing is emptied by opening it: first it must turn out to be a file.
        how.set(OFlags::CREATE, has(flag::CREATE));
        how.set(OFlags::EXCL, has(flag::CREATE) && has(flag::EXCLUSIVE));
        let mode = if has(flag::CREATE) { file_mode(attrs) } else { Mode::empty() };
        if !has(flag::CREATE) {
            let stat = tree.stat(spot)?;
            if !is_file(&stat) {
                return Err(not_a_file());
            }
            if is_guarded && writes {
                may_still_change(&stat)?;
            }
        }
        let file = tree.open_at(spot, how, mode)?;
        let stat = rustix::fs::fstat(&file)?;
        if !is_file(&stat) {
            return Err(not_a_file());
        }
        let opened = Self { file, is_guarded: is_guarded && writes, writes, appends: has(flag::APPEND) };
        if opened.is_guarded {
            may_still_change(&stat)?;
        }
        if has(flag::TRUNCATE) {
            rustix::fs::ftruncate(&opened.file, 0)?;
        }
        Ok(opened)
    }

    /// Some bytes from `offset`, at most `len`.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Refusal> {
        let mut bytes = vec![0; len];
        let got = again(|| rustix::io::pread(&self.file, &mut bytes, offset))?;
        if got == 0 {
            return Err(Refusal::end());
        }
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Writes all of it.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Refusal> {
        if !self.writes {
            return Err(Refusal::denied("the file is not open for writing"));
        }
        let _lock = match self.is_guarded {
            true => {
                let lock = Lock::take(&self.file, FlockOperation::LockShared)?;
                may_still_change(&rustix::fs::fstat(&self.file)?)?;
                Some(lock)
            }
            false => None,
        };
        let mut offset = match self.appends {
            true => rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?,
            false => offset,
        };
        let mut rest = data;
        while !rest.is_empty() {
            let written = again(|| rustix::io::pwrite(&self.file, rest, offset))?;
            if written == 0 {
                return Err(Refusal::new(Code::Failure, "the file system takes no more"));
            }
            rest = rest.get(written..).unwrap_or_default();
            offset = offset.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<(), Refusal> {
        Ok(again(|| rustix::fs::fsync(&self.file))?)
    }

    pub(super) fn stat(&self) -> Result<Stat, Refusal> {
        Ok(rustix::fs::fstat(&self.file)?)
    }
}

/// Publishes a file that was unfinished: whoever has it open can change it no more when this returns.
pub(super) fn publish(tree: &Tree, from: &Spot, to: &Spot) -> Result<(), Refusal> {
    let stat = tree.stat(from)?;
    if !is_file(&stat) {
        return Err(not_a_file());
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Refusal::denied("the file belongs to another user"));
    }
    // Before, so that it is closed under whatever name a crash leaves it; and afterwards, because another file may have come under the old name in
    // between. The new name cannot change its file any more. What could not be renamed stays closed: it can be renamed again, or removed.
    let file = close_for_good(tree, from)?;
    tree.rename(from, to, false)?;
    let (closed, published) = (rustix::fs::fstat(&file)?, tree.stat(to)?);
    if (closed.st_dev, closed.st_ino) != (published.st_dev, published.st_ino) {
        close_for_good(tree, to)?;
    }
    Ok(())
}

/// Takes the permission to write from a file, and gives the file. What others were writing is written when this returns, and nothing after it.
fn close_for_good(tree: &Tree, spot: &Spot) -> Result<OwnedFd, Refusal> {
    let file = match tree.open_at(spot, OFlags::RDWR, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let file = tree.open_at(spot, OFlags::RDONLY, Mode::empty())?;
            // It is closed already, by somebody who had the lock. Over NFS that could not even be taken: it is given to those who may write.
            return match may_still_change(&rustix::fs::fstat(&file)?) {
                Ok(()) => Err(Errno::ACCESS.into()),
                Err(_) => Ok(file),
            };
        }
        opened => opened?,
    };
    let lock = Lock::take(&file, FlockOperation::LockExclusive)?;
    let mode = rustix::fs::fstat(&file)?.st_mode & 0o444;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    drop(lock);
    Ok(file)
}

/// Changes attributes: length, permissions and times, as far as they are named. Owners stay as they are.
pub(super) fn change(file: impl AsFd, attrs: Attrs) -> Result<(), Refusal> {
    let file = file.as_fd();
    if let Some(size) = attrs.size {
        rustix::fs::ftruncate(file, size)?;
    }
    if let Some(permissions) = attrs.permissions {
        rustix::fs::fchmod(file, Mode::from_raw_mode(permissions & PERMISSIONS))?;
    }
    if let Some(modified) = attrs.modified {
        let time = rustix::fs::Timespec { tv_sec: i64::from(modified), tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(file, &times)?;
    }
    Ok(())
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A lock on an open file, given back when it is dropped.
struct Lock<'a>(&'a OwnedFd);

impl<'a> Lock<'a> {
    fn take(file: &'a OwnedFd, how: FlockOperation) -> Result<Self, Refusal> {
        again(|| rustix::fs::flock(file, how))?;
        Ok(Self(file))
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Closing the file would do it, too.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

fn may_still_change(stat: &Stat) -> Result<(), Refusal> {
    match stat.st_mode & OWNER_WRITES {
        0 => Err(Refusal::denied("the file is published")),
        _ => Ok(()),
    }
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn not_a_file() -> Refusal {
    Refusal::denied("it is no regular file")
}

/// Does it again when a signal came in between.
fn again<T>(mut act: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match act() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}
