//! The systemd units: systemd understands them, and the program understands their command lines.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Kitbag;
use obbench::need;

const PROGRAM: &str = env!("CARGO_BIN_EXE_kitbag");

fn units(whose: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(whose)
}

/// The units of the system or of users, with this program for the one that is not installed.
fn installed(whose: &str, dir: &Path) {
    for entry in fs::read_dir(units(whose)).expect("units") {
        let entry = entry.expect("an entry");
        let text = fs::read_to_string(entry.path()).expect("a unit").replace("/usr/bin/kitbag", PROGRAM);
        fs::write(dir.join(entry.file_name()), text).expect("written");
    }
}

fn analyze(arguments: &[&str], dir: &Path) -> (bool, String) {
    let mut command = Command::new("systemd-analyze");
    command.args(arguments).current_dir(dir).env("SYSTEMD_UNIT_PATH", format!("{}:", dir.display()));
    command.env("XDG_RUNTIME_DIR", dir).env("SYSTEMD_LOG_COLOR", "0");
    let output = command.output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn systemd_understands_them() {
    if !need::program("systemd-analyze") {
        return;
    }
    for (whose, option) in [("system", "--system"), ("user", "--user")] {
        let dir = tempfile::tempdir().expect("a directory");
        installed(whose, dir.path());
        for unit in ["kitbag-backup@home.service", "kitbag-backup@home.timer"] {
            let arguments = [option, "verify", "--man=no", "--recursive-errors=one", unit];
            let (is_well, said) = analyze(&arguments, dir.path());
            // Units of the machine that this one is ordered after are not ours.
            let ours: Vec<_> = said.lines().filter(|line| line.contains("kitbag")).collect();
            assert!(is_well && ours.is_empty(), "{whose}: {said}");
        }
    }
}

#[test]
fn systemd_finds_a_mistake_in_a_unit() {
    if !need::program("systemd-analyze") {
        return;
    }
    // So that the other test means something.
    let dir = tempfile::tempdir().expect("a directory");
    installed("system", dir.path());
    let path = dir.path().join("kitbag-backup@.service");
    let text = fs::read_to_string(&path).expect("a unit").replace("ProtectHome=", "ProtectHouse=");
    fs::write(path, text).expect("written");
    let arguments =
        ["--system", "verify", "--man=no", "--recursive-errors=one", "kitbag-backup@home.service"];
    assert!(analyze(&arguments, dir.path()).1.contains("ProtectHouse"));
}

#[test]
fn systemd_calls_the_system_unit_well_confined() {
    if !need::program("systemd-analyze") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    installed("system", dir.path());
    let arguments =
        ["security", "--offline=yes", "--threshold=45", "--no-pager", "kitbag-backup@home.service"];
    let (is_well, said) = analyze(&arguments, dir.path());
    assert!(is_well, "{said}");
}

#[test]
fn their_command_lines_make_a_backup() {
    for whose in ["system", "user"] {
        let kitbag = Kitbag::with_repository();
        kitbag.write("docs/letter.txt", "Dear Ada");
        let config = format!(
            "[profile.home]\nrepository = {:?}\n\n[profile.home.backup]\nroots = [{:?}]\n",
            kitbag.path("repository"),
            kitbag.path("docs")
        );
        kitbag.write("home/.config/kitbag/config.toml", config);
        let unit = fs::read_to_string(units(whose).join("kitbag-backup@.service")).expect("a unit");
        let line =
            unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/kitbag ")).expect("a line");
        // As on a machine without batteries and without NetworkManager.
        kitbag.run(line.split(' ').map(|word| if word == "%i" { "home" } else { word })).code(0);
        assert_eq!(kitbag.run(["generations"]).code(0).stdout.lines().count(), 1);
    }
}
