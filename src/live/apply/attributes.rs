//! Owner, xattrs, mode, times and flags, in the order that sticks.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{
    self, AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmodat, chownat,
    fchmod, futimens, utimensat,
};
use rustix::io::Errno;

use super::{OwnerBy, Refused, Target};
use crate::entry::{Kind, Metadata};
use crate::live::stat::stat_fd;
use crate::live::xattrs::{self, proc_path};
use crate::live::{RawXattr, Result, Stat, flags};

/// How refusals are told.
pub(super) type Refusals<'a> = &'a mut dyn FnMut(Refused, Errno);

/// A file whose metadata are set: open for reading, or by `O_PATH`, which works for every kind and every mode but
/// knows only calls by path; `/proc/self/fd` leads to exactly this file then, even if it is a link.
pub(super) struct Inode<'a> {
    fd: BorrowedFd<'a>,
    path: Option<Vec<u8>>,
}

impl<'a> Inode<'a> {
    pub(super) fn open(fd: &'a impl AsFd) -> Self {
        Self { fd: fd.as_fd(), path: None }
    }

    pub(super) fn by_path(fd: &'a impl AsFd) -> Self {
        Self { fd: fd.as_fd(), path: Some(proc_path(fd)) }
    }

    fn chown(&self, uid: Option<Uid>, gid: Option<Gid>) -> rustix::io::Result<()> {
        chownat(self.fd, c"", uid, gid, AtFlags::EMPTY_PATH)
    }

    fn chmod(&self, mode: u16) -> rustix::io::Result<()> {
        let mode = Mode::from_raw_mode(mode.into());
        match &self.path {
            None => fchmod(self.fd, mode),
            Some(path) => chmodat(CWD, path, mode, AtFlags::empty()),
        }
    }

    fn set_times(&self, times: &Timestamps) -> rustix::io::Result<()> {
        match &self.path {
            None => futimens(self.fd, times),
            Some(path) => utimensat(CWD, path, times, AtFlags::empty()),
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> rustix::io::Result<()> {
        match &self.path {
            None => fs::fsetxattr(self.fd, name, value, XattrFlags::empty()),
            Some(path) => fs::setxattr(path, name, value, XattrFlags::empty()),
        }
    }

    fn remove_xattr(&self, name: &[u8]) -> rustix::io::Result<()> {
        match &self.path {
            None => fs::fremovexattr(self.fd, name),
            Some(path) => fs::removexattr(path, name),
        }
    }

    fn xattrs(&self) -> Result<Vec<RawXattr>> {
        match &self.path {
            None => xattrs::xattrs_of_fd(self.fd),
            Some(path) => xattrs::xattrs_of_path(path),
        }
    }
}

impl Target {
    /// Everything but inode flags. What is as it should be is left alone, so that a second restore changes nothing.
    pub(super) fn apply(
        &self,
        inode: &Inode<'_>,
        wanted: &Metadata,
        xattrs: &[RawXattr],
        refused: Refusals<'_>,
    ) -> Result<()> {
        let before = stat_fd(inode.fd)?;
        let (owned, mode) = self.apply_owner(inode, &before, wanted, refused);
        let attributed = self.apply_xattrs(inode, &before, xattrs, refused)?;
        if wanted.kind != Kind::Symlink
            && (owned || attributed || before.mode != mode)
            && let Err(errno) = inode.chmod(mode)
        {
            refused(Refused::Mode, errno);
        }
        if before.mtime != wanted.mtime {
            let nanos = wanted.mtime.nanos.into();
            let times = Timestamps {
                last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                last_modification: Timespec { tv_sec: wanted.mtime.secs, tv_nsec: nanos },
            };
            if let Err(errno) = inode.set_times(&times) {
                refused(Refused::Times, errno);
            }
        }
        Ok(())
    }

    /// Whether the owner was changed, and the mode that is safe with the owner as it is now.
    fn apply_owner(
        &self,
        inode: &Inode<'_>,
        before: &Stat,
        wanted: &Metadata,
        refused: Refusals<'_>,
    ) -> (bool, u16) {
        let (uid, gid) = self.owner_here(wanted);
        if (before.uid, before.gid) == (uid, gid) {
            return (false, wanted.mode);
        }
        let user = (before.uid != uid).then_some(uid);
        let group = (before.gid != gid).then_some(gid);
        if self.is_root {
            match change_owner(inode, user, group) {
                Ok(()) => return (true, wanted.mode),
                Err(errno) => refused(Refused::Owner, errno),
            }
        } else if user.is_some() {
            refused(Refused::Owner, Errno::PERM);
        }
        // To one of the groups that this user is in it may go; else it stays.
        let group_set = group.map_or(Ok(()), |gid| change_owner(inode, None, Some(gid)));
        if let Err(errno) = group_set {
            refused(Refused::Owner, errno);
        }
        let (user_set, group_set) = (user.is_none(), group_set.is_ok());
        let setuid = if user_set { 0 } else { 0o4000 };
        let setgid = if group_set { 0 } else { 0o2000 };
        (group.is_some() && group_set, wanted.mode & !setuid & !setgid)
    }

    /// The numbers that the owner has on this machine.
    fn owner_here(&self, wanted: &Metadata) -> (u32, u32) {
        let owner = &wanted.owner;
        match self.owner_by {
            OwnerBy::Number => (owner.uid, owner.gid),
            OwnerBy::Name => (
                self.owners.uid_of(&owner.user).unwrap_or(owner.uid),
                self.owners.gid_of(&owner.group).unwrap_or(owner.gid),
            ),
        }
    }

    /// Sets what is missing or differs, removes what is too much. Says whether anything changed.
    fn apply_xattrs(
        &self,
        inode: &Inode<'_>,
        before: &Stat,
        wanted: &[RawXattr],
        refused: Refusals<'_>,
    ) -> Result<bool> {
        let mut changed = false;
        let there = match inode.xattrs() {
            // Who may not read a file may not read its xattrs, its own user included; its mode is set afterwards.
            Err(error)
                if error.errno() == Some(Errno::ACCESS) && inode.chmod(before.mode | 0o600).is_ok() =>
            {
                changed = true;
                inode.xattrs()?
            }
            result => result?,
        };
        let mut attempt = |change: &dyn Fn() -> rustix::io::Result<()>| {
            changed = true;
            let mut result = change();
            if result == Err(Errno::ACCESS) && inode.chmod(before.mode | 0o600).is_ok() {
                // Nor may who may not write to it change them.
                result = change();
            }
            match result {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => refused(Refused::Xattrs, errno),
            }
        };
        for xattr in there.iter().filter(|xattr| is_ours_to_remove(&xattr.name)) {
            if !wanted.iter().any(|other| other.name == xattr.name) {
                attempt(&|| inode.remove_xattr(&xattr.name));
            }
        }
        for xattr in wanted.iter().filter(|xattr| !there.contains(xattr)) {
            attempt(&|| inode.set_xattr(&xattr.name, &xattr.value));
        }
        Ok(changed)
    }

    /// Those inode flags that are in `mask`. Nothing can be changed after this if they say so.
    pub(super) fn apply_flags(&self, fd: impl AsFd, wanted: u32, mask: u32, refused: Refusals<'_>) {
        let Err(errno) = flags::set(&fd, wanted, mask) else { return };
        refused(Refused::Flags, errno);
        if errno == Errno::PERM {
            // Protecting a file is for root, the rest is for everybody.
            let _ = flags::set(&fd, wanted, mask & !flags::PROTECTION);
        }
    }
}

fn change_owner(inode: &Inode<'_>, uid: Option<u32>, gid: Option<u32>) -> rustix::io::Result<()> {
    // The number -1 means "leave it" to the system and belongs to nobody.
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Errno::INVAL);
    }
    inode.chown(uid.map(Uid::from_raw), gid.map(Gid::from_raw))
}

/// Labels that the system gives each file by itself (security labels, those of network file systems) are none of
/// ours unless they were saved.
fn is_ours_to_remove(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"system.posix_acl_"].iter().any(|prefix| name.starts_with(prefix))
        || name == b"security.capability"
}
