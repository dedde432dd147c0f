//! The few pieces of SSH's wire format that stand in key files: strings behind a 32-bit length.

/// Takes one string off the front.
pub(super) fn string<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (string, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(string)
}

/// The type that a public key names itself: the first string in it.
pub(super) fn key_type(mut key: &[u8]) -> Option<&str> {
    std::str::from_utf8(string(&mut key)?).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked() {
        assert_eq!(key_type(b"\0\0\0\x03abcrest"), Some("abc"));
        assert_eq!(key_type(b"\0\0\0\x04abc"), None);
        assert_eq!(key_type(b"\xff\xff\xff\xffabc"), None);
        assert_eq!(key_type(b"\0\0"), None);
    }
}
