//! Where the passphrase comes from: a file, a file descriptor, a command, the environment, or a person. A key file can take its place.
//!
//! It is never taken from the command line, which everybody on the machine can read. Whatever program wrote a
//! file or printed it probably ended it with a newline, so one `\n` (or `\r\n`) at the end is taken off; the value of
//! `KITBAG_PASSPHRASE` is used as it is.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use zeroize::Zeroizing;

use super::ask;
use super::error::Failure;
use super::key_file;
use super::log::Level;
use super::progress::Screen;
use crate::base::program::program;
use crate::base::secret::Passphrase;
use crate::base::text::{escape, system};
use crate::crypto::Secret;

/// A passphrase longer than this is a mistake, such as a wrong file.
const LONGEST: u64 = 64 * 1024;

/// What a passphrase is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To open a repository.
    Open,
    /// To open one that is being made.
    Make,
    /// To open one from now on, too.
    Add,
}

impl Purpose {
    /// What to call it.
    fn noun(self) -> &'static str {
        match self {
            Self::Open => "passphrase",
            Self::Make | Self::Add => "new passphrase",
        }
    }

    /// What to do where nobody can be asked for it.
    fn unasked(self) -> &'static str {
        match self {
            Self::Open | Self::Make => {
                "give it with --passphrase-file, --passphrase-fd, --passphrase-command or KITBAG_PASSPHRASE"
            }
            Self::Add => "give it with --new-passphrase-file",
        }
    }
}

/// Where to take the passphrase from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A person at the terminal.
    Prompt,
    /// A file.
    File(PathBuf),
    /// An open file descriptor of this process.
    Descriptor(u32),
    /// What a command prints.
    Command(String),
    /// The environment.
    Given(Passphrase),
    /// None: a key file.
    KeyFile(PathBuf),
}

impl Source {
    /// What opens an existing repository; `again` after a wrong passphrase.
    ///
    /// # Errors
    /// When the source gives nothing.
    pub fn existing(&self, screen: &Screen, again: bool) -> Result<Secret, Failure> {
        let question = if again { "That was not right. Passphrase: " } else { "Passphrase: " };
        match self {
            Self::KeyFile(path) => key_file::read(path).map(Secret::Key),
            _ => self.fetch(screen, question, Purpose::Open).map(Secret::Passphrase),
        }
    }

    /// A new passphrase: asked for twice, and not empty.
    ///
    /// # Errors
    /// When the source gives none, it is empty, or the two that were typed differ.
    pub fn new_one(&self, screen: &Screen, purpose: Purpose) -> Result<Passphrase, Failure> {
        let passphrase = self.fetch(screen, "New passphrase: ", purpose)?;
        if matches!(self, Self::Prompt)
            && prompt(screen, "The same again: ", purpose)?.expose() != passphrase.expose()
        {
            return Err(Failure::failed("the two passphrases differ").hint("try again"));
        }
        if passphrase.is_empty() {
            return Err(Failure::failed("the passphrase is empty")
                .hint("choose one, or say --encryption none if nothing shall be secret"));
        }
        Ok(passphrase)
    }

    /// A descriptor, read and closed, so that no program that is started later inherits it; the others as they are.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn taken_over(self) -> Result<Self, Failure> {
        let Self::Descriptor(number) = self else { return Ok(self) };
        let passphrase = from_descriptor(number)?;
        // The three standard ones are given to each program anew.
        if let Ok(raw @ 3..) = RawFd::try_from(number) {
            let _ = nix::unistd::close(raw);
        }
        Ok(Self::Given(passphrase))
    }

    fn fetch(&self, screen: &Screen, question: &str, purpose: Purpose) -> Result<Passphrase, Failure> {
        match self {
            Self::Prompt => prompt(screen, question, purpose),
            Self::Given(passphrase) => Ok(passphrase.clone()),
            Self::File(path) => from_own_file(path, screen),
            Self::Descriptor(number) => from_descriptor(*number),
            Self::Command(command) => from_command(command),
            Self::KeyFile(path) => {
                Err(Failure::usage(format!("the key file {} holds no passphrase", path.display())))
            }
        }
    }
}

/// From a file of this user, or of root. That its group can write it, or everybody can read it, is told.
fn from_own_file(path: &Path, screen: &Screen) -> Result<Passphrase, Failure> {
    let shown = escape(path.as_os_str().as_encoded_bytes());
    let cannot = |error: io::Error| {
        Failure::failed(format!("cannot read the passphrase file {shown}: {}", system(&error)))
    };
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => cannot(error).hint("name one that is there"),
        _ => cannot(error),
    })?;
    let metadata = file.metadata().map_err(cannot)?;
    // Of a pipe nobody else can read, whatever its mode says.
    if metadata.is_file() {
        let user = rustix::process::geteuid().as_raw();
        if let Some(open_to) = trusted(&shown, (metadata.uid(), metadata.mode()), user)? {
            let warning =
                format!("kitbag: the passphrase file {shown} can be {open_to}; say chmod 600 {shown}");
            screen.tell(Level::Warning, &warning);
        }
    }
    bounded(file).map_err(cannot)
}

/// Whether a file of that owner and mode holds this user's secret; to whom it is more open than a secret should be.
///
/// # Errors
/// Another user owns it, or everybody can write it. A group may be the user's own, for which umask 002 is usual.
fn trusted(shown: &str, (owner, mode): (u32, u32), user: u32) -> Result<Option<&'static str>, Failure> {
    if owner != user && owner != 0 {
        let whose = if user == 0 { "root" } else { "you or root" };
        return Err(Failure::failed(format!("the passphrase file {shown} belongs to the user {owner}"))
            .hint(format!("it must belong to {whose}: say chown, or name another file")));
    }
    if mode & 0o002 != 0 {
        return Err(Failure::failed(format!("the passphrase file {shown} can be changed by everybody"))
            .hint(format!("say chmod 600 {shown}")));
    }
    Ok(match (mode & 0o020 != 0, mode & 0o004 != 0) {
        (true, true) => Some("changed by its group and read by everybody on this machine"),
        (true, false) => Some("changed by its group"),
        (false, true) => Some("read by everybody on this machine"),
        (false, false) => None,
    })
}

fn from_file(path: &Path) -> io::Result<Passphrase> {
    bounded(File::open(path)?)
}

fn from_descriptor(number: u32) -> Result<Passphrase, Failure> {
    from_file(Path::new(&format!("/dev/fd/{number}"))).map_err(|error| {
        let error = system(&error);
        Failure::failed(format!("cannot read the passphrase from file descriptor {number}: {error}"))
    })
}

fn bounded(reader: impl io::Read) -> io::Result<Passphrase> {
    let mut bytes = Zeroizing::new(Vec::new());
    reader.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LONGEST {
        return Err(io::Error::other(format!("it is longer than the {LONGEST} bytes that are allowed")));
    }
    Ok(Passphrase::new(without_newline(&bytes).to_vec()))
}

fn without_newline(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\r\n").or_else(|| bytes.strip_suffix(b"\n")).unwrap_or(bytes)
}

fn from_command(command: &str) -> Result<Passphrase, Failure> {
    let cannot = |what: &dyn std::fmt::Display| {
        Failure::failed(format!("the passphrase command {command:?} gave no passphrase: {what}"))
    };
    let mut child = program("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| cannot(&error))?;
    let output = child.stdout.take().map_or_else(|| Err(io::ErrorKind::BrokenPipe.into()), bounded);
    let status = child.wait().map_err(|error| cannot(&error))?;
    match status.code() {
        Some(0) => {}
        Some(127) => return Err(cannot(&"it ended with 127, as sh does with what it does not find")),
        Some(code) => return Err(cannot(&format!("it ended with {code}"))),
        None => return Err(cannot(&status)),
    }
    output.map_err(|error| cannot(&error))
}

fn prompt(screen: &Screen, question: &str, purpose: Purpose) -> Result<Passphrase, Failure> {
    match ask::secret(screen, question) {
        Ok(passphrase) => Ok(passphrase),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(Failure::interrupted()),
        Err(error) => {
            let no_terminal = error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error());
            let why = if no_terminal { "there is no terminal".to_owned() } else { error.to_string() };
            let asked = format!("cannot ask for the {}: {why}", purpose.noun());
            Err(Failure::failed(asked).hint(purpose.unasked()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::settings::Verbosity;

    fn screen() -> Screen {
        Screen::new(Verbosity::Quiet)
    }

    fn passphrase(source: &Source) -> Result<Passphrase, Failure> {
        match source.existing(&screen(), false)? {
            Secret::Passphrase(passphrase) => Ok(passphrase),
            Secret::Key(_) => panic!("a key file"),
        }
    }

    fn of_file(contents: &[u8]) -> Result<Passphrase, Failure> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), contents).expect("written");
        passphrase(&Source::File(file.path().to_path_buf()))
    }

    #[test]
    fn one_newline_is_taken_off() {
        for (contents, expected) in [
            (&b"secret\n"[..], &b"secret"[..]),
            (b"secret", b"secret"),
            (b"secret\r\n", b"secret"),
            (b"secret\n\n", b"secret\n"),
            (b" \xff ", b" \xff "),
        ] {
            assert_eq!(of_file(contents).expect("read").expose(), expected);
        }
    }

    #[test]
    fn what_a_command_prints() {
        let printed = passphrase(&Source::Command("printf 'a b\\n'".to_owned())).expect("printed");
        assert_eq!(printed.expose(), b"a b");
        assert!(Source::Command("echo x; exit 3".to_owned()).existing(&screen(), false).is_err());
    }

    #[test]
    fn a_wrong_file_is_noticed() {
        let too_long = vec![b'x'; usize::try_from(LONGEST).expect("small") + 1];
        assert!(of_file(&too_long).is_err());
        assert!(Source::File("/nonexistent/file".into()).existing(&screen(), false).is_err());
    }

    #[test]
    fn what_others_can_change_is_no_secret() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (mode, is_taken) in [
            (0o600, true),
            (0o640, true),
            (0o644, true),
            (0o664, true),
            (0o620, true),
            (0o602, false),
            (0o666, false),
        ] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).expect("changed");
            let read = passphrase(&Source::File(file.path().to_path_buf()));
            assert_eq!(read.is_ok(), is_taken, "{mode:o}");
            assert!(read.err().is_none_or(|failure| failure.to_string().contains("chmod 600")));
        }
    }

    #[test]
    fn a_file_of_another_user_is_no_secret() {
        for (owner, user, is_taken) in
            [(0, 0, true), (1000, 1000, true), (0, 1000, true), (1000, 0, false), (1001, 1000, false)]
        {
            let judged = trusted("secret", (owner, 0o100_600), user);
            assert_eq!(judged.is_ok(), is_taken, "{owner} {user}");
            let told = judged.err().map_or_else(String::new, |failure| failure.to_string());
            assert!(is_taken || told.contains(&format!("secret belongs to the user {owner}")), "{told}");
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run to its end: only root can give files away");
            return;
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "secret").expect("written");
        let source = Source::File(file.path().to_path_buf());
        assert!(passphrase(&source).is_ok());
        std::os::unix::fs::chown(file.path(), Some(1), None).expect("given away");
        assert!(passphrase(&source).is_err());
    }

    #[test]
    fn a_new_one_is_not_empty() {
        assert!(Source::Given(Passphrase::new(Vec::new())).new_one(&screen(), Purpose::Make).is_err());
        assert!(Source::Given(Passphrase::new(Vec::new())).existing(&screen(), false).is_ok());
    }
}
