//! Which entries of a generation the paths of a command line mean.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::error::Failure;
use crate::bag::source::Source;
use crate::base::text::escape;
use crate::dir::reader::TreeError;
use crate::entry::Entry;
use crate::generation::Generation;
use crate::generation::locate::{locate, names};

/// Where a walk through what was named begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Start<E = Entry> {
    /// The root's path.
    pub root: Vec<u8>,
    /// The whole path.
    pub path: Vec<u8>,
    /// What stands there.
    pub entry: E,
}

/// What the paths of a command line name in a generation, in the order of their names, nothing twice; all roots when there are none. Beside it the failure
/// to end with if one of them names nothing.
///
/// # Errors
/// When a directory on the way cannot be read.
pub fn starts(
    source: &Source,
    generation: &Generation,
    paths: &[PathBuf],
) -> Result<(Vec<Start>, Option<Failure>), TreeError> {
    let mut starts = Vec::new();
    let mut missing = None;
    if paths.is_empty() {
        let roots = generation.roots.iter();
        starts.extend(roots.map(|root| Start {
            root: root.path.clone(),
            path: root.path.clone(),
            entry: root.entry.clone(),
        }));
    }
    for typed in paths {
        let found = locate(source, generation, &named(typed))?;
        if found.is_empty() {
            let path = escape(typed.as_os_str().as_bytes());
            missing.get_or_insert_with(|| {
                Failure::failed(format!("the generation does not hold {path}"))
                    .hint("`kitbag ls` lists what it holds")
            });
        }
        for mut located in found {
            let (root, path) = (located.root.path.clone(), located.path());
            starts.extend(located.way.pop().map(|entry| Start { root, path, entry }));
        }
    }
    Ok((distinct(starts), missing))
}

/// What stands below something else that is there, in the same root, comes with that.
fn distinct<E>(mut starts: Vec<Start<E>>) -> Vec<Start<E>> {
    let order = |one: &Start<E>, next: &Start<E>| {
        let names = |path| names(path).unwrap_or_default();
        one.root.cmp(&next.root).then_with(|| names(&one.path).cmp(&names(&next.path)))
    };
    starts.sort_by(order);
    starts.dedup_by(|next, one| next.root == one.root && is_at_or_below(&next.path, &one.path));
    starts
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

/// Whether an absolute path is that of `top` or of something below it.
#[must_use]
pub fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    match path.strip_prefix(top) {
        Some(rest) => rest.is_empty() || top == b"/" || rest.starts_with(b"/"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn nothing_is_listed_twice() {
        let start = |(root, path): (&str, &str)| Start { root: root.into(), path: path.into(), entry: () };
        let named = [("/a", "/a/b/c"), ("/a", "/a/b"), ("/a", "/a/b-"), ("/a/b", "/a/b"), ("/a", "/a/b/d/e")];
        let distinct = distinct(named.map(start).into());
        let paths: Vec<_> = distinct.iter().map(|start| (&start.root[..], &start.path[..])).collect();
        assert_eq!(paths, [(&b"/a"[..], &b"/a/b"[..]), (b"/a", b"/a/b-"), (b"/a/b", b"/a/b")]);
        assert_eq!(super::distinct(vec![start(("/", "/x")), start(("/", "/"))]).len(), 1);
    }

    #[test]
    fn names_in_a_generation() {
        assert_eq!(named(Path::new("/home/./ada/")), b"/home/ada");
        assert_eq!(named(Path::new("docs//letters/")), b"docs/letters");
    }
}
