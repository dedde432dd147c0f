//! `kitbag cat`: a file's contents on standard output.

use std::slice;

use crate::bag::BagKind;
use crate::bag::source::Source;
use crate::cli::args::Cat;
use crate::cli::error::{Exit, Failure};
use crate::cli::lines::Job;
use crate::cli::output::Output;
use crate::cli::progress::Progress;
use crate::cli::select::Selection;
use crate::cli::{Context, catalog, connect, tree};
use crate::dir::reader::pieces;
use crate::entry::{Content, Entry, Kind, Piece};

/// Bytes of a hole that are written at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Writes the contents of a file.
///
/// # Errors
/// When it is not there, is no regular file, or cannot be read.
pub fn run(context: &Context, args: &Cat) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let generation = catalog::one(context, &repository, &args.generation)?;
    let source = connect::source(&repository);
    let mut selection = Selection::new(slice::from_ref(&args.path), &context.here()?);
    let progress = Progress::begin(Job::Check, &context.screen.without_display(), context.settings.verbosity);
    let mut output = Output::new();
    let mut visit = |path: &[u8], entry: &Entry| {
        if entry.metadata.kind != Kind::File {
            let path = crate::base::text::escape(path);
            return Err(Failure::failed(format!("{path} is not a regular file")).hint("restore it instead"));
        }
        write(&source, &entry.content, &mut output)
    };
    tree::walk(&source, &generation, &mut selection, &progress, &context.cancel, &mut visit)?;
    output.finish()?;
    selection.all_found()?;
    Ok(super::outcome(&progress))
}

fn write(source: &Source, content: &Content, output: &mut Output) -> Result<(), Failure> {
    if let Content::Inline(bytes) = content {
        return output.bytes(bytes);
    }
    for piece in pieces(source, content) {
        match piece? {
            Piece::Chunk(reference) => output.bytes(&source.object(BagKind::Data, &reference)?)?,
            Piece::Hole(mut rest) => {
                while rest > 0 {
                    let zeros = usize::try_from(rest)
                        .map_or(ZEROS.as_slice(), |rest| ZEROS.get(..rest).unwrap_or(&ZEROS));
                    output.bytes(zeros)?;
                    rest = rest.saturating_sub(u64::try_from(zeros.len()).unwrap_or(u64::MAX));
                }
            }
        }
    }
    Ok(())
}
