//! The very first connection: told at once when it fails, or tried again.

use std::time::Duration;

use super::fault_tests::{machine, name, settings, store_with};
use crate::sftp::Settings;
use crate::sftp::link::ConnectErrorKind;
use crate::store::{ErrorKind, GiveUp, Store as _};

const TEMPORARY: [ConnectErrorKind; 4] = [
    ConnectErrorKind::NameNotFound,
    ConnectErrorKind::Unreachable,
    ConnectErrorKind::TimedOut,
    ConnectErrorKind::ConnectionRefused,
];

fn patient() -> Settings {
    Settings { wait_for_first: true, ..settings() }
}

#[test]
fn unless_it_was_said_the_first_failure_is_the_last() {
    for kind in TEMPORARY {
        let machine = machine();
        machine.refuse([kind]);
        assert!(store_with(&machine, settings()).list(&name("keys")).wait().is_err(), "{kind:?}");
        assert_eq!(machine.connections(), 0);
    }
}

#[test]
fn what_may_pass_is_waited_for() {
    let machine = machine();
    machine.refuse(TEMPORARY);
    assert!(store_with(&machine, patient()).list(&name("keys")).wait().is_ok());
    assert_eq!(machine.connections(), 1);
}

#[test]
fn what_only_a_person_can_mend_is_not() {
    for kind in [
        ConnectErrorKind::HostKeyUnknown,
        ConnectErrorKind::HostKeyChanged,
        ConnectErrorKind::HostKeyRevoked,
        ConnectErrorKind::AuthRefused,
        ConnectErrorKind::NoSftp,
        ConnectErrorKind::Protocol,
        ConnectErrorKind::LocalConfig,
    ] {
        let machine = machine();
        // Neither at first nor later.
        machine.refuse([ConnectErrorKind::Unreachable, kind]);
        assert!(store_with(&machine, patient()).list(&name("keys")).wait().is_err(), "{kind:?}");
        assert_eq!(machine.connections(), 0);
    }
}

#[test]
fn it_is_given_up_in_the_end_or_when_nobody_wants_it_any_more() {
    let away = || {
        let machine = machine();
        machine.refuse(vec![ConnectErrorKind::Unreachable; 10_000]);
        machine
    };
    let settings = Settings { give_up_after: Duration::from_millis(50), ..patient() };
    let error = store_with(&away(), settings).list(&name("keys")).wait().expect_err("given up");
    assert_eq!(error.kind, ErrorKind::Unreachable);

    let hour = Duration::from_secs(3600);
    let store = store_with(&away(), Settings { first_wait: hour, give_up_after: hour, ..patient() });
    let asked = store.list(&name("keys"));
    store.give_up(GiveUp::IfSilent);
    assert!(asked.wait().is_err());
}
