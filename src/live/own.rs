//! What is kitbag's own below a root: a backup would feed on itself.
//!
//! The local cache changes with each run, so that none would find a home directory unchanged. A repository on a local disk grows by what is backed
//! up, itself included. And `kitbag mount` shows all generations as files. Whoever compares generations with the live data leaves
//! these places out as the backup does, and says so of what a generation holds of them.
//!
//! A place is known by its device and inode number, so under any name; a mount by what the kernel says of its device, which is asked only where a
//! directory lies on another device than the one around it. A root is what the user named, and is never left out itself;
//! where it is the directory of the repository, what is the repository's in it is.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, StatxFlags, fstat, makedev, stat, statx};

use super::LiveDir;
use crate::store::layout;

/// Whose mounts there are, as the kernel tells this process.
const MOUNTS: &str = "/proc/self/mountinfo";

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// The directory of the local cache.
    Cache,
    /// Part of the local cache, in a directory that holds something else, too.
    CachePart,
    /// The repository.
    Repository,
    /// What is the repository's in its directory, which holds something else, too.
    RepositoryPart,
    /// Where a repository is mounted.
    Mount,
}

impl Own {
    /// Whether the directory itself is kept, empty, as that of any mount that is left out.
    #[must_use]
    pub fn keeps_directory(self) -> bool {
        self == Self::Mount
    }

    /// What is said of it, as a sentence without the path; `None` for what nobody would look for.
    #[must_use]
    pub fn note(self) -> Option<&'static str> {
        match self {
            Self::Cache => None,
            Self::CachePart => Some("this is part of kitbag's cache, so it is left out"),
            Self::Repository => Some("this is the repository itself, so it is left out"),
            Self::RepositoryPart => Some("the repository is in here, so what is its own is left out"),
            Self::Mount => Some("a repository is mounted here, so what it shows is left out"),
        }
    }
}

/// The places that are known, but for mounts, which are found when they are met.
#[derive(Debug, Default)]
pub struct OwnPlaces {
    /// Device and inode number of each.
    places: Vec<((u64, u64), Own)>,
    /// Those of the directory of the repository.
    repository: Option<(u64, u64)>,
    /// Of which paths something was said.
    told: Mutex<BTreeSet<Vec<u8>>>,
}

impl OwnPlaces {
    /// Adds a directory. One that is not there is none.
    pub fn add(&mut self, own: Own, path: &Path) {
        if let Ok(stat) = stat(path) {
            self.places.push(((stat.st_dev, stat.st_ino), own));
        }
    }

    /// Adds the directory of a repository: all of it when nothing else is in it now, else what is the repository's.
    pub fn add_repository(&mut self, path: &Path) {
        let Ok(stat) = stat(path) else { return };
        self.repository = Some((stat.st_dev, stat.st_ino));
        let names = std::fs::read_dir(path).into_iter().flatten();
        let mut names = names.map(|entry| entry.map(|entry| entry.file_name()));
        if names.all(|name| name.is_ok_and(|name| is_of_repository(name.as_encoded_bytes()))) {
            self.add(Own::Repository, path);
        }
    }

    /// Which names in this directory are the repository's, be it a root or below one.
    #[must_use]
    pub fn names_in(&self, dir: &LiveDir) -> OwnNames {
        let stat = dir.stat();
        OwnNames(self.repository == Some((stat.dev, stat.inode)))
    }

    /// What is said of a place that a generation holds, when it is not compared: nothing twice.
    #[must_use]
    pub fn not_compared(&self, path: &[u8]) -> Option<&'static str> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(path.to_vec()).then_some("this is not compared, since it is kitbag's own")
    }

    /// What this directory is, if it lies below a root and is one of kitbag's own.
    #[must_use]
    pub fn of(&self, dir: &LiveDir) -> Option<Own> {
        let (above, stat) = (dir.parent()?.stat(), dir.stat());
        let known = self.places.iter().find(|(place, _)| *place == (stat.dev, stat.inode));
        match known {
            Some((_, own)) => Some(*own),
            None => (stat.dev != above.dev && is_mount(stat.dev)).then_some(Own::Mount),
        }
    }

    /// Whether `name` in this directory, which may not be opened, is a mount of another user. Not even root may look into one, but
    /// its device the kernel tells everybody.
    #[must_use]
    pub fn is_others_mount(&self, dir: impl AsFd, name: &[u8]) -> bool {
        other_device(dir, name).is_some_and(is_mount)
    }

    /// What is to be said of a place that was left out: nothing twice.
    #[must_use]
    pub fn note(&self, own: Own, path: &[u8]) -> Option<&'static str> {
        let note = own.note()?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(path.to_vec()).then_some(note)
    }
}

/// Which names in a directory are kitbag's own.
#[derive(Debug, Clone, Copy)]
pub struct OwnNames(bool);

impl OwnNames {
    /// Whether this is one of them.
    #[must_use]
    pub fn contains(self, name: &[u8]) -> bool {
        self.0 && is_of_repository(name)
    }
}

/// Whether something with this name, at the top of a repository, is part of it.
fn is_of_repository(name: &[u8]) -> bool {
    let config = layout::config();
    let mut names = layout::DIRECTORIES.into_iter().chain([layout::QUARANTINE, config.as_str()]);
    names.any(|own| own.as_bytes() == name)
}

/// The device of what `name` in this directory is, when it is not that of the directory: something is mounted there.
fn other_device(dir: impl AsFd, name: &[u8]) -> Option<u64> {
    let above = fstat(&dir).ok()?.st_dev;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let statx = statx(dir, name, flags, StatxFlags::empty()).ok()?;
    let dev = makedev(statx.stx_dev_major, statx.stx_dev_minor);
    (dev != above).then_some(dev)
}

/// Whether a file system of `kitbag mount` has this device number.
fn is_mount(dev: u64) -> bool {
    std::fs::read(MOUNTS).is_ok_and(|mounts| {
        mounts.split(|byte| *byte == b'\n').filter_map(mount_of).any(|mounted| mounted == dev)
    })
}

/// The device number in a line of `mountinfo(5)`, if the line is about a mount of kitbag's: the type names it (`fuse.kitbag`), or the source does
/// where types have no second part.
fn mount_of(line: &[u8]) -> Option<u64> {
    // Paths need not be UTF-8; blanks in them are written as octal numbers, so that words are words.
    let mut words = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(words.nth(2)?).ok()?;
    words.find(|word| *word == b"-")?;
    let is_own = match (words.next()?, words.next()?) {
        (b"fuse.kitbag", _) => true,
        (kind, source) => kind == b"fuse" && source == b"kitbag",
    };
    let (major, minor) = device.split_once(':')?;
    is_own.then_some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Scratch, run};
    use super::*;

    #[test]
    fn places_are_known_by_any_name_but_a_root_is_what_was_named() {
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.join("cache/turns")).unwrap();
        std::fs::create_dir(scratch.join("other")).unwrap();
        std::os::unix::fs::symlink("cache", scratch.join("link")).unwrap();
        let mut own = OwnPlaces::default();
        own.add(Own::Cache, &scratch.join("link"));
        own.add(Own::Repository, &scratch.join("nowhere"));
        let root = scratch.open();
        let cache = root.child(b"cache").unwrap();
        assert_eq!(own.of(&cache), Some(Own::Cache));
        assert_eq!(own.of(&cache.child(b"turns").unwrap()), None, "nobody comes there");
        assert_eq!(own.of(&root.child(b"other").unwrap()), None);
        let named = LiveDir::open_root(scratch.join("cache").as_os_str().as_encoded_bytes()).unwrap();
        assert_eq!(own.of(&named), None);
        run("mv", &["cache", "renamed"], scratch.path());
        assert_eq!(own.of(&root.child(b"renamed").unwrap()), Some(Own::Cache));
    }

    #[test]
    fn a_place_is_told_of_once() {
        let own = OwnPlaces::default();
        assert!(own.note(Own::Repository, b"/a").is_some() && own.note(Own::Repository, b"/a").is_none());
        assert!(own.note(Own::Mount, b"/b").is_some() && own.note(Own::Cache, b"/c").is_none());
    }

    #[test]
    fn what_may_not_be_opened_is_a_mount_only_where_something_is_mounted() {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.join("closed")).unwrap();
        assert_eq!(other_device(scratch.open().fd().unwrap(), b"closed"), None);
        let top = LiveDir::open_root(b"/").unwrap();
        assert_eq!(other_device(top.fd().unwrap(), b"proc"), Some(stat("/proc").unwrap().st_dev));
    }

    #[test]
    fn a_repository_that_stands_alone_is_left_out_whole_else_what_is_its_own() {
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.join("repository/bags")).unwrap();
        std::fs::write(scratch.join("repository/config"), "").unwrap();
        let look = || {
            let mut own = OwnPlaces::default();
            own.add_repository(&scratch.join("repository"));
            let dir = scratch.open().child(b"repository").unwrap();
            let names = own.names_in(&dir);
            (own.of(&dir), [&b"config"[..], b"bags", b"photos"].map(|name| names.contains(name)))
        };
        assert_eq!(look(), (Some(Own::Repository), [true, true, false]));
        std::fs::create_dir(scratch.join("repository/photos")).unwrap();
        assert_eq!(look(), (None, [true, true, false]));
    }

    #[test]
    fn mounts_by_their_lines() {
        let line = b"36 35 0:52 / /home/\xff\xfe rw - fuse.kitbag kitbag rw";
        assert_eq!(mount_of(line), Some(makedev(0, 52)));
        let lines = "36 35 0:52 / /home/ada/then ro,nosuid - fuse.kitbag kitbag ro,user_id=1000";
        assert_eq!(mount_of(lines.as_bytes()), Some(makedev(0, 52)));
        let lines = "36 35 259:3 / /a\\040b rw shared:1 master:2 - fuse kitbag rw";
        assert_eq!(mount_of(lines.as_bytes()), Some(makedev(259, 3)));
        for other in [
            "36 35 0:52 / /kitbag rw - fuse.sshfs kitbag rw",
            "36 35 0:52 / /kitbag rw - fuse sshfs rw",
            "36 35 98:0 / /mnt rw - ext3 kitbag rw",
            "36 35 x / /mnt rw - fuse.kitbag kitbag rw",
            "",
        ] {
            assert_eq!(mount_of(other.as_bytes()), None, "{other}");
        }
    }
}
