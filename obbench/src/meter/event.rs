//! What a tap reports, and its form on the way to the meter: 16 bytes, little-endian.

use std::time::Duration;

/// Bytes of an event.
pub(super) const SIZE: usize = 16;

/// A packet that has been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// The machine's monotonic time, which all processes share.
    pub at: Duration,
    /// Whether it goes to the client.
    pub answer: bool,
    /// The packet's type, or a code of [`EXTENSIONS`].
    pub kind: u8,
    /// Its bytes, with the length field.
    pub bytes: u32,
}

/// Extensions by name; the code is 240 and the place.
const EXTENSIONS: [&str; 12] = [
    "extended",
    "posix-rename@openssh.com",
    "statvfs@openssh.com",
    "fstatvfs@openssh.com",
    "hardlink@openssh.com",
    "fsync@openssh.com",
    "lsetstat@openssh.com",
    "limits@openssh.com",
    "expand-path@openssh.com",
    "copy-data",
    "home-directory",
    "users-groups-by-id@openssh.com",
];
const FIRST_EXTENSION: u8 = 240;

const TYPES: [(u8, &str); 19] = [
    (1, "init"),
    (3, "open"),
    (4, "close"),
    (5, "read"),
    (6, "write"),
    (7, "lstat"),
    (8, "fstat"),
    (9, "setstat"),
    (10, "fsetstat"),
    (11, "opendir"),
    (12, "readdir"),
    (13, "remove"),
    (14, "mkdir"),
    (15, "rmdir"),
    (16, "realpath"),
    (17, "stat"),
    (18, "rename"),
    (19, "readlink"),
    (20, "symlink"),
];

/// The code of an extended request.
pub(super) fn extension(name: &[u8]) -> u8 {
    let place = EXTENSIONS.iter().position(|known| known.as_bytes() == name).unwrap_or_default();
    u8::try_from(place).map_or(FIRST_EXTENSION, |place| FIRST_EXTENSION.saturating_add(place))
}

/// The protocol's name of a request.
pub(super) fn name(kind: u8) -> &'static str {
    if let Some(extension) = kind.checked_sub(FIRST_EXTENSION) {
        return EXTENSIONS.get(usize::from(extension)).copied().unwrap_or("extended");
    }
    TYPES.iter().find(|one| one.0 == kind).map_or("unknown", |one| one.1)
}

impl Event {
    pub(super) fn encode(self) -> [u8; SIZE] {
        let nanos = u64::try_from(self.at.as_nanos()).unwrap_or(u64::MAX);
        let mut bytes = [0; SIZE];
        let (time, rest) = bytes.split_at_mut(8);
        time.copy_from_slice(&nanos.to_le_bytes());
        let (length, rest) = rest.split_at_mut(4);
        length.copy_from_slice(&self.bytes.to_le_bytes());
        rest.copy_from_slice(&[self.kind, u8::from(self.answer), 0, 0]);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; SIZE]) -> Self {
        let [t0, t1, t2, t3, t4, t5, t6, t7, l0, l1, l2, l3, kind, answer, _, _] = *bytes;
        Self {
            at: Duration::from_nanos(u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7])),
            bytes: u32::from_le_bytes([l0, l1, l2, l3]),
            kind,
            answer: answer != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_it_was() {
        let event = Event { at: Duration::from_nanos(1 << 60), answer: true, kind: 245, bytes: u32::MAX };
        assert_eq!(Event::decode(&event.encode()), event);
        assert_eq!(name(extension(b"fsync@openssh.com")), "fsync@openssh.com");
        assert_eq!(name(extension(b"something-new")), "extended");
        assert_eq!(name(6), "write");
    }
}
