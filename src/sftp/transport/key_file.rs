//! A private key in a file: whether it asks for a passphrase, and the public key that belongs to it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

use super::wire;

/// No private key is longer.
const MAX_KEY: u64 = 1 << 20;

/// A private key as it lies on disk.
pub(super) struct KeyFile {
    pub(super) path: PathBuf,
    /// The file's text.
    pub(super) text: Zeroizing<String>,
    /// Whether a passphrase is needed.
    pub(super) encrypted: bool,
    /// The public key, if the file or its `.pub` tells.
    pub(super) public: Option<PublicKey>,
    /// The certificate beside it.
    pub(super) certificate: Option<PublicKey>,
}

/// A public key or certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicKey {
    /// `ssh-ed25519`, `ssh-rsa-cert-v01@openssh.com` and so on.
    pub(super) key_type: String,
    /// As it goes over the wire.
    pub(super) blob: Vec<u8>,
}

impl PublicKey {
    /// Reads a line `TYPE BASE64 COMMENT`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'))?;
        Self::from_blob(BASE64.decode(line.split_ascii_whitespace().nth(1)?).ok()?)
    }

    pub(super) fn from_blob(blob: Vec<u8>) -> Option<Self> {
        let key_type = wire::key_type(&blob)?.to_owned();
        Some(Self { key_type, blob })
    }

    /// The line that libssh2 reads.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.key_type, BASE64.encode(&self.blob))
    }

    /// Whether the key's other half is in a security token.
    pub(super) fn is_in_token(&self) -> bool {
        self.key_type.starts_with("sk-")
    }

    /// Whether this is a certificate of `key`: behind its type and a random number stand the key's own fields.
    pub(super) fn certifies(&self, key: &PublicKey) -> bool {
        let mut certificate = self.blob.as_slice();
        let mut plain = key.blob.as_slice();
        let heads =
            (wire::string(&mut certificate), wire::string(&mut certificate), wire::string(&mut plain));
        matches!(heads, (Some(_), Some(_), Some(_))) && !plain.is_empty() && certificate.starts_with(plain)
    }
}

impl KeyFile {
    /// Reads a key and what lies beside it; nothing if the file does not exist.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        let text = match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() || metadata.len() > MAX_KEY => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no key file"));
            }
            Ok(_) => Zeroizing::new(fs::read_to_string(path)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !text.contains("PRIVATE KEY-----") {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no private key"));
        }
        let (inner, encrypted) = match openssh(&text) {
            Some((public, encrypted)) => (Some(public), encrypted),
            None => (
                None,
                text.contains("Proc-Type: 4,ENCRYPTED") || text.contains("BEGIN ENCRYPTED PRIVATE KEY"),
            ),
        };
        let public = inner.or_else(|| beside(path, ".pub"));
        let certificate = beside(path, "-cert.pub");
        Ok(Some(Self { path: path.to_owned(), text, encrypted, public, certificate }))
    }

    /// The public half of a key that may itself be missing: `path` may name a public key whose other half only the
    /// agent has.
    pub(super) fn public_of(path: &Path) -> Option<PublicKey> {
        if let Ok(Some(Self { public: Some(public), .. })) = Self::read(path) {
            return Some(public);
        }
        beside(path, ".pub")
            .or_else(|| fs::read_to_string(path).ok().and_then(|text| PublicKey::parse(&text)))
    }
}

fn beside(path: &Path, suffix: &str) -> Option<PublicKey> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    fs::read_to_string(name).ok().and_then(|text| PublicKey::parse(&text))
}

/// What stands in the clear at the front of a key in OpenSSH's own format: the public key, and whether there is a cipher.
fn openssh(text: &str) -> Option<(PublicKey, bool)> {
    let body = text.split_once("-----BEGIN OPENSSH PRIVATE KEY-----")?.1;
    let body = body.split_once("-----END OPENSSH PRIVATE KEY-----")?.0;
    let body: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
    let bytes = Zeroizing::new(BASE64.decode(body.as_bytes()).ok()?);
    let mut rest = bytes.strip_prefix(b"openssh-key-v1\0")?;
    let cipher = wire::string(&mut rest)?;
    let _kdf = wire::string(&mut rest)?;
    let _kdf_options = wire::string(&mut rest)?;
    let rest = rest.strip_prefix(&1_u32.to_be_bytes())?;
    let public = wire::string(&mut { rest })?;
    Some((PublicKey::from_blob(public.to_vec())?, cipher != b"none"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn keygen(directory: &Path, name: &str, arguments: &[&str]) -> KeyFile {
        let path = directory.join(name);
        let status =
            Command::new("ssh-keygen").args(["-q", "-C", "x", "-f"]).arg(&path).args(arguments).status();
        assert!(status.unwrap().success());
        KeyFile::read(&path).unwrap().unwrap()
    }

    #[test]
    fn formats() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let plain = keygen(at, "plain", &["-t", "ed25519", "-N", ""]);
        assert!(!plain.encrypted);
        let public = plain.public.unwrap();
        assert_eq!(public.key_type, "ssh-ed25519");
        assert_eq!(public, PublicKey::parse(&fs::read_to_string(at.join("plain.pub")).unwrap()).unwrap());
        assert!(keygen(at, "encrypted", &["-t", "ecdsa", "-N", "secret"]).encrypted);
        let pem = keygen(at, "pem", &["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "secret"]);
        assert!(pem.encrypted);
        assert_eq!(pem.public.unwrap().key_type, "ssh-rsa");
        assert!(!keygen(at, "pem-plain", &["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", ""]).encrypted);
        assert!(keygen(at, "pkcs8", &["-t", "rsa", "-b", "2048", "-m", "PKCS8", "-N", "secret"]).encrypted);
        assert!(KeyFile::read(&at.join("missing")).unwrap().is_none());
        assert!(KeyFile::read(at).is_err());
        assert_eq!(KeyFile::public_of(&at.join("plain.pub")).unwrap(), public);
    }

    #[test]
    fn certificates() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        keygen(at, "authority", &["-t", "ed25519", "-N", ""]);
        keygen(at, "user", &["-t", "ed25519", "-N", ""]);
        let status = Command::new("ssh-keygen")
            .args(["-q", "-s"])
            .arg(at.join("authority"))
            .args(["-I", "me", "-n", "me"])
            .arg(at.join("user.pub"))
            .status();
        assert!(status.unwrap().success());
        let user = KeyFile::read(&at.join("user")).unwrap().unwrap();
        let certificate = user.certificate.unwrap();
        assert_eq!(certificate.key_type, "ssh-ed25519-cert-v01@openssh.com");
        assert!(certificate.certifies(&user.public.unwrap()));
        assert!(!certificate.certifies(&KeyFile::public_of(&at.join("authority")).unwrap()));
    }
}
