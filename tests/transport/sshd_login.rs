//! Keys, agents, certificates, and refusals.

use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kitbag::sftp::link::{ConnectErrorKind, Connector};
use kitbag::sftp::transport::choose::{Transport, Wish, choose};
use kitbag::sftp::transport::connector as make;
use kitbag::sftp::transport::prompt::Nobody;
use obbench::sshd::SshdOptions;

use crate::support::{
    Agent, Person, config, connect, connect_asking, connector, keygen, public, refusal, server,
};

fn person(passphrases: &[&'static str]) -> Arc<Person> {
    Arc::new(Person { passphrases: Mutex::new(passphrases.to_vec()), ..Person::default() })
}

#[test]
fn kinds_of_keys() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let kinds: &[(&str, &[&str])] = &[
        ("ed", &["-t", "ed25519", "-N", ""]),
        ("ec256", &["-t", "ecdsa", "-b", "256", "-N", ""]),
        ("ec521", &["-t", "ecdsa", "-b", "521", "-N", ""]),
        ("rsa", &["-t", "rsa", "-b", "2048", "-N", ""]),
        ("rsa-pem", &["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", ""]),
        ("ec-pkcs8", &["-t", "ecdsa", "-m", "PKCS8", "-N", ""]),
    ];
    for (name, arguments) in kinds {
        let key = keygen(&server, name, arguments, true);
        let key = key.to_str().unwrap();
        connect(&server, &[("IdentityFile", key)]).unwrap_or_else(|error| panic!("{name}: {error}"));
        // Also without the public half beside it.
        fs::remove_file(format!("{key}.pub")).unwrap();
        connect(&server, &[("IdentityFile", key)]).unwrap_or_else(|error| panic!("{name} alone: {error}"));
    }
}

#[test]
fn encrypted_keys() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let kinds: &[(&str, &[&str])] = &[
        ("open", &["-t", "ed25519", "-N", "secret"]),
        ("pem", &["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "secret"]),
        ("pkcs8", &["-t", "ecdsa", "-m", "PKCS8", "-N", "secret"]),
    ];
    for (name, arguments) in kinds {
        let key = keygen(&server, name, arguments, true);
        fs::write(server.authorized_keys(), public(&key)).unwrap();
        let settings = [("IdentityFile", key.to_str().unwrap()), ("BatchMode", "no")];
        let error = refusal(connect(&server, &settings));
        assert_eq!(error.kind, ConnectErrorKind::AuthRefused, "{error}");
        assert!(error.sentence.contains("passphrase"), "{error}");

        let right_at_last = person(&["wrong", "secret"]);
        let mut connector = connector(&server, &settings, right_at_last.clone());
        connector.connect().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(right_at_last.asked.load(Ordering::SeqCst), 2, "{name}");
        connector.connect().unwrap_or_else(|error| panic!("{name} again: {error}"));
        assert_eq!(right_at_last.asked.load(Ordering::SeqCst), 2, "a new connection asks nothing again");

        let wrong = person(&["a", "b", "c", "d"]);
        let error = refusal(connect_asking(&server, &settings, wrong.clone()));
        assert!(error.sentence.contains("wrong passphrase"), "{error}");
        assert_eq!(wrong.asked.load(Ordering::SeqCst), 3);
    }
}

/// No passphrase is asked for a key that the server would not take.
#[test]
fn no_vain_questions() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let key = keygen(&server, "stranger", &["-t", "ed25519", "-N", "secret"], false);
    let somebody = person(&["secret"]);
    let settings = [("IdentityFile", key.to_str().unwrap()), ("BatchMode", "no")];
    // The server's own configuration adds the key that works.
    connect_asking(&server, &settings, somebody.clone()).unwrap();
    assert_eq!(somebody.asked.load(Ordering::SeqCst), 0);
}

#[test]
fn agent_with_many_keys() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let keys: Vec<_> = (0..4)
        .map(|number| keygen(&server, &format!("agent{number}"), &["-t", "ecdsa", "-N", ""], number == 3))
        .collect();
    let last = keys.last().unwrap();
    fs::write(server.authorized_keys(), public(last)).unwrap();
    let agent = Agent::start(&server, &keys.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let path = agent.socket.clone();
    let socket = ("IdentityAgent", path.to_str().unwrap());
    connect(&server, &[socket, ("IdentitiesOnly", "no")]).unwrap();
    // The configuration names another key, and wants no others tried.
    let error = refusal(connect(&server, &[socket]));
    assert_eq!(error.kind, ConnectErrorKind::AuthRefused);
    assert!(
        error.sentence.contains("id_ed25519") && error.sentence.contains("it takes publickey"),
        "{error}"
    );
    // Named by its public half, the private one being in the agent alone.
    fs::remove_file(last).unwrap();
    connect(&server, &[socket, ("IdentityFile", last.to_str().unwrap())]).unwrap();
    connect(&server, &[socket, ("IdentityFile", &format!("{}.pub", last.display()))]).unwrap();
    drop(agent);
    let error = refusal(connect(&server, &[socket, ("IdentitiesOnly", "no")]));
    assert!(error.sentence.contains("agent"), "{error}");
}

#[test]
fn rsa_key_in_the_agent() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let key = keygen(&server, "rsa", &["-t", "rsa", "-b", "2048", "-N", ""], true);
    fs::write(server.authorized_keys(), public(&key)).unwrap();
    let agent = Agent::start(&server, &[&key]);
    connect(&server, &[("IdentityAgent", agent.socket.to_str().unwrap()), ("IdentitiesOnly", "no")]).unwrap();
}

/// A server that hangs up after too many keys: says so, and what to do.
#[test]
fn too_many_keys() {
    let options = SshdOptions { config_lines: vec!["MaxAuthTries 3".into()], ..SshdOptions::default() };
    let Some(server) = server(options) else { return };
    let keys: Vec<_> = (0..4)
        .map(|number| keygen(&server, &format!("agent{number}"), &["-t", "ed25519", "-N", ""], false))
        .collect();
    let agent = Agent::start(&server, &keys.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let settings = [
        ("IdentityAgent", agent.socket.to_str().unwrap()),
        ("IdentitiesOnly", "no"),
        ("IdentityFile", "none"),
    ];
    let error = refusal(connect(&server, &settings));
    assert_eq!(error.kind, ConnectErrorKind::AuthRefused, "{error}");
    assert!(error.sentence.contains("IdentitiesOnly"), "{error}");
}

#[test]
fn certificates() {
    let Some(mut server) = server(SshdOptions::default()) else { return };
    let authority = keygen(&server, "authority", &["-t", "ed25519", "-N", ""], false);
    fs::write(server.authorized_keys(), "").unwrap();
    server.options_mut().config_lines.push(format!("TrustedUserCAKeys {}.pub", authority.display()));
    server.restart().unwrap();
    for kind in ["ed25519", "rsa"] {
        let key = keygen(&server, kind, &["-t", kind, "-N", ""], false);
        let signed = Command::new("ssh-keygen")
            .args(["-q", "-I", "test", "-n", &server.user(), "-s"])
            .arg(&authority)
            .arg(format!("{}.pub", key.display()))
            .status();
        assert!(signed.unwrap().success());
        let key = key.to_str().unwrap();
        connect(&server, &[("IdentityFile", key)]).unwrap_or_else(|error| panic!("{kind}: {error}"));
        // The same certificate under another name.
        let elsewhere = format!("{key}-elsewhere.pub");
        fs::copy(format!("{key}-cert.pub"), &elsewhere).unwrap();
        fs::remove_file(format!("{key}-cert.pub")).unwrap();
        connect(&server, &[("IdentityFile", key), ("CertificateFile", &elsewhere)])
            .unwrap_or_else(|error| panic!("{kind} by CertificateFile: {error}"));
        assert_eq!(refusal(connect(&server, &[("IdentityFile", key)])).kind, ConnectErrorKind::AuthRefused);
    }
}

#[test]
fn certificate_in_the_agent() {
    let Some(mut server) = server(SshdOptions::default()) else { return };
    let authority = keygen(&server, "authority", &["-t", "ed25519", "-N", ""], false);
    fs::write(server.authorized_keys(), "").unwrap();
    server.options_mut().config_lines.push(format!("TrustedUserCAKeys {}.pub", authority.display()));
    server.restart().unwrap();
    let key = keygen(&server, "user", &["-t", "ed25519", "-N", ""], false);
    let signed = Command::new("ssh-keygen")
        .args(["-q", "-I", "test", "-n", &server.user(), "-s"])
        .arg(&authority)
        .arg(format!("{}.pub", key.display()))
        .status();
    assert!(signed.unwrap().success());
    // Takes the certificate with it.
    let agent = Agent::start(&server, &[&key]);
    connect(&server, &[("IdentityAgent", agent.socket.to_str().unwrap()), ("IdentitiesOnly", "no")]).unwrap();
}

#[test]
fn refused() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let key = keygen(&server, "stranger", &["-t", "ed25519", "-N", ""], false);
    fs::write(server.authorized_keys(), "").unwrap();
    let error = refusal(connect(&server, &[("IdentityFile", key.to_str().unwrap())]));
    assert_eq!(error.kind, ConnectErrorKind::AuthRefused);
    for part in ["stranger", "id_ed25519", "127.0.0.1", &server.user(), "authorized_keys"] {
        assert!(error.sentence.contains(part), "{part}: {error}");
    }
    let error = refusal(connect(&server, &[("IdentityFile", server.directory().to_str().unwrap())]));
    assert!(error.sentence.contains("cannot be read"), "{error}");
}

#[test]
fn choosing_a_transport() {
    let Some(server) = server(SshdOptions::default()) else { return };
    let auto = |settings: &[(&str, &str)]| choose(Wish::Auto, &config(&server, settings));
    assert_eq!(auto(&[]).transport, Transport::Ssh2);
    let token = auto(&[("PKCS11Provider", "/usr/lib/p11.so")]);
    assert_eq!(token.transport, Transport::OpenSsh);
    assert!(token.why.contains("/usr/lib/p11.so"), "{}", token.why);
    assert_eq!(choose(Wish::Ssh2, &config(&server, &[("PKCS11Provider", "x")])).transport, Transport::Ssh2);
    assert_eq!(choose(Wish::OpenSsh, &config(&server, &[])).transport, Transport::OpenSsh);

    // A public key of a token, where its stub would lie.
    let stub = server.directory().join("id_sk");
    fs::write(&stub, token_stub()).unwrap();
    assert_eq!(auto(&[("IdentityFile", stub.to_str().unwrap())]).transport, Transport::OpenSsh);

    let socket = server.directory().join("master");
    let path = ("ControlPath", socket.to_str().unwrap());
    assert_eq!(auto(&[path]).transport, Transport::Ssh2, "nothing listens there yet");
    let mut master = Command::new("ssh")
        .arg("-F")
        .arg(server.ssh_config())
        .args(["-M", "-N", "-o", &format!("ControlPath={}", socket.display()), obbench::sshd::HOST])
        .spawn()
        .unwrap();
    assert!(obbench::clock::wait_until(Duration::from_secs(10), || socket.exists()));
    assert_eq!(auto(&[path]).transport, Transport::OpenSsh);
    master.kill().unwrap();
    master.wait().unwrap();

    let known = fs::read_to_string(server.known_hosts()).unwrap();
    fs::write(server.known_hosts(), format!("@cert-authority {known}")).unwrap();
    assert_eq!(auto(&[]).transport, Transport::OpenSsh);
}

/// What `ssh-keygen -t ed25519-sk` leaves on disk, as far as it is read before the token is asked.
fn token_stub() -> String {
    use base64::Engine as _;
    let mut bytes = b"openssh-key-v1\0".to_vec();
    let mut string = |text: &[u8]| {
        bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        bytes.extend(text);
    };
    string(b"none");
    string(b"none");
    string(b"");
    let mut key = Vec::new();
    for part in [&b"sk-ssh-ed25519@openssh.com"[..], &[7; 32], b"ssh:"] {
        key.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
        key.extend(part);
    }
    bytes.extend(1_u32.to_be_bytes());
    bytes.extend(u32::try_from(key.len()).unwrap().to_be_bytes());
    bytes.extend(key);
    let body = base64::engine::general_purpose::STANDARD.encode(bytes);
    format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
}

/// A server that takes a connection and then says nothing is given up within the time that was set, at each step.
#[test]
fn silence_while_logging_in() {
    use obbench::relay::{Direction, Fault, Link, Relay};

    let Some(mut server) = server(SshdOptions::default()) else { return };
    let relay = Relay::start(server.address(), Link::default()).unwrap();
    server.set_client_port(relay.port()).unwrap();
    let patience = Duration::from_secs(2);
    // From before the server's first word to the last exchange of the login.
    for after in [0, 100, 1200, 1600] {
        for wish in [Wish::Ssh2, Wish::OpenSsh] {
            relay.fault_after(Direction::Down, after, Fault::Swallow);
            let (_, mut connector) = make(wish, config(&server, &[]), Arc::new(Nobody), patience);
            let began = obbench::clock::now();
            let error = refusal(connector.connect());
            assert_eq!(error.kind, ConnectErrorKind::TimedOut, "{wish:?} after {after}: {error}");
            // One time-out for the connection and one for the login, which have different ones in ssh.
            assert!(began.elapsed() < 2 * patience + Duration::from_secs(3), "{wish:?} after {after}");
            relay.heal();
        }
    }
}
