//! Sealing: encryption and authentication of bytes together with the place they belong to.
//!
//! Sealed bytes are a nonce (24), the ciphertext (as long as the plaintext) and a tag (16).

use chacha20poly1305::aead::AeadInPlace as _;
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};

use crate::base::id::RepositoryId;
use crate::base::random_bytes;
use crate::base::secret::Key32;

/// Bytes of the nonce in front of a ciphertext.
pub const NONCE_LEN: usize = 24;
/// Bytes of the tag behind a ciphertext.
pub const TAG_LEN: usize = 16;
/// How much longer sealed bytes are than what they hold.
pub const OVERHEAD: usize = NONCE_LEN + TAG_LEN;

/// The version of the associated data's layout, its first byte.
const LAYOUT: u8 = 1;

/// Associated data are as long as a multiple of this. Poly1305 works on four blocks of 16 bytes at a time, and the `poly1305` crate copies
/// each block of a text that does not begin at such a place.
const ALIGNED: usize = 64;

/// What kind of thing is sealed, or what kind of file begins; the number is part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A block of chunks, in a data bag.
    DataBlock = 1,
    /// A block of DIR pages and other objects of the tree, in a tree bag.
    TreeBlock = 2,
    /// A bag's table of objects.
    BagTable = 3,
    /// The master key in a key slot.
    KeySlot = 16,
    /// The configuration, which is not sealed.
    Config = 17,
    /// An index segment.
    Segment = 32,
    /// A generation record.
    Generation = 33,
    /// A list of bags that garbage collection means to delete.
    Condemned = 34,
    /// Who may still refer to what is on such a list.
    CondemnedWaits = 35,
    /// Which bags of such a list are removed.
    CondemnedDoomed = 36,
    /// Where garbage collection has copied objects to.
    Moved = 37,
    /// Tags given to a generation after it was made.
    Tags = 38,
}

impl Kind {
    /// The number in the format.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// The place that sealed bytes belong to: they open nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context<'a> {
    /// The repository.
    pub repository: RepositoryId,
    /// What is sealed.
    pub kind: Kind,
    /// The file it is in: a bag's id, or the final name of a small file.
    pub file: &'a [u8],
    /// Where it begins in that file; 0 for a file that is sealed as a whole.
    pub offset: u64,
}

impl Context<'_> {
    /// Layout (1), kind (1), the length of the file's name (2, little-endian), repository id (16), offset (8, little-endian), the file's name, and
    /// zeros up to a multiple of [`ALIGNED`]. The length says where the zeros begin, so no two contexts give the same bytes.
    fn associated_data(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 * ALIGNED);
        bytes.extend([LAYOUT, self.kind.number()]);
        // The names of files are short; of a longer one, its bytes tell it from others.
        bytes.extend(u16::try_from(self.file.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(self.repository.as_bytes());
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.file);
        bytes.resize(bytes.len().next_multiple_of(ALIGNED), 0);
        bytes
    }
}

/// Bytes that do not open: changed, cut, moved from elsewhere, or sealed under another key. Which of these it was, nobody can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sealed bytes are damaged or belong elsewhere")]
pub struct SealError;

/// Seals and opens.
#[derive(Debug)]
pub struct SealKey(Key32);

impl SealKey {
    /// A key that was derived for sealing and nothing else.
    #[must_use]
    pub fn new(key: Key32) -> Self {
        Self(key)
    }

    /// Seals a copy of `plaintext`; the result is [`OVERHEAD`] bytes longer.
    #[must_use]
    pub fn seal(&self, context: &Context<'_>, plaintext: &[u8]) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(plaintext.len().saturating_add(OVERHEAD));
        begin(&mut buffer);
        buffer.extend_from_slice(plaintext);
        self.seal_in_place(context, &mut buffer, 0);
        buffer
    }

    /// Seals what was appended to `buffer` since [`begin`] was called at its length of `start`; the tag is appended. Copies nothing
    /// as long as the buffer has room for [`TAG_LEN`] more bytes.
    ///
    /// # Panics
    /// When `buffer` ends before `start` + [`NONCE_LEN`], or for a plaintext above 256 GiB.
    pub fn seal_in_place(&self, context: &Context<'_>, buffer: &mut Vec<u8>, start: usize) {
        self.seal_with_nonce(context, buffer, start, random_bytes());
    }

    /// The same with a nonce that is given; beyond this file for golden files only.
    fn seal_with_nonce(
        &self,
        context: &Context<'_>,
        buffer: &mut Vec<u8>,
        start: usize,
        nonce: [u8; NONCE_LEN],
    ) {
        let Some((place, text)) =
            buffer.get_mut(start..).and_then(|sealed| sealed.split_first_chunk_mut::<NONCE_LEN>())
        else {
            panic!("no room was made for a nonce");
        };
        *place = nonce;
        let cipher = XChaCha20Poly1305::new(self.0.expose().into());
        match cipher.encrypt_in_place_detached(XNonce::from_slice(&nonce), &context.associated_data(), text) {
            Ok(tag) => buffer.extend_from_slice(&tag),
            Err(_) => panic!("a plaintext of {} bytes is too long to be sealed", text.len()),
        }
    }

    /// [`Self::seal_in_place`] with a nonce that is given.
    #[cfg(test)]
    pub(crate) fn seal_golden(
        &self,
        context: &Context<'_>,
        buffer: &mut Vec<u8>,
        start: usize,
        nonce: [u8; NONCE_LEN],
    ) {
        self.seal_with_nonce(context, buffer, start, nonce);
    }

    /// Opens a copy of `sealed`.
    ///
    /// # Errors
    /// When the bytes are not what was sealed under this key for this context.
    pub fn open(&self, context: &Context<'_>, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(SealError)?;
        let (text, tag) = rest.split_last_chunk::<TAG_LEN>().ok_or(SealError)?;
        let mut text = text.to_vec();
        self.decrypt(context, nonce, &mut text, tag)?;
        Ok(text)
    }

    /// Opens `sealed` where it lies, and gives the part of it that is now the plaintext. Copies nothing. After a failure the
    /// bytes are as they were.
    ///
    /// # Errors
    /// When the bytes are not what was sealed under this key for this context.
    pub fn open_in_place<'a>(
        &self,
        context: &Context<'_>,
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], SealError> {
        let (nonce, rest) = sealed.split_first_chunk_mut::<NONCE_LEN>().ok_or(SealError)?;
        let (text, tag) = rest.split_last_chunk_mut::<TAG_LEN>().ok_or(SealError)?;
        self.decrypt(context, nonce, text, tag)?;
        Ok(text)
    }

    fn decrypt(
        &self,
        context: &Context<'_>,
        nonce: &[u8; NONCE_LEN],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), SealError> {
        let cipher = XChaCha20Poly1305::new(self.0.expose().into());
        cipher
            .decrypt_in_place_detached(
                XNonce::from_slice(nonce),
                &context.associated_data(),
                text,
                tag.into(),
            )
            .map_err(|chacha20poly1305::Error| SealError)
    }
}

/// Makes room for a nonce at the end of `buffer`. Append the plaintext, then call [`SealKey::seal_in_place`].
pub fn begin(buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&[0; NONCE_LEN]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: Context<'static> =
        Context { repository: RepositoryId([7; 16]), kind: Kind::DataBlock, file: b"bag", offset: 40 };

    fn key() -> SealKey {
        SealKey::new(Key32::new([3; 32]))
    }

    #[test]
    fn what_is_sealed_opens() {
        for plaintext in [&b""[..], b"x", &[9; 100_000]] {
            let mut sealed = key().seal(&CONTEXT, plaintext);
            assert_eq!(sealed.len(), plaintext.len() + OVERHEAD);
            assert_eq!(key().open(&CONTEXT, &sealed).as_deref(), Ok(plaintext));
            assert_eq!(key().open_in_place(&CONTEXT, &mut sealed).map(|text| &*text), Ok(plaintext));
        }
    }

    #[test]
    fn sealing_in_place_leaves_what_is_before() {
        let mut buffer = b"header".to_vec();
        begin(&mut buffer);
        buffer.extend(b"text");
        key().seal_in_place(&CONTEXT, &mut buffer, 6);
        assert_eq!(&buffer[..6], b"header");
        assert_eq!(key().open(&CONTEXT, &buffer[6..]).as_deref(), Ok(&b"text"[..]));
    }

    #[test]
    fn no_nonce_comes_twice() {
        assert_ne!(key().seal(&CONTEXT, b"text")[..NONCE_LEN], key().seal(&CONTEXT, b"text")[..NONCE_LEN]);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let sealed = key().seal(&CONTEXT, b"text");
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let before = flipped.clone();
            assert_eq!(key().open(&CONTEXT, &flipped), Err(SealError), "bit {bit}");
            assert!(key().open_in_place(&CONTEXT, &mut flipped).is_err());
            assert_eq!(flipped, before);
        }
        for len in 0..sealed.len() {
            assert_eq!(key().open(&CONTEXT, &sealed[..len]), Err(SealError), "{len} bytes");
        }
    }

    #[test]
    fn it_opens_nowhere_else() {
        let sealed = key().seal(&CONTEXT, b"text");
        let elsewhere = [
            Context { repository: RepositoryId([8; 16]), ..CONTEXT },
            Context { kind: Kind::TreeBlock, ..CONTEXT },
            Context { file: b"gab", ..CONTEXT },
            Context { file: b"bag\0", ..CONTEXT },
            Context { file: b"", ..CONTEXT },
            Context { offset: 41, ..CONTEXT },
        ];
        for context in elsewhere {
            assert_eq!(key().open(&context, &sealed), Err(SealError), "{context:?}");
        }
        assert_eq!(SealKey::new(Key32::new([4; 32])).open(&CONTEXT, &sealed), Err(SealError));
    }

    #[test]
    fn associated_data_are_whole_strides_and_tell_names_apart() {
        let data = |file| Context { file, ..CONTEXT }.associated_data();
        for file in [&b""[..], b"bag", &[1; 36], &[1; 37], &[1; 100]] {
            assert_eq!(data(file).len() % ALIGNED, 0);
        }
        assert_eq!(data(&[1; 36]).len(), 64);
        assert_ne!(data(b"bag"), data(b"bag\0"));
    }

    #[test]
    fn golden() {
        let mut sealed = Vec::new();
        begin(&mut sealed);
        sealed.extend(b"text");
        key().seal_golden(&CONTEXT, &mut sealed, 0, [9; NONCE_LEN]);
        let golden = include_bytes!("../../testdata/format/v1/sealed-bytes");
        assert_eq!(sealed, golden);
        assert_eq!(key().open(&CONTEXT, golden).as_deref(), Ok(&b"text"[..]));
    }
}
