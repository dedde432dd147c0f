//! Servers that answer nothing: the line, the programs behind it, or one channel.

use std::time::Duration;

use super::fault_tests::{machine, name, pattern, put, settings, store, store_with};
use crate::base::time::{Clock as _, SystemClock};
use crate::sftp::Settings;
use crate::sftp::packet::Kind;
use crate::sftp::testing::Fault;
use crate::store::{Class, ErrorKind, GiveUp, Store as _};

#[test]
fn a_silent_server_is_given_up_and_what_is_acknowledged_is_not_sent_again() {
    let machine = machine();
    let store = store(&machine);
    let whole = pattern(3_000_000);
    machine.fault(Some(Kind::Fsync), 0, Fault::Silence);
    put(&store, "bags/aa/one", &whole, Class::Bulk).unwrap();
    assert!(machine.file("/repo/bags/aa/one").unwrap() == whole);
    assert_eq!(machine.connections(), 2);
    let kinds = machine.kinds();
    let reopened = kinds.iter().rposition(|kind| *kind == Kind::Open).unwrap();
    let [first, again] = [&kinds[..reopened], &kinds[reopened..]]
        .map(|kinds| kinds.iter().filter(|kind| **kind == Kind::Write).count());
    // The last answers before the silence may be lost with it.
    assert!(again * 3 < first, "{first}, and again {again}");
}

#[test]
fn a_server_that_lives_while_its_sftp_programs_hang_is_given_up() {
    let machine = machine();
    machine.fault(Some(Kind::Init), 0, Fault::Hang);
    let error = store(&machine).list(&name("keys")).wait().unwrap_err();
    assert!(error.detail.contains("has answered nothing"), "{error}");
    for kind in [Kind::Open, Kind::Write, Kind::Fsync, Kind::Rename] {
        let machine = super::fault_tests::machine();
        let store = store(&machine);
        let whole = pattern(3_000_000);
        machine.fault(Some(kind), 0, Fault::Hang);
        put(&store, "bags/aa/one", &whole, Class::Bulk).unwrap();
        assert!(machine.file("/repo/bags/aa/one").unwrap() == whole, "{kind:?}");
        assert_eq!(machine.connections(), 2, "{kind:?}");
    }
}

#[test]
fn a_channel_that_alone_hangs_is_given_up_and_a_disk_that_hangs_in_the_end() {
    let patient = Settings { silent_after: Duration::from_millis(100), ..settings() };
    for kind in [Kind::Open, Kind::Write, Kind::Fsync] {
        let machine = machine();
        let store = store_with(&machine, patient.clone());
        machine.fault(Some(kind), 0, Fault::HangChannel);
        let whole = pattern(1_000_000);
        put(&store, "bags/aa/one", &whole, Class::Bulk).unwrap();
        assert!(machine.file("/repo/bags/aa/one").unwrap() == whole, "{kind:?}");
        assert_eq!(machine.connections(), 1, "{kind:?}");
    }
    let machine = machine();
    let store = store_with(&machine, Settings { give_up_after: Duration::from_secs(2), ..patient });
    for _ in 0..50 {
        machine.fault(Some(Kind::Write), 0, Fault::HangChannel);
    }
    let error = put(&store, "bags/aa/one", &pattern(1_000_000), Class::Bulk).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    machine.forget_faults();
}

#[test]
fn a_server_that_lets_in_and_never_answers_is_given_up_in_the_end() {
    let machine = machine();
    let settings = Settings { silent_after: Duration::from_millis(200), ..settings() };
    let store = store_with(&machine, Settings { give_up_after: Duration::from_secs(2), ..settings });
    assert!(store.list(&name("keys")).wait().is_ok());
    for _ in 0..50 {
        machine.fault(Some(Kind::OpenDir), 0, Fault::Hang);
    }
    let error = store.list(&name("keys")).wait().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    assert!(machine.connections() > 2);
    machine.forget_faults();
}

#[test]
fn a_server_that_owes_answers_for_seconds_is_not_waited_for_by_whoever_wants_to_stop() {
    let machine = machine();
    let store = store_with(&machine, Settings { silent_after: Duration::from_secs(60), ..settings() });
    assert!(store.list(&name("keys")).wait().is_ok());
    machine.fault(None, 0, Fault::Hang);
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    let pending = store.list(&name("keys"));
    let waiting = std::thread::spawn(move || pending.wait());
    while !waiting.is_finished() {
        std::thread::sleep(Duration::from_millis(10));
        store.give_up(GiveUp::IfSilent);
    }
    assert_eq!(waiting.join().unwrap().unwrap_err().kind, ErrorKind::Unreachable);
    let took = clock.monotonic() - begun;
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(20), "{took:?}");
}
