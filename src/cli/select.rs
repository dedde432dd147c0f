//! Which entries of a generation the paths of a command line mean.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::error::Failure;
use crate::base::text::escape;
use crate::generation::Root;

/// The paths that were named; none means everything.
#[derive(Debug)]
pub struct Selection {
    wanted: Vec<Wanted>,
}

#[derive(Debug)]
struct Wanted {
    /// As it was typed, for messages.
    typed: PathBuf,
    /// Where it may be.
    paths: Vec<Vec<u8>>,
    found: bool,
}

/// How an entry stands to a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// It was named, or lies below what was.
    Inside,
    /// What was named lies below it.
    Above,
    /// Neither.
    Outside,
}

impl Selection {
    /// What was named; a relative path means what lies at it below any of the roots.
    #[must_use]
    pub fn new(typed: &[PathBuf], roots: &[Root]) -> Self {
        let wanted = typed.iter().map(|path| Wanted {
            typed: path.clone(),
            paths: if path.is_absolute() {
                vec![absolute(path, Path::new("/"))]
            } else {
                let below = |root: &Root| absolute(path, Path::new(OsStr::from_bytes(&root.path)));
                roots.iter().map(below).collect()
            },
            found: false,
        });
        Self { wanted: wanted.collect() }
    }

    /// How the entry at this absolute path stands to it; remembers which of the paths were found.
    pub fn look(&mut self, path: &[u8]) -> Relation {
        if self.wanted.is_empty() {
            return Relation::Inside;
        }
        let mut relation = Relation::Outside;
        for wanted in &mut self.wanted {
            for top in &wanted.paths {
                wanted.found |= top == path;
                if is_at_or_below(path, top) {
                    relation = Relation::Inside;
                } else if relation == Relation::Outside && is_at_or_below(top, path) {
                    relation = Relation::Above;
                }
            }
        }
        relation
    }

    /// That a path that was named is nowhere.
    ///
    /// # Errors
    /// The first such path.
    pub fn all_found(&self) -> Result<(), Failure> {
        match self.wanted.iter().find(|wanted| !wanted.found) {
            None => Ok(()),
            Some(wanted) => {
                let path = escape(wanted.typed.as_os_str().as_bytes());
                Err(Failure::failed(format!("the generation does not hold {path}"))
                    .hint("`kitbag ls` lists what it holds"))
            }
        }
    }
}

/// The absolute form of a path, without `.`, doubled slashes, and slashes at its end; `..` takes one name back. Nothing on the disk is looked
/// at: the path means what was saved, whatever is there now.
#[must_use]
pub fn absolute(path: &Path, here: &Path) -> Vec<u8> {
    let joined = here.join(path);
    let mut names: Vec<&[u8]> = Vec::new();
    for name in joined.as_os_str().as_bytes().split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let mut absolute = vec![b'/'];
    absolute.extend(names.join(&b'/'));
    absolute
}

/// What a path on a command line names in a generation: an absolute path in its plain form, or a path below a root, without `.` and
/// needless slashes.
#[must_use]
pub fn named(path: &Path) -> Vec<u8> {
    let plain = absolute(path, Path::new("/"));
    if path.is_absolute() { plain } else { plain.get(1..).unwrap_or_default().to_vec() }
}

/// Joins a directory's path and a name in it.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    match path.strip_prefix(top) {
        Some(rest) => rest.is_empty() || top == b"/" || rest.starts_with(b"/"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if there were one root, `/home/ada`.
    fn select(typed: &[&str]) -> Selection {
        let below = |path: &&str| Wanted {
            typed: PathBuf::from(path),
            paths: vec![absolute(Path::new(path), Path::new("/home/ada"))],
            found: false,
        };
        Selection { wanted: typed.iter().map(below).collect() }
    }

    #[test]
    fn nothing_named_means_everything() {
        let mut all = select(&[]);
        assert_eq!(all.look(b"/anything"), Relation::Inside);
        assert_eq!(all.all_found(), Ok(()));
    }

    #[test]
    fn above_inside_outside() {
        let mut selection = select(&["docs//./letters/", "/etc"]);
        for (path, relation) in [
            (&b"/"[..], Relation::Above),
            (b"/home", Relation::Above),
            (b"/home/ada/docs", Relation::Above),
            (b"/home/ada/docs/letters", Relation::Inside),
            (b"/home/ada/docs/letters/one", Relation::Inside),
            (b"/home/ada/docs/letters2", Relation::Outside),
            (b"/etc/passwd", Relation::Inside),
            (b"/et", Relation::Outside),
        ] {
            assert_eq!(selection.look(path), relation, "{}", path.escape_ascii());
        }
        assert!(selection.all_found().expect_err("etc").to_string().contains("/etc"));
    }

    #[test]
    fn paths_become_absolute() {
        let here = Path::new("/home/ada");
        for (path, expected) in [
            ("x", "/home/ada/x"),
            ("../x/", "/home/x"),
            ("/", "/"),
            ("/../a//b/.", "/a/b"),
            (".", "/home/ada"),
        ] {
            assert_eq!(absolute(Path::new(path), here), expected.as_bytes(), "{path}");
        }
    }

    #[test]
    fn the_root_is_above_all() {
        assert_eq!(select(&["/"]).look(b"/x"), Relation::Inside);
        assert_eq!(join(b"/", b"x"), b"/x");
        assert_eq!(join(b"/a", b"x"), b"/a/x");
    }
}
