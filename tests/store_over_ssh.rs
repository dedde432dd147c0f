//! The store over libssh2 and a real server: no stall, and no small request behind large ones.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kitbag::base::time::SystemClock;
use kitbag::sftp::Settings;
use kitbag::sftp::transport::Ssh2Connector;
use kitbag::sftp::transport::prompt::Nobody;
use kitbag::sftp::transport::ssh_config::{Destination, Environment, SshConfig, SshOptions};
use kitbag::store::sftp::SftpStore;
use kitbag::store::{Class, Name, Store};
use obbench::relay::{Link, Relay};
use obbench::sshd::{HOST, Sshd, SshdOptions, Subsystem};
use obbench::{clock, need};

fn server() -> Option<Sshd> {
    let options = SshdOptions { subsystem: Subsystem::Internal, ..SshdOptions::default() };
    need::program("sshd").then(|| Sshd::start(options).unwrap())
}

fn store(sshd: &Sshd, root: &Path, settings: Settings) -> SftpStore {
    let options = SshOptions { config_file: Some(sshd.ssh_config()), options: Vec::new() };
    let home = OsString::from(sshd.directory());
    let environment = Environment::new([("HOME", home), ("USER", OsString::from(sshd.user()))]);
    let config = SshConfig::load(&Destination::host(HOST), &options, &environment).unwrap();
    let connector = Box::new(Ssh2Connector::new(config, Arc::new(Nobody), Duration::from_secs(30)));
    let root = root.to_str().unwrap();
    let clock = Arc::new(SystemClock::new());
    SftpStore::new(connector, clock, settings, root.into(), sshd.url(Path::new(root))).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Each round goes over six channels, all of them at once, up and down. A driver that looks at its channels only when the socket
/// has something stalls in a few of a hundred.
#[test]
fn sshd_two_hundred_rounds_over_six_channels() {
    let Some(sshd) = server() else { return };
    let dir = tempfile::tempdir().unwrap();
    // Nothing wakes it from a stall: no sign of life is asked for.
    let silent_after = Duration::from_secs(3600);
    let settings = Settings { bulk_channels: 6, keep_log: true, silent_after, ..Settings::default() };
    let store = store(&sshd, dir.path(), settings);
    let bytes: Vec<u8> = (0..200_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    for round in 0..200 {
        let began = clock::now();
        let files: Vec<_> = (0..6).map(|at| name(&format!("bags/{at:02x}/{round}"))).collect();
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
            assert!(read.wait().unwrap() == bytes, "round {round}");
        }
        for removed in files.iter().map(|file| store.remove(file)).collect::<Vec<_>>() {
            removed.wait().unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "round {round} took {:?}", began.elapsed());
    }
    let channels: std::collections::BTreeSet<_> =
        store.log().into_iter().map(|(channel, _)| channel).collect();
    assert_eq!(channels.len(), 7, "{channels:?}");
}

/// A listing while four bags fill a slow line: it does not wait for what was queued before it, but for the little that is already on
/// the line.
#[test]
fn sshd_a_listing_passes_an_upload() {
    for (mbit, mebibytes) in [(20, 20), (5, 8)] {
        let Some(mut sshd) = server() else { return };
        let rtt = Duration::from_millis(50);
        let relay =
            Relay::start(sshd.address(), Link::delayed(rtt).with_mbit_per_second(mbit, mbit)).unwrap();
        sshd.set_client_port(relay.port()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let store = store(&sshd, dir.path(), Settings::default());
        let bytes = mebibytes << 20;
        let mut times = thread::scope(|scope| {
            for at in 0..4 {
                let mut upload = store.create(&name(&format!("bags/{at:02x}/bag.part")), Class::Bulk);
                scope.spawn(move || {
                    for _ in 0..mebibytes {
                        upload.append(vec![0; 1 << 18]).unwrap();
                    }
                    upload.commit(&name(&format!("bags/{at:02x}/bag"))).wait().unwrap();
                });
            }
            // The line is full by then, and what was sent before its rate was known is through.
            assert!(clock::wait_until(Duration::from_secs(30), || relay.traffic().bytes_up > bytes / 3));
            let mut times = Vec::new();
            while relay.traffic().bytes_up < bytes / 10 * 9 {
                let began = clock::now();
                store.list(&name("keys")).wait().unwrap();
                times.push(began.elapsed());
                thread::sleep(Duration::from_millis(100));
            }
            times
        });
        times.sort_unstable();
        let median = times[times.len() / 2];
        println!(
            "{mbit} Mbit/s: {} listings, the median took {median:?}, the longest {:?}",
            times.len(),
            times.last()
        );
        // On a machine with nothing else to do it is a round trip and 0.2 s; without the precedence of the control channel, or with all
        // under way that budgets allow, seconds.
        assert!(median < rtt + Duration::from_millis(500), "{mbit} Mbit/s: {times:?}");
    }
}
