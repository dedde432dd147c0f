//! Prints the manifest of a tree: `manifest DIR`.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "a program's last word")]
fn main() -> ExitCode {
    let Some(root) = std::env::args_os().nth(1) else {
        eprintln!("usage: manifest DIR");
        return ExitCode::from(2);
    };
    let written = obbench::manifest::of(Path::new(&root))
        .and_then(|text| std::io::stdout().lock().write_all(text.as_bytes()));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manifest: {error}");
            ExitCode::FAILURE
        }
    }
}
