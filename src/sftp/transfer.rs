//! Ranges of files, read with many requests in flight.

use super::client::{Answer, Client};
use super::error::RequestError;
use super::handle::Handle;
use super::packet::Request;
use super::queue::Target;

/// Memory set aside for a range before its bytes are there: lengths may come from a damaged file.
const TRUSTED: u64 = 16 << 20;

/// Reads a range and closes the file: all READs and the CLOSE are sent at once.
///
/// Gives the bytes up to the first READ that failed, and how; or that brought less than was asked for. The latter is the
/// end of the file, or the server's own limit: the caller has to open the file again and ask for the rest to know which.
pub async fn read_and_close(
    client: &Client,
    handle: Handle,
    offset: u64,
    len: u64,
) -> (Vec<u8>, Result<(), RequestError>) {
    let place = handle.place();
    let mut requests = Vec::new();
    let mut lengths = Vec::new();
    let size = u64::from(client.read_size());
    let mut done = 0;
    while done < len {
        let piece = size.min(len.saturating_sub(done));
        let at = offset.saturating_add(done);
        let len = u32::try_from(piece).unwrap_or(u32::MAX);
        requests.push(Request::Read { handle: handle.bytes(), offset: at, len });
        lengths.push(piece);
        done = done.saturating_add(piece);
    }
    requests.push(Client::closing(handle));
    let answers = client.submit_many(Target::At(place), requests);
    let mut bytes = Vec::with_capacity(usize::try_from(len.min(TRUSTED)).unwrap_or(0));
    // The answer to the CLOSE has no length: a handle that could not be closed is no failure of what was read.
    for (answer, wanted) in answers.into_iter().zip(lengths) {
        let data = match answer.await.data() {
            Ok(Some(data)) => data,
            Ok(None) => break,
            Err(error) => return (bytes, Err(error)),
        };
        bytes.extend_from_slice(&data);
        if u64::try_from(data.len()).unwrap_or(u64::MAX) < wanted {
            break;
        }
    }
    (bytes, Ok(()))
}

/// Waits for all answers, and gives the first failure, if there is one.
///
/// # Errors
/// See above.
pub async fn all_done(answers: impl IntoIterator<Item = Answer>) -> Result<(), RequestError> {
    let mut result = Ok(());
    for answer in answers {
        let done = answer.await.done();
        result = result.and(done);
    }
    result
}
