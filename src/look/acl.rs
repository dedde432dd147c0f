//! POSIX access lists in words, as archives carry them.

use std::fmt::Write as _;

/// The version of the form in which Linux keeps them.
const VERSION: u32 = 2;

/// The list in the value of `system.posix_acl_access` or `system.posix_acl_default`, by numbers: `user::rw-,user:1:r--,group::r--,mask::r--,other::r--`. `None` if it is
/// none.
#[must_use]
pub fn text(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    let mut text = String::new();
    for [t0, t1, p0, p1, id @ ..] in entries {
        let (tag, bits, id) =
            (u16::from_le_bytes([*t0, *t1]), u16::from_le_bytes([*p0, *p1]), u32::from_le_bytes(*id));
        let (name, has_id) = match tag {
            0x01 => ("user", false),
            0x02 => ("user", true),
            0x04 => ("group", false),
            0x08 => ("group", true),
            0x10 => ("mask", false),
            0x20 => ("other", false),
            _ => return None,
        };
        if !text.is_empty() {
            text.push(',');
        }
        let id = if has_id { id.to_string() } else { String::new() };
        // Writing to a string does not fail.
        let _ = write!(text, "{name}:{id}:");
        let letters = [(4, 'r'), (2, 'w'), (1, 'x')];
        text.extend(letters.map(|(bit, letter)| if bits & bit == 0 { '-' } else { letter }));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words() {
        let mut value = vec![2, 0, 0, 0];
        for (tag, bits, id) in
            [(1u16, 6u16, u32::MAX), (2, 4, 1), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
        {
            value.extend(tag.to_le_bytes());
            value.extend(bits.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        assert_eq!(text(&value).as_deref(), Some("user::rw-,user:1:r--,group::r--,mask::r--,other::---"));
        assert_eq!(text(&value[..value.len() - 1]), None);
        assert_eq!(text(b"\x03\0\0\0"), None);
        assert_eq!(text(b""), None);
    }
}
