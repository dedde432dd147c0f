//! The contract, and what requests cost, over OpenSSH's `sftp-server` on a pipe.

use std::path::Path;
use std::sync::Arc;

use obbench::need;

use super::SftpStore;
use crate::base::time::SystemClock;
use crate::sftp::Settings;
use crate::sftp::transport::local::LocalConnector;
use crate::store::{Class, Name, SharedStore, Store, contract};

/// The program, unless it is missing and may be.
fn server() -> Option<LocalConnector> {
    if !need::program("sftp-server") {
        return None;
    }
    LocalConnector::find()
}

fn store(connector: LocalConnector, root: &Path) -> SftpStore {
    let settings = Settings { keep_log: true, ..Settings::default() };
    let root = root.to_str().unwrap();
    SftpStore::new(
        Box::new(connector),
        Arc::new(SystemClock::new()),
        settings,
        root.as_bytes().to_vec(),
        format!("sftp://localhost{root}"),
    )
    .unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

#[test]
fn keeps_the_contract() {
    let Some(connector) = server() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let shared: SharedStore = Arc::new(store(connector, dir.path()));
    for (promise, check) in contract::PROMISES {
        println!("{promise}");
        check(&*shared);
    }
}

#[test]
fn two_hundred_times_up_and_down_without_a_stall() {
    let Some(connector) = server() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let store = store(connector, dir.path());
    let bytes: Vec<u8> = (0..700_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    for round in 0..25 {
        let files: Vec<_> = (0..8).map(|at| name(&format!("bags/{at:02x}/{round}"))).collect();
        let commits: Vec<_> = files
            .iter()
            .map(|file| {
                let mut upload = store.create(&file.with_suffix(".part"), Class::Bulk);
                upload.append(bytes.clone()).unwrap();
                upload.commit(file)
            })
            .collect();
        for commit in commits {
            commit.wait().unwrap();
        }
        let reads: Vec<_> = files.iter().map(|file| store.read(file, 0, bytes.len() as u64)).collect();
        for read in reads {
            assert!(read.wait().unwrap() == bytes);
        }
    }
    let log = store.log();
    let channels: std::collections::BTreeSet<_> = log.iter().map(|(channel, _)| *channel).collect();
    assert!(channels.len() >= 5, "all channels were used: {channels:?}");
}
