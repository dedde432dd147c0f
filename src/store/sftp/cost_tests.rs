//! What calls cost, against a server in memory.

use super::fault_tests::{LATENCY, machine, name, pattern, store};
use crate::sftp::packet::Kind;
use crate::sftp::testing::Machine;
use crate::store::{Class, ErrorKind, Store, layout};

#[test]
fn an_unchanged_run_is_fifteen_requests_and_three_waits() {
    let machine = machine();
    machine.set_latency(LATENCY);
    machine.make_dir("/repo/generations/aa");
    let store = store(&machine);
    let mut session = store.create(&name("sessions/aa.bb"), Class::Control);
    let lists = ["condemned", "index", "generations/aa"].map(|dir| store.list(&name(dir)));
    for list in lists {
        assert!(list.wait().unwrap().is_empty());
    }
    session.append(b"record".to_vec()).unwrap();
    session.commit(&name("generations/aa/bb")).wait().unwrap();

    let traffic = store.traffic();
    assert_eq!((traffic.requests, traffic.serial_waits), (15, 3), "{:?}", machine.kinds());
    assert_eq!(machine.channels_seen(), 1);
    assert_eq!(machine.file("/repo/generations/aa/bb").unwrap(), b"record");
    let expected = [
        [Kind::Init, Kind::Open].to_vec(),
        [Kind::OpenDir, Kind::ReadDir, Kind::ReadDir].repeat(3),
        [Kind::Write, Kind::Fsync, Kind::Close, Kind::Rename].to_vec(),
    ];
    assert_eq!(machine.kinds(), expected.concat());
}

#[test]
fn small_files_are_read_in_one_wait_and_ends_in_two() {
    let machine = machine();
    machine.set_latency(LATENCY);
    machine.put("/repo/config", b"configuration");
    let store = store(&machine);
    let whole = store.read_all(&name("config"), 1000);
    let tail = store.read_tail(&name("config"), 3);
    let range = store.read(&name("config"), 3, 4);
    assert_eq!(whole.wait().unwrap(), b"configuration");
    assert_eq!(tail.wait().unwrap(), (b"ion".to_vec(), 13));
    assert_eq!(range.wait().unwrap(), b"figu");
    assert_eq!(store.traffic().serial_waits, 2, "that of the end, whose place is not known before");
    let expected = [
        [Kind::Init, Kind::Stat, Kind::Open, Kind::Read, Kind::Stat].to_vec(),
        [Kind::Open, Kind::Open, Kind::Read, Kind::Read, Kind::Close].to_vec(),
    ];
    assert_eq!(machine.kinds(), expected.concat());
}

#[test]
fn what_a_server_numbers_otherwise_is_read_all_the_same() {
    let machine = machine();
    machine.make_plain(32 << 10);
    for number in 0..20 {
        machine.put(&format!("/repo/keys/{number}"), format!("key {number}").as_bytes());
        machine.put(&format!("/repo/index/{number}{number}"), b"");
    }
    let store = store(&machine);
    for _ in 0..3 {
        let lists = ["keys", "index", "condemned", "nowhere", "keys"].map(|dir| store.list(&name(dir)));
        let reads: Vec<_> =
            (0..20).map(|number| store.read_all(&name(&format!("keys/{number}")), 100)).collect();
        let counts = lists.map(|list| list.wait().unwrap().len());
        assert_eq!(counts, [20, 20, 0, 0, 20], "no listing takes entries away from another");
        for (number, read) in reads.into_iter().enumerate() {
            assert_eq!(read.wait().unwrap(), format!("key {number}").as_bytes());
        }
    }
}

#[test]
fn what_is_not_there_disturbs_no_listing() {
    let machine = machine();
    for number in 0..150 {
        machine.put(&format!("/repo/keys/{number}"), b"key");
    }
    let store = store(&machine);
    for _ in 0..20 {
        let lists = ["keys", "nowhere", "keys", "keys", "nowhere"].map(|dir| store.list(&name(dir)));
        let missing = store.read_all(&name("keys/none"), 10);
        assert_eq!(lists.map(|list| list.wait().unwrap().len()), [150, 0, 150, 150, 0]);
        assert_eq!(missing.wait().unwrap_err().kind, ErrorKind::NotFound);
    }
}

#[test]
fn many_bags_cost_no_more_waits_than_one() {
    let machine = machine();
    machine.set_latency(LATENCY);
    machine.make_dir("/repo/bags/00");
    let store = store(&machine);
    let names: Vec<_> = (0..30).map(|at| format!("bags/00/{at}")).collect();
    let commits: Vec<_> = names
        .iter()
        .map(|text| {
            let mut upload = store.create(&name(text).with_suffix(".part"), Class::Bulk);
            upload.append(pattern(10_000)).unwrap();
            upload.commit(&name(text))
        })
        .collect();
    for commit in commits {
        commit.wait().unwrap();
    }
    // Opening channels is not a wait for SFTP; OPEN, WRITE + FSYNC + CLOSE and RENAME are.
    let traffic = store.traffic();
    assert!(traffic.serial_waits <= 5, "{traffic:?}");
    // And a MKDIR, as long as nobody knows that the directory is there.
    assert!(traffic.requests <= 30 * 6 + 10, "{traffic:?}");
    assert!(machine.channels_seen() >= 4);
}

#[test]
fn making_the_repository_takes_one_wait() {
    let machine = Machine::new("");
    machine.set_latency(LATENCY);
    let store = store(&machine);
    let made: Vec<_> =
        layout::DIRECTORIES.iter().map(|dir| store.make_dir(&layout::directory(dir))).collect();
    for made in made {
        made.wait().unwrap();
    }
    assert_eq!(store.traffic().serial_waits, 1);
}
