//! Compression of blocks: zstd, or nothing where it does not help.
//!
//! Much of what people keep is compressed already (photographs, films, archives). Such bytes are recognised by looking at
//! a few kilobytes of them and stored as they are, at nearly the speed of a copy.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Cursor;

use zstd::bulk::{Compressor, Decompressor};

/// How hard to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Level {
    /// Not at all.
    Off,
    /// zstd 1.
    Fast,
    /// zstd 3.
    #[default]
    Default,
    /// zstd 15: some megabytes per second.
    Max,
}

impl Level {
    fn zstd(self) -> Option<i32> {
        match self {
            Self::Off => None,
            Self::Fast => Some(1),
            Self::Default => Some(3),
            Self::Max => Some(15),
        }
    }
}

/// How bytes are packed; the number is part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// As they are.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
}

impl Codec {
    /// The number in the format.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The codec of this number.
    ///
    /// # Errors
    /// When this version of kitbag does not know it.
    pub fn from_number(number: u8) -> Result<Self, CompressError> {
        match number {
            0 => Ok(Self::Raw),
            1 => Ok(Self::Zstd),
            _ => Err(CompressError::UnknownCodec(number)),
        }
    }
}

/// Bytes that cannot be unpacked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompressError {
    /// Packed in a way that this version does not know.
    #[error("packed by method {0}, which this version does not know")]
    UnknownCodec(u8),
    /// Not what a compressor made, or of another length than announced.
    #[error("the compressed bytes are damaged, or do not hold {expected} bytes")]
    Damaged {
        /// Bytes there should be.
        expected: usize,
    },
    /// No memory for a decompressor.
    #[error("there is no memory to unpack")]
    NoMemory,
}

/// Packed bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// How they are packed.
    pub codec: Codec,
    /// The packed bytes.
    pub bytes: Vec<u8>,
}

/// Packs `bytes`: never longer than they were.
#[must_use]
pub fn compress(level: Level, bytes: &[u8]) -> Packed {
    let mut packed = Vec::new();
    let codec = compress_onto(level, bytes, &mut packed);
    Packed { codec, bytes: packed }
}

/// Packs `bytes` at the end of `out`, and says how: at most as many bytes are appended as there were.
///
/// The compressor's memory belongs to the thread and is used again.
pub fn compress_onto(level: Level, bytes: &[u8], out: &mut Vec<u8>) -> Codec {
    if shrink_onto(level, bytes, out) {
        return Codec::Zstd;
    }
    out.extend_from_slice(bytes);
    Codec::Raw
}

/// Packs `bytes` by [`Codec::Zstd`] at the end of `out` if that makes them shorter, and says whether it does; else appends nothing.
pub fn shrink_onto(level: Level, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    level.zstd().is_some_and(|level| looks_compressible(bytes) && try_zstd(level, bytes, out))
}

/// Unpacks bytes that were `expected` before; no more memory than that is used, whatever the packed bytes claim. Bytes that are as they were
/// are not copied. Callers check `expected` against a limit of their own.
///
/// # Errors
/// When the bytes are damaged or hold another number of bytes.
pub fn decompress(codec: Codec, packed: &[u8], expected: usize) -> Result<Cow<'_, [u8]>, CompressError> {
    match codec {
        Codec::Raw if packed.len() == expected => Ok(Cow::Borrowed(packed)),
        Codec::Raw => Err(CompressError::Damaged { expected }),
        Codec::Zstd => UNPACKER.with_borrow_mut(|unpacker| {
            let mut bytes = Vec::with_capacity(expected);
            let unpacker = match unpacker {
                Some(unpacker) => unpacker,
                None => unpacker.insert(Decompressor::new().map_err(|_no_memory| CompressError::NoMemory)?),
            };
            match unpacker.decompress_to_buffer(packed, &mut bytes) {
                Ok(len) if len == expected => Ok(Cow::Owned(bytes)),
                Ok(_) | Err(_) => Err(CompressError::Damaged { expected }),
            }
        }),
    }
}

thread_local! {
    static PACKER: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Appends the frame and says whether it is shorter than the bytes; if not, nothing was appended.
fn try_zstd(level: i32, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let bound = zstd::zstd_safe::compress_bound(bytes.len());
    out.reserve(bound);
    let packed = with_packer(level, |packer| {
        let mut end = Cursor::new(&mut *out);
        end.set_position(u64::try_from(start).unwrap_or(u64::MAX));
        packer.compress_to_buffer(bytes, &mut end).ok()
    });
    let shorter = packed.flatten().is_some_and(|len| len < bytes.len());
    if !shorter {
        out.truncate(start);
    }
    shorter
}

/// Lends the thread's compressor; `None` when there is no memory for one.
fn with_packer<T>(level: i32, work: impl FnOnce(&mut Compressor<'static>) -> T) -> Option<T> {
    PACKER.with_borrow_mut(|slot| {
        let packer = match slot {
            Some((at, packer)) => {
                if *at != level {
                    packer.set_compression_level(level).ok()?;
                    *at = level;
                }
                packer
            }
            None => &mut slot.insert((level, Compressor::new(level).ok()?)).1,
        };
        Some(work(packer))
    })
}

/// Below this, looking first costs more than trying.
const LOOK_FROM: usize = 32 * 1024;
/// Samples looked at, and bytes of each.
const SAMPLES: usize = 8;
const SAMPLE_LEN: usize = 2048;
/// Bytes in the middle that are tried when the samples look random.
const TRIAL_LEN: usize = 16 * 1024;

/// Whether compressing is worth a try. Random bytes have an even histogram; so have a few things that repeat (a table of all
/// characters, say), hence an even histogram is not believed before the fastest level has failed on a piece.
fn looks_compressible(bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return false;
    }
    if bytes.len() < LOOK_FROM {
        return true;
    }
    let mut histogram = [0_u64; 256];
    for sample in bytes.chunks(bytes.len() / SAMPLES).take(SAMPLES) {
        for byte in sample.iter().take(SAMPLE_LEN) {
            if let Some(count) = histogram.get_mut(usize::from(*byte)) {
                *count += 1;
            }
        }
    }
    // For n random bytes the sum of squares is about n²/256 + n. A sixteenth above n²/256 (n is 16 Ki) allows for what
    // real compressors leave; at most about one percent could be gained below it.
    let count: u64 = histogram.iter().sum();
    let squares: u64 = histogram.iter().map(|count| count * count).sum();
    if squares * 256 > count * count / 16 * 17 {
        return true;
    }
    let middle = bytes.len() / 2;
    let piece = bytes.get(middle..).unwrap_or_default();
    let piece = piece.get(..TRIAL_LEN).unwrap_or(piece);
    let mut trial = Vec::new();
    try_zstd(1, piece, &mut trial) && trial.len() < piece.len() - piece.len() / 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    fn round_trip(level: Level, bytes: &[u8]) -> Packed {
        let packed = compress(level, bytes);
        assert!(packed.bytes.len() <= bytes.len());
        assert_eq!(decompress(packed.codec, &packed.bytes, bytes.len()).unwrap(), bytes);
        packed
    }

    #[test]
    fn text_gets_smaller_at_every_level() {
        let text = b"All work and no play makes Jack a dull boy. ".repeat(5000);
        for level in [Level::Fast, Level::Default, Level::Max, Level::Fast] {
            let packed = round_trip(level, &text);
            assert_eq!(packed.codec, Codec::Zstd);
            assert!(packed.bytes.len() < 1000);
        }
        assert_eq!(round_trip(Level::Off, &text).codec, Codec::Raw);
    }

    #[test]
    fn what_does_not_get_smaller_is_stored_as_it_is() {
        for len in [0, 1, 10, 1000, 40_000, 1 << 20] {
            assert_eq!(round_trip(Level::Default, &noise(len)).codec, Codec::Raw, "{len}");
        }
    }

    #[test]
    fn an_even_histogram_alone_is_not_believed() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(round_trip(Level::Default, &all.repeat(1000)).codec, Codec::Zstd);
    }

    #[test]
    fn random_bytes_are_not_handed_to_the_compressor() {
        assert!(!looks_compressible(&noise(512 * 1024)));
        // But they are when only 64 different bytes occur, as in base64.
        let digits: Vec<u8> = noise(512 * 1024).iter().map(|byte| b'0' + byte % 64).collect();
        assert!(looks_compressible(&digits));
    }

    #[test]
    fn appending_leaves_what_is_before() {
        for bytes in [noise(100), vec![0; 100_000]] {
            let mut out = b"header".to_vec();
            let codec = compress_onto(Level::Default, &bytes, &mut out);
            assert_eq!(&out[..6], b"header");
            assert_eq!(decompress(codec, &out[6..], bytes.len()).unwrap(), bytes);
        }
    }

    #[test]
    fn another_length_than_announced_is_damage() {
        let packed = compress(Level::Default, &vec![0; 100_000]);
        for expected in [0, 99_999, 100_001] {
            let outcome = decompress(packed.codec, &packed.bytes, expected);
            assert!(matches!(outcome, Err(CompressError::Damaged { .. })), "{expected}");
        }
        assert!(decompress(Codec::Raw, b"abc", 2).is_err());
        assert!(decompress(Codec::Zstd, b"abc", 2).is_err());
        assert!(matches!(Codec::from_number(9), Err(CompressError::UnknownCodec(9))));
    }
}
