//! What is left out of a backup.
//!
//! Globs are those of `.gitignore`, matched against paths below the root, and so are the files of them: `*.o`
//! anywhere, `/tmp/` only at the top and only a directory, `!keep.o` takes one back. What stands below an excluded
//! directory is never looked at.
//!
//! A directory that is tagged (by `CACHEDIR.TAG` with the right signature, or by a file of a chosen name) is saved
//! with its metadata and the tag alone, as restic and GNU tar do (borg leaves out the directory too): a restored
//! tree has the cache directory that programs expect, and it is still tagged.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::pread;

use super::stat::stat_fd;
use super::{DirFd, NameList, OwnPlaces};
use crate::entry::Kind;

/// The name and the first bytes of a cache directory's tag, by the specification at <https://bford.info/cachedir/>.
const CACHE_TAG: &[u8] = b"CACHEDIR.TAG";
const CACHE_SIGNATURE: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// What the user asked to leave out.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Gitignore lines, in order: later ones win.
    pub globs: Vec<String>,
    /// Whether the contents of tagged cache directories are left out.
    pub caches: bool,
    /// Names of files that mark a directory whose contents are left out.
    pub if_present: Vec<Vec<u8>>,
    /// Whether other file systems mounted below a root are left out (their mount points are kept, empty).
    pub one_file_system: bool,
}

/// A glob that says nothing.
#[derive(Debug, thiserror::Error)]
#[error("the pattern {pattern:?} cannot be understood: {reason}")]
pub struct BadPattern {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub reason: String,
}

/// [`Rules`], made ready for use by many threads.
#[derive(Debug, Clone)]
pub struct Exclude {
    globs: Option<Gitignore>,
    caches: bool,
    if_present: Vec<Vec<u8>>,
    one_file_system: bool,
    own: Arc<OwnPlaces>,
}

impl Rules {
    /// Adds the lines of a file of globs; blank lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// If it is not UTF-8. Names that are not UTF-8 are matched by `?` and `*`.
    pub fn add_lines(&mut self, text: &[u8]) -> Result<(), BadPattern> {
        let text = std::str::from_utf8(text).map_err(|error| BadPattern {
            pattern: String::from_utf8_lossy(text).lines().last().unwrap_or_default().to_owned(),
            reason: error.to_string(),
        })?;
        self.globs.extend(text.lines().map(str::to_owned));
        Ok(())
    }

    /// Makes them ready.
    ///
    /// # Errors
    /// The first glob that cannot be understood.
    pub fn build(self) -> Result<Exclude, BadPattern> {
        let mut builder = GitignoreBuilder::new("");
        // Git takes an unclosed `[` for itself; here it is more likely a mistake that would go unnoticed.
        builder.allow_unclosed_class(false);
        for glob in &self.globs {
            builder
                .add_line(None, glob)
                .map_err(|error| BadPattern { pattern: glob.clone(), reason: error.to_string() })?;
        }
        let globs = builder
            .build()
            .map_err(|error| BadPattern { pattern: self.globs.join("\n"), reason: error.to_string() })?;
        Ok(Exclude {
            globs: (!globs.is_empty()).then_some(globs),
            caches: self.caches,
            if_present: self.if_present,
            one_file_system: self.one_file_system,
            own: Arc::default(),
        })
    }
}

impl Exclude {
    /// Whether [`excludes`](Self::excludes) can be true at all: else no path need be put together.
    #[must_use]
    pub fn has_globs(&self) -> bool {
        self.globs.is_some()
    }

    /// Whether the globs exclude this path below the root, given without a slash at its start. Says nothing of the
    /// directories above it: those were asked before.
    #[must_use]
    pub fn excludes(&self, relative: &[u8], is_directory: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(relative));
        self.globs.as_ref().is_some_and(|globs| globs.matched(path, is_directory).is_ignore())
    }

    /// Whether a directory's contents are left out because it lies on another device than its root.
    #[must_use]
    pub fn stops_at(&self, root_dev: u64, dev: u64) -> bool {
        self.one_file_system && root_dev != dev
    }

    /// The same, which leaves out these places of kitbag's own, too.
    #[must_use]
    pub fn with_own(self, own: OwnPlaces) -> Self {
        Self { own: Arc::new(own), ..self }
    }

    /// The places of kitbag's own.
    #[must_use]
    pub fn own(&self) -> &OwnPlaces {
        &self.own
    }

    /// If the contents of this directory are left out because it is tagged: the tag, which is kept. Costs system
    /// calls only where there is a `CACHEDIR.TAG`.
    #[must_use]
    pub fn tag_of<'a>(&'a self, dir: &DirFd, names: &NameList) -> Option<&'a [u8]> {
        if let Some(name) = self.if_present.iter().find(|name| names.contains(name)) {
            return Some(name);
        }
        (self.caches && names.contains(CACHE_TAG) && has_signature(dir)).then_some(CACHE_TAG)
    }
}

/// One that cannot be read tags nothing; it is reported when the backup comes to it.
fn has_signature(dir: &DirFd) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(fd) = openat(dir, CACHE_TAG, flags, Mode::empty()) else { return false };
    let mut start = [0; CACHE_SIGNATURE.len()];
    stat_fd(&fd).is_ok_and(|stat| stat.kind == Kind::File)
        && pread(&fd, &mut start, 0).is_ok_and(|len| len == start.len())
        && start == *CACHE_SIGNATURE
}

#[cfg(test)]
mod tests {
    use super::super::testing::Scratch;
    use super::*;

    fn globs(lines: &str) -> Exclude {
        let mut rules = Rules::default();
        rules.add_lines(lines.as_bytes()).unwrap();
        rules.build().unwrap()
    }

    #[test]
    fn globs_are_gits() {
        let exclude = globs("# comment\n\n*.o\n!keep.o\n/top\nonly-dir/\na/**/z\n");
        assert!(exclude.excludes(b"x.o", false));
        assert!(exclude.excludes(b"deep/down/x.o", false));
        assert!(exclude.excludes(b"deep/\xff\xfe.o", false));
        assert!(!exclude.excludes(b"deep/keep.o", false));
        assert!(exclude.excludes(b"top", true));
        assert!(!exclude.excludes(b"deep/top", true));
        assert!(exclude.excludes(b"deep/only-dir", true));
        assert!(!exclude.excludes(b"deep/only-dir", false));
        assert!(exclude.excludes(b"a/b/c/z", false));
        assert!(!exclude.excludes(b"other", false));
        assert!(!globs("# nothing\n").has_globs());
    }

    #[test]
    fn bad_patterns_are_named() {
        let rules = Rules { globs: vec!["good".to_owned(), "bad[".to_owned()], ..Rules::default() };
        assert_eq!(rules.build().unwrap_err().pattern, "bad[");
        assert!(Rules::default().add_lines(b"\xff").is_err());
    }

    #[test]
    fn tags() {
        let scratch = Scratch::new();
        let root = scratch.open();
        let tag_of = |rules: Rules| {
            let (fd, names) = (root.fd().unwrap(), root.names().unwrap());
            rules.build().unwrap().tag_of(&fd, &names).map(<[u8]>::to_vec)
        };
        let caches = Rules { caches: true, ..Rules::default() };
        let marked = Rules { if_present: vec![b".nobackup".to_vec()], ..Rules::default() };
        std::fs::write(scratch.join("CACHEDIR.TAG"), "Signature: something else altogether, longer than it")
            .unwrap();
        assert_eq!(tag_of(caches.clone()), None);
        std::fs::write(scratch.join("CACHEDIR.TAG"), [&CACHE_SIGNATURE[..], b"\n# more"].concat()).unwrap();
        assert_eq!(tag_of(caches), Some(CACHE_TAG.to_vec()));
        assert_eq!(tag_of(Rules::default()), None);
        assert_eq!(tag_of(marked.clone()), None);
        std::fs::create_dir(scratch.join(".nobackup")).unwrap();
        assert_eq!(tag_of(marked), Some(b".nobackup".to_vec()));
    }

    #[test]
    fn other_file_systems() {
        let stop = Rules { one_file_system: true, ..Rules::default() }.build().unwrap();
        assert!(stop.stops_at(1, 2) && !stop.stops_at(1, 1) && !globs("").stops_at(1, 2));
    }
}
