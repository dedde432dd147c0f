//! Which entries of a generation the paths of a command line mean.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::error::Failure;

/// The paths that were named; none means everything.
#[derive(Debug)]
pub struct Selection {
    wanted: Vec<Wanted>,
}

#[derive(Debug)]
struct Wanted {
    path: Vec<u8>,
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
    /// What was named; relative paths count from `here`, as the shell's do.
    #[must_use]
    pub fn new(paths: &[PathBuf], here: &Path) -> Self {
        let wanted = paths.iter().map(|path| Wanted { path: absolute(path, here), found: false });
        Self { wanted: wanted.collect() }
    }

    /// How the entry at this absolute path stands to it; remembers which of the paths were found.
    pub fn look(&mut self, path: &[u8]) -> Relation {
        if self.wanted.is_empty() {
            return Relation::Inside;
        }
        let mut relation = Relation::Outside;
        for wanted in &mut self.wanted {
            if wanted.path == path {
                wanted.found = true;
            }
            if is_at_or_below(path, &wanted.path) {
                relation = Relation::Inside;
            } else if relation == Relation::Outside && is_at_or_below(&wanted.path, path) {
                relation = Relation::Above;
            }
        }
        relation
    }

    /// The absolute paths that were named.
    #[must_use]
    pub fn paths(&self) -> Vec<Vec<u8>> {
        self.wanted.iter().map(|wanted| wanted.path.clone()).collect()
    }

    /// That a path that was named is nowhere.
    ///
    /// # Errors
    /// The first such path.
    pub fn all_found(&self) -> Result<(), Failure> {
        match self.wanted.iter().find(|wanted| !wanted.found) {
            None => Ok(()),
            Some(wanted) => {
                let path = crate::base::text::escape(&wanted.path);
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

    fn select(paths: &[&str]) -> Selection {
        let paths: Vec<_> = paths.iter().map(PathBuf::from).collect();
        Selection::new(&paths, Path::new("/home/ada"))
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
