//! Bags: immutable files of sealed blocks, the unit of upload.
//!
//! [`packer`] turns objects into bags, [`reader`] fetches them back by reference, [`mod@format`] knows the bytes, and [`moved`] where objects
//! went whose bag is gone.

pub mod block;
pub mod format;
pub mod moved;
pub mod packer;
pub mod reader;
mod roomy;
pub mod source;
mod steady;
mod stream;

use std::borrow::Cow;

use roomy::Roomy;

use crate::base::id::{BagId, RepositoryId};
use crate::compress::{self, Codec, CompressError, Level};
use crate::crypto::{Context, Keys, Kind, SealError};

pub use block::Placing;
pub use format::{BagKind, Table};
pub use packer::{FullBlock, Packer, PackerEvents, PackerOptions, Stopped};
pub use stream::StoredBag;

/// What sealing and opening in this repository takes: its keys and its id.
#[derive(Clone)]
pub struct Sealing {
    /// The keys.
    pub keys: Keys,
    /// The repository.
    pub repository: RepositoryId,
}

/// The largest opened block or table in bytes.
const MAX_OPENED: usize = 64 << 20;

/// Bytes in front of a block's compressed contents: codec and raw length.
const PREFIX: usize = 5;

/// A sealed block that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The seal is broken: the bytes are damaged or belong elsewhere.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// What was sealed is not a block.
    #[error("what was sealed there is not a block")]
    Contents,
    /// What was sealed cannot be decompressed.
    #[error(transparent)]
    Compressed(#[from] CompressError),
}

impl Sealing {
    /// Compressed contents with room for the nonce in front and the tag behind: what [`seal`](Self::seal) completes without
    /// copying. Its sealed length is [`TAG_LEN`](crate::crypto::seal::TAG_LEN) more. Contents that are no shorter compressed are not copied either.
    fn compress(contents: Roomy, level: Level) -> Vec<u8> {
        let [a, b, c, d] = u32::try_from(contents.contents().len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut packed = Roomy::default();
        let is_shorter = packed.append(|packed| compress::shrink_onto(level, contents.contents(), packed));
        let (codec, roomy) = if is_shorter { (Codec::Zstd, packed) } else { (Codec::Raw, contents) };
        roomy.with_prefix([codec.number(), a, b, c, d])
    }

    /// Seals, in its place, what [`compress`](Self::compress) made.
    fn seal(&self, kind: Kind, bag: BagId, offset: u64, buffer: &mut Vec<u8>) {
        self.keys.seal().seal_in_place(&self.context(kind, &bag, offset), buffer, 0);
    }

    /// Opens and decompresses a block or a table; `sealed` is overwritten, and holds the contents where they were not compressed.
    ///
    /// # Errors
    /// When the bytes are damaged, or belong elsewhere.
    pub fn open<'a>(
        &self,
        kind: Kind,
        bag: BagId,
        offset: u64,
        sealed: &'a mut [u8],
    ) -> Result<Cow<'a, [u8]>, OpenError> {
        let opened = self.keys.seal().open_in_place(&self.context(kind, &bag, offset), sealed)?;
        let (prefix, packed) = opened.split_first_chunk::<PREFIX>().ok_or(OpenError::Contents)?;
        let [codec, len @ ..] = *prefix;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        if len > MAX_OPENED {
            return Err(OpenError::Contents);
        }
        let codec = Codec::from_number(codec)?;
        Ok(compress::decompress(codec, packed, len)?)
    }

    fn context<'a>(&self, kind: Kind, bag: &'a BagId, offset: u64) -> Context<'a> {
        Context { repository: self.repository, kind, file: bag.as_bytes(), offset }
    }
}

/// How the blocks of a bag of this kind are sealed.
#[must_use]
pub fn block_kind(kind: BagKind) -> Kind {
    match kind {
        BagKind::Data => Kind::DataBlock,
        BagKind::Tree => Kind::TreeBlock,
    }
}
