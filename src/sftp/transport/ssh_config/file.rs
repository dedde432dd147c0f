//! A strict reader of `ssh_config` files, for machines without an `ssh` program. What it does not understand it
//! refuses, by file and line: to pass over a `Match` would apply its lines to hosts that they are not meant for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::settings::{Settings, split};
use super::{ConfigError, Destination, Environment, Origin, SshOptions};
use crate::sftp::transport::pattern;

/// How deep files may include each other, as in OpenSSH.
const MAX_DEPTH: u32 = 16;

/// Keywords that change nothing for this program, or that [`super::SshConfig`] reads.
const KNOWN: &[&str] = &[
    "addkeystoagent",
    "addressfamily",
    "batchmode",
    "bindaddress",
    "bindinterface",
    "casignaturealgorithms",
    "certificatefile",
    "checkhostip",
    "ciphers",
    "clearallforwardings",
    "compression",
    "connectionattempts",
    "connecttimeout",
    "controlmaster",
    "controlpath",
    "controlpersist",
    "dynamicforward",
    "enableescapecommandline",
    "escapechar",
    "exitonforwardfailure",
    "fingerprinthash",
    "forkafterauthentication",
    "forwardagent",
    "forwardx11",
    "forwardx11timeout",
    "forwardx11trusted",
    "gatewayports",
    "globalknownhostsfile",
    "gssapiauthentication",
    "gssapidelegatecredentials",
    "hashknownhosts",
    "hostbasedauthentication",
    "hostkeyalgorithms",
    "hostkeyalias",
    "hostname",
    "identitiesonly",
    "identityagent",
    "identityfile",
    "ipqos",
    "kbdinteractiveauthentication",
    "kexalgorithms",
    "knownhostscommand",
    "localcommand",
    "localforward",
    "loglevel",
    "logverbose",
    "macs",
    "nohostauthenticationforlocalhost",
    "numberofpasswordprompts",
    "obscurekeystroketiming",
    "passwordauthentication",
    "permitlocalcommand",
    "permitremoteopen",
    "pkcs11provider",
    "port",
    "preferredauthentications",
    "proxycommand",
    "proxyjump",
    "proxyusefdpass",
    "pubkeyacceptedalgorithms",
    "pubkeyauthentication",
    "rekeylimit",
    "remotecommand",
    "remoteforward",
    "requesttty",
    "requiredrsasize",
    "securitykeyprovider",
    "sendenv",
    "serveralivecountmax",
    "serveraliveinterval",
    "sessiontype",
    "setenv",
    "stdinnull",
    "streamlocalbindmask",
    "streamlocalbindunlink",
    "stricthostkeychecking",
    "syslogfacility",
    "tcpkeepalive",
    "tunnel",
    "tunneldevice",
    "updatehostkeys",
    "user",
    "userknownhostsfile",
    "verifyhostkeydns",
    "visualhostkey",
    "xauthlocation",
];

/// Reads what the files say for one host: options first, then the file that was named, or the user's and the system's.
pub(super) fn read(
    destination: &Destination,
    options: &SshOptions,
    environment: &Environment,
) -> Result<Settings, ConfigError> {
    let mut reader = Reader { host: &destination.host, environment, settings: Settings::default() };
    for (keyword, value) in &options.options {
        reader.understood(keyword, &Origin::Option)?;
        reader.settings.add(keyword, split(value).unwrap_or_else(|| vec![value.clone()]), Origin::Option);
    }
    match &options.config_file {
        Some(file) => reader.file(file, true, Base::User, 0)?,
        None => {
            if let Some(home) = environment.home() {
                reader.file(&home.join(".ssh/config"), false, Base::User, 0)?;
            }
            reader.file(Path::new("/etc/ssh/ssh_config"), false, Base::System, 0)?;
        }
    }
    Ok(reader.settings)
}

/// Where relative names of included files start.
#[derive(Clone, Copy)]
enum Base {
    User,
    System,
}

struct Reader<'a> {
    host: &'a str,
    environment: &'a Environment,
    settings: Settings,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, required: bool, base: Base, depth: u32) -> Result<(), ConfigError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !required => return Ok(()),
            Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
        };
        let mut applies = true;
        for (number, line) in (1..).zip(text.lines()) {
            let origin = Origin::File { path: path.to_owned(), line: number };
            let refuse =
                |what: &str| ConfigError::NotUnderstood { what: what.to_owned(), origin: origin.clone() };
            let mut words = split(line).ok_or_else(|| refuse("a quote that is not closed"))?.into_iter();
            let Some(keyword) = words.next() else { continue };
            let arguments: Vec<String> = words.collect();
            if arguments.is_empty() {
                return Err(refuse(&format!("{keyword} without a value")));
            }
            match keyword.to_ascii_lowercase().as_str() {
                "host" => applies = pattern::list_matches(arguments.iter().map(String::as_str), self.host),
                "include" if !applies => {}
                "include" if depth >= MAX_DEPTH => {
                    return Err(refuse("an Include in files that include each other"));
                }
                "include" => {
                    for argument in &arguments {
                        for included in self.included(argument, base) {
                            self.file(&included, false, base, depth + 1)?;
                        }
                    }
                }
                _ => {
                    self.understood(&keyword, &origin)?;
                    if applies {
                        self.settings.add(&keyword, arguments, origin);
                    }
                }
            }
        }
        Ok(())
    }

    fn understood(&self, keyword: &str, origin: &Origin) -> Result<(), ConfigError> {
        if KNOWN.contains(&keyword.to_ascii_lowercase().as_str()) {
            return Ok(());
        }
        Err(ConfigError::NotUnderstood { what: keyword.to_owned(), origin: origin.clone() })
    }

    /// The files an Include names: wildcards in the last part only.
    fn included(&self, argument: &str, base: Base) -> Vec<PathBuf> {
        let home = || self.environment.home().unwrap_or(Path::new("/"));
        let path = match (argument.strip_prefix("~/"), base) {
            (Some(below), _) => home().join(below),
            (None, Base::User) => home().join(".ssh").join(argument),
            (None, Base::System) => Path::new("/etc/ssh").join(argument),
        };
        let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            return Vec::new();
        };
        if !name.contains(['*', '?']) {
            return vec![path];
        }
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_str().is_some_and(|entry| pattern::matches(name, entry)))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, host: &str) -> Result<Settings, ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, text).unwrap();
        fs::create_dir(directory.path().join(".ssh")).unwrap();
        fs::write(directory.path().join(".ssh/more.conf"), "User included\n").unwrap();
        let options =
            SshOptions { config_file: Some(file), options: vec![("Compression".into(), "no".into())] };
        let environment = Environment::new([("HOME", directory.path())]);
        read(&Destination::host(host), &options, &environment)
    }

    #[test]
    fn blocks_apply_to_their_hosts_only() {
        let text = "Host other\n User wrong\n\nHost *.org !bad.org\n  Port 2222\n  IdentityFile a\nHost *\n Port 22\nIdentityFile b";
        let settings = read_text(text, "good.org").unwrap();
        assert_eq!(settings.text("user"), None);
        assert_eq!(settings.text("port").as_deref(), Some("2222"));
        assert_eq!(settings.all("identityfile"), ["a", "b"]);
        assert_eq!(settings.text("compression").as_deref(), Some("no"));
        assert_eq!(read_text(text, "bad.org").unwrap().text("port").as_deref(), Some("22"));
    }

    #[test]
    fn includes() {
        assert_eq!(read_text("Include more.conf", "h").unwrap().text("user").as_deref(), Some("included"));
        assert_eq!(read_text("Include mor*", "h").unwrap().text("user").as_deref(), Some("included"));
        assert_eq!(read_text("Host x\nInclude mor*", "h").unwrap().text("user"), None);
    }

    #[test]
    fn what_is_not_understood_is_named_by_line() {
        for text in ["\nMatch host other\n User m", "\nFooBar yes", "\nUser \"open", "\nUser"] {
            match read_text(text, "h") {
                Err(ConfigError::NotUnderstood { origin: Origin::File { line: 2, .. }, .. }) => {}
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }
}
