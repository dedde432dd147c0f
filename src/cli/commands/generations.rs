//! `kitbag generations`: id, start .. end, files and bytes, and what is odd about it; oldest first.

use std::fmt;

use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock, Timestamp};
use crate::cli::Context;
use crate::cli::catalog;
use crate::cli::error::{Exit, Failure};
use crate::cli::human::local_time;
use crate::cli::output::Output;
use crate::cli::report::GenerationReport;
use crate::generation::Generation;
use crate::generation::spec::is_from_future;

/// Lists the client's generations.
///
/// # Errors
/// When they cannot be read.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    let repository = context.open(context.store()?)?;
    let (generations, exit) = catalog::all(context, &repository)?;
    let now = SystemClock::new().now();
    let mut output = Output::new();
    for generation in &generations {
        if context.settings.json {
            output.json(&GenerationReport::new(generation, now, true))?;
        } else {
            output.line(Line(generation, now))?;
        }
    }
    output.finish()?;
    Ok(exit)
}

/// One line; times are local.
struct Line<'a>(&'a Generation, Timestamp);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(generation, now) = self;
        let (start, end) = (local_time(generation.started), local_time(generation.ended));
        let counts = &generation.counts;
        write!(f, "{}\t{start} .. {end}\t{} files, {} bytes", generation.id, counts.files, counts.bytes)?;
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
