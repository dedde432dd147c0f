//! Servers that are killed, restarted, frozen or odd, and those that no longer let anybody in.

use std::fs;
use std::thread;
use std::time::Duration;

use obbench::relay::Link;
use obbench::sshd::{Sshd, SshdOptions, Subsystem};

use crate::bench::{Bench, LINK_TIMEOUT, TRANSPORTS, files_below, internal};

const BYTES: u64 = 18 << 20;

/// Saves a tree and does something to the server after each third of it.
fn backup_while(transport: &'static str, mut disturb: impl FnMut(&mut Sshd)) {
    let Some(mut bench) = Bench::start(internal(), Link::default(), transport) else { return };
    bench.make_tree(BYTES);
    let run = bench.backup(&[]);
    for third in [1, 2] {
        bench.wait_for_upload(BYTES / 3 * third);
        disturb(&mut bench.sshd);
    }
    run.end().code(0);
    assert!(bench.parts().is_empty(), "{:?}", bench.parts());
    bench.assert_sound();
}

#[test]
fn sshd_whose_processes_are_killed() {
    for transport in TRANSPORTS {
        backup_while(transport, |sshd| sshd.kill_sessions());
    }
}

#[test]
fn sshd_that_is_restarted() {
    for transport in TRANSPORTS {
        backup_while(transport, |sshd| {
            sshd.stop();
            thread::sleep(Duration::from_millis(1500));
            sshd.restart().expect("it starts again");
        });
    }
}

#[test]
fn sshd_that_freezes_and_thaws() {
    for transport in TRANSPORTS {
        backup_while(transport, |sshd| {
            sshd.freeze();
            thread::sleep(LINK_TIMEOUT + Duration::from_secs(2));
            sshd.thaw();
        });
    }
}

#[test]
fn sshd_that_freezes_for_less_than_the_time_out() {
    backup_while("ssh2", |sshd| {
        sshd.freeze();
        thread::sleep(Duration::from_millis(800));
        sshd.thaw();
    });
}

/// A disk that hangs looks like this: sshd is there and gives signs of life, and nothing is answered.
#[test]
fn sshd_whose_sftp_programs_freeze() {
    for transport in TRANSPORTS {
        let Some(bench) = Bench::start(SshdOptions::default(), Link::default(), transport) else { return };
        bench.make_tree(BYTES);
        let run = bench.backup(&[]);
        bench.wait_for_upload(BYTES / 3);
        bench.sshd.freeze_programs("sftp-server");
        run.end().code(0);
        bench.sshd.thaw();
        bench.assert_sound();
    }
}

/// What is under way would take a minute.
#[test]
fn sshd_an_interrupt_over_a_slow_line_takes_seconds() {
    for transport in TRANSPORTS {
        let link = Link::default().with_mbit_per_second(4, 50);
        let Some(bench) = Bench::start(internal(), link, transport).map(Bench::patient) else { return };
        bench.make_tree(60 << 20);
        let mut run = bench.backup(&[]);
        bench.wait_for_upload(2 << 20);
        run.interrupt();
        let since = run.time();
        let patience = Duration::from_secs(30);
        assert!(obbench::clock::wait_until(patience, || run.is_over()), "{transport}: it goes on");
        assert!(run.time() - since < patience);
        let outcome = run.end().code(130);
        assert!(outcome.stderr.contains("once more stops at once"), "{}", outcome.stderr);
        bench.local(&["fsck"]).code(0);
    }
}

/// Whoever cleans up there meanwhile only costs time: what is lost is sent once more.
#[test]
fn sshd_whose_unfinished_files_are_removed() {
    for transport in TRANSPORTS {
        let Some(bench) = Bench::start(internal(), Link::default(), transport).map(Bench::patient) else {
            return;
        };
        bench.make_tree(BYTES);
        let run = bench.backup(&[]);
        bench.wait_for_upload(BYTES / 3);
        let parts = bench.parts();
        assert!(!parts.is_empty(), "nothing is under way");
        for part in parts {
            // It may have been finished just now.
            let _ = fs::remove_file(part);
        }
        bench.sshd.kill_sessions();
        run.end().code(0);
        bench.assert_sound();
    }
}

/// Something is changed so that the next connection is refused; then the connection is lost.
fn refused(change: impl Fn(&Sshd)) {
    for transport in TRANSPORTS {
        let Some(bench) = Bench::start(internal(), Link::default(), transport).map(Bench::patient) else {
            return;
        };
        bench.make_tree(BYTES);
        let run = bench.backup(&[]);
        bench.wait_for_upload(BYTES / 3);
        change(&bench.sshd);
        bench.sshd.kill_sessions();
        let outcome = run.end().code(1);
        // Trying again does not help, so nobody waits for the time to give up.
        assert_eq!(outcome.stderr.lines().count(), 1, "{transport}: {}", outcome.stderr);
        assert!(files_below(&bench.repository().join("generations")).is_empty(), "nothing is published");
        bench.local(&["fsck"]).code(0);
    }
}

#[test]
fn sshd_that_no_longer_lets_the_user_in() {
    refused(|sshd| fs::write(sshd.authorized_keys(), "").expect("written"));
}

#[test]
fn sshd_whose_key_has_changed() {
    refused(|sshd| {
        let known = fs::read_to_string(sshd.known_hosts()).expect("known hosts");
        let other = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
        let (name, _) = known.split_once(' ').expect("a name");
        fs::write(sshd.known_hosts(), format!("{name} ssh-ed25519 {other}\n")).expect("written");
    });
}

/// Saves and restores a tree with an odd server.
fn there_and_back(options: &SshdOptions) {
    for transport in TRANSPORTS {
        let Some(bench) = Bench::start(options.clone(), Link::default(), transport).map(Bench::patient)
        else {
            return;
        };
        bench.make_tree(9 << 20);
        bench.backup(&[]).end().code(0);
        bench.restore().end().code(0);
        bench.assert_restored();
        bench.assert_sound();
    }
}

#[test]
fn sshd_with_two_sessions() {
    there_and_back(&SshdOptions { max_sessions: Some(2), ..internal() });
}

#[test]
fn sshd_with_one_session() {
    there_and_back(&SshdOptions { max_sessions: Some(1), ..internal() });
}

#[test]
fn sshd_that_wants_new_keys_often() {
    there_and_back(&SshdOptions { rekey_limit: Some("4M".to_owned()), ..internal() });
}

/// Without its extensions the server does not tell its limits, so packets are of 32 KiB.
#[test]
fn sshd_without_extensions() {
    let server = obbench::sshd::SFTP_SERVER;
    if !std::path::Path::new(server).exists() {
        return;
    }
    let denied = "limits,fsync,statvfs,fstatvfs,posix-rename,hardlink,lsetstat,expand-path,copy-data";
    let command = format!("{server} -P {denied}");
    there_and_back(&SshdOptions { subsystem: Subsystem::Command(command), ..SshdOptions::default() });
}
