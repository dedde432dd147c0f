//! Requests as a server gets them.

use bytes::Bytes;

use super::attrs::Attrs;
use super::fields::{Fields, Malformed};
use super::packet::{extension, wire};

/// One request, taken apart. Nothing in it is believed: paths may be any bytes, handles any, flags any.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the protocol's own")]
pub enum Asked {
    /// The greeting; `version` stands where others have their id.
    Hello { version: u32 },
    /// Opens a file; `flags` are those of [`super::packet::flag`].
    Open { path: Bytes, flags: u32, attrs: Attrs },
    /// Opens a directory.
    OpenDir { path: Bytes },
    /// Closes a handle.
    Close { handle: Bytes },
    /// Reads a range.
    Read { handle: Bytes, offset: u64, len: u32 },
    /// Writes a range.
    Write { handle: Bytes, offset: u64, data: Bytes },
    /// Makes durable what was written.
    Fsync { handle: Bytes },
    /// Some more entries.
    ReadDir { handle: Bytes },
    /// Attributes of what is open.
    Fstat { handle: Bytes },
    /// Attributes, following symbolic links.
    Stat { path: Bytes },
    /// Attributes of the name itself.
    Lstat { path: Bytes },
    /// Changes attributes.
    SetStat { path: Bytes, attrs: Attrs },
    /// Changes attributes of what is open.
    FsetStat { handle: Bytes, attrs: Attrs },
    /// Removes a file.
    Remove { path: Bytes },
    /// Makes a directory.
    MakeDir { path: Bytes, attrs: Attrs },
    /// Removes an empty directory.
    RemoveDir { path: Bytes },
    /// Renames without overwriting.
    Rename { from: Bytes, to: Bytes },
    /// Renames and overwrites.
    PosixRename { from: Bytes, to: Bytes },
    /// The absolute form of a path.
    RealPath { path: Bytes },
    /// Where a symbolic link leads.
    ReadLink { path: Bytes },
    /// Makes a symbolic link.
    SymLink,
    /// The server's limits.
    Limits,
    /// The room on a file system.
    StatVfs { path: Bytes },
    /// A request or an extension that is not known here.
    Unknown,
}

impl Asked {
    /// Reads a packet (without its length): the id of the request (0 for the greeting), and the request. Bytes after its fields are ignored,
    /// as everywhere.
    ///
    /// # Errors
    /// When fields are missing or longer than the packet.
    pub fn decode(packet: Bytes) -> Result<(u32, Self), Malformed> {
        let mut fields = Fields(packet);
        let number = fields.u8()?;
        let id = fields.u32()?;
        let asked = match number {
            wire::INIT => return Ok((0, Self::Hello { version: id })),
            wire::OPEN => {
                Self::Open { path: fields.string()?, flags: fields.u32()?, attrs: Attrs::take(&mut fields)? }
            }
            wire::OPENDIR => Self::OpenDir { path: fields.string()? },
            wire::CLOSE => Self::Close { handle: fields.string()? },
            wire::READ => Self::Read { handle: fields.string()?, offset: fields.u64()?, len: fields.u32()? },
            wire::WRITE => {
                Self::Write { handle: fields.string()?, offset: fields.u64()?, data: fields.string()? }
            }
            wire::READDIR => Self::ReadDir { handle: fields.string()? },
            wire::FSTAT => Self::Fstat { handle: fields.string()? },
            wire::STAT => Self::Stat { path: fields.string()? },
            wire::LSTAT => Self::Lstat { path: fields.string()? },
            wire::SETSTAT => Self::SetStat { path: fields.string()?, attrs: Attrs::take(&mut fields)? },
            wire::FSETSTAT => Self::FsetStat { handle: fields.string()?, attrs: Attrs::take(&mut fields)? },
            wire::REMOVE => Self::Remove { path: fields.string()? },
            wire::MKDIR => Self::MakeDir { path: fields.string()?, attrs: Attrs::take(&mut fields)? },
            wire::RMDIR => Self::RemoveDir { path: fields.string()? },
            wire::RENAME => Self::Rename { from: fields.string()?, to: fields.string()? },
            wire::REALPATH => Self::RealPath { path: fields.string()? },
            wire::READLINK => Self::ReadLink { path: fields.string()? },
            wire::SYMLINK => Self::SymLink,
            wire::EXTENDED => Self::extended(&mut fields)?,
            _ => Self::Unknown,
        };
        Ok((id, asked))
    }

    fn extended(fields: &mut Fields) -> Result<Self, Malformed> {
        let name = fields.string()?;
        Ok(match std::str::from_utf8(&name) {
            Ok(extension::FSYNC) => Self::Fsync { handle: fields.string()? },
            Ok(extension::POSIX_RENAME) => Self::PosixRename { from: fields.string()?, to: fields.string()? },
            Ok(extension::LIMITS) => Self::Limits,
            Ok(extension::STATVFS) => Self::StatVfs { path: fields.string()? },
            _ => Self::Unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::{OpenMode, Packets, Request, flag, hello};
    use super::*;
    use proptest::prelude::*;

    fn decoded(request: &Request) -> (u32, Asked) {
        let (head, payload) = request.encode(7);
        let mut packets = Packets::default();
        packets.push(&head);
        packets.push(&payload);
        let packet = packets.next_packet().unwrap().unwrap();
        assert!(packets.is_empty());
        Asked::decode(packet).unwrap()
    }

    #[test]
    fn what_the_client_sends_is_understood() {
        let (path, handle) = (b"a".to_vec(), Bytes::from_static(&[0, 0, 0, 0x80]));
        let named = Bytes::from_static(b"a");
        let create = Request::Open { path: path.clone(), mode: OpenMode::CreateNew { permissions: 0o600 } };
        let attrs = Attrs { permissions: Some(0o600), ..Attrs::default() };
        let flags = flag::WRITE | flag::CREATE | flag::EXCLUSIVE;
        assert_eq!(decoded(&create), (7, Asked::Open { path: named.clone(), flags, attrs }));
        let data = Bytes::from_static(b"abc");
        let write = Request::Write { handle: handle.clone(), offset: 1 << 40, data: data.clone() };
        assert_eq!(decoded(&write).1, Asked::Write { handle: handle.clone(), offset: 1 << 40, data });
        let read = Request::Read { handle: handle.clone(), offset: 3, len: 9 };
        assert_eq!(decoded(&read).1, Asked::Read { handle: handle.clone(), offset: 3, len: 9 });
        assert_eq!(decoded(&Request::Fsync { handle: handle.clone() }).1, Asked::Fsync { handle });
        assert_eq!(decoded(&Request::Limits).1, Asked::Limits);
        assert_eq!(
            decoded(&Request::StatVfs { path: path.clone() }).1,
            Asked::StatVfs { path: named.clone() }
        );
        let rename = Request::PosixRename { from: path.clone(), to: path };
        assert_eq!(decoded(&rename).1, Asked::PosixRename { from: named.clone(), to: named });
        assert_eq!(Asked::decode(hello().slice(4..)), Ok((0, Asked::Hello { version: 3 })));
    }

    #[test]
    fn what_is_cut_short_is_refused_and_what_is_unknown_is_not() {
        for packet in [&[3][..], &[3, 0, 0, 0, 1], &[3, 0, 0, 0, 1, 0, 0, 0, 9, 1], &[200, 0, 0, 0, 1]] {
            assert!(Asked::decode(Bytes::copy_from_slice(packet)).is_err(), "{packet:?}");
        }
        assert_eq!(Asked::decode(Bytes::from_static(&[99, 0, 0, 0, 1])), Ok((1, Asked::Unknown)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_panic(
            number in prop_oneof![1u8..=20, Just(200u8), any::<u8>()],
            rest in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..100),
        ) {
            let mut bytes = vec![number];
            bytes.extend(rest);
            let _ = Asked::decode(Bytes::from(bytes));
        }
    }
}
