//! What can go wrong on the way to an SSH server, with both transports: one sentence each, no second attempt where none helps.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs;
use std::net::TcpListener;

use common::{Kitbag, Outcome};
use obbench::need;
use obbench::sshd::{Sshd, SshdOptions};

const TRANSPORTS: [&str; 2] = ["ssh2", "openssh"];

fn server() -> Option<Sshd> {
    need::program("sshd").then(|| Sshd::start(SshdOptions::default()).expect("a server"))
}

/// `generations` over SFTP.
fn generations(kitbag: &Kitbag, server: &Sshd, transport: &str, more: &[&str]) -> Outcome {
    let url = server.url(&kitbag.path("repository"));
    let config = server.ssh_config();
    let config = config.to_str().expect("UTF-8");
    let line = ["generations", "-r", &url, "--ssh-config", config, "--transport", transport];
    kitbag.run(line.iter().chain(more))
}

#[test]
fn sshd_no_repository_there() {
    let Some(server) = server() else { return };
    for transport in TRANSPORTS {
        generations(&Kitbag::new(), &server, transport, &[]).code(10).says(&["no repository", "sftp://"]);
    }
}

#[test]
fn sshd_with_a_repository_that_was_made_beside_it() {
    let Some(server) = server() else { return };
    let kitbag = Kitbag::with_repository();
    for transport in TRANSPORTS {
        let outcome = generations(&kitbag, &server, transport, &[]).code(0);
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
    }
    let outcome = generations(&kitbag, &server, "auto", &["-v"]).code(0);
    assert!(outcome.stderr.contains("ssh2"), "{}", outcome.stderr);
}

#[test]
fn sshd_with_another_host_key() {
    let Some(server) = server() else { return };
    let known = fs::read_to_string(server.known_hosts()).expect("known hosts");
    let other = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
    let (name, _) = known.split_once(' ').expect("a name");
    fs::write(server.known_hosts(), format!("{name} ssh-ed25519 {other}\n")).expect("written");
    for transport in TRANSPORTS {
        generations(&Kitbag::new(), &server, transport, &[]).code(1).says(&["key", "known"]);
    }
}

#[test]
fn sshd_with_an_unknown_host_key() {
    let Some(server) = server() else { return };
    fs::write(server.known_hosts(), "").expect("written");
    for transport in TRANSPORTS {
        generations(&Kitbag::new(), &server, transport, &[]).code(1).says(&["key", "known"]);
    }
}

#[test]
fn sshd_that_lets_nobody_in() {
    let Some(server) = server() else { return };
    fs::write(server.authorized_keys(), "").expect("written");
    for transport in TRANSPORTS {
        let outcome = generations(&Kitbag::new(), &server, transport, &[]).code(1);
        outcome.says(&[&server.user()]);
    }
}

#[test]
fn nothing_listens() {
    if !need::program("ssh") {
        return;
    }
    // A port that was free a moment ago, and is not listened on.
    let port = TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address").port();
    for transport in TRANSPORTS {
        let url = format!("sftp://somebody@127.0.0.1:{port}/x");
        let line = ["generations", "-r", &url, "--transport", transport, "--ssh-option", "BatchMode=yes"];
        Kitbag::new().run(line).code(1).says(&["refuse", "127.0.0.1"]);
    }
}

#[test]
fn a_name_that_nobody_knows() {
    if !need::program("ssh") {
        return;
    }
    for transport in TRANSPORTS {
        let url = "sftp://somebody@no-such-host.invalid/x";
        Kitbag::new()
            .run(["generations", "-r", url, "--transport", transport])
            .code(1)
            .says(&["no-such-host.invalid"]);
    }
}
