//! The contents of files, by the references that their entries have.
//!
//! [`plan`] decides in which order wanted chunks are fetched, and which are fetched together; [`stream`] gives a file's contents from its beginning to its
//! end, with reads running ahead; [`blocks`] keeps opened blocks for who reads here and there; [`compare`] says whether a live file has the contents that were
//! saved, without fetching them. All are of use to several operations, and none knows one.

pub mod blocks;
pub mod compare;
pub mod plan;
pub mod stream;

pub use blocks::{Blocks, Slot};
pub use compare::has_contents;
pub use stream::{Section, Stream, StreamError};

use crate::bag::BagKind;
use crate::bag::reader::{BagReader, ReadError};
use crate::entry::Place;
use crate::store::StoreError;

/// The data block at a place, out of the bytes that were read for it, perhaps together with others'. Where these could not be had it is read by itself: its bag may
/// have been moved, or cut off behind it.
fn open_block(
    reader: &BagReader,
    place: &Place,
    sealed: Result<&mut [u8], &StoreError>,
) -> Result<Vec<u8>, ReadError> {
    match sealed {
        Ok(sealed) => reader.open(BagKind::Data, place.bag, place.offset, sealed),
        Err(error) => match ReadError::Store(error.duplicate()) {
            failed if failed.is_damage() => reader.block(BagKind::Data, place),
            failed => Err(failed),
        },
    }
}
