//! `kitbag man`, for those who make packages: writes the manual pages; and `kitbag completions`, for shells.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;

use crate::base::text::escape;
use crate::cli::args::{Args, Shell};
use crate::cli::error::{Exit, Failure};
use crate::cli::man;

/// Writes `man1/*.1` and `man5/*.5` below a directory.
///
/// # Errors
/// When they cannot be written.
pub fn pages(dir: &Path) -> Result<Exit, Failure> {
    let cannot = |path: &Path, error: io::Error| {
        Failure::failed(format!("cannot write {}: {error}", escape(path.as_os_str().as_encoded_bytes())))
    };
    for page in man::pages().map_err(|error| cannot(dir, error))? {
        let section = dir.join(format!("man{}", page.section));
        fs::create_dir_all(&section).map_err(|error| cannot(&section, error))?;
        let path = section.join(format!("{}.{}", page.name, page.section));
        fs::write(&path, page.text).map_err(|error| cannot(&path, error))?;
    }
    Ok(Exit::Done)
}

/// Writes a script that teaches a shell the commands and options.
///
/// # Errors
/// When standard output cannot be written.
pub fn completions(shell: Shell) -> Result<Exit, Failure> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "kitbag", &mut script);
    io::stdout().lock().write_all(&script).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}
