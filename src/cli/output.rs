//! Standard output: what was asked for, and nothing else.

use std::io::{self, BufWriter, Stdout, Write};

use serde::Serialize;

use super::error::Failure;

/// Standard output, buffered. A reader that has gone away (`kitbag ls | head`) ends the program quietly.
#[derive(Debug)]
pub struct Output {
    out: BufWriter<Stdout>,
}

impl Output {
    /// Standard output.
    #[must_use]
    pub fn new() -> Self {
        Self { out: BufWriter::new(io::stdout()) }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// [`Failure::output`]
    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        writeln!(self.out, "{text}").map_err(|error| Failure::output(&error))
    }

    /// Writes a value as one line of JSON.
    ///
    /// # Errors
    /// [`Failure::output`]
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.out, value)
            .map_err(io::Error::from)
            .and_then(|()| self.out.write_all(b"\n"))
            .map_err(|error| Failure::output(&error))
    }

    /// Where to write bytes as they are.
    pub fn raw(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// Brings what is buffered out.
    ///
    /// # Errors
    /// [`Failure::output`]
    pub fn finish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))
    }
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}
