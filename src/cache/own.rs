//! What in a directory of caches is kitbag's own, by what it looks like.
//!
//! Any directory can be named as the cache's, one that holds photographs, too. So a name proves nothing: what does not look exactly as kitbag makes it is somebody else's, is saved,
//! and is never removed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::{CHUNK_INDEX, CacheError, Kind, TAG, TAG_TEXT, UNFINISHED, private_directory, tag};
use crate::base::id::RepositoryId;

/// The directory of the locations.
pub(super) const LOCATIONS: &str = "locations";

/// The directory of the turns of backups.
pub const TURNS: &str = "turns";

/// What there is of kitbag's own at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnDirectories {
    /// The directory and all that is in it.
    Whole(PathBuf),
    /// These directories in it, beside what others keep there.
    Among(Vec<PathBuf>),
}

/// The directories that are kitbag's alone: the one of all caches, unless somebody keeps something else in it, too; then those of kitbag's in it, and a tag of kitbag's goes that says
/// that all of it may be left out.
#[must_use]
pub fn own_directories(root: &Path) -> OwnDirectories {
    if !root.is_dir() {
        return OwnDirectories::Among(Vec::new());
    }
    if holds_nothing_else(root) {
        return OwnDirectories::Whole(root.to_owned());
    }
    untag(root);
    let entries = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    OwnDirectories::Among(entries.filter(|path| path.is_dir() && is_own(path)).collect())
}

/// Makes the directory of all caches private (0700). It is tagged as a cache if it was made now, and loses that tag when somebody keeps something else there.
///
/// # Errors
/// When the directory cannot be used, in a sentence for the user.
pub fn home_directory(root: &Path) -> Result<(), CacheError> {
    if let Some(above) = root.parent() {
        // What fails here fails again below, where it is told.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(above);
    }
    let is_new = DirBuilder::new().mode(0o700).create(root).is_ok();
    private_directory(root)?;
    if is_new {
        tag(root);
    } else if is_tag(&root.join(TAG)) && !holds_nothing_else(root) {
        untag(root);
    }
    Ok(())
}

/// Removes the tag, and the directory with it, where nothing else is left. Who made the directory itself does not want it tagged for ever.
pub(super) fn leave(root: &Path) {
    let is_bare = fs::read_dir(root).is_ok_and(|entries| {
        entries.into_iter().all(|entry| entry.is_ok_and(|entry| entry.file_name() == TAG))
    });
    if is_bare && is_tag(&root.join(TAG)) {
        untag(root);
        let _ = fs::remove_dir(root);
    }
}

/// Removes a tag of kitbag's, and no other. One that stays does as much harm as before.
fn untag(root: &Path) {
    let path = root.join(TAG);
    if is_tag(&path) {
        let _ = fs::remove_file(path);
    }
}

/// Whether a directory has nothing in it but what kitbag has put there.
fn holds_nothing_else(root: &Path) -> bool {
    all(root, is_own)
}

/// Whether this is something that kitbag puts into the directory of all caches.
fn is_own(path: &Path) -> bool {
    match name_of(path) {
        Some(TAG) => is_tag(path),
        Some(LOCATIONS | TURNS) => is_directory(path) && all(path, is_entry),
        Some(name) => name.parse::<RepositoryId>().is_ok() && is_repository(path),
        None => false,
    }
}

/// Whether this is the cache of a repository: it is tagged as such, and has nothing else in it.
pub(super) fn is_repository(path: &Path) -> bool {
    is_directory(path) && is_tag(&path.join(TAG)) && all(path, is_part)
}

/// Whether this is something that stands in the cache of a repository.
fn is_part(path: &Path) -> bool {
    match name_of(path) {
        Some(TAG) => is_tag(path),
        Some("usage" | "lock") => is_file(path),
        Some(CHUNK_INDEX | UNFINISHED) => is_directory(path),
        Some(name) if Kind::ALL.iter().any(|kind| kind.directory() == name) => is_directory(path),
        Some(name) => is_file(path) && is_temporary(name.strip_prefix("usage.").unwrap_or(name)),
        None => false,
    }
}

/// Whether this is a file of a location or a turn, which are named by a hash, or one that never got its name.
pub(super) fn is_entry(path: &Path) -> bool {
    let is_hash = |name: &str| name.len() == 64 && is_hex(name);
    is_file(path) && name_of(path).is_some_and(|name| is_hash(name) || is_temporary(name))
}

/// Whether a name is one of those that files have until they are whole.
fn is_temporary(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(|name| name.len() == 16 && is_hex(name))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Whether this is the tag that kitbag writes.
fn is_tag(path: &Path) -> bool {
    let is_as_long =
        |metadata: &fs::Metadata| u64::try_from(TAG_TEXT.len()).is_ok_and(|len| metadata.len() == len);
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file() && is_as_long(&metadata))
        && fs::read(path).is_ok_and(|text| text == TAG_TEXT)
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// Whether all that is in a directory is so. What vanishes meanwhile is a file that another process has finished or removed.
fn all(dir: &Path, is_so: impl Fn(&Path) -> bool) -> bool {
    let vanished =
        |path: &Path| fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    fs::read_dir(dir).is_ok_and(|entries| {
        entries
            .into_iter()
            .all(|entry| entry.map(|entry| entry.path()).is_ok_and(|path| is_so(&path) || vanished(&path)))
    })
}

/// Removes what is kept of locations. Whatever else somebody has put there stays, and the directory with it.
///
/// # Errors
/// What the system says.
pub(super) fn remove_locations(dir: &Path) -> io::Result<()> {
    if !is_directory(dir) {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if is_entry(&path) {
            absent(fs::remove_file(&path))?;
        }
    }
    // Not when something is left.
    let _ = fs::remove_dir(dir);
    Ok(())
}

/// Removes the cache of a repository; the tag goes last, so that what is left of it when that fails is still known for what it is.
///
/// # Errors
/// What the system says; that it is no such thing.
pub(super) fn remove_repository(dir: &Path) -> io::Result<()> {
    if fs::symlink_metadata(dir).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    if !is_repository(dir) {
        let place = crate::base::text::escape(dir.as_os_str().as_encoded_bytes());
        return Err(io::Error::other(format!("{place} holds what kitbag has not put there, so it stays")));
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if name_of(&path) == Some(TAG) {
            continue;
        }
        absent(if is_directory(&path) { fs::remove_dir_all(&path) } else { fs::remove_file(&path) })?;
    }
    absent(fs::remove_file(dir.join(TAG)))?;
    absent(fs::remove_dir(dir))
}

/// Not there is what was wanted.
fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::known::{CacheHome, Known};
    use super::*;

    fn known() -> Known {
        Known { repository: RepositoryId::random(), config: vec![1], key_slots: Vec::new() }
    }

    fn among(root: &Path) -> Vec<PathBuf> {
        match own_directories(root) {
            OwnDirectories::Among(mut own) => {
                own.sort();
                own
            }
            OwnDirectories::Whole(root) => panic!("all of {root:?}"),
        }
    }

    fn write(path: PathBuf) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "of somebody").unwrap();
        path
    }

    #[test]
    fn what_others_keep_there_is_not_kitbags() {
        let dir = tempfile::tempdir().unwrap();
        let (alone, shared) = (dir.path().join("alone"), dir.path().join("shared"));
        write(shared.join("letter"));
        let id = RepositoryId::random();
        for root in [&alone, &shared] {
            let home = CacheHome::open(root).unwrap();
            home.repository(id, 1 << 20).unwrap().put(Kind::Record, "x", b"x");
            home.remember("sftp://a/x", &known());
        }
        assert_eq!(own_directories(&alone), OwnDirectories::Whole(alone.clone()));
        let mut expected = [shared.join(id.to_string()), shared.join(LOCATIONS)];
        expected.sort();
        assert_eq!(among(&shared), expected);
        // Whoever leaves out what is tagged shall not lose the letter.
        assert!(alone.join(TAG).exists() && !shared.join(TAG).exists());
        assert!(among(&dir.path().join("nowhere")).is_empty());
    }

    #[test]
    fn names_alone_prove_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let id = RepositoryId::random().to_string();
        let other = RepositoryId::random().to_string();
        let hash = "0".repeat(64);
        write(root.join("locations/Rome/photo"));
        write(root.join("turns/left"));
        write(root.join(&id).join("bags/photo"));
        assert!(among(root).is_empty());
        // A tag of kitbag's, but more than what stands in a cache.
        fs::write(root.join(&id).join(TAG), TAG_TEXT).unwrap();
        write(root.join(&id).join("photo"));
        // A directory where there are files only, and links to what is not kitbag's.
        fs::create_dir_all(root.join(&other)).unwrap();
        std::os::unix::fs::symlink("../turns", root.join(&other).join("bags")).unwrap();
        fs::write(root.join(&other).join(TAG), TAG_TEXT).unwrap();
        fs::remove_file(root.join("turns/left")).unwrap();
        fs::create_dir(root.join("turns").join(&hash)).unwrap();
        assert!(among(root).is_empty());
        // And as it should be.
        fs::remove_dir(root.join("turns").join(&hash)).unwrap();
        write(root.join("turns").join(&hash));
        fs::remove_file(root.join(&id).join("photo")).unwrap();
        fs::remove_file(root.join(&other).join("bags")).unwrap();
        let mut expected = ["turns", &id, &other].map(|name| root.join(name));
        expected.sort();
        assert_eq!(among(root), expected);
    }

    #[test]
    fn clearing_removes_nothing_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let id = RepositoryId::random();
        let photos = [
            write(root.join("locations/Rome/photo")),
            write(root.join("locations/photo")),
            write(root.join(id.to_string()).join("bags/photo")),
        ];
        let home = CacheHome::open(root).unwrap();
        home.remember("sftp://a/x", &known());
        assert!(home.repositories().is_empty());
        home.forget_all().unwrap();
        assert_eq!(home.known("sftp://a/x"), None);
        let told = home.clear(id).unwrap_err().to_string();
        assert!(told.contains(&id.to_string()), "{told}");
        assert!(photos.iter().all(|photo| photo.exists()));
    }

    #[test]
    fn only_what_kitbag_has_made_is_tagged() {
        let dir = tempfile::tempdir().unwrap();
        let (theirs, ours) = (dir.path().join("theirs"), dir.path().join("above/ours"));
        fs::create_dir(&theirs).unwrap();
        let (_, home) = (CacheHome::open(&theirs).unwrap(), CacheHome::open(&ours).unwrap());
        assert!(!theirs.join(TAG).exists() && ours.join(TAG).exists());
        // As an earlier version did.
        tag(&theirs);
        write(theirs.join("photo"));
        CacheHome::open(&theirs).unwrap();
        assert!(!theirs.join(TAG).exists());
        // Also by who only looks.
        let photo = write(ours.join("photo"));
        assert_eq!(among(&ours), [ours.join(LOCATIONS)]);
        assert!(!ours.join(TAG).exists());
        // Another's tag is none of kitbag's.
        fs::write(ours.join(TAG), "Signature: 8a477f597d28d172789f06886806bc55").unwrap();
        assert_eq!(among(&ours), [ours.join(LOCATIONS)]);
        assert!(ours.join(TAG).exists());
        fs::remove_file(photo).unwrap();
        fs::write(ours.join(TAG), TAG_TEXT).unwrap();
        home.forget_all().unwrap();
        assert!(ours.exists(), "the turns may still go");
        home.leave();
        assert!(!ours.exists());
    }
}
