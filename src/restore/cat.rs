//! One file's contents, to an output.

use std::io::{self, Write};

use super::OPENED;
use crate::bag::reader::ReadError;
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::text::escape;
use crate::contents::{Section, Stream, StreamError};
use crate::dir::reader::TreeError;
use crate::entry::Kind;
use crate::generation::{Generation, locate};
use crate::repo::Repository;

/// Why a file's contents were not written, or not all of them.
#[derive(Debug, thiserror::Error)]
pub enum CatError {
    /// The path leads to nothing.
    #[error("there is no {path} in this generation", path = escape(.0))]
    NotFound(Vec<u8>),
    /// It leads to something that has no contents.
    #[error("{path} is no regular file", path = escape(.0))]
    NotAFile(Vec<u8>),
    /// A directory or chunk list could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A chunk could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be written.
    #[error("cannot write the contents: {0}")]
    Write(#[from] io::Error),
    /// It was asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<StreamError> for CatError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Tree(error) => Self::Tree(error),
            StreamError::Read(error) => Self::Read(error),
            StreamError::Taken(error) => Self::Write(error),
            StreamError::Interrupted => Self::Interrupted,
        }
    }
}

/// Writes the contents of the file at `path` to `out`, in order; holes as zeros. Reads run ahead of what is written, in bounded memory; what was written
/// was checked. Returns the number of bytes.
///
/// # Errors
/// See [`CatError`]. A part may be written by then.
pub fn cat(
    repository: &Repository,
    generation: &Generation,
    path: &[u8],
    out: &mut dyn Write,
    cancel: &Cancel,
) -> Result<u64, CatError> {
    let source = Source::new(repository.bags(), OPENED);
    let Some((path, entry)) = locate::entry(&source, generation, path)? else {
        return Err(CatError::NotFound(path.to_vec()));
    };
    if entry.metadata.kind != Kind::File {
        return Err(CatError::NotAFile(path));
    }
    let stream = Stream::start(&source, &entry.content, 1)?;
    let mut write = |section: Section<'_>| match section {
        Section::Data(bytes) => out.write_all(bytes),
        Section::Hole(len) => io::copy(&mut io::Read::take(io::repeat(0), len), &mut *out).map(drop),
    };
    Ok(stream.take(cancel, &mut write)?)
}
