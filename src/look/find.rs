//! Looking for files in several generations.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use globset::{GlobBuilder, GlobMatcher};

use super::diff;
use super::versions::{Met, Set, union};
use crate::base::time::Timestamp;
use crate::entry::{Entry, Kind};

/// What is looked for. Everything by default.
#[derive(Debug, Clone, Default)]
pub struct Query {
    names: Vec<Name>,
    /// Bytes of contents at least.
    pub min_size: Option<u64>,
    /// Bytes of contents at most.
    pub max_size: Option<u64>,
    /// Changed then or later.
    pub after: Option<Timestamp>,
    /// Changed before that.
    pub before: Option<Timestamp>,
    /// Of these kinds; of any if there are none.
    pub kinds: Vec<Kind>,
}

#[derive(Debug, Clone)]
struct Name {
    glob: GlobMatcher,
    is_path: bool,
}

/// A pattern that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("the pattern {pattern:?} cannot be understood: {reason}")]
pub struct BadGlob {
    /// The pattern.
    pub pattern: String,
    /// Why.
    pub reason: String,
}

/// A state of a file, and in which generations it is.
#[derive(Debug)]
pub struct Version {
    /// The generations.
    pub set: Set,
    /// The file, as the first of them has it.
    pub entry: Entry,
}

impl Query {
    /// Names that match this glob are looked for (too). One with a slash in it is matched against the whole path, from its beginning if the slash stands there.
    ///
    /// # Errors
    /// When it cannot be understood.
    pub fn add_name(&mut self, pattern: &str, ignores_case: bool) -> Result<(), BadGlob> {
        let is_path = pattern.contains('/');
        let whole =
            if is_path && !pattern.starts_with('/') { format!("**/{pattern}") } else { pattern.to_owned() };
        let glob = GlobBuilder::new(&whole)
            .literal_separator(true)
            .case_insensitive(ignores_case)
            .backslash_escape(true)
            .build();
        let glob =
            glob.map_err(|error| BadGlob { pattern: pattern.to_owned(), reason: error.kind().to_string() })?;
        self.names.push(Name { glob: glob.compile_matcher(), is_path });
        Ok(())
    }

    /// The different states that are looked for of what was met, those of the latest generations last.
    #[must_use]
    pub fn versions(&self, met: Met) -> Vec<Version> {
        if !self.fits_name(&met.path) {
            return Vec::new();
        }
        let mut versions: Vec<Version> = Vec::new();
        for (set, entry) in met.entries.into_iter().filter(|(_, entry)| self.fits(entry)) {
            let same = versions.iter_mut().find(|version| diff::aspects(&version.entry, &entry).is_empty());
            match same {
                Some(version) => version.set = union(&version.set, &set),
                None => versions.push(Version { set, entry }),
            }
        }
        versions.sort_by(|one, next| one.set.cmp(&next.set));
        versions
    }

    fn fits_name(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.names.is_empty()
            || self.names.iter().any(|one| {
                let text = if one.is_path { path } else { name };
                one.glob.is_match(OsStr::from_bytes(text))
            })
    }

    fn fits(&self, entry: &Entry) -> bool {
        let metadata = &entry.metadata;
        let sized = self.min_size.is_some() || self.max_size.is_some();
        (self.kinds.is_empty() || self.kinds.contains(&metadata.kind))
            && (!sized || metadata.kind == Kind::File)
            && self.min_size.is_none_or(|least| metadata.size >= least)
            && self.max_size.is_none_or(|most| metadata.size <= most)
            && self.after.is_none_or(|time| metadata.mtime >= time)
            && self.before.is_none_or(|time| metadata.mtime < time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        for (pattern, path, fits) in [
            ("*.txt", "/home/ada/letter.txt", true),
            ("*.txt", "/home/x.txt/letter", false),
            ("letter*", "/home/ada/letter.txt", true),
            ("[ab]?", "/b1", true),
            ("ada/*.txt", "/home/ada/letter.txt", true),
            ("ada/*.txt", "/home/ada/sub/letter.txt", false),
            ("ada/**/*.txt", "/home/ada/sub/deep/letter.txt", true),
            ("/home/*", "/home/ada", true),
            ("/home/*", "/x/home/ada", false),
            ("LETTER.txt", "/letter.txt", false),
        ] {
            let mut query = Query::default();
            query.add_name(pattern, false).unwrap();
            assert_eq!(query.fits_name(path.as_bytes()), fits, "{pattern} {path}");
        }
        let mut query = Query::default();
        query.add_name("LETTER*", true).unwrap();
        assert!(query.fits_name(b"/letter.txt"));
        assert!(query.fits_name(b"/letter\xff"));
        assert!(Query::default().fits_name(b"/anything"));
        assert!(query.add_name("[", false).is_err());
    }
}
