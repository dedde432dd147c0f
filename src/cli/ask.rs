//! Asking the person at the terminal: for passphrases, passwords, and whether to trust a host.
//!
//! Questions come from several threads (the repository's passphrase, a key file's while the connection is made); they
//! are asked one after another, with the live display out of the way.

use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::progress::Screen;
use super::signals;
use crate::base::secret::Passphrase;
use crate::base::text::escape;
use crate::sftp::transport::prompt::Prompter;

/// Held while a question waits for its answer.
static TURN: Mutex<()> = Mutex::new(());

/// Asks for a secret, which is not shown while it is typed.
///
/// # Errors
/// There is no terminal; `Interrupted` when Ctrl-C was typed.
pub fn secret(screen: &Screen, question: &str) -> io::Result<Passphrase> {
    in_turn(screen, || rpassword::prompt_password(question).map(|text| Passphrase::new(text.into_bytes())))
}

/// Asks for a line of text.
///
/// # Errors
/// There is no terminal.
pub fn line(screen: &Screen, question: &str) -> io::Result<String> {
    in_turn(screen, || {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        (&terminal).write_all(question.as_bytes())?;
        let mut answer = String::new();
        BufReader::new(&terminal).read_line(&mut answer)?;
        Ok(answer.trim_end_matches(['\r', '\n']).to_owned())
    })
}

/// Asks a question that ends with yes or no, until one of these is the answer; nothing at all is no.
///
/// # Errors
/// There is no terminal.
pub fn yes_or_no(screen: &Screen, question: &str) -> io::Result<bool> {
    loop {
        if let Some(answer) = understood(&line(screen, question)?) {
            return Ok(answer);
        }
    }
}

fn understood(answer: &str) -> Option<bool> {
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(true),
        "" | "n" | "no" => Some(false),
        _ => None,
    }
}

fn in_turn<T>(screen: &Screen, ask: impl FnOnce() -> T) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    screen.pause(|| signals::while_asking(ask))
}

/// The person at the terminal, for whoever makes an SSH connection. Without a terminal every answer is no.
#[derive(Debug)]
pub struct Person(pub Screen);

impl Person {
    fn secret(&self, question: &str, again: bool) -> Option<Passphrase> {
        let wrong = if again { "That was not right. " } else { "" };
        secret(&self.0, &format!("{wrong}{question}: ")).ok()
    }
}

impl Prompter for Person {
    fn is_there(&self) -> bool {
        OpenOptions::new().read(true).write(true).open("/dev/tty").is_ok()
    }

    fn trust_host(&self, host: &str, key_type: &str, fingerprint: &str) -> bool {
        let question = format!(
            "The host {} is not known. Its {key_type} key has the fingerprint\n{fingerprint}\nDo you trust it? (yes or no) ",
            escape(host.as_bytes())
        );
        line(&self.0, &question).is_ok_and(|answer| answer.trim().eq_ignore_ascii_case("yes"))
    }

    fn passphrase(&self, key: &Path, again: bool) -> Option<Passphrase> {
        self.secret(&format!("Passphrase of the key {}", key.display()), again)
    }

    fn password(&self, account: &str, again: bool) -> Option<Passphrase> {
        self.secret(&format!("Password of {}", escape(account.as_bytes())), again)
    }

    fn answer(&self, account: &str, instructions: &str, question: &str, echo: bool) -> Option<Passphrase> {
        // What a server says must not drive the terminal.
        let said = [instructions, question].map(|text| escape(text.trim().as_bytes()));
        let question = format!("{} asks: {} ", escape(account.as_bytes()), said.join(" ").trim());
        if echo {
            line(&self.0, &question).ok().map(|answer| Passphrase::new(answer.into_bytes()))
        } else {
            secret(&self.0, &question).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_an_answer() {
        for (answer, meaning) in [("y", true), ("Yes ", true), ("n", false), ("NO", false), ("", false)] {
            assert_eq!(understood(answer), Some(meaning), "{answer}");
        }
        assert_eq!(understood("yess"), None);
    }
}
