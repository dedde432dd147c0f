//! What happens around a backup: hooks, reasons to do nothing, turns, and the lock that keeps the machine awake.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Kitbag, Outcome};
use serde_json::Value;

/// A home with something to save.
fn kitbag() -> Kitbag {
    let kitbag = Kitbag::with_repository();
    kitbag.write("docs/letter.txt", "Dear Ada");
    kitbag
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

fn generations(kitbag: &Kitbag) -> usize {
    kitbag.run(["generations"]).code(0).stdout.lines().count()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within 30 seconds: {what}");
}

/// A script in `bin`, and that directory first in `PATH`.
fn script(kitbag: Kitbag, name: &str, text: &str) -> Kitbag {
    let file = format!("bin/{name}");
    kitbag.write(&file, format!("#!/bin/sh\n{text}\n"));
    fs::set_permissions(kitbag.path(&file), PermissionsExt::from_mode(0o755)).expect("executable");
    let path = format!("{}:/usr/bin:/bin", kitbag.path("bin").display());
    kitbag.set("PATH", &path)
}

/// Whether a process with these words on its command line is there.
fn runs(words: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes
        .filter_map(|one| fs::read(one.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(words))
}

#[test]
fn hooks_hear_what_will_be_done_and_what_was() {
    let kitbag = kitbag();
    let (before, after) = ("cat >before.json; echo going", "cat >after.json; echo done");
    let line =
        ["backup", "docs", "--json", "--before", before, "--after", after, "--on-failure", "touch failed"];
    let outcome = kitbag.run(line).code(0);
    // What hooks print is no result.
    assert_eq!(outcome.stderr, "going\ndone\n");
    let planned = json(&fs::read_to_string(kitbag.path("before.json")).expect("it ran"));
    assert_eq!(planned["client"], "laptop");
    assert_eq!(planned["repository"], kitbag.path("repository").to_str().expect("UTF-8"));
    assert_eq!(planned["roots"][0], kitbag.path("docs").to_str().expect("UTF-8"));
    assert_eq!(planned["dry_run"], false);
    let result = json(&fs::read_to_string(kitbag.path("after.json")).expect("it ran"));
    assert_eq!(result, json(&outcome.stdout));
    assert_eq!((&result["exit"], &result["generation"]["files"]), (&Value::from(0), &Value::from(1)));
    assert!(!kitbag.path("failed").exists());
}

#[test]
fn a_failing_before_stops_the_backup() {
    let kitbag = kitbag();
    let line = [
        "backup",
        "docs",
        "--before",
        "exit 7",
        "--after",
        "touch after",
        "--on-failure",
        "cat >failed.json",
    ];
    let outcome = kitbag.run(line).code(1);
    outcome.says(&["nothing was backed up", "--before", "exit status 7"]);
    assert_eq!(generations(&kitbag), 0);
    assert!(!kitbag.path("after").exists());
    let failed = json(&fs::read_to_string(kitbag.path("failed.json")).expect("it ran"));
    assert_eq!((&failed["exit"], &failed["result"]), (&Value::from(1), &Value::Null));
    assert!(failed["error"].as_str().is_some_and(|text| text.contains("exit status 7")), "{failed}");
}

#[test]
fn what_is_wrong_before_anything_is_done_is_a_failure_too() {
    let kitbag = kitbag();
    let line = [
        "backup",
        "docs",
        "--exclude-from",
        "gone",
        "--before",
        "touch before",
        "--on-failure",
        "cat >failed.json",
    ];
    kitbag.run(line.iter().chain(&["--metrics", "kitbag.prom"])).code(2).says(&["--exclude-from gone"]);
    assert!(!kitbag.path("before").exists());
    let failed = json(&fs::read_to_string(kitbag.path("failed.json")).expect("it ran"));
    assert_eq!(failed["exit"], 2);
    assert!(kitbag.path("kitbag.prom").exists());
}

#[test]
fn a_failing_after_ends_with_3_and_leaves_the_backup() {
    let kitbag = kitbag();
    let outcome = kitbag.run(["backup", "docs", "--after", "exit 9", "--on-failure", "touch failed"]).code(3);
    outcome.says(&["the backup was made", "--after", "exit status 9"]);
    assert_eq!(generations(&kitbag), 1);
    assert!(!kitbag.path("failed").exists());
}

#[test]
fn a_failing_on_failure_changes_nothing() {
    let kitbag = kitbag();
    let outcome = kitbag.run(["backup", "nonexistent", "--on-failure", "exit 9"]).code(1);
    assert!(outcome.stderr.contains("--on-failure failed (exit status 9)"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("nothing was backed up"), "{}", outcome.stderr);
}

#[test]
fn a_hook_that_hangs_is_killed_with_its_children() {
    let kitbag = kitbag();
    let hook = "sleep 86399.25 & sleep 86399.25";
    let outcome = kitbag.run(["backup", "docs", "--before", hook, "--hook-timeout", "1s"]).code(1);
    outcome.says(&["--before", "was killed", "longer than 1.00 s"]);
    wait_until("the hook's child is gone", || !runs("sleep 86399.25"));
    for time in ["0s", "soon"] {
        kitbag.run(["backup", "docs", "--hook-timeout", time]).code(2).says(&["--hook-timeout"]);
    }
}

#[test]
fn a_hook_learns_no_passphrase() {
    let kitbag = Kitbag::new().set("KITBAG_REPOSITORY", "repository");
    kitbag.write("docs/letter.txt", "Dear Ada");
    kitbag.secret("passphrase", "secret");
    kitbag.run(["init", "--passphrase-file", "passphrase"]).code(0);
    let hook = "env >environment; ls -l /proc/self/fd >descriptors";
    let kitbag = kitbag.set("KITBAG_PASSPHRASE", "secret");
    kitbag.run(["backup", "docs", "--before", hook]).code(0);
    assert!(!fs::read_to_string(kitbag.path("environment")).expect("it ran").contains("secret"));

    let line = format!(
        "exec '{}' backup docs --passphrase-fd 7 --after '{hook}' 7<passphrase",
        env!("CARGO_BIN_EXE_kitbag")
    );
    let mut command = Command::new("sh");
    let kitbag_command = kitbag.command();
    command.args(["-c", &line]).current_dir(kitbag.path(".")).env_clear();
    command.envs(kitbag_command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Outcome::of(&mut command).code(0);
    let descriptors = fs::read_to_string(kitbag.path("descriptors")).expect("it ran");
    assert!(!descriptors.contains("passphrase"), "{descriptors}");
    assert!(!fs::read_to_string(kitbag.path("environment")).expect("it ran").contains("secret"));
}

#[test]
fn an_interrupted_run_is_a_failure_and_its_hook_is_not_interrupted() {
    let kitbag = kitbag();
    let line = [
        "backup",
        "docs",
        "--before",
        "touch going; sleep 600",
        "--on-failure",
        "sleep 0.3; cat >failed.json",
    ];
    let mut child = kitbag.command().args(line).stderr(Stdio::null()).spawn().expect("it starts");
    wait_until("the hook runs", || kitbag.path("going").exists());
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let failed = json(&fs::read_to_string(kitbag.path("failed.json")).expect("it ran"));
    assert_eq!(failed["exit"], 130);
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("sent");
}

#[test]
fn on_a_metered_line_nothing_is_done() {
    for (number, metered) in [(1, true), (3, true), (2, false), (4, false), (0, false)] {
        let answer = format!("echo \"$@\" >asked; echo '{{\"type\":\"u\",\"data\":{number}}}'");
        let kitbag = script(kitbag(), "busctl", &answer);
        let outcome = kitbag.run(["backup", "docs", "--skip-on-metered", "--before", "touch before"]).code(0);
        assert_eq!(outcome.stdout.contains("metered"), metered, "{number}: {}", outcome.stdout);
        assert_eq!(
            (outcome.stdout.lines().count() == 1, !kitbag.path("before").exists()),
            (metered, metered)
        );
        assert_eq!(generations(&kitbag), usize::from(!metered));
        let asked = fs::read_to_string(kitbag.path("asked")).expect("it was asked");
        assert!(asked.ends_with("org.freedesktop.NetworkManager Metered\n"), "{asked}");
        if metered {
            let outcome = kitbag.run(["backup", "docs", "--skip-on-metered", "--json"]).code(0);
            assert_eq!(json(&outcome.stdout), serde_json::json!({ "skipped": "metered" }));
        }
    }
    let kitbag = script(kitbag(), "busctl", "echo 'Failed to get property' >&2; exit 1");
    kitbag.run(["backup", "docs", "--skip-on-metered"]).code(0);
    assert_eq!(generations(&kitbag), 1);
}

/// Runs the program where these power supplies are seen; `None` where that cannot be arranged.
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn powered(kitbag: &Kitbag, supplies: &str, arguments: &[&str]) -> Option<Outcome> {
    let seen = "/sys/class/power_supply";
    let can = |line: &str| Command::new("unshare").args(["-m", "sh", "-c", line]).status();
    if !Path::new(seen).is_dir()
        || !can(&format!("mount --bind / {seen} 2>/dev/null")).is_ok_and(|it| it.success())
    {
        eprintln!("skipped: other power supplies cannot be shown here");
        return None;
    }
    let line = "mount --bind \"$0\" /sys/class/power_supply && exec \"$@\"";
    let original = kitbag.command();
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", line])
        .arg(kitbag.path(supplies))
        .arg(original.get_program())
        .args(arguments);
    command.current_dir(kitbag.path(".")).env_clear();
    command.envs(original.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(Outcome::of(&mut command))
}

#[test]
fn on_battery_nothing_is_done() {
    let kitbag = kitbag();
    for (supplies, online, status) in [("away", "0", "Discharging"), ("home", "1", "Charging")] {
        kitbag.write(&format!("{supplies}/AC/type"), "Mains\n");
        kitbag.write(&format!("{supplies}/AC/online"), online);
        kitbag.write(&format!("{supplies}/BAT0/type"), "Battery\n");
        kitbag.write(&format!("{supplies}/BAT0/status"), status);
    }
    let line = ["backup", "docs", "--skip-on-battery"];
    let Some(outcome) = powered(&kitbag, "away", &line) else { return };
    assert!(outcome.code(0).stdout.contains("battery"));
    let outcome =
        powered(&kitbag, "away", &["backup", "docs", "--skip-on-battery", "--json"]).expect("as before");
    assert_eq!(json(&outcome.code(0).stdout), serde_json::json!({ "skipped": "battery" }));
    let outcome =
        powered(&kitbag, "away", &["backup", "docs", "--skip-on-battery", "-q"]).expect("as before").code(0);
    assert_eq!((outcome.stdout, outcome.stderr), (String::new(), String::new()));
    assert_eq!(generations(&kitbag), 0);
    // Unless it was said, a battery is no reason.
    powered(&kitbag, "away", &["backup", "docs"]).expect("as before").code(0);
    powered(&kitbag, "home", &line).expect("as before").code(0);
    assert_eq!(generations(&kitbag), 2);
}

/// A backup that goes on until the file `done` is there.
fn going(kitbag: &Kitbag) -> Child {
    // With the path, by which it is found.
    let hook =
        format!("touch going; while [ ! -e '{}' ]; do sleep 0.05; done", kitbag.path("done").display());
    let child = kitbag.command().args(["backup", "docs", "--before", &hook]).stdout(Stdio::null()).spawn();
    wait_until("it is going", || kitbag.path("going").exists());
    child.expect("it starts")
}

/// Ends the hook of one that was killed: hooks are left alone then.
fn end_hook(kitbag: &Kitbag) {
    kitbag.write("done", "");
    let words = kitbag.path("done").display().to_string();
    wait_until("the hook ends", || !runs(&words));
}

#[test]
fn a_second_run_leaves_it_to_the_first() {
    let kitbag = kitbag();
    let mut first = going(&kitbag);
    for more in [&[][..], &["--no-cache"], &["--cache-dir", "elsewhere"]] {
        let outcome = kitbag.run(["backup", "docs"].iter().chain(more)).code(0);
        assert_eq!(outcome.stdout.lines().count(), 1, "{}", outcome.stdout);
        let what = format!("this backup of laptop to {}", kitbag.path("repository").display());
        assert!(outcome.stdout.contains(&what), "{}", outcome.stdout);
        assert!(outcome.stdout.contains(&format!("process {}", first.id())), "{}", outcome.stdout);
    }
    let outcome = kitbag.run(["backup", "docs", "--json"]).code(0);
    assert_eq!(json(&outcome.stdout), serde_json::json!({ "skipped": "running" }));
    // It is no other's business.
    kitbag.run(["backup", "docs", "--client-name", "desktop"]).code(0);
    kitbag.run(["backup", "docs", "--dry-run"]).code(0);
    kitbag.run(["backup", "docs", "home"]).code(0);
    kitbag.write("done", "");
    assert!(first.wait().expect("it ends").success());
    assert_eq!(generations(&kitbag), 2);
}

#[test]
fn a_second_run_waits_where_it_is_told_to() {
    let kitbag = kitbag();
    let mut first = going(&kitbag);
    let second = kitbag
        .command()
        .args(["backup", "docs", "--wait"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let second = second.expect("it starts");
    std::thread::sleep(Duration::from_millis(300));
    kitbag.write("done", "");
    assert!(first.wait().expect("it ends").success());
    let output = second.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("waiting for its end") && said.lines().count() == 1, "{said}");
    assert_eq!(generations(&kitbag), 2);
}

#[test]
fn a_run_that_was_killed_holds_nobody_up() {
    let kitbag = kitbag();
    let mut first = going(&kitbag);
    first.kill().expect("killed");
    first.wait().expect("gone");
    kitbag.run(["backup", "docs"]).code(0);
    assert_eq!(generations(&kitbag), 1);
    end_hook(&kitbag);
}

#[test]
fn the_machine_is_kept_awake_as_long_as_the_process_lives() {
    let inhibit = "echo \"$@\" >inhibited; for last; do :; done; $last >/dev/null; touch awake-no-more";
    let kitbag = script(kitbag(), "systemd-inhibit", inhibit);
    kitbag.run(["backup", "docs", "--before", "while [ ! -e inhibited ]; do sleep 0.05; done"]).code(0);
    let asked = fs::read_to_string(kitbag.path("inhibited")).expect("it was asked");
    assert!(asked.contains("--what=sleep") && asked.contains("--who=kitbag"), "{asked}");
    assert!(kitbag.path("awake-no-more").exists());

    for name in ["inhibited", "awake-no-more"] {
        fs::remove_file(kitbag.path(name)).expect("removed");
    }
    let mut killed = going(&kitbag);
    wait_until("it is kept awake", || kitbag.path("inhibited").exists());
    assert!(!kitbag.path("awake-no-more").exists());
    killed.kill().expect("killed");
    killed.wait().expect("gone");
    wait_until("it may sleep", || kitbag.path("awake-no-more").exists());
    end_hook(&kitbag);

    // Where nobody can do that, nothing is said.
    let kitbag = script(kitbag, "systemd-inhibit", "echo 'Failed to connect to bus' >&2; exit 1");
    kitbag.run(["backup", "docs"]).code(0);
}
