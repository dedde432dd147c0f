//! Requests as packets, and a stream of bytes as packets. No I/O.
//!
//! SFTP version 3 is draft-ietf-secsh-filexfer-02; the extensions are described in OpenSSH's file PROTOCOL.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::fields::{Malformed, put_string};

/// The longest packet that is taken from the other side, without its length field. OpenSSH's own limit is 256 KiB.
pub const MAX_PACKET: usize = 257 * 1024;

/// The longest payload of one READ or WRITE: what OpenSSH allows, and what leaves room for the rest of the packet.
pub const MAX_PAYLOAD: u32 = 255 * 1024;

/// The payload every server must be able to take.
pub const SAFE_PAYLOAD: u32 = 32 * 1024;

pub(super) mod wire {
    //! Numbers of packet types.
    pub(crate) const INIT: u8 = 1;
    pub(crate) const VERSION: u8 = 2;
    pub(crate) const OPEN: u8 = 3;
    pub(crate) const CLOSE: u8 = 4;
    pub(crate) const READ: u8 = 5;
    pub(crate) const WRITE: u8 = 6;
    pub(crate) const LSTAT: u8 = 7;
    pub(crate) const FSTAT: u8 = 8;
    pub(crate) const SETSTAT: u8 = 9;
    pub(crate) const FSETSTAT: u8 = 10;
    pub(crate) const OPENDIR: u8 = 11;
    pub(crate) const READDIR: u8 = 12;
    pub(crate) const REMOVE: u8 = 13;
    pub(crate) const MKDIR: u8 = 14;
    pub(crate) const RMDIR: u8 = 15;
    pub(crate) const REALPATH: u8 = 16;
    pub(crate) const STAT: u8 = 17;
    pub(crate) const RENAME: u8 = 18;
    pub(crate) const READLINK: u8 = 19;
    pub(crate) const SYMLINK: u8 = 20;
    pub(crate) const STATUS: u8 = 101;
    pub(crate) const HANDLE: u8 = 102;
    pub(crate) const DATA: u8 = 103;
    pub(crate) const NAME: u8 = 104;
    pub(crate) const ATTRS: u8 = 105;
    pub(crate) const EXTENDED: u8 = 200;
    pub(crate) const EXTENDED_REPLY: u8 = 201;
}

/// Names of extensions.
pub mod extension {
    /// fsync of an open handle.
    pub const FSYNC: &str = "fsync@openssh.com";
    /// A rename that overwrites.
    pub const POSIX_RENAME: &str = "posix-rename@openssh.com";
    /// What sizes the server takes.
    pub const LIMITS: &str = "limits@openssh.com";
    /// How much room there is.
    pub const STATVFS: &str = "statvfs@openssh.com";
    /// A copy made by the server.
    pub const COPY_DATA: &str = "copy-data";
    /// What is there cannot be changed or removed: said by `kitbag serve`, so that a refusal can be explained. There is no such request.
    pub const APPEND_ONLY: &str = "append-only@kitbag";
    /// Nothing can be written: likewise.
    pub const READ_ONLY: &str = "read-only@kitbag";
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading.
    Read,
    /// For writing; it must exist.
    Write,
    /// For writing; it must not exist and is created with these permissions.
    CreateNew {
        /// The mode's lower bits.
        permissions: u32,
    },
}

/// Flags of OPEN.
pub mod flag {
    /// For reading.
    pub const READ: u32 = 0x1;
    /// For writing.
    pub const WRITE: u32 = 0x2;
    /// Every WRITE goes to the end.
    pub const APPEND: u32 = 0x4;
    /// What is missing is made.
    pub const CREATE: u32 = 0x8;
    /// What is there is emptied.
    pub const TRUNCATE: u32 = 0x10;
    /// With [`CREATE`]: it must not be there.
    pub const EXCLUSIVE: u32 = 0x20;
}

impl OpenMode {
    fn flags(self) -> u32 {
        match self {
            Self::Read => flag::READ,
            Self::Write => flag::WRITE,
            Self::CreateNew { .. } => flag::WRITE | flag::CREATE | flag::EXCLUSIVE,
        }
    }
}

/// One request. Paths are bytes; a relative one counts from the user's home directory. Handles are the server's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the protocol's own")]
pub enum Request {
    /// Opens a file; answered by a handle.
    Open { path: Vec<u8>, mode: OpenMode },
    /// Opens a directory for reading; answered by a handle.
    OpenDir { path: Vec<u8> },
    /// Closes a handle.
    Close { handle: Bytes },
    /// Reads a range; answered by data, which may be shorter.
    Read { handle: Bytes, offset: u64, len: u32 },
    /// Writes a range.
    Write { handle: Bytes, offset: u64, data: Bytes },
    /// Makes what was written durable (an extension).
    Fsync { handle: Bytes },
    /// Some more entries of a directory.
    ReadDir { handle: Bytes },
    /// Attributes of an open file.
    Fstat { handle: Bytes },
    /// Attributes, following symbolic links.
    Stat { path: Vec<u8> },
    /// Attributes of the name itself.
    Lstat { path: Vec<u8> },
    /// Removes a file.
    Remove { path: Vec<u8> },
    /// Makes a directory with these permissions.
    MakeDir { path: Vec<u8>, permissions: u32 },
    /// Renames; on OpenSSH it fails when the new name is taken.
    Rename { from: Vec<u8>, to: Vec<u8> },
    /// Renames and overwrites (an extension).
    PosixRename { from: Vec<u8>, to: Vec<u8> },
    /// The absolute form of a path.
    RealPath { path: Vec<u8> },
    /// The server's limits (an extension).
    Limits,
    /// The room on a file system (an extension).
    StatVfs { path: Vec<u8> },
}

/// What kind of request it is, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are those of `Request`")]
pub enum Kind {
    Init,
    Open,
    OpenDir,
    Close,
    Read,
    Write,
    Fsync,
    ReadDir,
    Fstat,
    Stat,
    Lstat,
    Remove,
    MakeDir,
    Rename,
    PosixRename,
    RealPath,
    Limits,
    StatVfs,
}

impl Request {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Open { .. } => Kind::Open,
            Self::OpenDir { .. } => Kind::OpenDir,
            Self::Close { .. } => Kind::Close,
            Self::Read { .. } => Kind::Read,
            Self::Write { .. } => Kind::Write,
            Self::Fsync { .. } => Kind::Fsync,
            Self::ReadDir { .. } => Kind::ReadDir,
            Self::Fstat { .. } => Kind::Fstat,
            Self::Stat { .. } => Kind::Stat,
            Self::Lstat { .. } => Kind::Lstat,
            Self::Remove { .. } => Kind::Remove,
            Self::MakeDir { .. } => Kind::MakeDir,
            Self::Rename { .. } => Kind::Rename,
            Self::PosixRename { .. } => Kind::PosixRename,
            Self::RealPath { .. } => Kind::RealPath,
            Self::Limits => Kind::Limits,
            Self::StatVfs { .. } => Kind::StatVfs,
        }
    }

    /// About how many bytes are under way for it in the larger direction while it is outstanding.
    #[must_use]
    pub fn cost(&self) -> u64 {
        const SMALL: u64 = 256;
        const LISTING: u64 = 16 * 1024;
        match self {
            Self::Read { len, .. } => SMALL.saturating_add(u64::from(*len)),
            Self::Write { data, .. } => SMALL.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX)),
            Self::ReadDir { .. } => LISTING,
            _ => SMALL,
        }
    }

    /// The packet: its head, and the bytes that follow (empty but for WRITE), which are not copied.
    #[must_use]
    pub fn encode(&self, id: u32) -> (Bytes, Bytes) {
        let mut body = Vec::with_capacity(128);
        let mut payload = Bytes::new();
        let number = match self {
            Self::Open { path, mode } => {
                put_string(&mut body, path);
                body.put_u32(mode.flags());
                put_permissions(
                    &mut body,
                    match mode {
                        OpenMode::CreateNew { permissions } => Some(*permissions),
                        _ => None,
                    },
                );
                wire::OPEN
            }
            Self::OpenDir { path } => put_path(&mut body, path, wire::OPENDIR),
            Self::Close { handle } => put_path(&mut body, handle, wire::CLOSE),
            Self::Read { handle, offset, len } => {
                put_string(&mut body, handle);
                body.put_u64(*offset);
                body.put_u32(*len);
                wire::READ
            }
            Self::Write { handle, offset, data } => {
                put_string(&mut body, handle);
                body.put_u64(*offset);
                body.put_u32(u32::try_from(data.len()).unwrap_or(u32::MAX));
                payload = data.clone();
                wire::WRITE
            }
            Self::Fsync { handle } => put_extended(&mut body, extension::FSYNC, &[handle]),
            Self::ReadDir { handle } => put_path(&mut body, handle, wire::READDIR),
            Self::Fstat { handle } => put_path(&mut body, handle, wire::FSTAT),
            Self::Stat { path } => put_path(&mut body, path, wire::STAT),
            Self::Lstat { path } => put_path(&mut body, path, wire::LSTAT),
            Self::Remove { path } => put_path(&mut body, path, wire::REMOVE),
            Self::MakeDir { path, permissions } => {
                put_string(&mut body, path);
                put_permissions(&mut body, Some(*permissions));
                wire::MKDIR
            }
            Self::Rename { from, to } => {
                put_string(&mut body, from);
                put_string(&mut body, to);
                wire::RENAME
            }
            Self::PosixRename { from, to } => put_extended(&mut body, extension::POSIX_RENAME, &[from, to]),
            Self::RealPath { path } => put_path(&mut body, path, wire::REALPATH),
            Self::Limits => put_extended(&mut body, extension::LIMITS, &[]),
            Self::StatVfs { path } => put_extended(&mut body, extension::STATVFS, &[path]),
        };
        (frame(number, id, &body, payload.len()), payload)
    }
}

/// Attributes that say no more than the permissions.
fn put_permissions(body: &mut Vec<u8>, permissions: Option<u32>) {
    const PERMISSIONS: u32 = 0x4;
    match permissions {
        Some(permissions) => {
            body.put_u32(PERMISSIONS);
            body.put_u32(permissions);
        }
        None => body.put_u32(0),
    }
}

fn put_path(body: &mut Vec<u8>, path: &[u8], number: u8) -> u8 {
    put_string(body, path);
    number
}

fn put_extended(body: &mut Vec<u8>, name: &str, arguments: &[&[u8]]) -> u8 {
    put_string(body, name.as_bytes());
    for argument in arguments {
        put_string(body, argument);
    }
    wire::EXTENDED
}

/// Length, number and id in front of a body that is followed by `more` bytes.
fn frame(number: u8, id: u32, body: &[u8], more: usize) -> Bytes {
    let len = body.len().saturating_add(more).saturating_add(5);
    let mut packet = BytesMut::with_capacity(body.len().saturating_add(9));
    packet.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
    packet.put_u8(number);
    packet.put_u32(id);
    packet.put_slice(body);
    packet.freeze()
}

/// The packet that begins a session. (The version stands where others have their id.)
#[must_use]
pub fn hello() -> Bytes {
    frame(wire::INIT, 3, &[], 0)
}

/// Cuts a stream of bytes into packets.
#[derive(Debug, Default)]
pub struct Packets(BytesMut);

impl Packets {
    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        // Room for all of a long packet at once, so that its bytes are not moved as it grows.
        if let Ok(Some(whole)) = self.next_len() {
            self.0.reserve(whole.saturating_sub(self.0.len()));
        }
    }

    /// The length of the next packet with its length field, if that has come.
    fn next_len(&self) -> Result<Option<usize>, Malformed> {
        let Some(len) = self.0.first_chunk::<4>() else { return Ok(None) };
        let len = usize::try_from(u32::from_be_bytes(*len)).unwrap_or(usize::MAX);
        if len == 0 || len > MAX_PACKET {
            return Err(Malformed("a packet's length is out of range"));
        }
        Ok(len.checked_add(4))
    }

    /// The next whole packet, without its length.
    ///
    /// # Errors
    /// When the length is 0 or beyond [`MAX_PACKET`]: the stream is of no use then.
    pub fn next_packet(&mut self) -> Result<Option<Bytes>, Malformed> {
        let Some(whole) = self.next_len()?.filter(|whole| *whole <= self.0.len()) else {
            return Ok(None);
        };
        let mut packet = self.0.split_to(whole).freeze();
        packet.advance(4);
        Ok(Some(packet))
    }

    /// Whether no bytes wait for more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_write_is_a_head_and_the_bytes_themselves() {
        let data = Bytes::from_static(b"abc");
        let request = Request::Write { handle: Bytes::from_static(&[0, 0, 0, 0x80]), offset: 7, data };
        let (head, payload) = request.encode(9);
        let expected =
            [0, 0, 0, 28, 6, 0, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3];
        assert_eq!(&head[..], expected);
        assert_eq!(&payload[..], b"abc");
    }

    #[test]
    fn an_exclusive_create() {
        let mode = OpenMode::CreateNew { permissions: 0o600 };
        let (head, payload) = Request::Open { path: b"a".to_vec(), mode }.encode(1);
        let expected =
            [0, 0, 0, 22, 3, 0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 0x2a, 0, 0, 0, 4, 0, 0, 1, 0x80];
        assert_eq!(&head[..], expected);
        assert!(payload.is_empty());
    }

    proptest! {
        #[test]
        fn packets_are_the_same_however_the_stream_is_cut(
            packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..10),
            piece in 1usize..20,
        ) {
            let mut stream = Vec::new();
            for packet in &packets {
                put_string(&mut stream, packet);
            }
            let mut cut = Packets::default();
            let mut got = Vec::new();
            for bytes in stream.chunks(piece) {
                cut.push(bytes);
                while let Some(packet) = cut.next_packet().unwrap() {
                    got.push(packet.to_vec());
                }
            }
            prop_assert_eq!(got, packets);
        }

        #[test]
        fn any_bytes_are_cut_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut packets = Packets::default();
            packets.push(&bytes);
            while let Ok(Some(packet)) = packets.next_packet() {
                prop_assert!(!packet.is_empty() && packet.len() <= MAX_PACKET);
            }
        }
    }
}
