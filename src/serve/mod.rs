//! An SFTP server that hands over no more power than a backup needs: `kitbag serve`.
//!
//! It speaks over standard input and output, as the forced command of a key in `authorized_keys`, so that a server which runs nothing
//! but `sshd` can still say that what was stored stays stored. An ordinary client notices nothing.
//!
//! - Nothing outside one directory can be named: [`spot`] takes paths apart as if that were `/`, and [`tree`] follows no symbolic link.
//! - What may be done is decided by [`rights`], from names alone; `doc/decisions/append-only-by-name.md` has the reasons.
//! - What is published is closed for good, even to those who still have it open: [`shelf`] says how.
//! - One request after the other, in the order in which they came, and handles numbered as OpenSSH numbers them ([`handles`]): clients
//!   send reads on handles that they foretell.
//! - Memory is bounded by a packet, an answer and a number of handles. A malformed packet ends the session.

mod answer;
mod handles;
mod listing;
mod refusal;
mod rights;
mod shelf;
mod spot;
mod tree;

#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use self::answer::Server;
pub use self::rights::Rights;
use self::tree::Tree;
use crate::base::text::system;
use crate::sftp::Malformed;
use crate::sftp::asked::Asked;
use crate::sftp::packet::Packets;

/// So much is read at once: what a pipe holds.
const PIECE: usize = 64 * 1024;

/// Answers are gathered up to this length while there are requests to work on.
const GATHERED: usize = 256 * 1024;

/// Why a session ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The directory cannot be opened.
    #[error("cannot serve {}: {}", at.display(), system(source))]
    Root {
        /// The directory.
        at: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The client broke the protocol.
    #[error("{0}; the session was ended")]
    Malformed(#[from] Malformed),
    /// The stream of requests ended within one.
    #[error("the connection ended in the middle of a request")]
    Cut,
    /// Reading or writing failed.
    #[error("the connection failed: {0}")]
    Connection(#[source] io::Error),
}

/// Serves the files below `root` to the client at `input` and `output`, until that has no more requests.
///
/// # Errors
/// See [`ServeError`]. What was answered before has happened.
pub fn serve(
    root: &Path,
    rights: Rights,
    mut input: impl Read,
    mut output: impl Write,
) -> Result<(), ServeError> {
    let tree = Tree::open(root).map_err(|source| ServeError::Root { at: root.to_owned(), source })?;
    let mut server = Server::new(tree, rights);
    let mut packets = Packets::default();
    let mut piece = vec![0; PIECE];
    let mut answers = Vec::new();
    loop {
        let outcome = work(&mut server, &mut packets, &mut answers, &mut output);
        // Whatever follows, what was done is told.
        flush(&mut answers, &mut output)?;
        outcome?;
        let len = match input.read(&mut piece) {
            Ok(0) if packets.is_empty() => return Ok(()),
            Ok(0) => return Err(ServeError::Cut),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ServeError::Connection(error)),
        };
        packets.push(piece.get(..len).unwrap_or_default());
    }
}

/// Answers all requests that are there as a whole.
fn work(
    server: &mut Server,
    packets: &mut Packets,
    answers: &mut Vec<u8>,
    output: &mut impl Write,
) -> Result<(), ServeError> {
    while let Some(packet) = packets.next_packet()? {
        let (id, asked) = Asked::decode(packet)?;
        server.answer(asked)?.put(id, answers);
        if answers.len() >= GATHERED {
            flush(answers, output)?;
        }
    }
    Ok(())
}

fn flush(answers: &mut Vec<u8>, output: &mut impl Write) -> Result<(), ServeError> {
    output.write_all(answers).and_then(|()| output.flush()).map_err(ServeError::Connection)?;
    answers.clear();
    Ok(())
}
