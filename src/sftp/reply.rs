//! Replies: packets that a server sends.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use super::attrs::Attrs;
use super::fields::{Fields, Malformed};
use super::packet::wire;

/// What a server may say about a request that has no other answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Done.
    Ok,
    /// The end of the file or directory.
    Eof,
    /// The file or directory does not exist.
    NoSuchFile,
    /// Not permitted.
    PermissionDenied,
    /// Failed, for a reason that is not told. OpenSSH says this for a name that is taken and for a full disk alike.
    Failure,
    /// The server did not understand the request.
    BadMessage,
    /// The server does not know the request.
    Unsupported,
    /// Any other number.
    Other(u32),
}

impl Code {
    fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Ok,
            1 => Self::Eof,
            2 => Self::NoSuchFile,
            3 => Self::PermissionDenied,
            4 => Self::Failure,
            5 => Self::BadMessage,
            8 => Self::Unsupported,
            other => Self::Other(other),
        }
    }

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Ok => 0,
            Self::Eof => 1,
            Self::NoSuchFile => 2,
            Self::PermissionDenied => 3,
            Self::Failure => 4,
            Self::BadMessage => 5,
            Self::Unsupported => 8,
            Self::Other(number) => number,
        }
    }
}

/// A status with the server's words, which are for people only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What it says.
    pub code: Code,
    /// In words, as the server put it; often empty or no more than the code's name.
    pub message: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.code {
            Code::Ok => "success",
            Code::Eof => "end of file",
            Code::NoSuchFile => "no such file or directory",
            Code::PermissionDenied => "permission denied",
            Code::Failure => "the server gave no reason (SFTP status 4), so look at it there",
            Code::BadMessage => "the server did not understand the request",
            Code::Unsupported => "the server does not support the request",
            Code::Other(number) => return write!(f, "SFTP status {number} ({})", self.message),
        };
        f.write_str(words)
    }
}

/// A name in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without its directory.
    pub name: Bytes,
    /// Its line as `ls -l` shows it.
    pub long_name: Bytes,
    /// What is known about it.
    pub attrs: Attrs,
}

/// What a server can do, as it says in its hello.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// The protocol's version.
    pub version: u32,
    /// Extensions and their versions.
    pub extensions: BTreeMap<String, Bytes>,
}

impl Hello {
    /// Whether an extension is offered.
    #[must_use]
    pub fn offers(&self, extension: &str) -> bool {
        self.extensions.contains_key(extension)
    }
}

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The answer to the packet that began the session; it has no id.
    Hello(Hello),
    /// Success or failure.
    Status(Status),
    /// A file or directory is open.
    Handle(Bytes),
    /// Bytes of a file.
    Data(Bytes),
    /// Entries of a directory, or a path.
    Names(Vec<DirEntry>),
    /// Attributes.
    Attrs(Attrs),
    /// The answer to an extension.
    Extended(Bytes),
}

impl Reply {
    /// Reads a packet (without its length): the id of its request (0 for a hello), and the answer.
    ///
    /// # Errors
    /// When it is not a whole and known packet.
    pub fn decode(packet: Bytes) -> Result<(u32, Self), Malformed> {
        let mut fields = Fields(packet);
        let number = fields.u8()?;
        let id = fields.u32()?;
        let reply = match number {
            wire::VERSION => {
                let mut hello = Hello { version: id, extensions: BTreeMap::new() };
                while !fields.is_empty() {
                    let name = fields.string()?;
                    let value = fields.string()?;
                    // Names that are not text are none that we know.
                    if let Ok(name) = std::str::from_utf8(&name) {
                        hello.extensions.insert(name.to_owned(), value);
                    }
                }
                return Ok((0, Self::Hello(hello)));
            }
            wire::STATUS => {
                let code = Code::from_number(fields.u32()?);
                // Old servers leave the words out.
                let message = fields.string().unwrap_or_default();
                Self::Status(Status { code, message: String::from_utf8_lossy(&message).into_owned() })
            }
            wire::HANDLE => match fields.string()? {
                handle if handle.len() <= 256 => Self::Handle(handle),
                _ => return Err(Malformed("a handle is too long")),
            },
            wire::DATA => Self::Data(fields.string()?),
            wire::NAME => {
                let mut entries = Vec::new();
                for _ in 0..fields.u32()? {
                    let name = fields.string()?;
                    let long_name = fields.string()?;
                    entries.push(DirEntry { name, long_name, attrs: Attrs::take(&mut fields)? });
                }
                Self::Names(entries)
            }
            wire::ATTRS => Self::Attrs(Attrs::take(&mut fields)?),
            wire::EXTENDED_REPLY => Self::Extended(fields.0),
            _ => return Err(Malformed("its type is unknown")),
        };
        Ok((id, reply))
    }
}

/// A server's limits; 0 on the wire means that there is none, or that it is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest payload of a READ.
    pub read: u64,
    /// The longest payload of a WRITE.
    pub write: u64,
    /// How many handles may be open.
    pub handles: u64,
}

impl Limits {
    /// From the answer to the extension.
    ///
    /// # Errors
    /// When it is too short.
    pub fn decode(answer: Bytes) -> Result<Self, Malformed> {
        let mut fields = Fields(answer);
        let _packet = fields.u64()?;
        Ok(Self { read: fields.u64()?, write: fields.u64()?, handles: fields.u64()? })
    }
}

/// The room on a server's file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that the user may still write.
    pub bytes: u64,
    /// Files that the user may still make.
    pub files: u64,
}

impl Room {
    /// From the answer to the extension.
    ///
    /// # Errors
    /// When it is too short.
    pub fn decode(answer: Bytes) -> Result<Self, Malformed> {
        let mut fields = Fields(answer);
        let _block = fields.u64()?;
        let fragment = fields.u64()?;
        let [_blocks, _free, available] = [fields.u64()?, fields.u64()?, fields.u64()?];
        let [files, _free_files, available_files] = [fields.u64()?, fields.u64()?, fields.u64()?];
        // File systems without a table of files (btrfs) say 0 of 0.
        let files = if files == 0 { u64::MAX } else { available_files };
        Ok(Self { bytes: available.saturating_mul(fragment), files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(bytes: &[u8]) -> Result<(u32, Reply), Malformed> {
        Reply::decode(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn a_status_without_words() {
        let status = Status { code: Code::Failure, message: String::new() };
        assert!(status.to_string().ends_with("look at it there"));
        assert_eq!(packet(&[101, 0, 0, 0, 5, 0, 0, 0, 4]), Ok((5, Reply::Status(status))));
    }

    #[test]
    fn a_handle_that_is_no_text() {
        let handle = Bytes::from_static(&[0, 0, 0, 0x80]);
        assert_eq!(packet(&[102, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 0x80]), Ok((5, Reply::Handle(handle))));
    }

    #[test]
    fn lengths_beyond_the_packet_are_refused() {
        assert!(packet(&[103, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0]).is_err());
        assert!(packet(&[104, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(packet(&[105, 0, 0, 0, 5, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_panic(
            number in prop_oneof![Just(2u8), 101u8..=105, Just(201u8), any::<u8>()],
            rest in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
        ) {
            let mut bytes = vec![number];
            bytes.extend(rest);
            if let Ok((_, Reply::Extended(answer))) = packet(&bytes) {
                let _ = Limits::decode(answer.clone());
                let _ = Room::decode(answer);
            }
        }
    }
}
