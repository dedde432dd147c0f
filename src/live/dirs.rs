//! Directories, reached one name at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, SeekFrom, openat, seek};
use rustix::io::Errno;

use super::fds::OpenDirs;
use super::{LiveError, NameList, Result, Stat, stat};

/// On the way down to a closed directory every so-many-th level is kept open, so that its neighbours are reached in
/// a few steps.
const ANCHOR: usize = 32;

const OPEN: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory below a root that is backed up or restored to. Knows its parent, so that it can be found again
/// without any path: its descriptor may be closed at any time to make room, and is opened anew when asked for.
#[derive(Debug)]
pub struct LiveDir {
    parent: Option<Arc<LiveDir>>,
    /// The name in the parent; of a root, the path it was opened by.
    name: Box<[u8]>,
    depth: usize,
    stat: Stat,
    fd: Mutex<Option<DirFd>>,
    /// Set once the offset of the descriptor may not be 0; held while listing.
    listed: Mutex<bool>,
    /// Whether the descriptor was asked for since room was last made.
    used: AtomicBool,
    open_dirs: Arc<OpenDirs>,
}

/// An open directory; stays open while a clone is alive.
#[derive(Debug, Clone)]
pub struct DirFd {
    fd: Arc<OwnedFd>,
    /// As whom this process works.
    user: u32,
}

impl DirFd {
    /// Whether this process may read the file of `stat` without touching its access time: its owner and root may.
    pub(super) fn may_hide_access(&self, stat: &Stat) -> bool {
        self.user == 0 || self.user == stat.uid
    }
}

impl AsFd for DirFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl LiveDir {
    /// Opens a root by its path, following links in it: who names a root means what it leads to.
    ///
    /// # Errors
    /// [`LiveError::Vanished`] if there is nothing, [`LiveError::Replaced`] if it is no directory, else what the system
    /// said.
    pub fn open_root(path: &[u8]) -> Result<Arc<Self>> {
        Self::open_root_with(path, OpenDirs::from_limits())
    }

    fn open_root_with(path: &[u8], open_dirs: OpenDirs) -> Result<Arc<Self>> {
        let flags = OPEN.difference(OFlags::NOFOLLOW);
        let fd =
            open_quietly(CWD, path, flags, true).map_err(|errno| LiveError::opening("open it", errno))?;
        let stat = stat::stat_fd(&fd)?;
        Ok(Arc::new(Self {
            parent: None,
            name: path.into(),
            depth: 0,
            stat,
            fd: Mutex::new(Some(Self::wrap(&open_dirs, fd))),
            listed: Mutex::new(false),
            used: AtomicBool::new(false),
            open_dirs: Arc::new(open_dirs),
        }))
    }

    /// Opens the directory `name` in this one; two system calls. A queue of directories still to be visited should
    /// hold parents and names rather than the opened children.
    ///
    /// # Errors
    /// [`LiveError::Vanished`] if it is gone, [`LiveError::Replaced`] if it is no directory, else what the system
    /// said.
    pub fn child(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>> {
        // Whose directory it is shows only when it is open; mostly its parent's owner's.
        let above = self.fd()?;
        let fd = open_quietly(&above, name, OPEN, above.may_hide_access(&self.stat))
            .map_err(|errno| LiveError::opening("open the directory", errno))?;
        let child = Arc::new(Self {
            parent: Some(Arc::clone(self)),
            name: name.into(),
            depth: self.depth.saturating_add(1),
            stat: stat::stat_fd(&fd)?,
            fd: Mutex::new(Some(Self::wrap(&self.open_dirs, fd))),
            listed: Mutex::new(false),
            used: AtomicBool::new(false),
            open_dirs: Arc::clone(&self.open_dirs),
        });
        self.open_dirs.opened(&child);
        Ok(child)
    }

    /// What `fstat` said when it was opened.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// The directory that this one stands in; `None` for a root.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// Its name in its parent; of a root, the path it was opened by.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// How many directories stand between it and its root, itself included; 0 for the root.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The whole path, for messages.
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        let mut path = self.root().name.to_vec();
        self.append_relative(&mut path);
        path
    }

    /// The path below the root, without a slash at its start; empty for the root.
    #[must_use]
    pub fn relative_path(&self) -> Vec<u8> {
        let mut path = Vec::new();
        self.append_relative(&mut path);
        path
    }

    /// The whole path of the entry `name` of this directory, for messages.
    #[must_use]
    pub fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path();
        join(&mut path, name);
        path
    }

    fn wrap(open_dirs: &OpenDirs, fd: OwnedFd) -> DirFd {
        DirFd { fd: Arc::new(fd), user: open_dirs.user() }
    }

    fn root(&self) -> &Self {
        let mut dir = self;
        while let Some(parent) = &dir.parent {
            dir = parent;
        }
        dir
    }

    fn append_relative(&self, path: &mut Vec<u8>) {
        let mut names = Vec::with_capacity(self.depth);
        let mut dir = self;
        while let Some(parent) = &dir.parent {
            names.push(&dir.name);
            dir = parent;
        }
        for name in names.into_iter().rev() {
            join(path, name);
        }
    }

    /// All names in it, read from the start at each call.
    ///
    /// # Errors
    /// What the system said.
    pub fn names(self: &Arc<Self>) -> Result<NameList> {
        self.list(|fd| NameList::read(fd, self.stat.size))
    }

    /// The names in it that are wanted; takes memory for these only.
    ///
    /// # Errors
    /// What the system said.
    pub fn names_where(self: &Arc<Self>, wanted: impl Fn(&[u8]) -> bool) -> Result<NameList> {
        self.list(|fd| NameList::read_where(fd, 0, wanted))
    }

    fn list(self: &Arc<Self>, read: impl FnOnce(&DirFd) -> Result<NameList>) -> Result<NameList> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let fd = self.fd()?;
        if *listed {
            seek(&fd, SeekFrom::Start(0)).map_err(|errno| LiveError::new("list it", errno))?;
        }
        *listed = true;
        read(&fd)
    }

    /// Its descriptor, opened anew where it had been closed. Ask once per directory, not once per file.
    ///
    /// # Errors
    /// [`LiveError::Replaced`] or [`LiveError::Vanished`] if it does not stand any more where it stood, else what
    /// the system said.
    pub fn fd(self: &Arc<Self>) -> Result<DirFd> {
        if let Some(fd) = self.open_fd() {
            return Ok(fd);
        }
        // Up to the nearest directory that is open (the root always is) and down again. No recursion: a tree may be
        // deeper than the stack.
        let mut below = vec![self];
        let mut dir = self;
        let mut fd = loop {
            let Some(parent) = &dir.parent else { return Err(LiveError::Vanished) };
            if let Some(fd) = parent.open_fd() {
                break fd;
            }
            below.push(parent);
            dir = parent;
        };
        for dir in below.into_iter().rev() {
            let opened = open_quietly(&fd, &dir.name, OPEN, fd.may_hide_access(&dir.stat))
                .map_err(|errno| LiveError::opening("open the directory", errno))?;
            let now = stat::stat_fd(&opened)?;
            if !now.is_same_inode(&dir.stat) {
                return Err(LiveError::Replaced);
            }
            fd = Self::wrap(&self.open_dirs, opened);
            if dir.depth.is_multiple_of(ANCHOR) || Arc::ptr_eq(dir, self) {
                dir.keep(&fd);
            }
        }
        Ok(fd)
    }

    fn open_fd(&self) -> Option<DirFd> {
        let fd = self.slot().clone();
        if fd.is_some() {
            self.used.store(true, Ordering::Relaxed);
        }
        fd
    }

    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn keep(self: &Arc<Self>, fd: &DirFd) {
        *self.slot() = Some(fd.clone());
        self.open_dirs.opened(self);
    }

    /// Closes it until it is asked for again. Who holds its descriptor keeps it.
    pub(super) fn close(&self) {
        let closed = self.slot().take();
        drop(closed);
    }

    fn slot(&self) -> MutexGuard<'_, Option<DirFd>> {
        self.fd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LiveDir {
    /// Lets go of the ancestors one after the other: dropped by recursion, a deep tree would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut parent) = next.and_then(Arc::into_inner) {
            next = parent.parent.take();
        }
    }
}

fn join(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Opens for reading, without touching the access time where that is allowed, which `hopeful` guesses.
pub(super) fn open_quietly(
    dir: impl AsFd,
    name: &[u8],
    flags: OFlags,
    hopeful: bool,
) -> rustix::io::Result<OwnedFd> {
    if hopeful {
        match openat(&dir, name, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM) => {}
            result => return result,
        }
    }
    openat(&dir, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::super::testing::Scratch;
    use super::*;
    use rustix::fs::mkdirat;

    fn open_count(chain: &[Arc<LiveDir>]) -> usize {
        chain.iter().filter(|dir| dir.slot().is_some()).count()
    }

    #[test]
    fn deeper_than_path_max_with_few_descriptors() {
        let scratch = Scratch::new();
        let path = scratch.path().as_os_str().as_encoded_bytes();
        let root = LiveDir::open_root_with(path, OpenDirs::with_limit(100)).unwrap();
        let name = b"twenty-bytes-a-level";
        let mut chain = vec![root];
        for _ in 0..3000 {
            let last = chain.last().unwrap();
            mkdirat(last.fd().unwrap(), &name[..], Mode::from_raw_mode(0o700)).unwrap();
            chain.push(last.child(name).unwrap());
        }
        let deepest = chain.last().unwrap();
        assert_eq!(deepest.path().len(), path.len() + 3000 * 21);
        assert_eq!(deepest.relative_path().len(), 3000 * 21 - 1);
        assert_eq!(open_count(&chain), 101);

        for dir in chain.iter().rev() {
            assert!(stat::stat_fd(dir.fd().unwrap()).unwrap().is_same_inode(dir.stat()));
            assert!(dir.names().unwrap().len() <= 1);
        }
        assert_eq!(open_count(&chain), 101);
        for dir in &chain {
            if dir.parent().is_some() {
                dir.close();
            }
        }
        deepest.fd().unwrap();
        assert!(open_count(&chain) > 3000 / ANCHOR / 2);
    }

    #[test]
    fn dropping_a_deep_tree_needs_no_stack() {
        let scratch = Scratch::new();
        let mut dir = scratch.open();
        for _ in 0..1000 {
            mkdirat(dir.fd().unwrap(), "d", Mode::from_raw_mode(0o700)).unwrap();
            dir = dir.child(b"d").unwrap();
        }
        let small = std::thread::Builder::new().stack_size(16 * 1024);
        small.spawn(move || drop(dir)).unwrap().join().unwrap();
    }

    #[test]
    fn another_directory_under_the_name_is_noticed() {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.join("a")).unwrap();
        let dir = scratch.open().child(b"a").unwrap();
        dir.close();
        std::fs::create_dir(scratch.join("b")).unwrap();
        std::fs::remove_dir(scratch.join("a")).unwrap();
        assert!(matches!(dir.fd(), Err(LiveError::Vanished)));
        std::os::unix::fs::symlink("b", scratch.join("a")).unwrap();
        assert!(matches!(dir.fd(), Err(LiveError::Replaced)));
        std::fs::remove_file(scratch.join("a")).unwrap();
        std::fs::create_dir(scratch.join("c")).unwrap();
        std::fs::write(scratch.join("a"), "").unwrap();
        assert!(matches!(scratch.open().child(b"a"), Err(LiveError::Replaced)));
        assert!(matches!(scratch.open().child(b"x"), Err(LiveError::Vanished)));
    }

    #[test]
    fn names_are_read_anew() {
        let scratch = Scratch::new();
        let root = scratch.open();
        assert!(root.names().unwrap().is_empty());
        std::fs::write(scratch.join("file"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", scratch.join("Link")).unwrap();
        let names = root.names().unwrap();
        assert_eq!(names.get(0).unwrap().0, b"Link");
        assert_eq!(names.get(1).unwrap().0, b"file");
        assert_eq!(names.len(), 2);
        assert_eq!(root.path_of(b"file"), scratch.join("file").as_os_str().as_encoded_bytes());
    }
}
