//! What the client has open, numbered as OpenSSH's server does it: the number given back last is given out next, else the lowest one
//! that never was. Clients rely on that to read from what they have not been told the handle of (see `sftp/driver/slots.rs`).

use bytes::Bytes;

use super::listing::Listing;
use super::refusal::Refusal;
use super::shelf::OpenFile;
use crate::sftp::reply::Code;

/// Handles that a session may have: far more than a client needs, and fewer than the files a process may have open.
pub(super) const MOST: usize = 512;

/// What a handle stands for.
pub(super) enum Open {
    File(OpenFile),
    Directory(Listing),
}

/// See the module.
#[derive(Default)]
pub(super) struct Handles {
    open: Vec<Option<Open>>,
    free: Vec<usize>,
}

impl Handles {
    /// Whether there is room for one more.
    pub(super) fn check_room(&self) -> Result<(), Refusal> {
        match self.free.is_empty() && self.open.len() >= MOST {
            true => Err(Refusal::new(Code::Failure, "too many files are open")),
            false => Ok(()),
        }
    }

    pub(super) fn give(&mut self, open: Open) -> Bytes {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.open.push(None);
                self.open.len().saturating_sub(1)
            }
        };
        if let Some(slot) = self.open.get_mut(number) {
            *slot = Some(open);
        }
        Bytes::copy_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes())
    }

    pub(super) fn close(&mut self, handle: &Bytes) -> Result<(), Refusal> {
        let number = number_of(handle)?;
        let slot = self.open.get_mut(number).ok_or_else(Refusal::bad_handle)?;
        slot.take().ok_or_else(Refusal::bad_handle)?;
        self.free.push(number);
        Ok(())
    }

    fn get(&mut self, handle: &Bytes) -> Result<&mut Open, Refusal> {
        let slot = self.open.get_mut(number_of(handle)?).and_then(Option::as_mut);
        slot.ok_or_else(Refusal::bad_handle)
    }

    pub(super) fn file(&mut self, handle: &Bytes) -> Result<&OpenFile, Refusal> {
        match self.get(handle)? {
            Open::File(file) => Ok(file),
            Open::Directory(_) => Err(Refusal::bad_handle()),
        }
    }

    pub(super) fn listing(&mut self, handle: &Bytes) -> Result<&mut Listing, Refusal> {
        match self.get(handle)? {
            Open::Directory(listing) => Ok(listing),
            Open::File(_) => Err(Refusal::bad_handle()),
        }
    }
}

fn number_of(handle: &Bytes) -> Result<usize, Refusal> {
    let bytes = <[u8; 4]>::try_from(&handle[..]).ok();
    let number = bytes.and_then(|bytes| usize::try_from(u32::from_be_bytes(bytes)).ok());
    number.ok_or_else(Refusal::bad_handle)
}
