//! The store over the system's `ssh` and a real server: its promises, few sessions, and servers that go away.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kitbag::base::time::SystemClock;
use kitbag::sftp::Settings;
use kitbag::sftp::transport::openssh::OpenSshConnector;
use kitbag::store::sftp::SftpStore;
use kitbag::store::{Class, ErrorKind, Name, SharedStore, Store, contract};
use obbench::need;
use obbench::sshd::{HOST, Sshd, SshdOptions, Subsystem};

fn there() -> bool {
    need::program("sshd") && need::program("ssh")
}

/// The server built into sshd: it does not depend on what the user's shell does at its start.
fn options() -> SshdOptions {
    SshdOptions { subsystem: Subsystem::Internal, ..SshdOptions::default() }
}

fn store(sshd: &Sshd, root: &Path) -> SftpStore {
    let mut connector = OpenSshConnector::new(HOST);
    connector.arguments = vec!["-F".to_owned(), sshd.ssh_config().display().to_string()];
    let settings = Settings {
        silent_after: Duration::from_secs(2),
        first_wait: Duration::from_millis(100),
        ..Settings::default()
    };
    let root = root.to_str().unwrap();
    let clock = Arc::new(SystemClock::new());
    SftpStore::new(Box::new(connector), clock, settings, root.into(), sshd.url(Path::new(root))).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 253).unwrap()).collect()
}

#[test]
fn keeps_the_contract_with_many_sessions_and_with_two() {
    if !there() {
        return;
    }
    for max_sessions in [None, Some(2)] {
        let sshd = Sshd::start(SshdOptions { max_sessions, ..options() }).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let shared: SharedStore = Arc::new(store(&sshd, dir.path()));
        contract::run(&|| shared.clone());
    }
}

/// Sends a bag of 40 MiB and does something to the server meanwhile.
fn sends_a_bag_while(disturb: impl FnOnce(&mut Sshd)) {
    let mut sshd = Sshd::start(options()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = store(&sshd, dir.path());
    let bytes = pattern(10 << 20);
    let mut upload = store.create(&name("bags/00/bag.part"), Class::Bulk);
    upload.append(bytes.clone()).unwrap();
    upload.created().unwrap();
    upload.append(bytes.clone()).unwrap();
    disturb(&mut sshd);
    upload.append(bytes.clone()).unwrap();
    upload.append(bytes.clone()).unwrap();
    upload.commit(&name("bags/00/bag")).wait().unwrap();
    let written = std::fs::read(dir.path().join("bags/00/bag")).unwrap();
    assert!(written == [&*bytes, &*bytes, &*bytes, &*bytes].concat(), "the bytes differ");
}

#[test]
fn a_killed_session_is_an_event() {
    if there() {
        sends_a_bag_while(|sshd| sshd.kill_sessions());
    }
}

#[test]
fn a_server_that_is_away_for_a_while_is_waited_for() {
    if there() {
        sends_a_bag_while(|sshd| {
            sshd.stop();
            thread::sleep(Duration::from_millis(500));
            sshd.restart().unwrap();
        });
    }
}

#[test]
fn a_server_that_freezes_is_noticed() {
    if there() {
        sends_a_bag_while(|sshd| {
            sshd.freeze();
            thread::sleep(Duration::from_secs(3));
            sshd.thaw();
        });
    }
}

#[test]
fn a_user_who_is_not_let_in_is_told_so() {
    if !there() {
        return;
    }
    let sshd = Sshd::start(options()).unwrap();
    std::fs::write(sshd.authorized_keys(), "").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let error = store(&sshd, dir.path()).list(&name("keys")).wait().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
}
