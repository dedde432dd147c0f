//! What is said for machines: progress as JSON, log files, and the journal.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Instant;

use common::{Kitbag, Outcome};
use serde_json::Value;

fn kitbag() -> Kitbag {
    let kitbag = Kitbag::with_repository();
    for number in 0..100 {
        kitbag.write(&format!("docs/{number}"), format!("{number}\n").repeat(1000));
    }
    kitbag
}

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "so many lines in so much time is what is asked")]
fn progress_as_json() {
    let kitbag = kitbag();
    let begun = Instant::now();
    let line = ["backup", "docs", "nonexistent", "--progress", "json", "--limit-upload", "50K"];
    let outcome = kitbag.run(line).code(3);
    let took = begun.elapsed();
    let objects = objects(&outcome.stderr);
    let steps: Vec<_> = objects.iter().filter(|object| object["event"] == "progress").collect();
    let last = steps.last().expect("one at the end");
    assert_eq!((&last["final"], &last["job"]), (&Value::from(true), &Value::from("backup")));
    assert_eq!((&last["files"], &last["files_read"]), (&Value::from(100), &Value::from(100)));
    assert!(last["bytes_stored"].as_u64().is_some_and(|bytes| bytes > 0), "{last}");
    assert_eq!(steps.iter().filter(|step| step["final"] == true).count(), 1);
    let most = took.as_millis() / 500 + 3;
    assert!(u128::try_from(steps.len()).expect("few") <= most, "{} in {took:?}", steps.len());
    let seconds: Vec<_> = steps.iter().map(|step| step["seconds"].as_f64().expect("a number")).collect();
    assert!(seconds.is_sorted(), "{seconds:?}");
    let problem = objects.iter().find(|object| object["event"] == "problem").expect("one");
    assert_eq!(problem["severity"], "lost");
    assert!(problem["subject"].as_str().is_some_and(|path| path.ends_with("nonexistent")), "{problem}");
    assert!(!outcome.stdout.contains("event"), "{}", outcome.stdout);

    // Whatever else is said is an object, too.
    let outcome = kitbag.run(["backup", "docs", "--progress", "json", "-r", "nowhere"]).code(10);
    let said = self::objects(&outcome.stderr);
    assert_eq!((&said[0]["event"], &said[0]["level"]), (&Value::from("message"), &Value::from("error")));
    for command in [&["fsck"][..], &["restore", "--to", "out"], &["verify"], &["gc"]] {
        let outcome = kitbag.run(command.iter().chain(&["--progress", "json"])).code(0);
        let objects = self::objects(&outcome.stderr);
        assert_eq!(objects.last().expect("one at the end")["final"], true, "{command:?}");
    }
}

#[test]
fn progress_as_text_or_not_at_all() {
    let kitbag = kitbag();
    for form in ["none", "plain", "auto"] {
        assert_eq!(kitbag.run(["backup", "docs", "--progress", form]).code(0).stderr, "", "{form}");
    }
    let hold = "--limit-upload=10K";
    let name = kitbag.path("noise");
    std::process::Command::new("sh")
        .args(["-c", "head -c 130000 /dev/urandom >\"$0\""])
        .arg(&name)
        .status()
        .expect("made");
    let outcome = kitbag.run(["backup", "noise", "--progress", "plain", hold]).code(0);
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("kitbag: ") && lines[0].contains("sent"), "{lines:?}");
    kitbag.run(["backup", "docs", "--progress", "sometimes"]).code(2);
}

/// What stands in a log behind time and process: level and text.
fn entries(kitbag: &Kitbag, name: &str) -> Vec<String> {
    let text = fs::read_to_string(kitbag.path(name)).expect("a log");
    let entry = |line: &str| {
        let (time, rest) = line.split_once(" kitbag[").expect("a time");
        assert_eq!(time.len(), "2026-11-30T22:15:02.512Z".len(), "{line}");
        assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{line}");
        rest.split_once("] ").expect("a process").1.to_owned()
    };
    text.lines().map(entry).collect()
}

#[test]
fn a_log_file_has_it_all() {
    let kitbag = kitbag();
    kitbag.run(["backup", "docs", "nonexistent", "-q", "--log-file", "log"]).code(3);
    let first = entries(&kitbag, "log");
    assert!(first[0].starts_with("info: kitbag ") && first[0].ends_with("begins: backup"), "{first:?}");
    assert!(
        first.iter().any(|line| line.starts_with("error: ") && line.contains("nonexistent")),
        "{first:?}"
    );
    assert!(first.iter().any(|line| line.starts_with("info: generation ")), "{first:?}");
    assert_eq!(first.last().map(String::as_str), Some("info: ended with exit code 3"));
    assert_eq!(fs::metadata(kitbag.path("log")).expect("there").permissions().mode() & 0o777, 0o600);

    // It is added to; a log that was rotated away begins anew.
    kitbag.run(["generations", "--log-file", "log"]).code(0);
    assert_eq!(entries(&kitbag, "log").len(), first.len() + 2);
    rustix::fs::rename(kitbag.path("log"), kitbag.path("log.1")).expect("rotated");
    kitbag.run(["generations", "-r", "nowhere", "--log-file", "log", "--log-level", "error"]).code(10);
    let lines = entries(&kitbag, "log");
    assert!(lines.len() == 1 && lines[0].starts_with("error: ") && lines[0].contains("nowhere"), "{lines:?}");

    // Where there is no place for a file there is something to tell.
    let mut command = kitbag.command();
    command.env("XDG_CACHE_HOME", "/proc/nowhere");
    command.args(["backup", "docs", "--no-cache", "--log-file", "debug", "--log-level", "debug"]);
    assert_eq!(Outcome::of(&mut command).code(0).stderr, "");
    assert!(entries(&kitbag, "debug").iter().any(|line| line.starts_with("debug: ")));
}

#[test]
fn a_log_file_that_cannot_be_written_is_told_before_anything_is_done() {
    let kitbag = kitbag();
    let outcome = kitbag.run(["backup", "docs", "--log-file", "no/such/place"]).code(1);
    outcome.says(&["cannot write the log file no/such/place"]);
    assert_eq!(kitbag.run(["generations"]).code(0).stdout, "");
    kitbag.run(["generations", "--log-level", "debug"]).code(2);
}

#[test]
fn the_journal_is_told_how_much_each_line_matters() {
    let kitbag = kitbag();
    let run = |lie: u64, line: &[&str]| {
        let path = kitbag.path("journal");
        let journal = File::create(&path).expect("a file");
        let about = journal.metadata().expect("known");
        let mut command = kitbag.command();
        command.env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino() + lie));
        let status = command.args(line).stderr(journal).status().expect("it runs");
        (status.code(), fs::read_to_string(path).expect("written"))
    };
    let (code, said) = run(0, &["backup", "docs", "nonexistent"]);
    assert_eq!(code, Some(3));
    assert!(said.starts_with("<3>kitbag: ") && said.lines().count() == 1, "{said}");
    let (_, said) = run(0, &["backup", "docs", "-v"]);
    assert!(said.lines().all(|line| line.starts_with("<6>")), "{said}");
    let (code, said) = run(0, &["generations", "-r", "nowhere"]);
    assert!(code == Some(10) && said.starts_with("<3>kitbag: there is no repository"), "{said}");
    // The variable is inherited by those whose standard error goes elsewhere.
    let (_, said) = run(1, &["generations", "-r", "nowhere"]);
    assert!(said.starts_with("kitbag: "), "{said}");
    // Nobody waits there, so the network is waited for.
    let line = [
        "backup",
        "docs",
        "-r",
        "sftp://nobody@127.0.0.1:9/x",
        "--give-up-after",
        "2s",
        "--ssh-config",
        "none",
    ];
    let (code, said) = run(0, &line);
    assert_eq!(code, Some(1));
    let lines: Vec<_> = said.lines().map(|line| &line[..3]).collect();
    assert_eq!(lines, ["<4>", "<3>"], "{said}");
}

#[test]
fn a_reader_that_goes_away_is_no_disaster() {
    let kitbag = kitbag();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = kitbag.command().args(["backup", "docs", "nonexistent"]).stderr(writer).status();
    assert_eq!(status.expect("it runs").code(), Some(3));
    // A backup of which nobody hears was made all the same.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status =
        kitbag.command().args(["backup", "docs", "--metrics", "kitbag.prom"]).stdout(writer).status();
    assert_eq!(status.expect("it runs").code(), Some(1));
    assert!(fs::read_to_string(kitbag.path("kitbag.prom")).expect("written").contains("last_success"));
    assert_eq!(kitbag.run(["generations"]).code(0).stdout.lines().count(), 2);
}

#[test]
fn every_command_writes_json() {
    let kitbag = kitbag();
    kitbag.secret("secret", "secret");
    kitbag.run(["backup", "docs", "--client-name", "other"]).code(0);
    let lines: &[&[&str]] = &[
        &["init", "-r", "second", "--encryption", "none"],
        &["backup", "docs", "home"],
        &["backup", "docs", "--forget", "1d", "--gc"],
        &["generations"],
        &["clients"],
        &["last-backup-age", "--warn", "1h", "--critical", "2h"],
        &["ls"],
        &["find", "1*"],
        &["diff", "latest~0"],
        &["tag", "add", "latest", "kept"],
        &["tag", "list"],
        &["tag", "remove", "latest", "kept"],
        &["restore", "--to", "out"],
        &["verify"],
        &["fsck"],
        &["gc"],
        &["forget", "--keep", "1d", "--dry-run"],
        &["key", "list"],
        &["sessions"],
        &["config", "show"],
        &["config", "check"],
        &["cache", "info"],
        &["remove-client", "other", "--yes"],
        &["cache", "clear"],
        &["key", "add", "--new-passphrase-file", "secret"],
    ];
    for line in lines {
        let outcome = kitbag.run(line.iter().chain(&["--json"]));
        assert!(matches!(outcome.code, Some(0 | 1)), "{line:?}: {outcome:?}");
        objects(&outcome.stdout);
        assert!(!outcome.stdout.is_empty() || matches!(line[0], "sessions" | "config" | "diff"), "{line:?}");
    }
    // What these write is no report, and a mount has tests of its own.
    let others = ["cat", "export", "serve", "man", "completions", "mount", "help"];
    let help = kitbag.run(["--help"]).code(0).stdout;
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for command in
        listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next())
    {
        let is_tried = lines.iter().any(|line| line[0] == command) || others.contains(&command);
        assert!(is_tried, "is there JSON from {command}?");
    }
}
