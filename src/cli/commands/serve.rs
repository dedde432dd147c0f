//! `kitbag serve`: the other side, for a key that shall have no more power than it needs.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;

use crate::cli::args::Serve;
use crate::cli::error::{Exit, Failure};
use crate::serve::{self, ServeError};

/// Serves until the client has no more requests. It knows neither settings nor environment, which are not the client's to decide; and signals end
/// it, as they end any server of SFTP.
///
/// # Errors
/// When the client breaks the protocol, the connection fails, or the directory cannot be opened.
pub fn run(args: &Serve) -> Result<Exit, Failure> {
    let (input, output) = (io::stdin(), io::stdout());
    if input.is_terminal() {
        let text = "`kitbag serve` speaks SFTP at its standard input, which is a terminal here";
        return Err(Failure::usage(text).hint("`kitbag serve --help` says how sshd starts it"));
    }
    // Past the buffers of the standard library, which end at lines and hold little.
    let plain = |fd: io::Result<_>| {
        let file = fd.map(File::from);
        file.map_err(|error| Failure::failed(format!("cannot serve: {error}")))
    };
    let input = plain(input.as_fd().try_clone_to_owned())?;
    let output = plain(output.as_fd().try_clone_to_owned())?;
    serve::serve(&args.root, args.rights(), input, output).map_err(Failure::from)?;
    Ok(Exit::Done)
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        let failure = Self::failed(error.to_string());
        match error {
            ServeError::Root { .. } => failure.hint("--root names a directory that is there"),
            _ => failure,
        }
    }
}
