//! What can go wrong on the way to an SSH server, with both transports: one sentence each, no second attempt where none helps.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use common::{Kitbag, Outcome, json_field};
use obbench::clock;
use obbench::need;
use obbench::relay::{Link, Relay};
use obbench::sshd::{Sshd, SshdOptions};
use rustix::process::{Pid, Signal, kill_process};

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
    // It was made at a local place, which is said once.
    generations(&kitbag, &server, "auto", &[]).code(0).says(&["at another place before"]);
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

#[test]
fn ctrl_c_is_enough_while_a_server_says_nothing() {
    if !need::program("ssh") {
        return;
    }
    // Whoever connects gets through, and never hears a word.
    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("sftp://somebody@{}/x", silent.local_addr().expect("an address"));
    for (command, transport) in
        ["generations", "backup"].into_iter().flat_map(|one| TRANSPORTS.map(|two| (one, two)))
    {
        let kitbag = Kitbag::new();
        kitbag.write("tree/file", "x");
        let tree = (command == "backup").then_some("tree");
        let line = [command, "-r", &url, "--transport", transport, "--ssh-option", "BatchMode=yes"];
        let mut running = kitbag.command();
        let running = running.args(line).args(tree).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut running = running.expect("it starts");
        let _connection = silent.accept().expect("it connects");
        let pid = Pid::from_child(&running);
        kill_process(pid, Signal::INT).expect("ours");
        let is_over =
            clock::wait_until(Duration::from_secs(20), || running.try_wait().expect("ours").is_some());
        if !is_over {
            running.kill().expect("ours");
        }
        let output = running.wait_with_output().expect("ours");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            is_over && output.status.code() == Some(130),
            "{command} by {transport}: {} {stderr}",
            output.status
        );
        assert!(stderr.contains("interrupted"), "{stderr}");
    }
}

/// A backup of `tree` over SFTP.
fn backup(kitbag: &Kitbag, server: &Sshd, more: &[&str]) -> Outcome {
    let url = server.url(&kitbag.path("repository"));
    let config = server.ssh_config();
    let config = config.to_str().expect("UTF-8");
    let line = ["backup", "-r", &url, "--ssh-config", config, "--json", "tree"];
    kitbag.run(line.iter().chain(more)).code(0)
}

const INIT: [&str; 3] = ["--init", "--encryption", "none"];

#[test]
fn sshd_that_a_repository_was_made_on_is_known_to_the_next_run() {
    let Some(server) = server() else { return };
    let kitbag = Kitbag::new();
    kitbag.write("tree/file", "contents\n");
    kitbag.settle();
    backup(&kitbag, &server, &INIT);
    let unchanged = backup(&kitbag, &server, &[]).stdout;
    let waits: u64 = json_field(&unchanged, "serial_waits").parse().expect("a number");
    assert!(waits <= 4, "{unchanged}");
}

#[test]
fn sshd_with_another_repository_in_the_place_of_the_one_known() {
    let Some(server) = server() else { return };
    let kitbag = Kitbag::new();
    kitbag.write("tree/file", "contents\n");
    backup(&kitbag, &server, &INIT);
    fs::remove_dir_all(kitbag.path("repository")).expect("removed");
    kitbag.run(["init", "-r", "repository", "--encryption", "none", "--no-cache"]).code(0);
    backup(&kitbag, &server, &[]).says(&["not the one", "opened anew"]);
    assert_eq!(backup(&kitbag, &server, &[]).stderr, "");
    kitbag.run(["fsck", "-r", "repository", "--read-data"]).code(0);
    // And none at all.
    fs::remove_dir_all(kitbag.path("repository")).expect("removed");
    let said = backup(&kitbag, &server, &INIT);
    assert!(said.stderr.contains("no repository"), "{}", said.stderr);
    kitbag.run(["fsck", "-r", "repository", "--read-data"]).code(0);
}

#[test]
fn sshd_with_an_older_copy_of_the_repository() {
    let Some(server) = server() else { return };
    let kitbag = Kitbag::new();
    kitbag.write("tree/file", "contents\n");
    backup(&kitbag, &server, &INIT);
    let copy = |from: &str, to: &str| {
        let _ = fs::remove_dir_all(kitbag.path(to));
        let mut cp = std::process::Command::new("cp");
        assert!(cp.arg("-a").args([kitbag.path(from), kitbag.path(to)]).status().expect("cp").success());
    };
    copy("repository", "older");
    kitbag.write("tree/dir/second", "second\n".repeat(10_000));
    backup(&kitbag, &server, &[]);
    copy("older", "repository");
    let outcome = backup(&kitbag, &server, &[]);
    outcome.says(&["older copy"]);
    assert_eq!(backup(&kitbag, &server, &[]).stderr, "");
    kitbag.run(["fsck", "-r", "repository", "--read-data"]).code(0);
    kitbag.run(["restore", "-r", "repository", "--strip-root", "--to", "out"]).code(0);
    assert_eq!(common::manifest(&kitbag.path("out")), common::manifest(&kitbag.path("tree")));
}

/// A server at a distance: near ones may answer before the next request of the same flight is sent, which then looks like a wait.
fn far_server() -> Option<(Sshd, Relay)> {
    let mut server = server()?;
    let relay = Relay::start(server.address(), Link::delayed(Duration::from_millis(50))).expect("a relay");
    server.set_client_port(relay.port()).expect("configured");
    Some((server, relay))
}

fn waits(kitbag: &Kitbag, server: &Sshd, more: &[&str]) -> u64 {
    json_field(&backup(kitbag, server, more).stdout, "serial_waits").parse().expect("a number")
}

#[test]
fn sshd_far_away_is_waited_for_a_few_times_whatever_happened() {
    let Some((server, _relay)) = far_server() else { return };
    let kitbag = Kitbag::new();
    for number in 0..400 {
        kitbag.write(
            &format!("tree/a/b/c/d/e/f/g/{}/{number}", number % 20),
            format!("{number}\n").repeat(number),
        );
    }
    kitbag.settle();
    let waits = |more: &[&str]| waits(&kitbag, &server, more);
    waits(&INIT);
    let unchanged = waits(&[]);
    kitbag.write("tree/a/b/c/d/e/f/g/7/new", "new\n".repeat(100_000));
    kitbag.settle();
    let changed = waits(&[]);
    kitbag.run(["cache", "clear"]).code(0);
    let without_cache = waits(&[]);
    let all = format!("unchanged {unchanged}, changed {changed}, without a cache {without_cache}");
    assert!(unchanged <= 4, "{all}");
    // Its bag is begun, and its record written, in flights that are under way anyway.
    assert!(changed <= 5 + 3, "{all}");
    // Files are opened and read in one wait: those of the repository's own, of the record, of the bag list and of the tree come
    // one after another, since each names the next.
    assert!(without_cache <= 8, "{all}");
}
