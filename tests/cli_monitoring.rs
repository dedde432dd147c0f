//! What monitors read: the age of the last backup, and metrics.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use common::Kitbag;
use obbench::need;
use obbench::relay::{Link, Relay};
use obbench::sshd::{Sshd, SshdOptions};

const LIMITS: [&str; 4] = ["--warn", "26h", "--critical", "50h"];

fn saved() -> Kitbag {
    let kitbag = Kitbag::with_repository();
    kitbag.write("docs/letter.txt", "Dear Ada");
    kitbag.run(["backup", "docs"]).code(0);
    kitbag
}

fn age(kitbag: &Kitbag, more: &[&str]) -> common::Outcome {
    kitbag.run(["last-backup-age"].iter().chain(&LIMITS).chain(more))
}

#[test]
fn a_fresh_backup_is_ok() {
    let kitbag = saved();
    let outcome = age(&kitbag, &[]).code(0);
    assert_eq!(outcome.stderr, "");
    assert_eq!(outcome.stdout.lines().count(), 1);
    assert!(outcome.stdout.starts_with("OK - laptop: last backup "), "{}", outcome.stdout);
    let figures = outcome.stdout.trim_end().split_once(" | ").expect("figures").1;
    let (value, limits) =
        figures.strip_prefix("age=").and_then(|rest| rest.split_once("s;")).expect("an age");
    assert!(value.parse::<u64>().expect("a number") < 60);
    assert_eq!(limits, "93600;180000");
}

#[test]
fn old_ones_are_warned_of() {
    let kitbag = saved();
    std::thread::sleep(Duration::from_millis(1100));
    let outcome = kitbag.run(["last-backup-age", "--warn", "0", "--critical", "1h"]).code(1);
    assert!(outcome.stdout.starts_with("WARNING - laptop: "), "{}", outcome.stdout);
    let outcome = kitbag.run(["last-backup-age", "--warn", "0", "--critical", "0"]).code(2);
    assert!(outcome.stdout.starts_with("CRITICAL - laptop: "), "{}", outcome.stdout);
}

#[test]
fn none_at_all_is_critical() {
    let kitbag = Kitbag::with_repository();
    let outcome = age(&kitbag, &[]).code(2);
    assert_eq!(outcome.stdout, "CRITICAL - laptop: no complete backup\n");
    let outcome = age(&kitbag, &["--all-clients"]).code(2);
    assert_eq!(outcome.stdout, "CRITICAL - no client has a backup\n");
}

#[test]
fn whatever_goes_wrong_is_unknown() {
    let kitbag = saved();
    let cases: &[&[&str]] = &[
        &[],
        &["--warn", "26h"],
        &["--warn", "soon", "--critical", "50h"],
        &["--warn", "50h", "--critical", "26h"],
        &["--warn", "26h", "--critical", "50h", "--no-such-option"],
        &["--warn", "26h", "--critical", "50h", "--client", "laptpo"],
        &["--warn", "26h", "--critical", "50h", "--cache-size", "much"],
        &["--warn", "26h", "--critical", "50h", "-r", "/nonexistent/repository"],
        &["--warn", "26h", "--critical", "50h", "-r", "sftp://"],
    ];
    for case in cases {
        let outcome = kitbag.run(["last-backup-age"].iter().chain(*case)).code(3);
        assert_eq!(outcome.stdout.lines().count(), 1, "{case:?}: {}", outcome.stdout);
        assert!(outcome.stdout.starts_with("UNKNOWN - "), "{case:?}: {}", outcome.stdout);
    }
    let outcome = age(&kitbag, &["--json", "--client", "laptpo"]).code(3);
    let said: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(said["state"], "UNKNOWN");
    assert!(said["error"].as_str().is_some_and(|why| why.contains("laptop")), "{said}");
    // Help is help.
    assert!(kitbag.run(["last-backup-age", "--help"]).code(0).stdout.contains("UNKNOWN"));
}

#[test]
fn all_clients_and_json() {
    let kitbag = saved();
    kitbag.run(["backup", "docs", "--client-name", "desktop"]).code(0);
    let outcome = age(&kitbag, &["--all-clients"]).code(0);
    assert!(
        outcome.stdout.starts_with("OK - desktop: ") && outcome.stdout.contains(" desktop="),
        "{}",
        outcome.stdout
    );
    let outcome = age(&kitbag, &["--all-clients", "--json"]).code(0);
    let lines: Vec<serde_json::Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let clients: Vec<_> = lines.iter().map(|line| line["client"].as_str().expect("a name")).collect();
    assert_eq!(clients, ["desktop", "laptop"]);
    assert!(lines.iter().all(|line| line["state"] == "OK" && line["warn_seconds"] == 93_600));
    let outcome = age(&kitbag, &["--client", "desktop"]).code(0);
    assert!(outcome.stdout.starts_with("OK - desktop: "), "{}", outcome.stdout);
}

#[test]
fn sshd_is_asked_no_more_than_for_the_list_of_generations() {
    if !need::program("sshd") {
        return;
    }
    let mut server = Sshd::start(SshdOptions::default()).expect("a server");
    let relay = Relay::start(server.address(), Link::delayed(Duration::from_millis(50))).expect("a relay");
    server.set_client_port(relay.port()).expect("configured");
    let kitbag = saved();
    let url = server.url(&kitbag.path("repository"));
    let config = server.ssh_config();
    let turns = |line: &[&str]| {
        let more = ["-r", &url, "--ssh-config", config.to_str().expect("UTF-8")];
        let once = |_| {
            let before = relay.traffic().turns;
            kitbag.run(line.iter().chain(&more)).code(0);
            relay.traffic().turns - before
        };
        // On a busy machine what leaves together may pass apart, so the best of several counts.
        (0..5).map(once).min().expect("some")
    };
    turns(&["generations"]);
    let (list, clients) = (turns(&["generations"]), turns(&["clients"]));
    let one = turns(&["last-backup-age", "--warn", "1h", "--critical", "2h"]);
    let all = turns(&["last-backup-age", "--warn", "1h", "--critical", "2h", "--all-clients"]);
    assert!(one <= list && all <= clients, "{one} of {list}, {all} of {clients}");
}

#[test]
fn what_is_dated_in_the_future_does_not_count_and_is_flagged() {
    if !need::program("faketime") {
        return;
    }
    let kitbag = saved();
    let original = kitbag.command();
    let mut command = std::process::Command::new("faketime");
    command.arg("+10 days").arg(original.get_program()).args(["backup", "docs"]);
    command.current_dir(kitbag.path(".")).env_clear();
    command.envs(original.get_envs().filter_map(|(name, value)| Some((name, value?))));
    common::Outcome::of(&mut command).code(0);
    assert!(kitbag.run(["generations"]).code(0).stdout.contains("dated in the future"));
    let outcome = age(&kitbag, &[]).code(1);
    assert!(outcome.stdout.contains("1 generation dated in the future"), "{}", outcome.stdout);
    let age =
        outcome.stdout.split_once("age=").expect("an age").1.split_once("s;").expect("seconds").0.to_owned();
    assert!(age.parse::<u64>().expect("a number") < 600);
}

/// One sample of the text format.
type Sample = (BTreeMap<String, String>, f64);

/// Reads Prometheus' text format, and is content with nothing else: names, labels, `HELP` and `TYPE` once before the samples.
fn parse(text: &str) -> BTreeMap<String, Sample> {
    assert!(text.ends_with('\n'), "the last line ends");
    let (mut helped, mut typed, mut samples) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("a text");
            assert!(is_name(name) && !words.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a kind");
            assert!(helped.contains(name) && kind == "gauge" && typed.insert(name.to_owned()), "{line}");
        } else {
            let (name, rest) = line.split_once('{').expect("labels");
            assert!(is_name(name) && typed.contains(name), "{line}");
            let (labels, rest) = labels(rest);
            let value = rest.strip_prefix(' ').expect("a space").parse().expect("a number");
            assert!(samples.insert(name.to_owned(), (labels, value)).is_none(), "{line}");
        }
    }
    assert_eq!(helped, typed);
    assert_eq!(typed, samples.keys().cloned().collect());
    samples
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn labels(mut text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, rest) = text.split_once("=\"").expect("a label");
        assert!(is_name(name), "{name}");
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().expect("a quote at the end") {
                (at, '"') => break at,
                (_, '\\') => match chars.next().expect("something escaped").1 {
                    'n' => value.push('\n'),
                    c @ ('"' | '\\') => value.push(c),
                    c => panic!("\\{c}"),
                },
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none());
        let rest = &rest[end + 1..];
        match (rest.strip_prefix(','), rest.strip_prefix('}')) {
            (Some(more), _) => text = more,
            (_, Some(rest)) => return (labels, rest),
            _ => panic!("{rest}"),
        }
    }
}

#[test]
fn metrics_of_success_and_failure() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("docs/letter.txt", "Dear Ada".repeat(10_000));
    let name = "a \"strange\\ client";
    let run = |root: &str, code: i32| {
        kitbag.run(["backup", root, "--metrics", "kitbag.prom", "--client-name", name]).code(code);
        parse(&fs::read_to_string(kitbag.path("kitbag.prom")).expect("written"))
    };
    let first = run("docs", 0);
    let value = |samples: &BTreeMap<String, Sample>, name: &str| {
        samples.get(&format!("kitbag_backup_{name}")).map(|(_, value)| *value)
    };
    assert_eq!(value(&first, "exit_code"), Some(0.0));
    assert_eq!(value(&first, "files"), Some(1.0));
    assert_eq!(value(&first, "bytes"), Some(80_000.0));
    assert!(value(&first, "new_bytes").is_some_and(|bytes| bytes > 0.0 && bytes <= 80_000.0));
    for name in ["requests", "serial_waits", "sent_bytes", "received_bytes", "problems"] {
        assert_eq!(value(&first, name), Some(0.0), "{name}");
    }
    assert!(value(&first, "duration_seconds").is_some_and(|time| time > 0.0));
    let success = value(&first, "last_success_timestamp_seconds").expect("a success");
    assert!(success > 1.7e9);
    assert_eq!(value(&first, "last_run_timestamp_seconds"), Some(success));
    for (labels, _) in first.values() {
        assert_eq!(labels["client"], name);
        assert_eq!(labels["repository"], kitbag.path("repository").to_str().expect("UTF-8"));
    }
    let mode = fs::metadata(kitbag.path("kitbag.prom")).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o644);

    let failed = run("nonexistent", 1);
    assert_eq!(value(&failed, "exit_code"), Some(1.0));
    assert_eq!(value(&failed, "last_success_timestamp_seconds"), Some(success));
    let failed = {
        rustix::fs::rename(kitbag.path("repository"), kitbag.path("away")).expect("moved");
        run("docs", 10)
    };
    assert_eq!(value(&failed, "exit_code"), Some(10.0));
    assert_eq!(value(&failed, "files"), None);
    assert_eq!(value(&failed, "last_success_timestamp_seconds"), Some(success));
    assert!(value(&failed, "last_run_timestamp_seconds").expect("a run") > success);

    // A run that left it to another has nothing to tell, nor has a dry one.
    rustix::fs::rename(kitbag.path("away"), kitbag.path("repository")).expect("moved");
    let before = fs::read(kitbag.path("kitbag.prom")).expect("there");
    kitbag.run(["backup", "docs", "--dry-run", "--metrics", "kitbag.prom"]).code(0);
    assert_eq!(fs::read(kitbag.path("kitbag.prom")).expect("there"), before);
    let outcome = kitbag.run(["backup", "docs", "--metrics", "nonexistent/kitbag.prom"]).code(3);
    outcome.says(&["cannot write the metrics"]);
}
