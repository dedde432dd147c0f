//! One line of a `known_hosts` file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac as _};
use sha1::Sha1;

use crate::base::random_bytes;
use crate::sftp::transport::{pattern, wire};

/// What a line says about its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    /// It is the host's.
    None,
    /// It signs the host's certificates.
    Authority,
    /// It must not be trusted.
    Revoked,
}

/// A line that makes sense.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) marker: Marker,
    pub(super) hosts: Hosts,
    pub(super) key_type: String,
    pub(super) key: Vec<u8>,
}

/// Whom a line speaks of.
#[derive(Debug, Clone)]
pub(super) enum Hosts {
    /// Names and patterns, separated by commas.
    Patterns(String),
    /// A name that only who knows it can recognise.
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

impl Hosts {
    /// Whether the line speaks of a name, which is in lower case.
    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Patterns(patterns) => pattern::list_matches(patterns.split(','), name),
            Self::Hashed { salt, hash } => {
                keyed(salt, name).is_some_and(|keyed| keyed.verify_slice(hash).is_ok())
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let Some(hashed) = text.strip_prefix("|1|") else { return Some(Self::Patterns(text.to_owned())) };
        let (salt, hash) = hashed.split_once('|')?;
        Some(Self::Hashed { salt: BASE64.decode(salt).ok()?, hash: BASE64.decode(hash).ok()? })
    }
}

impl Entry {
    /// Reads a line; none for comments and for what is no entry.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut first = words.next().filter(|word| !word.starts_with('#'))?;
        let marker = match first {
            "@revoked" => Marker::Revoked,
            "@cert-authority" => Marker::Authority,
            other if other.starts_with('@') => return None,
            _ => Marker::None,
        };
        if marker != Marker::None {
            first = words.next()?;
        }
        let (hosts, key_type) = (Hosts::parse(first)?, words.next()?.to_owned());
        let key = BASE64.decode(words.next()?).ok()?;
        // The key names its own type; a line that contradicts it is damaged.
        (wire::key_type(&key)? == key_type).then_some(Self { marker, hosts, key_type, key })
    }

    /// Writes a line, with its end; none if `key` is none.
    pub(super) fn line(name: &str, hashed: bool, key: &[u8]) -> Option<String> {
        let key_type = wire::key_type(key)?;
        let host = if hashed {
            let salt = random_bytes::<20>();
            let hash = keyed(&salt, name)?.finalize().into_bytes();
            format!("|1|{}|{}", BASE64.encode(salt), BASE64.encode(hash))
        } else {
            name.to_owned()
        };
        Some(format!("{host} {key_type} {}\n", BASE64.encode(key)))
    }
}

fn keyed(salt: &[u8], name: &str) -> Option<Hmac<Sha1>> {
    let mut keyed = Hmac::<Sha1>::new_from_slice(salt).ok()?;
    keyed.update(name.as_bytes());
    Some(keyed)
}
