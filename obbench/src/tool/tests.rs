//! Each program that is installed saves and restores, locally and over SSH.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::measure;
use crate::sshd::{HOST, Sshd, SshdOptions};
use crate::workload::Workload;

fn round_trip(tool: &dyn Tool, server: Option<Server>, directory: &Path) {
    let root = directory.join("tree");
    Workload::ManyFiles { files: 120, bytes: 10 }.create(&root, 3).expect("made");
    let place = Place {
        repository: directory.join("repository"),
        cache: directory.join("cache"),
        server,
        client: "bench".into(),
    };
    let target = directory.join("target");
    let required = [Action::Backup(&root), Action::Restore(&target)];
    let actions = [Action::Init, required[0], Action::Generations, Action::Ls, required[1], Action::Fsck];
    for action in actions {
        let Some(command) = tool.command(action, &place) else {
            continue;
        };
        let shown = format!("{command:?}");
        let measured = measure::run(command, Duration::from_secs(60)).expect("it starts");
        assert!(measured.good(), "{}: {shown}: {}", tool.name(), measured.complaint());
    }
    let file = root.join("00001/0000100");
    let restored = target.join(file.strip_prefix("/").expect("absolute"));
    assert_eq!(fs::read(restored).expect("restored"), fs::read(file).expect("saved"), "{}", tool.name());
}

#[test]
fn saves_and_restores() {
    for name in NAMES {
        // kitbag has tests of its own for that, and may not be built here.
        let Some(tool) = find(name, None).filter(|tool| tool.name() != "kitbag") else {
            continue;
        };
        let directory = tempfile::tempdir().expect("a directory");
        round_trip(tool.as_ref(), None, directory.path());
        assert_ne!(tool.version(), "unknown");
    }
}

#[test]
fn saves_and_restores_over_ssh() {
    if !need::program("sshd") {
        return;
    }
    let sshd = Sshd::start(SshdOptions::default()).expect("a server");
    for name in NAMES {
        let Some(tool) = find(name, None).filter(|tool| tool.name() != "kitbag") else {
            continue;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let server = Server { host: HOST.into(), ssh_config: sshd.ssh_config() };
        round_trip(tool.as_ref(), Some(server), directory.path());
    }
}
