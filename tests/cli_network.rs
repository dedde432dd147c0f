//! A network that is not there yet when a backup begins, as after waking.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Kitbag, Outcome};
use obbench::need;
use obbench::sshd::{Sshd, SshdOptions};

const TRANSPORTS: [&str; 2] = ["ssh2", "openssh"];

fn server() -> Option<Sshd> {
    need::program("sshd").then(|| Sshd::start(SshdOptions::default()).expect("a server"))
}

fn backup(kitbag: &Kitbag, server: &Sshd, transport: &str, more: &[&str]) -> Command {
    kitbag.write("tree/file", "contents\n");
    let mut command = kitbag.command();
    command.args(["backup", "tree", "--init", "--encryption", "none", "--transport", transport]);
    command
        .args(["-r", &server.url(&kitbag.path("repository"))])
        .arg("--ssh-config")
        .arg(server.ssh_config());
    command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn end(child: Child) -> Outcome {
    let output = child.wait_with_output().expect("it ends");
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

#[test]
fn sshd_that_comes_late_is_waited_for_where_that_was_said() {
    let Some(mut server) = server() else { return };
    for transport in TRANSPORTS {
        let kitbag = Kitbag::new();
        server.stop();
        Outcome::of(&mut backup(&kitbag, &server, transport, &[])).code(1).says(&["refuse"]);
        let child = backup(&kitbag, &server, transport, &["--wait-for-network"]).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(1500));
        server.restart().expect("a server");
        let outcome = end(child).code(0);
        outcome.says(&["refuse", "tried again"]);
        assert!(outcome.stdout.contains("generation"), "{}", outcome.stdout);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is asked")]
fn sshd_that_refuses_is_not_asked_again() {
    let Some(server) = server() else { return };
    let keys = fs::read(server.authorized_keys()).expect("keys");
    let hosts = fs::read(server.known_hosts()).expect("hosts");
    for transport in TRANSPORTS {
        for (user, host) in [(&b""[..], &hosts[..]), (&keys, b"")] {
            fs::write(server.authorized_keys(), user).expect("written");
            fs::write(server.known_hosts(), host).expect("written");
            let begun = Instant::now();
            Outcome::of(&mut backup(&Kitbag::new(), &server, transport, &["--wait-for-network"])).code(1);
            assert!(begun.elapsed() < Duration::from_secs(60), "{transport}: {:?}", begun.elapsed());
        }
    }
}

#[test]
fn sshd_that_never_comes_is_given_up() {
    let Some(mut server) = server() else { return };
    server.stop();
    for transport in TRANSPORTS {
        let more = ["--wait-for-network", "--give-up-after", "2s"];
        let outcome = Outcome::of(&mut backup(&Kitbag::new(), &server, transport, &more)).code(1);
        assert_eq!(outcome.stderr.lines().count(), 2, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("tried again"), "{}", outcome.stderr);
    }
}

#[test]
fn a_name_that_nobody_knows_may_be_known_later() {
    if !need::program("ssh") {
        return;
    }
    for transport in TRANSPORTS {
        let kitbag = Kitbag::new();
        kitbag.write("tree/file", "contents\n");
        let line =
            ["backup", "tree", "-r", "sftp://somebody@no-such-host.invalid/x", "--transport", transport];
        kitbag.run(line).code(1).says(&["no-such-host.invalid"]);
        let outcome = kitbag.run(line.iter().chain(&["--wait-for-network", "--give-up-after", "1s"])).code(1);
        let lines: Vec<_> = outcome.stderr.lines().collect();
        assert!(lines.len() == 2 && lines[0].contains("tried again"), "{transport}: {lines:?}");
    }
}

#[test]
fn sshd_that_is_waited_for_can_be_waited_for_no_more() {
    let Some(mut server) = server() else { return };
    server.stop();
    let kitbag = Kitbag::new();
    let child = backup(&kitbag, &server, "ssh2", &["--wait-for-network"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(700));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("sent");
    let outcome = end(child).code(130);
    assert!(outcome.stderr.contains("kitbag: interrupted"), "{}", outcome.stderr);
}
