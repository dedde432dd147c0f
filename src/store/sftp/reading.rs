//! Listings and reads.

use super::super::{ErrorKind, Listed, Name, StoreError};
use super::remote::{Remote, Tries};
use crate::sftp::attrs::Attrs;
use crate::sftp::packet::{OpenMode, Request};
use crate::sftp::reply::{Code, DirEntry};
use crate::sftp::transfer::read_and_close;
use crate::sftp::{Answer, Handle, Malformed, RequestError, Target};

/// Reads up to this length keep their order with the other small things.
pub(super) const SMALL: u64 = 32 << 10;

/// A whole file or tail up to this length is read on the handle that was opened to look at it.
const HERE: u64 = 1 << 20;

/// READDIRs sent together at most.
const MOST_READDIRS: usize = 32;

impl Remote {
    /// Sends the first request of a listing.
    pub(super) fn start_list(&self, dir: &Name) -> Answer {
        self.client.submit(Target::Control, Request::OpenDir { path: self.path(dir) })
    }

    /// The entries of a directory: a wait to open it, and one for each doubling of the number of READDIRs.
    pub(super) async fn list(&self, dir: &Name, first: Answer) -> Result<Vec<Listed>, StoreError> {
        let mut tries = Tries::default();
        let mut opened = first;
        loop {
            let error = match opened.await.handle() {
                Ok(handle) => match self.entries(handle).await {
                    Ok(listed) => return Ok(listed),
                    Err(error) => error,
                },
                Err(error) if error.code() == Some(Code::NoSuchFile) => return Ok(Vec::new()),
                Err(error) => error,
            };
            if !tries.again(&error) {
                return Err(self.error("list", dir, error));
            }
            opened = self.start_list(dir);
        }
    }

    /// All entries. The handle is closed when it suits: nobody waits for that.
    async fn entries(&self, handle: Handle) -> Result<Vec<Listed>, RequestError> {
        let mut listed = Vec::new();
        let mut burst = 2_usize;
        loop {
            let more = (0..burst).map(|_| Request::ReadDir { handle: handle.bytes() });
            let answers = self.client.submit_many(Target::At(handle.place()), more);
            let (mut ended, before) = (false, listed.len());
            for answer in answers {
                match answer.await.names()? {
                    Some(entries) => listed.extend(entries.iter().filter_map(as_listed)),
                    None => ended = true,
                }
            }
            if ended {
                return Ok(listed);
            }
            if listed.len() == before && burst > 2 {
                return Err(Malformed("a directory without end").into());
            }
            burst = burst.saturating_mul(2).min(MOST_READDIRS);
        }
    }

    /// Sends the first request of a read.
    pub(super) fn start_read(&self, name: &Name, len: u64) -> Answer {
        let target = if len <= SMALL { Target::Control } else { Target::Anywhere { bytes: len } };
        self.client.submit(target, self.open(name, OpenMode::Read))
    }

    /// A range: a wait to open the file, and one for all of its bytes.
    pub(super) async fn read(
        &self,
        name: &Name,
        offset: u64,
        len: u64,
        first: Answer,
    ) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        let mut tries = Tries::default();
        let mut opened = first;
        let mut stopped_at = None;
        loop {
            let have = length(&bytes);
            let at = offset.saturating_add(have);
            let left = len.saturating_sub(have);
            let (more, ended) = match opened.await.handle() {
                Ok(handle) => read_and_close(&self.client, handle, at, left).await,
                Err(error) => (Vec::new(), Err(error)),
            };
            match ended {
                Ok(()) if length(&more) >= left => {
                    if bytes.is_empty() {
                        return Ok(more);
                    }
                    bytes.extend_from_slice(&more);
                    return Ok(bytes);
                }
                Ok(()) if more.is_empty() => {
                    let detail =
                        format!("it ends at {at}, and bytes up to {} were expected", at.saturating_add(left));
                    return Err(StoreError::new(ErrorKind::Truncated, "read", self.subject(name), detail));
                }
                Ok(()) => {
                    // It ended short twice and there was more: the server gives less than it is asked for.
                    if let Some(first_stop) = stopped_at.replace(length(&more)) {
                        let shortest = first_stop.min(length(&more));
                        self.client.learn_read_size(usize::try_from(shortest).unwrap_or(usize::MAX));
                    }
                    bytes.extend_from_slice(&more);
                }
                // What came before the loss is kept.
                Err(error) if tries.again_after(!more.is_empty(), &error) => bytes.extend_from_slice(&more),
                Err(error) => return Err(self.error("read", name, error)),
            }
            opened = self.start_read(name, len.saturating_sub(length(&bytes)));
        }
    }

    /// Sends the first requests of a read of a whole file or its end: what it is, and a handle.
    pub(super) fn start_read_end(&self, name: &Name) -> [Answer; 2] {
        let stat = Request::Stat { path: self.path(name) };
        self.client.submit_all(Target::Control, [stat, self.open(name, OpenMode::Read)])
    }

    /// The last bytes of a file, as many as `wanted` says for its size, and the size: a wait to open it, and one for the bytes.
    pub(super) async fn read_end(
        &self,
        name: &Name,
        wanted: impl Fn(u64) -> Result<u64, StoreError>,
        first: [Answer; 2],
    ) -> Result<(Vec<u8>, u64), StoreError> {
        let mut tries = Tries::default();
        let mut requests = first;
        loop {
            let [stat, opened] = requests;
            let attrs = stat.await.attrs();
            let opened = opened.await.handle();
            let error = match (attrs, opened) {
                (Ok(attrs), Ok(handle)) => {
                    let size = self.size(name, attrs)?;
                    let len = wanted(size)?;
                    let offset = size.saturating_sub(len);
                    if len > HERE {
                        // The handle is closed when it suits; so much is better read on a channel of its own.
                        drop(handle);
                        let bytes = self.read(name, offset, len, self.start_read(name, len)).await?;
                        return Ok((bytes, size));
                    }
                    match read_and_close(&self.client, handle, offset, len).await {
                        (bytes, Ok(())) if length(&bytes) == len => return Ok((bytes, size)),
                        (mut bytes, Ok(())) => {
                            let at = offset.saturating_add(length(&bytes));
                            let left = len.saturating_sub(length(&bytes));
                            bytes.extend(self.read(name, at, left, self.start_read(name, left)).await?);
                            return Ok((bytes, size));
                        }
                        (_, Err(error)) => error,
                    }
                }
                (Err(error), _) | (_, Err(error)) => error,
            };
            if !tries.again(&error) {
                return Err(self.error("read", name, error));
            }
            requests = self.start_read_end(name);
        }
    }

    fn size(&self, name: &Name, attrs: Attrs) -> Result<u64, StoreError> {
        attrs.size.ok_or_else(|| {
            let detail = "the server does not tell its length";
            StoreError::new(ErrorKind::Protocol, "read", self.subject(name), detail)
        })
    }
}

/// The length of bytes in memory.
pub(super) fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// An entry as a listing shows it; nothing for the directory itself and the one above, and for names that no store makes.
fn as_listed(entry: &DirEntry) -> Option<Listed> {
    let name = std::str::from_utf8(&entry.name).ok()?;
    (name != "." && name != "..").then(|| Listed {
        name: name.to_owned(),
        size: entry.attrs.size.unwrap_or(0),
        modified: entry.attrs.modified.map_or(0, i64::from),
        is_dir: entry.attrs.is_dir(),
    })
}
