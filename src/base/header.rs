//! The first bytes of the files of a repository.
//!
//! ```text
//! offset  bytes
//!      0  8      4b 49 54 42 41 47 1a 0a ("KITBAG", ^Z, newline)
//!      8  1      format version: 1
//!      9  1      kind of file
//! ```

/// What every file begins with. The ^Z stops `type`; the newline shows a transfer that changes line ends.
pub const MAGIC: [u8; 8] = *b"KITBAG\x1a\n";
/// The format version that is written, and the newest that is read.
pub const VERSION: u8 = 1;
/// Bytes of a header.
pub const LEN: usize = MAGIC.len() + 2;

/// Why bytes are not a file of the kind expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// They do not begin as a file of kitbag.
    #[error("not a file of kitbag")]
    Foreign,
    /// Written by a later kitbag.
    #[error("of format version {0}, which needs a newer kitbag")]
    Newer(u8),
    /// The file is of another kind, too short, or of a version that never was.
    #[error("not the kind of file that belongs there")]
    Unexpected,
}

/// The header of a file of this kind.
#[must_use]
pub fn encode(kind: u8) -> [u8; LEN] {
    let [a, b, c, d, e, f, g, h] = MAGIC;
    [a, b, c, d, e, f, g, h, VERSION, kind]
}

/// Checks that `file` begins as one of this kind.
///
/// # Errors
/// When it does not.
pub fn check(kind: u8, file: &[u8]) -> Result<(), HeaderError> {
    let (magic, rest) = file.split_first_chunk().ok_or(HeaderError::Foreign)?;
    if *magic != MAGIC {
        return Err(HeaderError::Foreign);
    }
    match rest {
        [version, ..] if *version > VERSION => Err(HeaderError::Newer(*version)),
        [VERSION, number, ..] if *number == kind => Ok(()),
        _ => Err(HeaderError::Unexpected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_header_is_told_apart() {
        let file = [&encode(7)[..], b"rest"].concat();
        assert_eq!(check(7, &file), Ok(()));
        assert_eq!(check(8, &file), Err(HeaderError::Unexpected));
        assert_eq!(check(7, &file[..9]), Err(HeaderError::Unexpected));
        assert_eq!(check(7, &file[..7]), Err(HeaderError::Foreign));
        assert_eq!(check(7, b"something else"), Err(HeaderError::Foreign));
        assert_eq!(check(7, b"KITBAG\x1a\n\x02\x07"), Err(HeaderError::Newer(2)));
        assert_eq!(check(7, b"KITBAG\x1a\n\x00\x07"), Err(HeaderError::Unexpected));
    }
}
