//! Small whole files, sealed with their own name as context.
//!
//! Generation records, index segments and the records of garbage collection are all stored in the same dress: a header in
//! the clear, then the contents, compressed and sealed. The name that is sealed in is the *final* one, not that of the
//! lease or temporary file that the bytes are written to first.
//!
//! ```text
//! offset  bytes
//!      0  10     header (base::header), its kind that of crypto::Kind
//!     10  rest   sealed: nonce (24), ciphertext, tag (16); context: kind, the name, offset 0
//! ```
//!
//! The plaintext is the codec (1), the length of the contents (4, little-endian), and the contents as the codec packs them.

use std::borrow::Cow;

use crate::base::header::{self, HeaderError};
use crate::base::id::RepositoryId;
use crate::compress::{self, Codec, CompressError, Level};
use crate::crypto::{Context, Keys, Kind, OVERHEAD, SealError, seal};
use crate::store::Name;

/// Bytes of a file beyond its packed contents.
pub const FILE_OVERHEAD: usize = header::LEN + OVERHEAD + PREFIX_LEN;

/// Codec and length.
const PREFIX_LEN: usize = 1 + 4;

/// Why a sealed file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealedError {
    /// It does not begin as one.
    #[error("{name} is not a file of kitbag")]
    Foreign {
        /// The file.
        name: String,
    },
    /// Written by a later kitbag.
    #[error("{name} has format version {version}, which needs a newer kitbag")]
    NewerFormat {
        /// The file.
        name: String,
        /// Its version.
        version: u8,
    },
    /// The file is of another kind, or was changed, cut, or put in another's place.
    #[error("{name} is damaged, or is not the file that belongs there")]
    Damaged {
        /// The file.
        name: String,
    },
    /// More contents than such a file can have.
    #[error("{name} holds {len} bytes, more than the {limit} allowed")]
    TooLong {
        /// The file.
        name: String,
        /// Bytes of contents.
        len: u64,
        /// Bytes allowed.
        limit: usize,
    },
    /// No memory to decompress it.
    #[error("there is no memory to unpack {name}")]
    NoMemory {
        /// The file.
        name: String,
    },
    /// Compressed in a way that this version does not know.
    #[error("{name} is packed by a method that needs a newer kitbag")]
    UnknownCodec {
        /// The file.
        name: String,
    },
}

/// The bytes of the file that will be called `name` and hold `contents`.
///
/// # Panics
/// For contents of 4 GiB and more.
#[must_use]
pub fn encode(keys: &Keys, repository: RepositoryId, kind: Kind, name: &Name, contents: &[u8]) -> Vec<u8> {
    let mut file = unsealed(kind, contents);
    keys.seal().seal_in_place(&context(repository, kind, name), &mut file, header::LEN);
    file
}

/// The contents of the file called `name`, at most `limit` bytes of them.
///
/// # Errors
/// When the bytes are not the file of this repository, kind and name, or it holds more than `limit`.
pub fn decode(
    keys: &Keys,
    repository: RepositoryId,
    kind: Kind,
    name: &Name,
    mut file: Vec<u8>,
    limit: usize,
) -> Result<Vec<u8>, SealedError> {
    let damaged = || SealedError::Damaged { name: name.to_string() };
    header::check(kind.number(), &file).map_err(|error| match error {
        HeaderError::Foreign => SealedError::Foreign { name: name.to_string() },
        HeaderError::Newer(version) => SealedError::NewerFormat { name: name.to_string(), version },
        HeaderError::Unexpected => damaged(),
    })?;
    let sealed = file.get_mut(header::LEN..).unwrap_or_default();
    let plaintext =
        keys.seal().open_in_place(&context(repository, kind, name), sealed).map_err(|SealError| damaged())?;
    let (codec, len, packed) = split_prefix(plaintext).ok_or_else(damaged)?;
    let expected = usize::try_from(len).unwrap_or(usize::MAX);
    if expected > limit {
        return Err(SealedError::TooLong { name: name.to_string(), len: u64::from(len), limit });
    }
    let contents = Codec::from_number(codec).and_then(|codec| compress::decompress(codec, packed, expected));
    contents.map(Cow::into_owned).map_err(|error| match error {
        CompressError::UnknownCodec(_) => SealedError::UnknownCodec { name: name.to_string() },
        CompressError::NoMemory => SealedError::NoMemory { name: name.to_string() },
        CompressError::Damaged { .. } => damaged(),
    })
}

fn context(repository: RepositoryId, kind: Kind, name: &Name) -> Context<'_> {
    Context { repository, kind, file: name.as_str().as_bytes(), offset: 0 }
}

/// The file before it is sealed: header, room for the nonce, plaintext.
fn unsealed(kind: Kind, contents: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(contents.len().saturating_add(FILE_OVERHEAD));
    file.extend(header::encode(kind.number()));
    seal::begin(&mut file);
    append_packed(contents, &mut file);
    file
}

fn append_packed(contents: &[u8], out: &mut Vec<u8>) {
    let Ok(len) = u32::try_from(contents.len()) else {
        panic!("{} bytes are no small file", contents.len());
    };
    let prefix = out.len();
    out.push(Codec::Raw.number());
    out.extend(len.to_le_bytes());
    let codec = compress::compress_onto(Level::Default, contents, out);
    if let Some(place) = out.get_mut(prefix) {
        *place = codec.number();
    }
}

fn split_prefix(plaintext: &[u8]) -> Option<(u8, u32, &[u8])> {
    let (codec, rest) = plaintext.split_first()?;
    let (len, packed) = rest.split_first_chunk()?;
    Some((*codec, u32::from_le_bytes(*len), packed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::Key32;
    use crate::crypto::MasterKey;

    const REPOSITORY: RepositoryId = RepositoryId([5; 16]);

    fn keys() -> Keys {
        Keys::derive(&MasterKey::new(Key32::new([1; 32])))
    }

    fn name(text: &str) -> Name {
        Name::join(&[text])
    }

    fn file(contents: &[u8]) -> Vec<u8> {
        encode(&keys(), REPOSITORY, Kind::Segment, &name("one"), contents)
    }

    fn open(file: Vec<u8>) -> Result<Vec<u8>, SealedError> {
        decode(&keys(), REPOSITORY, Kind::Segment, &name("one"), file, 100_000)
    }

    #[test]
    fn what_is_encoded_decodes() {
        for contents in [vec![], b"contents".to_vec(), vec![7; 100_000]] {
            let file = file(&contents);
            assert!(file.len() <= contents.len() + FILE_OVERHEAD);
            assert_eq!(open(file), Ok(contents));
        }
    }

    #[test]
    fn another_name_kind_or_repository_is_refused() {
        let file = file(b"contents");
        let damaged = Err(SealedError::Damaged { name: "one".into() });
        let two = decode(&keys(), REPOSITORY, Kind::Segment, &name("two"), file.clone(), 100);
        assert_eq!(two, Err(SealedError::Damaged { name: "two".into() }));
        let kind = decode(&keys(), REPOSITORY, Kind::Generation, &name("one"), file.clone(), 100);
        assert_eq!(kind, damaged);
        let other = decode(&keys(), RepositoryId([6; 16]), Kind::Segment, &name("one"), file, 100);
        assert_eq!(other, damaged);
    }

    #[test]
    fn every_flip_and_every_cut_is_noticed() {
        let file = file(b"contents");
        for at in 0..file.len() {
            let mut flipped = file.clone();
            flipped[at] ^= 1;
            assert!(open(flipped).is_err(), "byte {at}");
            assert!(open(file[..at].to_vec()).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn failures_are_told_apart() {
        assert_eq!(open(b"hello".to_vec()), Err(SealedError::Foreign { name: "one".into() }));
        let mut newer = file(b"contents");
        newer[8] = 2;
        assert_eq!(open(newer), Err(SealedError::NewerFormat { name: "one".into(), version: 2 }));
        let long = SealedError::TooLong { name: "one".into(), len: 100_001, limit: 100_000 };
        assert_eq!(open(file(&vec![0; 100_001])), Err(long));
    }

    #[test]
    fn golden() {
        let golden = include_bytes!("../../testdata/format/v1/sealed-file");
        let name = Name::join(&["index", "00112233445566778899aabbccddeeff"]);
        let mut file = unsealed(Kind::Segment, b"contents");
        keys().seal().seal_golden(
            &context(REPOSITORY, Kind::Segment, &name),
            &mut file,
            header::LEN,
            [9; 24],
        );
        assert_eq!(file, golden);
        let read = decode(&keys(), REPOSITORY, Kind::Segment, &name, golden.to_vec(), 100);
        assert_eq!(read, Ok(b"contents".to_vec()));
    }
}
