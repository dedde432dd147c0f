//! Runs a command while an SSH server of its own listens on loopback: `with-sshd [--delay MS] COMMAND [ARGUMENT…]`, so many
//! milliseconds of round trip away.
//!
//! The command finds in its environment `KITBAG_SSH_CONFIG`, a client configuration that knows the server, `SFTP_HOST`, the
//! server's name in it, and `SFTP_AUTHORIZED_KEYS`, the file of the key that may log in. Ends as the command does, and the server ends with it.

use std::process::{Command, ExitCode};
use std::time::Duration;

use obbench::relay::{Link, Relay};
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
    const USAGE: &str = "usage: with-sshd [--delay MS] COMMAND [ARGUMENT…]";
    let mut words = std::env::args_os().skip(1).peekable();
    let mut delay = None;
    if words.next_if(|word| word == "--delay").is_some() {
        let milliseconds = words.next().and_then(|word| word.to_str()?.parse().ok()).ok_or(USAGE)?;
        delay = Some(Duration::from_millis(milliseconds));
    }
    let program = words.next().ok_or(USAGE)?;
    let mut server = Sshd::start(SshdOptions::default())?;
    let relay = delay.map(|delay| Relay::start(server.address(), Link::delayed(delay))).transpose()?;
    if let Some(relay) = &relay {
        server.set_client_port(relay.port())?;
    }
    let status = Command::new(program)
        .args(words)
        .env("KITBAG_SSH_CONFIG", server.ssh_config())
        .env("SFTP_HOST", HOST)
        .env("SFTP_AUTHORIZED_KEYS", server.authorized_keys())
        .status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
