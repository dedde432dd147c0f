//! A path of the client, taken apart: the names on the way down from the directory that is served.

use super::refusal::Refusal;
use crate::sftp::reply::Code;

/// The longest path: the system's own limit.
const LONGEST: usize = 4096;

/// Where something is: names without `.`, `..` and empty ones; none is the directory itself.
///
/// That is `/` for the client, and where relative paths begin. `..` is undone by the name before it, as a shell does, which is exact since no symbolic
/// link is ever followed; above the top it stays there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot(Vec<Vec<u8>>);

impl Spot {
    pub(super) fn of(path: &[u8]) -> Result<Self, Refusal> {
        if path.len() >= LONGEST {
            return Err(Refusal::new(Code::BadMessage, "the path is too long"));
        }
        if path.contains(&0) {
            return Err(Refusal::new(Code::BadMessage, "there is a zero byte in the path"));
        }
        let mut names = Vec::new();
        for name in path.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => drop(names.pop()),
                _ => names.push(name.to_vec()),
            }
        }
        Ok(Self(names))
    }

    /// A name in a directory.
    pub(super) fn below(dir: &[Vec<u8>], name: &[u8]) -> Self {
        Self(dir.iter().cloned().chain([name.to_vec()]).collect())
    }

    /// The names, the outermost first.
    pub(super) fn names(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// The last name and those before it; none of the directory itself.
    pub(super) fn split(&self) -> Option<(&[Vec<u8>], &[u8])> {
        self.0.split_last().map(|(last, above)| (above, last.as_slice()))
    }

    /// As the client writes it.
    pub(super) fn absolute(&self) -> Vec<u8> {
        let mut path = vec![b'/'];
        path.extend(self.0.join(&b'/'));
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_path_stays_below() {
        for (path, absolute) in [
            ("", "/"),
            (".", "/"),
            ("/", "/"),
            ("..", "/"),
            ("/../..//./a", "/a"),
            ("a/../../b/./c/", "/b/c"),
            ("/a//b", "/a/b"),
            ("...", "/..."),
        ] {
            let spot = Spot::of(path.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(spot.absolute()).unwrap(), absolute, "{path}");
        }
        assert!(Spot::of(b"a\0b").is_err());
        assert!(Spot::of(&[b'a'; LONGEST]).is_err());
    }
}
