//! How bytes are spread over channels, and what bounds them, against a server in memory.

use std::sync::Arc;
use std::time::Duration;

use super::SftpStore;
use crate::base::time::SystemClock;
use crate::sftp::Settings;
use crate::sftp::link::CONTROL;
use crate::sftp::packet::Kind;
use crate::sftp::testing::{Fault, Machine};
use crate::store::{Class, ErrorKind, Name, Store, StoreError, Upload, layout};

/// More than may be under way of one file.
const PIECES: usize = 9;

fn machine() -> Machine {
    let machine = Machine::new("/repo");
    for dir in layout::DIRECTORIES {
        machine.make_dir(&format!("/repo/{dir}"));
    }
    machine
}

fn store(machine: &Machine) -> SftpStore {
    let settings = Settings { keep_log: true, first_wait: Duration::from_millis(1), ..Settings::default() };
    let clock = Arc::new(SystemClock::new());
    SftpStore::new(machine.connector(), clock, settings, b"/repo".to_vec(), "the machine".into()).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn fill(mut upload: Box<dyn Upload>, to: &str) -> Result<(), StoreError> {
    for _ in 0..PIECES {
        upload.append(vec![0; 1 << 20])?;
    }
    upload.commit(&name(to)).wait()
}

/// Whoever fills a file that has failed does not wait for the room that its own bytes take.
#[test]
fn a_file_that_fails_gives_back_its_room() {
    for (kind, at) in [(Kind::Write, 0), (Kind::Write, 8), (Kind::Open, 0)] {
        let machine = machine();
        machine.set_latency(Duration::from_millis(5));
        machine.fault(Some(kind), at, Fault::Status(3));
        let store = store(&machine);
        let error = fill(store.create(&name("bags/aa/one.part"), Class::Bulk), "bags/aa/one").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied, "{error}");
        // Told when the name is free again: all of it can be sent once more at once.
        fill(store.create(&name("bags/aa/one.part"), Class::Bulk), "bags/aa/one").unwrap();
        assert_eq!(machine.files(), ["/repo/bags/aa/one"]);
    }
}

#[test]
fn no_channel_for_bulk_without_bulk() {
    let machine = machine();
    machine.set_latency(Duration::from_millis(20));
    let store = store(&machine);
    let mut session = store.create(&name("sessions/aa.bb"), Class::Control);
    let lists = layout::DIRECTORIES.map(|dir| store.list(&name(dir)));
    for list in lists {
        list.wait().unwrap();
    }
    session.append(vec![0; 100]).unwrap();
    session.commit(&name("generations/aa")).wait().unwrap();
    assert_eq!(machine.most_channels(), 1);
}

/// A directory that is not known to be there is made in the flight that creates a file in it, where it helps: on the
/// same channel.
#[test]
fn what_is_submitted_together_stays_together() {
    let machine = machine();
    machine.set_latency(Duration::from_millis(20));
    let store = store(&machine);
    let files: Vec<_> = (0..12).map(|at| name(&format!("bags/{at:02x}/one"))).collect();
    let commits: Vec<_> = files
        .iter()
        .map(|file| {
            let mut upload = store.create(&file.with_suffix(".part"), Class::Bulk);
            upload.append(vec![0; 1000]).unwrap();
            upload.commit(file)
        })
        .collect();
    for commit in commits {
        commit.wait().unwrap();
    }
    let opened = |kind| store.log().iter().filter(|(id, sent)| *id != CONTROL && *sent == kind).count();
    assert_eq!((opened(Kind::MakeDir), opened(Kind::Open)), (12, 12));
}

/// Eight channels make up for 200 ms from the start, and as many files as that are asked for.
#[test]
fn a_far_server_gets_more_channels() {
    let machine = machine();
    machine.set_latency(Duration::from_millis(200));
    let store = store(&machine);
    // What the first answer tells is known when the next request is looked at.
    store.list(&name("bags")).wait().unwrap();
    store.list(&name("bags")).wait().unwrap();
    assert_eq!(store.lanes(), 8);
    let uploads: Vec<_> = (0..8)
        .map(|at| store.create(&name(&format!("bags/{at:02x}/one")), Class::Bulk))
        .map(|mut upload| upload.created().map(|()| upload).unwrap())
        .collect();
    assert_eq!(uploads.len(), 8);
    assert_eq!(machine.most_channels(), 9);
}

/// What was acknowledged is not sent again, and little is not: 4 MiB of a file, and a file on a channel.
#[test]
fn a_cut_costs_little_on_each_channel() {
    const LEN: usize = 12;
    let machine = machine();
    machine.set_latency(Duration::from_millis(10));
    machine.fault(Some(Kind::Write), 120, Fault::CutAfter);
    let store = store(&machine);
    let files: Vec<_> = (0..4).map(|at| name(&format!("bags/{at:02x}/one"))).collect();
    std::thread::scope(|scope| {
        for file in &files {
            let mut upload = store.create(&file.with_suffix(".part"), Class::Bulk);
            scope.spawn(move || {
                for _ in 0..LEN {
                    upload.append(vec![0; 1 << 20]).unwrap();
                }
                upload.commit(file).wait().unwrap();
            });
        }
    });
    assert_eq!(machine.connections(), 2);
    let sent = store.traffic().bytes_up;
    let (files, mib) = (u64::try_from(files.len()).unwrap(), 1 << 20);
    let needed = files * u64::try_from(LEN).unwrap() * mib;
    assert!(sent > needed && sent <= needed + files * 9 * mib / 2, "{sent} bytes of {needed}");
}
