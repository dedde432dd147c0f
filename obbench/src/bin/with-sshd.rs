//! Runs a command while an SSH server of its own listens on loopback: `with-sshd COMMAND [ARGUMENT…]`.
//!
//! The command finds in its environment `KITBAG_SSH_CONFIG`, a client configuration that knows the server, and
//! `SFTP_HOST`, the server's name in it. Ends as the command does, and the server ends with it.

use std::process::{Command, ExitCode};

use obbench::sshd::{HOST, Sshd, SshdOptions};

#[expect(clippy::print_stderr, reason = "a program's last word")]
fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("with-sshd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<u8, Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().ok_or("usage: with-sshd COMMAND [ARGUMENT…]")?;
    let server = Sshd::start(SshdOptions::default())?;
    let status = Command::new(program)
        .args(words)
        .env("KITBAG_SSH_CONFIG", server.ssh_config())
        .env("SFTP_HOST", HOST)
        .status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
