//! The directory that is served, and what lies below it.
//!
//! No symbolic link is followed, wherever it leads: the kernel refuses (`openat2`), or, where it is too old for that, each directory on the
//! way is opened by itself. So a path means one place only, and none means one outside.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatVfs};
use rustix::io::Errno;

use super::spot::Spot;

type Result<T> = std::result::Result<T, Errno>;

/// See the module.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    /// Whether the kernel resolves whole paths below a directory (5.6, and no older container in between).
    resolves: Cell<bool>,
}

impl Tree {
    /// The directory itself may be reached through symbolic links: its owner names it.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let options = i32::try_from(flags.bits()).map_err(io::Error::other)?;
        let root = std::fs::OpenOptions::new().read(true).custom_flags(options).open(root)?.into();
        let tree = Self { root, resolves: Cell::new(true) };
        let probe = tree.resolve(b".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        tree.resolves.set(probe.is_ok());
        Ok(tree)
    }

    /// Does without the kernel's help, as old ones make necessary.
    #[cfg(test)]
    pub(super) fn walk_by_hand(&self) {
        self.resolves.set(false);
    }

    fn resolve(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, beneath)
    }

    fn directory(&self, names: &[Vec<u8>]) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        if names.is_empty() {
            return rustix::fs::openat(&self.root, ".", flags | OFlags::CLOEXEC, Mode::empty());
        }
        if self.resolves.get() {
            return self.resolve(&names.join(&b'/'), flags, Mode::empty());
        }
        let mut at = self.directory(&[])?;
        for name in names {
            at = open_at(&at, name, flags, Mode::empty())?;
        }
        Ok(at)
    }

    /// The directory that something lies in, and its name there; `INVAL` for the top, which lies in none.
    fn place<'a>(&self, spot: &'a Spot) -> Result<(OwnedFd, &'a [u8])> {
        let (above, name) = spot.split().ok_or(Errno::INVAL)?;
        Ok((self.directory(above)?, name))
    }

    /// Opens a file or directory. Nothing waits: what is no regular file may be told afterwards.
    pub(super) fn open_at(&self, spot: &Spot, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        match spot.split() {
            None => rustix::fs::openat(&self.root, ".", flags | OFlags::CLOEXEC, mode),
            Some((above, name)) => open_at(&self.directory(above)?, name, flags, mode),
        }
    }

    /// What the name itself is.
    pub(super) fn stat(&self, spot: &Spot) -> Result<Stat> {
        match spot.split() {
            None => rustix::fs::fstat(&self.root),
            Some((above, name)) => {
                rustix::fs::statat(self.directory(above)?, name, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    pub(super) fn make_dir(&self, spot: &Spot, mode: Mode) -> Result<()> {
        if spot.split().is_none() {
            return Err(Errno::EXIST);
        }
        let (at, name) = self.place(spot)?;
        rustix::fs::mkdirat(at, name, mode)
    }

    /// Removes a file, or a directory if that is what is wanted.
    pub(super) fn remove(&self, spot: &Spot, what: AtFlags) -> Result<()> {
        let (at, name) = self.place(spot)?;
        rustix::fs::unlinkat(at, name, what)
    }

    /// Renames, overwriting or not.
    pub(super) fn rename(&self, from: &Spot, to: &Spot, overwrites: bool) -> Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.place(from)?, self.place(to)?);
        if overwrites {
            return rustix::fs::renameat(from_dir, from, to_dir, to);
        }
        match rustix::fs::renameat_with(&from_dir, from, &to_dir, to, RenameFlags::NOREPLACE) {
            // Some file systems cannot do that: then a second name is made, which never overwrites, and the first one removed. If that fails,
            // the file has both: it is published all the same. A directory has one name only.
            Err(error @ (Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)) => {
                let stat = rustix::fs::statat(&from_dir, from, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return Err(error);
                }
                rustix::fs::linkat(&from_dir, from, &to_dir, to, AtFlags::empty())?;
                let _ = rustix::fs::unlinkat(&from_dir, from, AtFlags::empty());
                Ok(())
            }
            outcome => outcome,
        }
    }

    pub(super) fn room(&self, spot: &Spot) -> Result<StatVfs> {
        rustix::fs::fstatvfs(self.open_at(spot, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?)
    }
}

fn open_at(dir: impl AsFd, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
}
