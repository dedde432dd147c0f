//! What is kitbag's own below a root: a backup would feed on itself.
//!
//! The local cache changes with each run, so that none would find a home directory unchanged. A repository on a local disk grows by what is backed
//! up, itself included. And `kitbag mount` shows all generations as files. Whoever compares generations with the live data leaves
//! these places out as the backup does.
//!
//! A place is known by its device and inode number, so under any name; a mount by what the kernel says of its device, which is asked only where a
//! directory lies on another device than the one around it. A root is what the user named, and is never left out itself.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, StatxFlags, makedev, stat, statx};

use super::LiveDir;

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
            Self::Mount => Some("a repository is mounted here, so what it shows is left out"),
        }
    }
}

/// The places that are known, but for mounts, which are found when they are met.
#[derive(Debug, Default)]
pub struct OwnPlaces {
    /// Device and inode number of each.
    places: Vec<((u64, u64), Own)>,
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
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        statx(dir, name, flags, StatxFlags::empty())
            .is_ok_and(|statx| is_mount(makedev(statx.stx_dev_major, statx.stx_dev_minor)))
    }

    /// What is to be said of a place that was left out: nothing twice.
    #[must_use]
    pub fn note(&self, own: Own, path: &[u8]) -> Option<&'static str> {
        let note = own.note()?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(path.to_vec()).then_some(note)
    }
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
    let line = std::str::from_utf8(line).ok()?;
    let (before, after) = line.split_once(" - ")?;
    let mut words = after.split(' ');
    let is_own = match (words.next()?, words.next()?) {
        ("fuse.kitbag", _) => true,
        (kind, source) => kind == "fuse" && source == "kitbag",
    };
    let (major, minor) = before.split(' ').nth(2)?.split_once(':')?;
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
    fn mounts_by_their_lines() {
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
