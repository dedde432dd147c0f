//! Key files: a secret that opens a repository, in letters that can also be printed and typed in again.
//!
//! What a key file says besides its five lines is for people; reading it takes the lines alone, so what was typed from paper is a key file, too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use zeroize::Zeroizing;

use super::error::Failure;
use crate::base::atomic_file;
use crate::base::id::RepositoryId;
use crate::base::secret::Key32;
use crate::base::text::{escape, system};
use crate::crypto::letters;

/// A longer file is a wrong one.
const LONGEST: u64 = 64 << 10;

/// The secret in a key file.
///
/// # Errors
/// It cannot be read, others could have read it, or it holds no key or one with a mistake.
pub fn read(path: &Path) -> Result<Key32, Failure> {
    let said = shown(path);
    let cannot =
        |error: io::Error| Failure::failed(format!("cannot read the key file {said}: {}", system(&error)));
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => cannot(error).hint("name one that is there"),
        _ => cannot(error),
    })?;
    let metadata = file.metadata().map_err(cannot)?;
    // Of a pipe nobody else can read, whatever its mode says.
    if metadata.is_file() && metadata.mode() & 0o077 != 0 {
        return Err(Failure::failed(format!("the key file {said} can be read or changed by others"))
            .hint(format!("say chmod 600 {said}, and take the key away with `kitbag key remove` if somebody may have read it")));
    }
    let text = bounded(file).map_err(cannot)?;
    decode(&text, &format!("the key file {said}"))
}

/// The secret in what `reader` brings, such as standard input.
///
/// # Errors
/// It cannot be read, or holds no key or one with a mistake.
pub fn read_from(reader: impl Read, what: &str) -> Result<Key32, Failure> {
    let text = bounded(reader).map_err(|error| Failure::failed(format!("cannot read {what}: {error}")))?;
    decode(&text, what)
}

fn bounded(reader: impl Read) -> io::Result<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(Vec::new());
    reader.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LONGEST {
        return Err(io::Error::other("it is too long for one"));
    }
    // The lines that count are ASCII, and what else there is may be in any encoding.
    Ok(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned()))
}

fn decode(text: &str, what: &str) -> Result<Key32, Failure> {
    letters::decode(text).map_err(|error| Failure::failed(format!("{what} cannot be used: {error}")))
}

/// Makes a key file, durable, that only its owner can read. One that is there is left alone.
///
/// # Errors
/// It is there already, or cannot be written.
pub fn make(path: &Path, secret: &Key32, remark: &str) -> Result<(), Failure> {
    let said = shown(path);
    let text = text(secret, remark);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = fs::remove_file(path);
        }
        written?;
        atomic_file::sync_parent(path)
    })();
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::failed(format!("there is a file {said} already")).hint("name one that is not there")
        }
        _ => Failure::failed(format!("cannot make the key file {said}: {}", system(&error))),
    })
}

/// What stands in a key file: its remark, each line behind a `#`, and the secret.
fn text(secret: &Key32, remark: &str) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::from(
        "# A key of kitbag. Whoever has it, and the repository's files, can read what is in them.\n",
    ));
    for line in remark.lines() {
        text.push_str("# ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&numbered(secret));
    text
}

/// The five lines.
#[must_use]
pub fn numbered(secret: &Key32) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(letters::LINES * 32));
    for (line, number) in letters::encode(secret).iter().zip(1..) {
        text.push_str(&format!("    {number}  "));
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Which repository a key opens, and since when.
#[must_use]
pub fn remark(repository: RepositoryId, made: &str, label: &str) -> String {
    let label = match label {
        "" => String::new(),
        label => format!(", {}", escape(label.as_bytes())),
    };
    format!("It opens the repository {repository} since {made}{label}.")
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_is_made_is_read_again_and_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        make(&path, &Key32::new([7; 32]), "of ada\n1 remark").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap().expose(), &[7; 32]);
        let again = make(&path, &Key32::new([8; 32]), "").unwrap_err();
        assert!(again.to_string().contains("already"), "{again}");
        assert_eq!(read(&path).unwrap().expose(), &[7; 32]);
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains("chmod 600"), "{refused}");
        }
    }

    #[test]
    fn what_is_no_key_is_told() {
        assert!(
            read_from(&b"\xff\xfe"[..], "standard input").unwrap_err().to_string().contains("five lines")
        );
        let long = vec![b' '; usize::try_from(LONGEST).unwrap() + 1];
        assert!(read_from(&long[..], "standard input").unwrap_err().to_string().contains("too long"));
        assert!(
            read(Path::new("/nonexistent")).unwrap_err().to_string().contains("cannot read the key file")
        );
    }
}
