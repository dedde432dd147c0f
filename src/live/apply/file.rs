//! A regular file on its way.

use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ftruncate, openat};
use rustix::io::{Errno, pwrite, retry_on_intr};

use super::attributes::Inode;
use super::{Target, leftover};
use crate::entry::Metadata;
use crate::live::{DirFd, LiveDir, LiveError, RawXattr, Result, flags};

/// A regular file that is being written, under a temporary name. Given up (and removed) when dropped before
/// [`Target::finish_file`].
#[derive(Debug)]
pub struct NewFile {
    dir: Arc<LiveDir>,
    dir_fd: DirFd,
    temporary: Vec<u8>,
    name: Box<[u8]>,
    fd: OwnedFd,
    in_place: bool,
}

impl NewFile {
    /// Writes all of `bytes` at `offset`. May be called from several threads, in any order. Places that are never
    /// written stay holes.
    ///
    /// # Errors
    /// What the system said; [`LiveError::is_no_space`] tells a full disk.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut rest, mut at) = (bytes, offset);
        while !rest.is_empty() {
            let written = match retry_on_intr(|| pwrite(&self.fd, rest, at)) {
                Ok(0) => Err(Errno::IO),
                result => result,
            };
            let written = written.map_err(|errno| LiveError::new("write to it", errno))?;
            rest = rest.get(written..).unwrap_or_default();
            at = at.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// The path that it will have, for messages.
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        self.dir.path_of(&self.name)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.in_place {
            Target::discard(&self.dir_fd, &self.temporary);
        }
    }
}

impl Target {
    /// Begins the file `name` in `dir`, as long as `wanted` says and one hole at first. What stands under that name
    /// stays until [`finish_file`](Self::finish_file), and can be read meanwhile.
    ///
    /// # Errors
    /// What the system said.
    pub fn begin_file(&self, dir: &Arc<LiveDir>, name: &[u8], wanted: &Metadata) -> Result<NewFile> {
        let dir_fd = dir.fd()?;
        let (temporary, fd) = self.make_locked(&dir_fd)?;
        let file =
            NewFile { dir: Arc::clone(dir), dir_fd, temporary, name: name.into(), fd, in_place: false };
        if wanted.flags & flags::BEFORE_DATA != 0 {
            let mut refused = |what, errno| self.refused(&file.path(), what, errno);
            self.apply_flags(&file.fd, wanted.flags, flags::BEFORE_DATA, &mut refused);
        }
        if wanted.size > 0 {
            ftruncate(&file.fd, wanted.size)
                .map_err(|errno| LiveError::new("make the file as long as it was", errno))?;
        }
        Ok(file)
    }

    /// An empty file under a temporary name, locked for as long as it is open.
    fn make_locked(&self, dir: &DirFd) -> Result<(Vec<u8>, OwnedFd)> {
        loop {
            let temporary = self.temporary_name();
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(dir, &temporary, flags, Mode::from_raw_mode(0o600))
                .map_err(|errno| LiveError::new("make the file", errno))?;
            if leftover::is_ours(&file) {
                return Ok((temporary, file));
            }
        }
    }

    /// Gives the file its metadata and puts it in its place. What the system refuses to set goes to the monitor.
    ///
    /// # Errors
    /// What the system said; nothing has changed then under the file's name.
    pub fn finish_file(&self, mut file: NewFile, wanted: &Metadata, xattrs: &[RawXattr]) -> Result<()> {
        let path = || file.dir.path_of(&file.name);
        let mut refused = |what, errno| self.refused(&path(), what, errno);
        self.apply(&Inode::open(&file.fd), wanted, xattrs, &mut refused)?;
        self.put_in_place(&file.dir, &file.dir_fd, &file.temporary, &file.name)?;
        self.apply_flags(&file.fd, wanted.flags, flags::SETTABLE & !flags::BEFORE_DATA, &mut refused);
        file.in_place = true;
        Ok(())
    }
}
