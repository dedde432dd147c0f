//! `kitbag generations`: id, start .. end, files and bytes, and what is odd about it; oldest first.

use std::fmt;

use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock, Timestamp};
use crate::cli::Context;
use crate::cli::catalog::{self, NOTHING_YET};
use crate::cli::error::{Exit, Failure};
use crate::cli::human::{bytes, counted, local_time};
use crate::cli::output::Output;
use crate::cli::report::{GenerationReport, roots};
use crate::cli::settings::Verbosity;
use crate::generation::Generation;
use crate::generation::spec::is_from_future;

/// Lists the client's generations.
///
/// # Errors
/// When they cannot be read.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let (generations, exit) = catalog::all(context, &repository)?;
    if generations.is_empty() && exit == Exit::Done {
        context.say_why_empty(NOTHING_YET);
    }
    let all_roots = context.settings.verbosity > Verbosity::Normal;
    let now = SystemClock::new().now();
    let mut output = Output::new();
    for generation in &generations {
        if context.settings.json {
            output.json(&GenerationReport::new(generation, now, true))?;
        } else {
            output.line(Line { generation, now, all_roots })?;
        }
    }
    output.finish()?;
    Ok(exit)
}

/// One line; times are local.
struct Line<'a> {
    generation: &'a Generation,
    now: Timestamp,
    /// Whether to name all roots, however many.
    all_roots: bool,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generation, now, all_roots } = self;
        let (start, end) = (local_time(generation.started), local_time(generation.ended));
        let counts = &generation.counts;
        let files = counted(counts.files, "file", "files");
        write!(f, "{}\t{start} .. {end}\t{files}, {}", generation.id, bytes(counts.bytes))?;
        write!(f, "\t{}", roots(generation, *all_roots))?;
        if !generation.tags.is_empty() {
            let tags: Vec<_> = generation.tags.iter().map(|tag| escape(tag.as_bytes())).collect();
            write!(f, "\t[{}]", tags.join(", "))?;
        }
        if generation.partial {
            f.write_str("\t(checkpoint)")?;
        }
        if is_from_future(generation, *now) {
            f.write_str("\t(dated in the future)")?;
        }
        Ok(())
    }
}
