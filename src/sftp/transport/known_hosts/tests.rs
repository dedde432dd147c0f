use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::*;

fn key(key_type: &str, filling: u8) -> Vec<u8> {
    let mut key = u32::try_from(key_type.len()).unwrap().to_be_bytes().to_vec();
    key.extend_from_slice(key_type.as_bytes());
    key.extend_from_slice(&[0, 0, 0, 4, filling, filling, filling, filling]);
    key
}

fn line(hosts: &str, key: &[u8]) -> String {
    format!("{hosts} {} {}\n", wire_type(key), BASE64.encode(key))
}

fn wire_type(key: &[u8]) -> &str {
    super::super::wire::key_type(key).unwrap()
}

/// What a file of these lines says of a key of `host:port`.
fn verdict(lines: &[String], host: &str, port: u16, key: &[u8]) -> Verdict {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), lines.concat()).unwrap();
    KnownHosts::read([&file.path().to_owned()], &HostName::new(host, port, None)).check(key)
}

const NEW: Verdict = Verdict::Unknown { authority: None };

#[test]
fn names_ports_and_patterns() {
    let (a, b) = (key("ssh-ed25519", 1), key("ssh-ed25519", 2));
    assert_eq!(verdict(&[line("host,10.0.0.1", &a)], "HOST", 22, &a), Verdict::Known);
    assert_eq!(verdict(&[line("other", &a)], "host", 22, &a), NEW);
    assert!(matches!(verdict(&[line("host", &a)], "host", 22, &b), Verdict::Changed(Place { line: 1, .. })));
    assert_eq!(verdict(&[line("[host]:2222", &a)], "host", 2222, &a), Verdict::Known);
    assert_eq!(verdict(&[line("[host]:2222", &a)], "host", 22, &a), NEW);
    assert_eq!(verdict(&[line("*.org,!bad.org", &a)], "good.org", 22, &a), Verdict::Known);
    assert_eq!(verdict(&[line("*.org,!bad.org", &a)], "bad.org", 22, &a), NEW);
}

/// The bare name vouches for a key on another port, but does not say that one is wrong.
#[test]
fn bare_name_for_other_ports() {
    let (a, b) = (key("ssh-ed25519", 1), key("ssh-ed25519", 2));
    assert_eq!(verdict(&[line("host", &a)], "host", 2222, &a), Verdict::Known);
    assert_eq!(verdict(&[line("host", &b)], "host", 2222, &a), NEW);
    let both = [line("host", &b), line("[host]:2222", &a)];
    assert_eq!(verdict(&both, "host", 2222, &a), Verdict::Known);
}

#[test]
fn several_keys_and_types() {
    let (rsa, ed, other) = (key("ssh-rsa", 1), key("ssh-ed25519", 1), key("ssh-ed25519", 2));
    let lines = [line("host", &rsa), line("host", &other), line("host", &ed)];
    assert_eq!(verdict(&lines, "host", 22, &ed), Verdict::Known);
    assert!(matches!(verdict(&lines[..1], "host", 22, &ed), Verdict::Changed(_)));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), lines.concat()).unwrap();
    let known = KnownHosts::read([&file.path().to_owned()], &HostName::new("host", 22, None));
    assert_eq!(known.key_types(), ["ssh-rsa", "ssh-ed25519"]);
}

#[test]
fn markers() {
    let (a, b) = (key("ssh-ed25519", 1), key("ssh-ed25519", 2));
    let revoked = format!("@revoked {}", line("*", &a));
    let lines = [line("host", &a), revoked];
    assert!(matches!(verdict(&lines, "host", 22, &a), Verdict::Revoked(Place { line: 2, .. })));
    assert!(matches!(verdict(&lines, "host", 22, &b), Verdict::Changed(Place { line: 1, .. })));
    let authority = [format!("@cert-authority {}", line("*.org", &a))];
    assert!(matches!(verdict(&authority, "x.org", 22, &a), Verdict::Unknown { authority: Some(_) }));
}

#[test]
fn bad_lines_are_passed_over() {
    let a = key("ssh-ed25519", 1);
    let lines = [
        "\u{0}\u{1}\n".to_owned(),
        "host 1024 35 1234567\n".to_owned(),
        "host ssh-rsa not-base-64!\n".to_owned(),
        format!("host ssh-rsa {}\n", BASE64.encode(&a)),
        "|1|only\n@strange host ssh-rsa AAAA\n# comment\n\n".to_owned(),
        line("host", &a),
    ];
    assert_eq!(verdict(&lines, "host", 22, &a), Verdict::Known);
}

#[test]
fn remembers() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("new/known_hosts");
    let (a, b) = (key("ssh-ed25519", 1), key("ssh-rsa", 2));
    let (plain, hashed) = (HostName::new("host", 22, None), HostName::new("host", 2222, None));
    remember(&file, &plain, false, &a).unwrap();
    // Somebody else left a line without an end.
    OpenOptions::new().append(true).open(&file).unwrap().write_all(b"# no end").unwrap();
    remember(&file, &hashed, true, &b).unwrap();
    assert_eq!(KnownHosts::read([&file], &plain).check(&a), Verdict::Known);
    assert_eq!(KnownHosts::read([&file], &hashed).check(&b), Verdict::Known);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 3);
    assert!(!text.lines().last().unwrap().contains("host"), "{text}");
    assert!(remember(&file, &plain, false, b"nothing").is_err());
}

/// What `ssh-keygen -H` hashes is recognised, and what is hashed here is found by `ssh-keygen -F`.
#[test]
fn hashes_like_openssh() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("known_hosts");
    let keygen = |arguments: &[&str]| {
        let run = Command::new("ssh-keygen").args(arguments).stdin(Stdio::null()).output();
        match run {
            Ok(output) => Some(output),
            Err(error) => panic!("ssh-keygen is needed: {error}"),
        }
    };
    let path = file.to_str().unwrap();
    let private = directory.path().join("key");
    keygen(&["-q", "-t", "ed25519", "-N", "", "-f", private.to_str().unwrap()]);
    let public = fs::read_to_string(directory.path().join("key.pub")).unwrap();
    let blob = BASE64.decode(public.split(' ').nth(1).unwrap()).unwrap();
    fs::write(&file, line("host.org,10.0.0.1", &blob) + &line("[host.org]:2222", &blob)).unwrap();
    assert!(keygen(&["-q", "-H", "-f", path]).unwrap().status.success());
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("|1|") && !text.contains("host.org"));
    for (host, port) in [("host.org", 22), ("10.0.0.1", 22), ("host.org", 2222)] {
        assert_eq!(KnownHosts::read([&file], &HostName::new(host, port, None)).check(&blob), Verdict::Known);
    }
    assert_eq!(KnownHosts::read([&file], &HostName::new("host", 22, None)).check(&blob), NEW);

    remember(&file, &HostName::new("made.org", 2200, None), true, &blob).unwrap();
    let found = keygen(&["-F", "[made.org]:2200", "-f", path]).unwrap();
    assert!(found.status.success() && !found.stdout.is_empty());
}
