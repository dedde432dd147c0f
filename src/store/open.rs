//! Where a repository is, as people write it.
//!
//! - `/srv/backup`, `backup`, `./with:colon`: a local directory; anything without a colon, or with a slash before it.
//! - `sftp://user@host:22/srv/backup`: a directory on an SFTP server; `sftp://host/~/backup` one in the user's home there. `%20` stands for a space, and so on.
//! - `user@host:backup`, `host:/srv/backup`: the same as `scp` takes it, relative to the home without a slash, and nothing escaped.
//!
//! An IPv6 address stands in brackets. Only what is written is looked at, not what is there.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use crate::base::text;

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// A directory on a local disk.
    Local(PathBuf),
    /// A directory on an SFTP server.
    Sftp(SftpLocation),
}

/// A directory on an SFTP server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SftpLocation {
    /// Whom to log in as, if it was written.
    pub user: Option<String>,
    /// The host's name, its alias in the configuration of ssh, or its address (IPv6 without brackets). Begins with no dash.
    pub host: String,
    /// The port, if it was written.
    pub port: Option<u16>,
    /// The directory as the server takes it: relative to the home unless it begins with a slash. Not empty.
    pub path: Vec<u8>,
}

/// Why a text names no place for a repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Nothing was written.
    #[error("the repository's location is empty")]
    Empty,
    /// A zero byte, which no path has.
    #[error("the repository's location has a zero byte in it")]
    ZeroByte,
    /// A tilde that nobody has replaced.
    #[error(
        "{0}: the tilde is replaced by shells only; write the whole path, or ./~ for a directory of that name"
    )]
    Tilde(String),
    /// Another kind of URL.
    #[error("{0}:// is not known; a repository is a local path, sftp://user@host/path or user@host:path")]
    Scheme(String),
    /// A URL that ends after the host.
    #[error(
        "{0} names no directory; write sftp://host/path, or sftp://host/~/path for one in your home there"
    )]
    NoPath(String),
    /// Nothing before the path.
    #[error("{0} names no host")]
    NoHost(String),
    /// Not a host's name or address.
    #[error("{0:?} is not the name or address of a host; an IPv6 address is written in brackets")]
    Host(String),
    /// Not a user's name.
    #[error("{0:?} is not the name of a user")]
    User(String),
    /// A password, which others could see.
    #[error("a password does not belong in the repository's location; use a key or let ssh ask for it")]
    Password,
    /// Not a port.
    #[error("{0:?} is not a port; it is a number from 1 to 65535")]
    Port(String),
    /// A percent sign without two hexadecimal digits.
    #[error("in {0} a percent sign is followed by no two hexadecimal digits; write %25 for the sign itself")]
    Escape(String),
    /// Another user's home.
    #[error("{0}: only your own home can be named by a tilde (~/path); write the whole path")]
    OtherHome(String),
}

impl Location {
    /// Understands what was written.
    ///
    /// # Errors
    /// When it names no place.
    pub fn parse(written: &OsStr) -> Result<Self, LocationError> {
        let bytes = written.as_bytes();
        if bytes.is_empty() {
            return Err(LocationError::Empty);
        }
        if bytes.contains(&0) {
            return Err(LocationError::ZeroByte);
        }
        if let Some((scheme, rest)) = split_scheme(bytes) {
            return match scheme.to_ascii_lowercase().as_str() {
                "sftp" => parse_url(rest, &text::escape(bytes)).map(Self::Sftp),
                _ => Err(LocationError::Scheme(scheme.to_owned())),
            };
        }
        if let Some((authority, path)) = split_scp(bytes) {
            let written = text::escape(bytes);
            let (user, host) = match split_last(authority, b'@') {
                Some((user, host)) => (Some(parse_user(user)?), host),
                None => (None, authority),
            };
            let host = parse_host(host, &written)?;
            if path.is_empty() {
                return Err(LocationError::NoPath(written));
            }
            return Ok(Self::Sftp(SftpLocation { user, host, port: None, path: from_home(path, &written)? }));
        }
        if bytes.first() == Some(&b'~') {
            return Err(LocationError::Tilde(text::escape(bytes)));
        }
        Ok(Self::Local(PathBuf::from(OsString::from_vec(bytes.to_vec()))))
    }
}

/// `sftp` and what follows `://`.
fn split_scheme(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let (scheme, rest) = bytes.split_at_checked(colon)?;
    let rest = rest.strip_prefix(b"://")?;
    let scheme = std::str::from_utf8(scheme).ok()?;
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    named.then_some((scheme, rest))
}

/// What stands before and after the colon of `user@host:path`; `None` for a local path.
fn split_scp(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if matches!(bytes.first(), Some(b'/' | b'.')) {
        return None;
    }
    let bracket = bytes.iter().position(|byte| *byte == b'[').filter(|at| {
        let before = bytes.get(..*at).unwrap_or_default();
        before.is_empty() || (before.ends_with(b"@") && !before.contains(&b'/'))
    });
    let search_from = match bracket {
        Some(at) => at + bytes.get(at..)?.iter().position(|byte| *byte == b']')?,
        None => 0,
    };
    let colon = search_from + bytes.get(search_from..)?.iter().position(|byte| *byte == b':')?;
    let (authority, path) = (bytes.get(..colon)?, bytes.get(colon + 1..)?);
    (!authority.contains(&b'/')).then_some((authority, path))
}

fn split_last(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().rposition(|byte| *byte == at)?;
    Some((bytes.get(..place)?, bytes.get(place + 1..)?))
}

/// What follows `sftp://`.
fn parse_url(rest: &[u8], written: &str) -> Result<SftpLocation, LocationError> {
    let no_path = || LocationError::NoPath(written.to_owned());
    let slash = rest.iter().position(|byte| *byte == b'/').ok_or_else(no_path)?;
    let (authority, path) = rest.split_at_checked(slash).ok_or_else(no_path)?;
    let (user, address) = match split_last(authority, b'@') {
        Some((user, _)) if user.contains(&b':') => return Err(LocationError::Password),
        Some((user, address)) => (Some(parse_user(&unescape(user, written)?)?), address),
        None => (None, authority),
    };
    let after_bracket = address.iter().rposition(|byte| *byte == b']').map_or(0, |at| at + 1);
    let (host, port) = match address.get(after_bracket..).and_then(|end| split_last(end, b':')) {
        Some((before, port)) => {
            let host = address.get(..after_bracket + before.len()).unwrap_or_default();
            (host, Some(parse_port(port)?))
        }
        None => (address, None),
    };
    let host = parse_host(&unescape(host, written)?, written)?;
    let path = unescape(path, written)?;
    if path.contains(&0) {
        return Err(LocationError::ZeroByte);
    }
    let path = match path.strip_prefix(b"/") {
        Some(home) if home.first() == Some(&b'~') => from_home(home, written)?,
        _ => path,
    };
    Ok(SftpLocation { user, host, port, path })
}

/// A path that may begin with the home's tilde, as the server takes it.
fn from_home(path: &[u8], written: &str) -> Result<Vec<u8>, LocationError> {
    match path.strip_prefix(b"~") {
        None => Ok(path.to_vec()),
        Some(rest) => {
            let below = match rest {
                [] => rest,
                [b'/', ..] => {
                    let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
                    rest.get(slashes..).unwrap_or_default()
                }
                _ => return Err(LocationError::OtherHome(written.to_owned())),
            };
            Ok(if below.is_empty() { b".".to_vec() } else { below.to_vec() })
        }
    }
}

/// A name that begins with a dash would be taken for an option by the system's ssh.
fn plain(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let odd = |c: char| c.is_control() || c.is_whitespace();
    (!text.is_empty() && !text.starts_with('-') && !text.contains(odd)).then_some(text)
}

fn parse_user(user: &[u8]) -> Result<String, LocationError> {
    let bad = || LocationError::User(text::escape(user));
    plain(user).map(str::to_owned).ok_or_else(bad)
}

fn parse_host(host: &[u8], written: &str) -> Result<String, LocationError> {
    if host.is_empty() {
        return Err(LocationError::NoHost(written.to_owned()));
    }
    let bad = || LocationError::Host(text::escape(host));
    let name = plain(host).ok_or_else(bad)?;
    if let Some(inner) = name.strip_prefix('[') {
        let address = inner.strip_suffix(']').ok_or_else(bad)?;
        let (number, zone) = address.split_once('%').unwrap_or((address, "0"));
        let valid = number.parse::<Ipv6Addr>().is_ok()
            && !zone.is_empty()
            && zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        return if valid { Ok(address.to_owned()) } else { Err(bad()) };
    }
    if name.contains([
        '/', '@', ':', '[', ']', '%', '?', '#', '\\', '"', '\'', '$', '`', ';', '&', '|', '<', '>',
    ]) {
        return Err(bad());
    }
    Ok(name.to_owned())
}

fn parse_port(port: &[u8]) -> Result<u16, LocationError> {
    let bad = || LocationError::Port(text::escape(port));
    if !port.iter().all(u8::is_ascii_digit) {
        return Err(bad());
    }
    let number = std::str::from_utf8(port).ok().and_then(|digits| digits.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(bad)
}

fn unescape(bytes: &[u8], written: &str) -> Result<Vec<u8>, LocationError> {
    let bad = || LocationError::Escape(written.to_owned());
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        if *byte == b'%' {
            let high = rest.next().and_then(digit).ok_or_else(bad)?;
            let low = rest.next().and_then(digit).ok_or_else(bad)?;
            plain.push((high << 4) | low);
        } else {
            plain.push(*byte);
        }
    }
    Ok(plain)
}

fn escape_into(f: &mut fmt::Formatter<'_>, bytes: &[u8], kept: &[u8]) -> fmt::Result {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || kept.contains(byte) {
            f.write_char(char::from(*byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

/// One spelling for each location, that [`Location::parse`] understands when the path can be shown as it is.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => f.write_str(&text::escape(path.as_os_str().as_bytes())),
            Self::Sftp(location) => location.fmt(f),
        }
    }
}

/// A URL that [`Location::parse`] understands.
impl fmt::Display for SftpLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sftp://")?;
        if let Some(user) = &self.user {
            escape_into(f, user.as_bytes(), b"-._~+")?;
            f.write_char('@')?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host.replace('%', "%25"))?;
        } else {
            escape_into(f, self.host.as_bytes(), b"-._~+")?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if self.path.first() != Some(&b'/') {
            f.write_str("/~/")?;
        } else if self.path.get(1) == Some(&b'~') {
            // A directory at the top whose name begins with a tilde is no home.
            f.write_str("/.")?;
        }
        escape_into(f, &self.path, b"-._~+/:@=,")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(OsStr::new(text))
    }

    fn sftp(user: &str, host: &str, port: u16, path: &str) -> Location {
        Location::Sftp(SftpLocation {
            user: Some(user.to_owned()).filter(|user| !user.is_empty()),
            host: host.to_owned(),
            port: Some(port).filter(|port| *port > 0),
            path: path.as_bytes().to_vec(),
        })
    }

    #[test]
    fn local_paths() {
        for text in
            ["/srv/backup", "backup", "./host:x", "../a:b", "/a:b", "dir/a:b", ".", "./~", "[x", "dir/[x]:y"]
        {
            assert_eq!(parse(text), Ok(Location::Local(PathBuf::from(text))), "{text}");
        }
        let odd = OsString::from_vec(vec![b'a', 0xff]);
        assert_eq!(Location::parse(&odd), Ok(Location::Local(PathBuf::from(odd))));
    }

    #[test]
    fn urls() {
        for (text, expected) in [
            ("sftp://host/srv/backup", sftp("", "host", 0, "/srv/backup")),
            ("SFTP://liw@host:2222/x", sftp("liw", "host", 2222, "/x")),
            ("sftp://host/~/x/y", sftp("", "host", 0, "x/y")),
            ("sftp://host/~", sftp("", "host", 0, ".")),
            ("sftp://host/~//x", sftp("", "host", 0, "x")),
            ("sftp://host/%7E/a%20b%25", sftp("", "host", 0, "a b%")),
            ("sftp://host//srv", sftp("", "host", 0, "//srv")),
            ("sftp://host/", sftp("", "host", 0, "/")),
            ("sftp://host/what?#x", sftp("", "host", 0, "/what?#x")),
            ("sftp://[::1]:22/x", sftp("", "::1", 22, "/x")),
            ("sftp://me@[fe80::1%25eth0]/x", sftp("me", "fe80::1%eth0", 0, "/x")),
            ("sftp://me%40corp@host/x", sftp("me@corp", "host", 0, "/x")),
            ("sftp://me@corp@host/x", sftp("me@corp", "host", 0, "/x")),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn as_scp_takes_it() {
        for (text, expected) in [
            ("host:backup", sftp("", "host", 0, "backup")),
            ("host:/srv/a:b", sftp("", "host", 0, "/srv/a:b")),
            ("liw@host:~/x", sftp("liw", "host", 0, "x")),
            ("liw@host:a%20b", sftp("liw", "host", 0, "a%20b")),
            ("[::1]:x", sftp("", "::1", 0, "x")),
            ("me@[fe80::1%eth0]:/x", sftp("me", "fe80::1%eth0", 0, "/x")),
            ("host:a[1]:b", sftp("", "host", 0, "a[1]:b")),
            ("host:me@x", sftp("", "host", 0, "me@x")),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refused_with_the_reason() {
        use LocationError as E;
        let text = str::to_owned;
        for (written, expected) in [
            ("", E::Empty),
            ("a\0b", E::ZeroByte),
            ("sftp://h/a%00b", E::ZeroByte),
            ("~/backup", E::Tilde(text("~/backup"))),
            ("ssh://host/x", E::Scheme(text("ssh"))),
            ("file:///x", E::Scheme(text("file"))),
            ("sftp://host", E::NoPath(text("sftp://host"))),
            ("host:", E::NoPath(text("host:"))),
            ("sftp:///x", E::NoHost(text("sftp:///x"))),
            (":x", E::NoHost(text(":x"))),
            ("me@:x", E::NoHost(text("me@:x"))),
            ("sftp://-oProxyCommand=x/y", E::Host(text("-oProxyCommand=x"))),
            ("-oProxyCommand=x:y", E::Host(text("-oProxyCommand=x"))),
            ("sftp://ho%20st/y", E::Host(text("ho st"))),
            ("sftp://[::g]/y", E::Host(text("[::g]"))),
            ("sftp://::1/y", E::Host(text(":"))),
            ("sftp://-l@host/y", E::User(text("-l"))),
            ("sftp://@host/y", E::User(String::new())),
            ("sftp://me:secret@host/y", E::Password),
            ("sftp://host:0/y", E::Port(text("0"))),
            ("sftp://host:65536/y", E::Port(text("65536"))),
            ("sftp://host:/y", E::Port(String::new())),
            ("sftp://host:+22/y", E::Port(text("+22"))),
            ("sftp://host/a%2", E::Escape(text("sftp://host/a%2"))),
            ("sftp://host/a%zz", E::Escape(text("sftp://host/a%zz"))),
            ("sftp://host/~other/x", E::OtherHome(text("sftp://host/~other/x"))),
            ("host:~other/x", E::OtherHome(text("host:~other/x"))),
        ] {
            let error = parse(written).unwrap_err();
            assert_eq!(error, expected, "{written:?}");
            assert!(!error.to_string().contains('\n'));
        }
        assert!(!parse("sftp://me:secret@host/y").unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn one_spelling() {
        for text in ["host:x", "sftp://host/~/x", "sftp://host/%7E/x", "host:~/x"] {
            assert_eq!(parse(text).unwrap().to_string(), "sftp://host/~/x");
        }
        let tilde = sftp("", "host", 0, "/~x");
        assert_eq!(tilde.to_string(), "sftp://host/./~x");
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Location::parse(&OsString::from_vec(bytes));
        }

        #[test]
        fn shown_and_read_again(
            user in prop::option::of("[a-z@%:+][a-z%@:/é-]{0,5}"), host in "[a-z0-9][a-z0-9.-]{0,9}|::1|fe80::1%eth0",
            port in prop::option::of(1..u16::MAX), path in prop::collection::vec(1..=255_u8, 1..20),
        ) {
            let path = if path.starts_with(b"~") || path.starts_with(b"/~") { b"x".to_vec() } else { path };
            let location = Location::Sftp(SftpLocation { user, host, port, path });
            prop_assert_eq!(parse(&location.to_string()), Ok(location));
        }
    }
}
