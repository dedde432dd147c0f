//! Listings and reads.

use bytes::Bytes;

use super::super::{ErrorKind, Listed, Name, StoreError};
use super::remote::{Remote, Tries};
use crate::sftp::attrs::Attrs;
use crate::sftp::packet::{MAX_PAYLOAD, OpenMode, Request};
use crate::sftp::reply::{Code, DirEntry};
use crate::sftp::transfer::read_and_close;
use crate::sftp::{Answer, Handle, Malformed, RequestError, Target};

/// Reads up to this length keep their order with the other small things.
pub(super) const SMALL: u64 = 32 << 10;

/// A whole file or tail up to this length, which is the window of a channel, is read on the handle that was opened to look at it.
const HERE: u64 = 4 << 20;

/// READDIRs sent together at most.
const MOST_READDIRS: usize = 32;

impl Remote {
    /// Sends the first requests of a listing: what opens it, and what reads it if the handle can be foretold.
    pub(super) fn start_list(&self, dir: &Name) -> (Answer, Vec<Answer>) {
        let open = Request::OpenDir { path: self.path(dir) };
        let [opened, ahead @ ..] =
            self.client.submit_all(Target::Control, [open, Request::list_opened(), Request::list_opened()]);
        (opened, ahead.into())
    }

    /// The entries of a directory: a wait to open it, none for those that came along, and one for each doubling of the
    /// number of READDIRs.
    pub(super) async fn list(
        &self,
        dir: &Name,
        first: (Answer, Vec<Answer>),
    ) -> Result<Vec<Listed>, StoreError> {
        let mut tries = Tries::default();
        let (mut opened, mut ahead) = first;
        loop {
            let error = match opened.await.handle() {
                Ok(handle) => match self.entries(handle, ahead).await {
                    Ok(Some(listed)) => return Ok(listed),
                    Ok(None) => {
                        let open = Request::OpenDir { path: self.path(dir) };
                        (opened, ahead) = (self.client.submit(Target::Control, open), Vec::new());
                        continue;
                    }
                    Err(error) => error,
                },
                Err(error) if error.code() == Some(Code::NoSuchFile) => return Ok(Vec::new()),
                Err(error) => error,
            };
            if !tries.again(&error) {
                return Err(self.error("list", dir, error));
            }
            (opened, ahead) = self.start_list(dir);
        }
    }

    /// All entries; none if some may be lost, because another handle was foretold. The handle is closed when it suits: nobody
    /// waits for that.
    async fn entries(&self, handle: Handle, ahead: Vec<Answer>) -> Result<Option<Vec<Listed>>, RequestError> {
        let mut listed = Vec::new();
        let mut ended = false;
        for answer in ahead {
            let outcome = answer.await;
            if outcome.foretold.is_none() {
                continue;
            }
            if !outcome.is_on(&handle) {
                return Ok(None);
            }
            match outcome.names() {
                Ok(Some(entries)) => listed.extend(entries.iter().filter_map(as_listed)),
                Ok(None) => ended = true,
                Err(error) if self.client.is_orderly() => return Err(error),
                // It may have come before its OPENDIR.
                Err(_) => return Ok(None),
            }
        }
        if ended {
            return Ok(Some(listed));
        }
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
                return Ok(Some(listed));
            }
            if listed.len() == before && burst > 2 {
                return Err(Malformed("a directory without end").into());
            }
            burst = burst.saturating_mul(2).min(MOST_READDIRS);
        }
    }

    /// Sends the first requests of a read. A small one is asked for whole, if the handle can be foretold.
    pub(super) fn start_read(&self, name: &Name, offset: u64, len: u64) -> (Answer, Option<Answer>) {
        let open = self.open(name, OpenMode::Read);
        match u32::try_from(len) {
            Ok(small) if len <= SMALL => {
                let read = Request::read_opened(offset, small);
                let [opened, ahead] = self.client.submit_all(Target::Control, [open, read]);
                (opened, Some(ahead))
            }
            _ => (self.client.submit(Target::Anywhere { bytes: len }, open), None),
        }
    }

    /// A range: a wait to open the file, and one for all of its bytes unless they came along.
    pub(super) async fn read(
        &self,
        name: &Name,
        offset: u64,
        len: u64,
        first: (Answer, Option<Answer>),
    ) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        let mut tries = Tries::default();
        let (mut opened, mut ahead) = first;
        let mut stopped_at = None;
        loop {
            let have = length(&bytes);
            let at = offset.saturating_add(have);
            let left = len.saturating_sub(have);
            let (more, ended) = match opened.await.handle() {
                Ok(handle) => match came_along(&handle, ahead).await {
                    Some(bytes) => (bytes.into(), Ok(())),
                    None => read_and_close(&self.client, handle, at, left).await,
                },
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
            let have = length(&bytes);
            (opened, ahead) = self.start_read(name, offset.saturating_add(have), len.saturating_sub(have));
        }
    }

    /// Sends the first requests of a read of a whole file or its end: what it is, and a handle.
    /// Where it is likely to be small, its beginning is asked for too, if the handle can be foretold.
    pub(super) fn start_read_end(&self, name: &Name, beginning: u64) -> (Answer, Answer, Vec<Answer>) {
        let piece = u64::from(MAX_PAYLOAD);
        let pieces = (0..beginning.min(HERE).div_ceil(piece)).map(|number| {
            let offset = number.saturating_mul(piece);
            let len = u32::try_from(beginning.saturating_sub(offset)).unwrap_or(MAX_PAYLOAD);
            Request::read_opened(offset, len.min(MAX_PAYLOAD))
        });
        let first = [Request::Stat { path: self.path(name) }, self.open(name, OpenMode::Read)];
        let ([stat, opened], ahead) = self.client.submit_with(Target::Control, first, pieces);
        (stat, opened, ahead)
    }

    /// The last bytes of a file, as many as `wanted` says for its size, and the size: a wait to open it, and one for the
    /// bytes unless all of them came along.
    pub(super) async fn read_end(
        &self,
        name: &Name,
        wanted: impl Fn(u64) -> Result<u64, StoreError>,
        first: (Answer, Answer, Vec<Answer>),
    ) -> Result<(Vec<u8>, u64), StoreError> {
        let mut tries = Tries::default();
        let mut requests = first;
        loop {
            let (stat, opened, ahead) = requests;
            let attrs = stat.await.attrs();
            let opened = opened.await.handle();
            let error = match (attrs, opened) {
                (Ok(attrs), Ok(handle)) => {
                    let size = self.size(name, attrs)?;
                    let len = wanted(size)?;
                    let mut bytes = beginning(&handle, ahead).await;
                    bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
                    if len < size {
                        bytes.clear();
                    }
                    let left = len.saturating_sub(length(&bytes));
                    let offset = size.saturating_sub(left);
                    if left == 0 {
                        return Ok((bytes, size));
                    }
                    if left > HERE {
                        // The handle is closed when it suits; so much is better read on a channel of its own.
                        drop(handle);
                        bytes.extend(
                            self.read(name, offset, left, self.start_read(name, offset, left)).await?,
                        );
                        return Ok((bytes, size));
                    }
                    match read_and_close(&self.client, handle, offset, left).await {
                        (more, Ok(())) => {
                            bytes.extend_from_slice(&more);
                            let at = offset.saturating_add(length(&more));
                            let left = size.saturating_sub(at);
                            if left > 0 {
                                let rest = self.read(name, at, left, self.start_read(name, at, left));
                                bytes.extend(rest.await?);
                            }
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
            requests = self.start_read_end(name, 0);
        }
    }

    fn size(&self, name: &Name, attrs: Attrs) -> Result<u64, StoreError> {
        attrs.size.ok_or_else(|| {
            let detail = "the server does not tell its length";
            StoreError::new(ErrorKind::Protocol, "read", self.subject(name), detail)
        })
    }
}

/// What was read before the handle was known, if it was read on this one.
async fn came_along(handle: &Handle, ahead: Option<Answer>) -> Option<Bytes> {
    let outcome = ahead?.await;
    if outcome.is_on(handle) { outcome.data().ok()? } else { None }
}

/// What was read of the beginning before the handle was known, as far as it was read on this one and without a gap.
async fn beginning(handle: &Handle, ahead: Vec<Answer>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut next, piece) = (0, u64::from(MAX_PAYLOAD));
    for answer in ahead {
        let outcome = answer.await;
        let data = if outcome.is_on(handle) { outcome.data() } else { Ok(None) };
        // A piece that is shorter than asked for leaves a gap before the next one, unless it is the last.
        if let Ok(Some(data)) = data
            && length(&bytes) == next
        {
            bytes.extend_from_slice(&data);
        }
        next = next.saturating_add(piece);
    }
    bytes
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
