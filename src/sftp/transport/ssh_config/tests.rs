use std::fs;
use std::path::Path;

use super::*;

fn load(text: &str, host: &str, from_files: bool) -> Result<SshConfig, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    fs::write(&file, text).unwrap();
    let options = SshOptions {
        config_file: Some(file),
        options: vec![("UserKnownHostsFile".into(), "/k/one /k/two".into())],
    };
    let environment =
        Environment::new([("HOME", "/home/jo"), ("USER", "jo"), ("SSH_AUTH_SOCK", "/run/agent")]);
    let destination = Destination { user: None, host: host.to_owned(), port: None };
    match from_files {
        true => SshConfig::load_from_files(&destination, &options, &environment),
        false => SshConfig::load(&destination, &options, &environment),
    }
}

const TEXT: &str = "Host box\n HostName %h.example.org\n User backup\n Port 2222\n IdentityFile ~/.ssh/%n_%r\n \
    IdentitiesOnly yes\n StrictHostKeyChecking accept-new\n HostKeyAlias boxes\n ProxyCommand nc -x proxy %h %p\n \
    ConnectTimeout 7\n ServerAliveInterval 1m30s\n PKCS11Provider /usr/lib/p11.so\n";

/// The program and the strict reader say the same.
#[test]
fn both_ways() {
    for from_files in [true, false] {
        let config = load(TEXT, "box", from_files).unwrap();
        assert_eq!(config.hostname, "box.example.org");
        assert_eq!((config.port, config.user.as_str()), (2222, "backup"));
        assert_eq!(config.identity_files, [Path::new("/home/jo/.ssh/box_backup")]);
        assert!(config.identities_only);
        assert_eq!(config.strictness, Strictness::AcceptNew);
        assert_eq!(config.host_key_alias.as_deref(), Some("boxes"));
        assert_eq!(config.user_known_hosts, [Path::new("/k/one"), Path::new("/k/two")]);
        assert_eq!(config.proxy, Some(Proxy::Command("nc -x proxy box.example.org 2222".into())));
        assert_eq!(config.connect_timeout, Some(Duration::from_secs(7)));
        assert_eq!(config.server_alive_interval, Some(Duration::from_secs(90)));
        assert_eq!(config.needs_openssh, ["pkcs11provider /usr/lib/p11.so"]);
        assert_eq!(config.identity_agent.as_deref(), Some(Path::new("/run/agent")));
        assert_eq!(config.describe(), "backup@box.example.org:2222");
    }
}

#[test]
fn jump_and_agent() {
    for from_files in [true, false] {
        let config = load("ProxyJump me@gate:2200,inner\nIdentityAgent none\n", "box", from_files).unwrap();
        assert_eq!(config.proxy, Some(Proxy::Jump("me@gate:2200,inner".into())));
        assert_eq!(config.identity_agent, None);
        let config = load("IdentityAgent ~/agent-%r\nUser x\nProxyCommand none", "box", from_files).unwrap();
        // `ssh` takes the home directory from the user database, not from HOME.
        assert!(config.identity_agent.unwrap().ends_with("agent-x"));
        assert_eq!(config.proxy, None);
    }
}

/// `Match` belongs to the program; the strict reader names the line.
#[test]
fn match_blocks() {
    let text = "Match host other\n User wrong\nMatch all\n User right\n";
    assert_eq!(load(text, "box", false).unwrap().user, "right");
    let error = load(text, "box", true).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("Match"), "{error}");
}

#[test]
fn nonsense_is_refused() {
    assert!(matches!(load("Port many", "box", true), Err(ConfigError::Value { .. })));
    assert!(matches!(load("Port many", "box", false), Err(ConfigError::Refused { .. })));
    assert!(matches!(load("", "-oProxyCommand=x", false), Err(ConfigError::Name(_))));
    assert!(matches!(load("", "a b", true), Err(ConfigError::Name(_))));
    assert!(matches!(load("StrictHostKeyChecking perhaps", "box", true), Err(ConfigError::Value { .. })));
}
