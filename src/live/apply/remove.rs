//! Removing what is in the way.

use std::sync::Arc;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::Target;
use crate::entry::Kind;
use crate::live::stat::stat_child;
use crate::live::{DirFd, LiveDir, LiveError, NameList, Result};

/// A directory that is being emptied.
struct Level {
    dir: Arc<LiveDir>,
    names: NameList,
    next: usize,
}

impl Target {
    /// Removes `name` from `dir` and, if it is a directory, all that stands below, following no link and entering no
    /// other file system. Nothing there is fine. Depth costs memory, not stack.
    ///
    /// # Errors
    /// What the system said; a part may be gone by then.
    pub fn remove(&self, dir: &Arc<LiveDir>, name: &[u8]) -> Result<()> {
        let mut levels = Vec::new();
        self.remove_or_enter(dir, name, &mut levels)?;
        while let Some(level) = levels.last_mut() {
            let dir = Arc::clone(&level.dir);
            if let Some((name, _)) = level.names.get(level.next) {
                level.next = level.next.saturating_add(1);
                let name = name.to_vec();
                self.remove_or_enter(&dir, &name, &mut levels)?;
            } else {
                levels.pop();
                let Some(parent) = dir.parent() else { continue };
                self.unlink(&parent.fd()?, dir.name(), AtFlags::REMOVEDIR)?;
            }
        }
        Ok(())
    }

    fn remove_or_enter(&self, dir: &Arc<LiveDir>, name: &[u8], levels: &mut Vec<Level>) -> Result<()> {
        let fd = dir.fd()?;
        let stat = match stat_child(&fd, name) {
            Err(LiveError::Vanished) => return Ok(()),
            result => result?,
        };
        if stat.kind != Kind::Directory {
            return self.unlink(&fd, name, AtFlags::empty());
        }
        if stat.dev != dir.stat().dev {
            return Err(LiveError::new("remove a directory on which something is mounted", Errno::BUSY));
        }
        let child = self.enter(dir, name, &stat)?;
        let names = child.names()?;
        levels.push(Level { dir: child, names, next: 0 });
        Ok(())
    }

    fn unlink(&self, fd: &DirFd, name: &[u8], flags: AtFlags) -> Result<()> {
        let result = match unlinkat(fd, name, flags) {
            Err(Errno::PERM | Errno::ACCESS) if self.unprotect(fd, name) => unlinkat(fd, name, flags),
            result => result,
        };
        match result {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(LiveError::new("remove what is in the way", errno)),
        }
    }
}
