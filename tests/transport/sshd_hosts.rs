//! Whether the host is the one that is meant, and hosts that are not there.

use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kitbag::sftp::link::ConnectErrorKind;
use obbench::sshd::{KeyKind, SshdOptions};

use crate::support::{Person, connect, connect_asking, public, refusal, server};

#[test]
fn known_by_a_key_of_another_type_than_the_server_prefers() {
    let options =
        SshdOptions { more_host_keys: vec![KeyKind::Rsa, KeyKind::Ecdsa], ..SshdOptions::default() };
    let Some(server) = server(options) else { return };
    let lines = fs::read_to_string(server.known_hosts()).unwrap();
    for line in lines.lines() {
        fs::write(server.known_hosts(), format!("broken line\n{line}\n")).unwrap();
        connect(&server, &[]).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn unknown_host() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let known = server.directory().join("other_known_hosts");
    let file = ("UserKnownHostsFile", known.to_str().unwrap());
    let error = refusal(connect(&server, &[file]));
    assert_eq!(error.kind, ConnectErrorKind::HostKeyUnknown);
    assert!(error.sentence.contains("SHA256:") && error.sentence.contains("ssh-ed25519"), "{error}");

    let ask = [file, ("StrictHostKeyChecking", "ask"), ("BatchMode", "no")];
    let doubtful = Arc::new(Person::default());
    let error = refusal(connect_asking(&server, &ask, doubtful.clone()));
    assert_eq!((error.kind, doubtful.asked.load(Ordering::SeqCst)), (ConnectErrorKind::HostKeyUnknown, 1));
    assert!(!known.exists());
    // Nobody is asked in batch mode.
    let batch = [file, ("StrictHostKeyChecking", "ask"), ("BatchMode", "yes")];
    let person = Arc::new(Person { trusts: true, ..Person::default() });
    assert_eq!(
        refusal(connect_asking(&server, &batch, person.clone())).kind,
        ConnectErrorKind::HostKeyUnknown
    );
    assert_eq!(person.asked.load(Ordering::SeqCst), 0);

    connect_asking(&server, &ask, person.clone()).unwrap();
    connect_asking(&server, &ask, person.clone()).unwrap();
    assert_eq!(person.asked.load(Ordering::SeqCst), 1, "the second time it is known");
    let shown = person.shown.lock().unwrap().concat();
    let fingerprint = std::process::Command::new("ssh-keygen")
        .arg("-lf")
        .arg(server.directory().join("host_ed25519.pub"))
        .output()
        .unwrap();
    let fingerprint = String::from_utf8(fingerprint.stdout).unwrap();
    assert!(shown.ends_with(fingerprint.split(' ').nth(1).unwrap()), "{shown} / {fingerprint}");
}

#[test]
fn new_keys_are_accepted_and_remembered_when_the_configuration_says_so() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let known = server.directory().join("new/known_hosts");
    let file = ("UserKnownHostsFile", known.to_str().unwrap());
    let accept = [file, ("StrictHostKeyChecking", "accept-new"), ("HashKnownHosts", "yes")];
    connect(&server, &accept).unwrap();
    let text = fs::read_to_string(&known).unwrap();
    assert!(text.starts_with("|1|"), "{text}");
    connect(&server, &[file]).unwrap();
    connect(&server, &accept).unwrap();
    assert_eq!(fs::read_to_string(&known).unwrap(), text);
}

#[test]
fn changed_and_revoked() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let good = fs::read_to_string(server.known_hosts()).unwrap();
    let (name, key) = good.trim().split_once(' ').unwrap();
    // Somebody else's key under the host's name.
    let user_key = public(&server.identity());
    fs::write(server.known_hosts(), format!("\n{name} {user_key}")).unwrap();
    for strict in ["yes", "ask", "accept-new"] {
        let person = Arc::new(Person { trusts: true, ..Person::default() });
        let settings = [("StrictHostKeyChecking", strict), ("BatchMode", "no")];
        let error = refusal(connect_asking(&server, &settings, person.clone()));
        assert_eq!((error.kind, person.asked.load(Ordering::SeqCst)), (ConnectErrorKind::HostKeyChanged, 0));
        assert!(error.sentence.contains("line 2") && error.sentence.contains("SHA256:"), "{error}");
    }
    connect(&server, &[("StrictHostKeyChecking", "no")]).unwrap();

    fs::write(server.known_hosts(), format!("{good}@revoked * {key}\n")).unwrap();
    for strict in ["yes", "no"] {
        let error = refusal(connect(&server, &[("StrictHostKeyChecking", strict)]));
        assert_eq!(error.kind, ConnectErrorKind::HostKeyRevoked);
        assert!(error.sentence.contains("line 2"), "{error}");
    }

    fs::write(server.known_hosts(), format!("@cert-authority * {key}\n")).unwrap();
    let error = refusal(connect(&server, &[]));
    assert_eq!(error.kind, ConnectErrorKind::HostKeyUnknown);
    assert!(error.sentence.contains("openssh"), "{error}");

    fs::write(server.known_hosts(), format!("alias {key}\n")).unwrap();
    connect(&server, &[("HostKeyAlias", "alias")]).unwrap();
}

#[test]
fn nobody_there() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let error = refusal(connect(&server, &[("Port", &port)]));
    assert_eq!(error.kind, ConnectErrorKind::ConnectionRefused);
    let error = refusal(connect(&server, &[("HostName", "no-such-host.invalid")]));
    assert_eq!(error.kind, ConnectErrorKind::NameNotFound);
    assert!(error.sentence.contains("no-such-host.invalid"), "{error}");
}

/// A server that is something else, and one that hangs up.
#[test]
fn not_an_ssh_server() {
    use std::io::Write;
    let Some(server) = server(SshdOptions::default()) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let thread = std::thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        first
            .write_all(b"SSH-2.0-nonsense\r\nand so on, and so on, until it is long enough to be a packet")
            .unwrap();
        drop(first);
        drop(listener.accept().unwrap());
    });
    let kinds = [ConnectErrorKind::Protocol, ConnectErrorKind::Unreachable];
    for _ in 0..2 {
        let error = refusal(connect(&server, &[("Port", &port)]));
        assert!(kinds.contains(&error.kind), "{error:?}");
    }
    thread.join().unwrap();
}

/// Only what the configuration allows is offered.
#[test]
fn algorithms_of_the_configuration() {
    let Some(server) = server(SshdOptions { log_level: Some("DEBUG1".into()), ..SshdOptions::default() })
    else {
        return;
    };
    connect(&server, &[]).unwrap();
    assert!(server.log().contains("cipher: chacha20-poly1305@openssh.com"), "{}", server.log());
    connect(&server, &[("Ciphers", "aes256-ctr"), ("MACs", "hmac-sha2-512")]).unwrap();
    assert!(server.log().contains("cipher: aes256-ctr MAC: hmac-sha2-512"), "{}", server.log());
    let error = refusal(connect(&server, &[("HostKeyAlgorithms", "ssh-rsa")]));
    assert_eq!(error.kind, ConnectErrorKind::Protocol);
    assert!(error.sentence.contains("openssh"), "{error}");
}
