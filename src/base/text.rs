//! Names that are bytes, and what the system says, shown to people.

use std::fmt::Write as _;
use std::io;

use rustix::io::Errno;

/// A file name or path as one line of text: control characters, backslashes and bytes that are not UTF-8 are
/// escaped (`\n`, `\x1b`, `\\`), so that a name can neither forge a line nor drive a terminal.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for piece in bytes.utf8_chunks() {
        for c in piece.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                // Besides controls, what reorders or hides text on a terminal.
                c if c.is_control()
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}') =>
                {
                    let mut buffer = [0; 4];
                    for byte in c.encode_utf8(&mut buffer).bytes() {
                        let _ = write!(text, "\\x{byte:02x}");
                    }
                }
                c => text.push(c),
            }
        }
        for byte in piece.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// What the system says, in its words alone: the number behind them is of use to nobody. What a library says of a plain kind of failure is put as the
/// system would.
#[must_use]
pub fn system(error: &io::Error) -> String {
    if let Some(number) = error.raw_os_error() {
        let text = error.to_string();
        let number = format!(" (os error {number})");
        return text.strip_suffix(&number).map_or_else(|| text.clone(), str::to_owned);
    }
    match error.kind() {
        io::ErrorKind::NotFound if error.get_ref().is_none() => system(&Errno::NOENT.into()),
        io::ErrorKind::PermissionDenied if error.get_ref().is_none() => system(&Errno::ACCESS.into()),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_speaks_without_numbers() {
        assert_eq!(system(&Errno::NOENT.into()), "No such file or directory");
        assert_eq!(system(&io::ErrorKind::NotFound.into()), "No such file or directory");
        assert_eq!(system(&io::ErrorKind::PermissionDenied.into()), "Permission denied");
        assert_eq!(system(&io::Error::other("it is too long")), "it is too long");
    }

    #[test]
    fn nothing_drives_the_terminal() {
        assert_eq!(escape(b"a\x1b[2J\nb\\\xff"), "a\\x1b[2J\\nb\\\\\\xff");
        assert_eq!(escape("käse".as_bytes()), "käse");
        assert_eq!(escape("\u{202e}x".as_bytes()), "\\xe2\\x80\\xaex");
    }
}
