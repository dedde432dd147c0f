//! What becomes of calls when the server or the line fails, against a server in memory.

use std::sync::Arc;
use std::time::Duration;

use super::SftpStore;
use crate::base::time::{Clock, SystemClock};
use crate::sftp::Settings;
use crate::sftp::link::ConnectErrorKind;
use crate::sftp::packet::Kind;
use crate::sftp::testing::{Dozing, Fault, Machine};
use crate::store::{Class, ErrorKind, GiveUp, Name, SharedStore, Store, StoreError, contract, layout};

pub(super) const LATENCY: Duration = Duration::from_millis(30);

pub(super) fn machine() -> Machine {
    let machine = Machine::new("/repo");
    for dir in layout::DIRECTORIES {
        machine.make_dir(&format!("/repo/{dir}"));
    }
    machine
}

pub(super) fn settings() -> Settings {
    Settings {
        first_wait: Duration::from_millis(1),
        silent_after: Duration::from_millis(400),
        give_up_after: Duration::from_secs(20),
        keep_log: true,
        ..Settings::default()
    }
}

pub(super) fn store_with(machine: &Machine, settings: Settings) -> SftpStore {
    store_by(machine, settings, Arc::new(SystemClock::new()))
}

fn store_by(machine: &Machine, settings: Settings, clock: Arc<dyn Clock>) -> SftpStore {
    SftpStore::new(machine.connector(), clock, settings, b"/repo".to_vec(), "the machine".into()).unwrap()
}

pub(super) fn store(machine: &Machine) -> SftpStore {
    store_with(machine, settings())
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(super) fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 253).unwrap()).collect()
}

pub(super) fn put(store: &SftpStore, text: &str, bytes: &[u8], class: Class) -> Result<(), StoreError> {
    let mut upload = store.create(&name(text).with_suffix(".part"), class);
    for piece in bytes.chunks(100_000) {
        upload.append(piece.to_vec())?;
    }
    upload.commit(&name(text)).wait()
}

#[test]
fn keeps_the_contract_in_memory_and_without_extensions() {
    for plain in [false, true] {
        let machine = machine();
        if plain {
            machine.make_plain(32 * 1024);
        }
        let shared: SharedStore = Arc::new(store(&machine));
        for (promise, check) in contract::PROMISES {
            println!("{promise}, plain: {plain}");
            check(&*shared);
        }
    }
}

#[test]
fn a_server_that_gives_little_at_a_time() {
    let machine = machine();
    machine.make_plain(10_000);
    machine.put("/repo/keys/file", &pattern(200_000));
    let store = store(&machine);
    assert!(store.read(&name("keys/file"), 5, 199_995).wait().unwrap() == pattern(200_000).split_off(5));
    assert_eq!(store.read(&name("keys/file"), 5, 200_000).wait().unwrap_err().kind, ErrorKind::Truncated);
    assert!(store.read_all(&name("keys/file"), 200_000).wait().unwrap() == pattern(200_000));
}

#[test]
fn few_channels_are_enough() {
    for channels in [1, 2, 3] {
        let machine = machine();
        machine.set_channels(channels);
        let store = store(&machine);
        let uploads: Vec<_> = (0..8)
            .map(|at| {
                let mut upload = store.create(&name(&format!("bags/x/{at}.part")), Class::Bulk);
                upload.append(pattern(600_000)).unwrap();
                upload.commit(&name(&format!("bags/x/{at}")))
            })
            .collect();
        for upload in uploads {
            upload.wait().unwrap();
        }
        let reads: Vec<_> = (0..8).map(|at| store.read(&name(&format!("bags/x/{at}")), 0, 600_000)).collect();
        for read in reads {
            assert!(read.wait().unwrap() == pattern(600_000));
        }
        assert!(machine.channels_seen() <= channels);
    }
}

/// One of everything, and what was read.
fn workload(store: &SftpStore) -> Result<(Vec<u8>, Vec<u8>, usize), StoreError> {
    put(store, "bags/aa/one", &pattern(700_000), Class::Bulk)?;
    put(store, "index/two", &pattern(50), Class::Control)?;
    let range = store.read(&name("bags/aa/one"), 0, 700_000).wait()?;
    let whole = store.read_all(&name("index/two"), 50).wait()?;
    let listed = store.list(&name("bags/aa")).wait()?.len();
    store.rename(&name("index/two"), &name("generations/new/three")).wait()?;
    store.remove(&name("generations/new/three")).wait()?;
    store.make_dir(&name("keys/below")).wait()?;
    Ok((range, whole, listed))
}

/// All of it as it should be.
fn check(done: Result<(Vec<u8>, Vec<u8>, usize), StoreError>, machine: &Machine, when: &str) {
    let (range, whole, listed) = done.unwrap_or_else(|error| panic!("{when}: {error}"));
    assert!(range == pattern(700_000) && whole == pattern(50) && listed == 1, "{when}");
    assert_eq!(machine.files(), ["/repo/bags/aa/one"], "{when}");
    assert!(machine.file("/repo/bags/aa/one").unwrap() == pattern(700_000), "{when}");
}

#[test]
fn the_line_may_be_cut_at_every_request() {
    for fault in [Fault::CutBefore, Fault::CutAfter, Fault::HalfAnswer, Fault::CloseChannel, Fault::Garbage] {
        // The first answer is what tells a server from something else: without it there is no second attempt.
        for at in 1.. {
            let machine = machine();
            machine.fault(None, at, fault);
            let store = store(&machine);
            check(workload(&store), &machine, &format!("{fault:?} at {at}"));
            drop(store);
            if machine.forget_faults() > 0 {
                assert!(at > 20, "{at}");
                break;
            }
        }
    }
}

#[test]
fn every_status_at_every_request_is_an_answer() {
    for code in [1, 2, 3, 4, 5, 8, 99] {
        for at in 1.. {
            let machine = machine();
            machine.fault(None, at, Fault::Status(code));
            let store = store(&machine);
            // It may succeed (a CLOSE that fails, a MKDIR) or fail, but it ends, and publishes nothing that is not whole.
            let result = workload(&store).map(|_| ());
            if let Some(bag) = machine.file("/repo/bags/aa/one") {
                assert!(bag == pattern(700_000), "{code} at {at}: {result:?}");
            }
            drop(store);
            if machine.forget_faults() > 0 {
                assert!(at > 20, "{at}");
                break;
            }
        }
    }
}

#[test]
fn answers_may_be_late_and_out_of_order() {
    for fault in [Fault::Swap, Fault::Late(Duration::from_millis(20))] {
        let machine = machine();
        machine.fault(Some(Kind::Write), 0, fault);
        machine.fault(Some(Kind::Read), 0, fault);
        let store = store(&machine);
        check(workload(&store), &machine, "late");
    }
}

#[test]
fn a_line_that_drops_again_and_again_still_makes_progress() {
    let machine = machine();
    for _ in 0..10 {
        machine.fault(Some(Kind::Write), 3, Fault::CutAfter);
    }
    let store = store(&machine);
    let whole = pattern(4_000_000);
    put(&store, "bags/aa/one", &whole, Class::Bulk).unwrap();
    assert!(machine.file("/repo/bags/aa/one").unwrap() == whole);
    machine.forget_faults();
}

#[test]
fn a_refused_key_ends_it_and_a_server_that_is_away_is_waited_for() {
    let away = machine();
    away.fault(Some(Kind::OpenDir), 0, Fault::CutBefore);
    away.refuse([]);
    let store_away = store(&away);
    assert!(store_away.list(&name("keys")).wait().is_ok());
    away.fault(Some(Kind::OpenDir), 0, Fault::CutBefore);
    away.refuse([
        ConnectErrorKind::ConnectionRefused,
        ConnectErrorKind::NameNotFound,
        ConnectErrorKind::TimedOut,
    ]);
    assert!(store_away.list(&name("keys")).wait().is_ok());

    away.fault(Some(Kind::OpenDir), 0, Fault::CutBefore);
    away.refuse([ConnectErrorKind::HostKeyChanged]);
    assert_eq!(store_away.list(&name("keys")).wait().unwrap_err().kind, ErrorKind::Refused);
    // And so is all that is asked later.
    assert_eq!(store_away.list(&name("keys")).wait().unwrap_err().kind, ErrorKind::Refused);
    let mut upload = store_away.create(&name("keys/x"), Class::Bulk);
    assert_eq!(upload.created().unwrap_err().kind, ErrorKind::Refused);
    assert_eq!(upload.commit(&name("keys/y")).wait().unwrap_err().kind, ErrorKind::Refused);
}

#[test]
fn a_first_connection_that_fails_is_not_tried_again() {
    let machine = machine();
    machine.refuse([ConnectErrorKind::ConnectionRefused]);
    assert_eq!(store(&machine).list(&name("keys")).wait().unwrap_err().kind, ErrorKind::Unreachable);
    assert_eq!(machine.connections(), 0);

    machine.fault(None, 0, Fault::CutBefore);
    let error = store(&machine).list(&name("keys")).wait().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    assert_eq!(machine.connections(), 1);
}

#[test]
fn a_server_that_stays_away_is_given_up() {
    let machine = machine();
    let settings = Settings { give_up_after: Duration::from_millis(50), ..settings() };
    let store = store_with(&machine, settings);
    assert!(store.list(&name("keys")).wait().is_ok());
    machine.refuse(vec![ConnectErrorKind::ConnectionRefused; 20]);
    machine.fault(Some(Kind::OpenDir), 0, Fault::CutBefore);
    assert_eq!(store.list(&name("keys")).wait().unwrap_err().kind, ErrorKind::Unreachable);
}

#[test]
fn a_server_that_goes_away_after_a_long_quiet_time_is_waited_for() {
    let machine = machine();
    let settings = Settings { give_up_after: Duration::from_millis(200), ..settings() };
    let store = store_with(&machine, settings);
    assert!(store.list(&name("keys")).wait().is_ok());
    // Longer than it takes to give up; then away for less than that.
    std::thread::sleep(Duration::from_millis(400));
    machine.refuse(vec![ConnectErrorKind::ConnectionRefused; 3]);
    machine.fault(Some(Kind::OpenDir), 0, Fault::CutBefore);
    assert!(store.list(&name("keys")).wait().is_ok());
}

#[test]
fn a_connection_that_nobody_needs_is_made_again_when_somebody_does() {
    let machine = machine();
    let store = store(&machine);
    machine.fault(Some(Kind::ReadDir), 1, Fault::CutLater(Duration::from_millis(100)));
    assert!(store.list(&name("keys")).wait().is_ok());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(machine.connections(), 1);
    assert!(store.list(&name("keys")).wait().is_ok());
    assert_eq!(machine.connections(), 2);
}

#[test]
fn a_range_goes_on_where_it_was_cut() {
    let machine = machine();
    let whole = pattern(20 << 20);
    machine.put("/repo/keys/file", &whole);
    let store = store(&machine);
    // Each connection brings some READs, never all of them.
    for _ in 0..12 {
        machine.fault(Some(Kind::Read), 8, Fault::CutBefore);
    }
    assert!(store.read(&name("keys/file"), 0, 20 << 20).wait().unwrap() == whole);
    assert!(store.traffic().bytes_down < 25 << 20, "{:?}", store.traffic());
    machine.forget_faults();
}

#[test]
fn what_breaks_the_connection_each_time_is_given_up() {
    let machine = machine();
    machine.put("/repo/keys/file", &pattern(100));
    let store = store(&machine);
    for _ in 0..100 {
        machine.fault(Some(Kind::Read), 0, Fault::CutBefore);
    }
    let error = store.read(&name("keys/file"), 0, 100).wait().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    assert!((20..100).contains(&machine.connections()));
    machine.forget_faults();
}

/// How long a silent server is waited for after a sleep, in [`sleepy`]: longer than any test takes.
const AFTER_SLEEP: Duration = Duration::from_secs(600);

/// A store that would wait for a century before it takes a silent server for gone, and its sleepy clock.
fn sleepy(machine: &Machine) -> (SftpStore, Dozing) {
    let clock = Dozing::new();
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let settings = Settings {
        silent_after: century,
        silent_after_sleep: AFTER_SLEEP,
        give_up_after: century,
        ..settings()
    };
    (store_by(machine, settings, Arc::new(clock.clone())), clock)
}

/// Waits until the machine was asked so many requests of a kind.
fn wait_for(machine: &Machine, kind: Kind, count: usize) {
    while machine.kinds().into_iter().filter(|seen| *seen == kind).count() < count {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_that_died_in_a_sleep_is_found_out_at_once() {
    let machine = machine();
    let (store, clock) = sleepy(&machine);
    // A first connection that dies is not tried again: this one has been of use.
    assert!(store.list(&name("keys")).wait().is_ok());
    machine.fault(Some(Kind::OpenDir), 0, Fault::Silence);
    let listed = store.list(&name("keys"));
    // Dead before the sleep: whatever comes a while after it would prove the connection alive.
    wait_for(&machine, Kind::OpenDir, 2);
    clock.sleep(Duration::from_secs(600));
    while !listed.is_ready() {
        clock.pass(AFTER_SLEEP / 10);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(listed.wait().is_ok());
    assert_eq!(machine.connections(), 2);
}

#[test]
fn a_connection_that_outlived_a_sleep_goes_on() {
    let machine = machine();
    let (store, clock) = sleepy(&machine);
    assert!(store.list(&name("keys")).wait().is_ok());
    clock.sleep(Duration::from_secs(600));
    assert!(store.list(&name("keys")).wait().is_ok());
    clock.pass(AFTER_SLEEP * 2);
    assert!(store.list(&name("keys")).wait().is_ok());
    assert_eq!(machine.connections(), 1);
    assert!(machine.kinds().contains(&Kind::RealPath), "it was asked");
}

#[test]
fn a_wake_up_that_is_lost_costs_no_more_than_a_moment() {
    let machine = machine();
    let store = store(&machine);
    machine.lose_wake_ups();
    for _ in 0..2 {
        assert!(store.list(&name("keys")).wait().is_ok());
    }
    assert!(machine.longest_wait() <= Duration::from_secs(1), "{:?}", machine.longest_wait());
}

#[test]
fn a_server_that_falls_silent_before_it_opens_a_channel_is_given_up() {
    let machine = machine();
    let store = store(&machine);
    assert!(store.list(&name("keys")).wait().is_ok());
    // The channel that the file needs is never answered, and nothing else is outstanding.
    machine.fall_silent_after(1);
    let mut upload = store.create(&name("bags/aa/one.part"), Class::Bulk);
    upload.append(vec![1]).unwrap();
    upload.commit(&name("bags/aa/one")).wait().unwrap();
    assert_eq!(machine.connections(), 2);
}

#[test]
fn a_sleep_ends_the_wait_for_the_next_attempt() {
    let machine = machine();
    let clock = Dozing::new();
    let hour = Duration::from_secs(3600);
    let settings = Settings { first_wait: hour, give_up_after: hour, ..settings() };
    let store = store_by(&machine, settings, Arc::new(clock.clone()));
    assert!(store.list(&name("keys")).wait().is_ok());
    machine.fault(Some(Kind::OpenDir), 0, Fault::CutBefore);
    let listed = store.list(&name("keys"));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!listed.is_ready());
    clock.sleep(Duration::from_secs(10));
    assert!(listed.wait().is_ok());
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    for kind in [Kind::Write, Kind::Fsync, Kind::Close] {
        let machine = machine();
        machine.set_room(0);
        machine.fault(Some(kind), 0, Fault::Status(4));
        let store = store(&machine);
        let error = put(&store, "bags/aa/one", &pattern(1000), Class::Bulk).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
        drop(store);
        assert!(machine.files().is_empty());
    }
    let machine = machine();
    machine.fault(Some(Kind::Write), 0, Fault::Status(4));
    let store = store(&machine);
    assert_eq!(put(&store, "bags/aa/one", &[1], Class::Bulk).unwrap_err().kind, ErrorKind::Other);
}

#[test]
fn a_part_file_that_vanished_while_the_line_was_down() {
    let machine = machine();
    let store = store(&machine);
    let mut upload = store.create(&name("sessions/a"), Class::Control);
    upload.created().unwrap();
    store.remove(&name("sessions/a")).wait().unwrap();
    machine.fault(Some(Kind::Write), 0, Fault::CutBefore);
    upload.append(vec![1]).unwrap();
    assert_eq!(upload.commit(&name("generations/a")).wait().unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn handles_are_few_and_none_is_forgotten() {
    let machine = machine();
    for at in 0..300 {
        machine.put(&format!("/repo/keys/{at}"), &pattern(100));
    }
    let store = store(&machine);
    let reads: Vec<_> = (0..300).map(|at| store.read(&name(&format!("keys/{at}")), 0, 100)).collect();
    for read in reads {
        assert_eq!(read.wait().unwrap(), pattern(100));
    }
    assert!(machine.most_open_handles() <= 64, "{}", machine.most_open_handles());
    for _ in 0..100 {
        assert_eq!(store.list(&name("keys")).wait().unwrap().len(), 300);
    }
    assert!(machine.open_handles() <= 20, "{}", machine.open_handles());
    // Answers that nobody takes.
    for _ in 0..100 {
        drop(store.list(&name("keys")));
    }
    store.list(&name("keys")).wait().unwrap();
    drop(store);
    assert_eq!(machine.open_handles(), 0);
}

#[test]
fn a_server_that_is_out_of_reach_can_be_given_up_and_one_that_answers_is_not() {
    let machine = machine();
    machine.put("/repo/keys/file", b"x");
    let store = store(&machine);
    assert!(store.read_all(&name("keys/file"), 10).wait().is_ok());
    store.give_up(GiveUp::IfSilent);
    assert!(store.read_all(&name("keys/file"), 10).wait().is_ok(), "it answers");
    let other = self::store(&machine);
    other.give_up(GiveUp::Anyway);
    assert!(other.read_all(&name("keys/file"), 10).wait().is_err(), "that does not matter");
    // The line is cut, and no other can be had for longer than the test takes.
    machine.refuse([ConnectErrorKind::Unreachable; 10_000]);
    machine.fault(None, 1, Fault::CutBefore);
    let pending = store.read_all(&name("keys/file"), 10);
    let waiting = std::thread::spawn(move || pending.wait());
    while !waiting.is_finished() {
        std::thread::sleep(Duration::from_millis(10));
        store.give_up(GiveUp::IfSilent);
    }
    assert_eq!(waiting.join().unwrap().unwrap_err().kind, ErrorKind::Unreachable);
    assert!(store.read_all(&name("keys/file"), 10).wait().is_err());
}
