//! The manual (`doc/manual/`): every command line in it is run, chapter by chapter, in an empty home beside an SSH server.
//!
//! A block of commands in the language `sh` is run: by itself for the machine that is backed up, followed by `server` for the server, by `other` for another machine, by `fails` where
//! the commands must fail, by `fuse` where they mount. What is told as `text` is not run, and must not be a command of kitbag's. Programs that are not ours
//! have stand-ins; directories outside the home are put below that of the test. The machines begin with nothing set but the passphrase, which a person would type;
//! it is taken away where the chapter has written it into a file. Whatever reads standard input is given it, too.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use obbench::need;
use obbench::sshd::{Sshd, SshdOptions};
use tempfile::TempDir;

const CHAPTERS: [(&str, &str); 9] = [
    ("introduction", include_str!("../doc/manual/src/introduction.md")),
    ("first-backup", include_str!("../doc/manual/src/first-backup.md")),
    ("disaster", include_str!("../doc/manual/src/disaster.md")),
    ("many-laptops", include_str!("../doc/manual/src/many-laptops.md")),
    ("append-only", include_str!("../doc/manual/src/append-only.md")),
    ("monitoring", include_str!("../doc/manual/src/monitoring.md")),
    ("moving", include_str!("../doc/manual/src/moving.md")),
    ("how-it-works", include_str!("../doc/manual/src/how-it-works.md")),
    ("questions", include_str!("../doc/manual/src/questions.md")),
];

/// Directories that the manual names and that are put below the test's.
const ELSEWHERE: [&str; 3] = ["/srv/backups", "/mnt/new", "/media/disk"];

/// Programs that are not ours: what they do here.
const STAND_INS: [(&str, &str); 9] = [
    ("sudo", r#"case $1 in adduser) ;; install) mkdir -p "${@: -1}" ;; *) "$@" ;; esac"#),
    ("apt", ":"),
    ("systemctl", ":"),
    ("journalctl", ":"),
    ("loginctl", ":"),
    ("lp", r#"test -s "$1""#),
    ("mail", "cat"),
    ("restic", r#"[ "$3 $5" = "restore --target" ] && echo "$4" > "$6/state""#),
    ("obnam", r#"[ "$1 $4" = "restore --to" ] && echo "$7" > "$5/state""#),
];

/// A block of a chapter: how it begins, without the mark, and its lines.
type Block = (String, String);

fn chapter(name: &str) -> &'static str {
    CHAPTERS.iter().find(|(chapter, _)| *chapter == name).expect("a chapter").1
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let inside: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((kind.to_owned(), inside.join("\n") + "\n"));
        }
    }
    blocks
}

/// What a person types.
const PASSPHRASE: &str = "correct horse";

/// Two machines, and a server.
struct Stage {
    dir: TempDir,
    server: Sshd,
    /// Whether the laptop is gone, and the other machine has come in its place, with a home of the same name.
    is_lost: Cell<bool>,
}

impl Stage {
    fn new() -> Option<Self> {
        if !need::program("sshd") {
            return None;
        }
        let dir = TempDir::new().expect("a directory");
        let server = Sshd::start(SshdOptions::default()).expect("a server");
        let stage = Self { dir, server, is_lost: Cell::default() };
        for directory in ["bin", "mnt", "media/disk", "server/.ssh"] {
            fs::create_dir_all(stage.path(directory)).expect("a directory");
        }
        symlink(assert_cmd::cargo::cargo_bin!("kitbag"), stage.path("bin/kitbag")).expect("linked");
        for (name, script) in STAND_INS {
            let path = stage.path("bin").join(name);
            fs::write(&path, format!("#!/bin/bash -eu\n{script}\n")).expect("written");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
        }
        ["laptop", "other"].iter().for_each(|machine| stage.set_up(machine));
        fs::write(stage.path("server.env"), "").expect("written");
        fs::write(stage.path("typed"), format!("{PASSPHRASE}\n")).expect("written");
        let documents = stage.path("laptop/Documents");
        fs::create_dir_all(&documents).expect("a directory");
        fs::write(documents.join("letter.txt"), "Dear Ada,\n").expect("written");
        for number in 0..20 {
            fs::write(documents.join(format!("{number}.o")), format!("{number}\n").repeat(10_000))
                .expect("written");
        }
        fs::copy(stage.server.authorized_keys(), stage.path("server/.ssh/authorized_keys")).expect("copied");
        Some(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A machine that nothing was done on but what makes `ssh nas` work.
    fn set_up(&self, machine: &str) {
        let config = fs::read_to_string(self.server.ssh_config()).expect("a configuration");
        let config = config.replacen("Host kitbag-test", "Host nas", 1);
        let path = self.home(machine).join(".ssh/config");
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, &config).expect("written");
        // What a person types, and where SSH's settings are, which are else looked for in the home that the system knows.
        let typed = format!("export KITBAG_PASSPHRASE='{PASSPHRASE}' KITBAG_SSH_CONFIG={}\n", path.display());
        fs::write(self.path(&format!("{machine}.env")), typed).expect("written");
    }

    fn home(&self, machine: &str) -> PathBuf {
        self.path(if machine == "other" && self.is_lost.get() { "laptop" } else { machine })
    }

    /// The laptop burns. The other machine is new, and its user has the same name.
    fn lose_the_laptop(&self) {
        let moved = Command::new("mv").args([self.path("laptop"), self.path("burnt")]).status();
        assert!(moved.expect("mv").success());
        self.is_lost.set(true);
        self.set_up("other");
    }

    /// Runs a chapter.
    fn play(&self, name: &str) {
        self.play_text(name, chapter(name));
    }

    /// Runs a part of a chapter.
    fn play_text(&self, name: &str, text: &str) {
        for (kind, text) in blocks(text) {
            match kind.split_once(' ').unwrap_or((&kind, "")) {
                ("sh", "") => self.run(name, "laptop", &text, true),
                ("sh", "fails") => self.run(name, "laptop", &text, false),
                ("sh", "other") => self.run(name, "other", &text, true),
                ("sh", "fuse") if need::fuse() => self.run(name, "laptop", &text, true),
                ("sh", "fuse") => {}
                ("sh", "server") => {
                    self.run(name, "server", &text, true);
                    self.let_in();
                }
                ("text", "") => {
                    let is_ours = |line: &str| line.starts_with("kitbag ") || line.starts_with("$ ");
                    assert!(!text.lines().any(is_ours), "{name}: these are not run:\n{text}");
                }
                _ => panic!("{name}: blocks that begin with {kind:?} are of no use"),
            }
        }
    }

    fn run(&self, name: &str, machine: &str, text: &str, must_succeed: bool) {
        let mut text = text.to_owned();
        for place in ELSEWHERE {
            text = text.replace(place, &format!("{}{place}", self.dir.path().display()));
        }
        let environment = self.path(&format!("{machine}.env"));
        let environment = environment.display();
        let known = "[ ! -e ~/.config/kitbag/passphrase ] || unset KITBAG_PASSPHRASE";
        let script =
            format!("set -eu\n. '{environment}'\n{known}\ncd\n{text}\nexport -p > '{environment}'\n");
        let path = std::env::join_paths([self.path("bin"), PathBuf::from("/usr/bin"), PathBuf::from("/bin")]);
        let mut command = Command::new("bash");
        command.env_clear().env("PATH", path.expect("a path")).env("HOME", self.home(machine));
        command.env("TZ", "UTC").env("LC_ALL", "C.UTF-8").args(["-c", &script]);
        let typed = File::open(self.path("typed")).expect("opened");
        let output = command.stdin(typed).output().expect("bash");
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert_eq!(
            output.status.success(),
            must_succeed,
            "{name}, on {machine}:\n{text}\n{}\n{}",
            said[0],
            said[1]
        );
        assert!(!said[1].contains("panicked"), "{name}:\n{}", said[1]);
    }

    /// What stands in the server's file of keys holds from now on; the program is that under test.
    fn let_in(&self) {
        let keys = fs::read_to_string(self.path("server/.ssh/authorized_keys")).expect("keys");
        let program = self.path("bin/kitbag");
        let keys = keys.replace("\"kitbag ", &format!("\"{} ", program.display()));
        fs::write(self.server.authorized_keys(), keys).expect("written");
    }
}

/// Runs a chapter on what the first one has made.
fn play_after_the_first(name: &str) {
    let Some(stage) = Stage::new() else { return };
    stage.play("first-backup");
    stage.play(name);
}

#[test]
fn sshd_the_first_backup() {
    let Some(stage) = Stage::new() else { return };
    stage.play("introduction");
    stage.play("first-backup");
    let restored = common::files_below(&stage.path("laptop/restored"));
    assert_eq!(restored.len(), 1, "{restored:?}");
}

#[test]
fn sshd_after_a_disaster() {
    let Some(stage) = Stage::new() else { return };
    stage.play("first-backup");
    let (before, after) = chapter("disaster").split_once("## When it has happened").expect("a disaster");
    stage.play_text("disaster", before);
    stage.lose_the_laptop();
    stage.play_text("disaster", after);
    let letter = |top: &str| {
        let files = common::files_below(&stage.path(top));
        let letter = files.iter().find(|path| path.ends_with("laptop/Documents/letter.txt"));
        fs::read_to_string(letter.expect("the letter")).expect("text")
    };
    assert_eq!([letter("mnt/new"), letter("laptop/older")], ["Dear Ada,\n"; 2]);
    // It is at home again, and so in the backup that goes on where those of the old machine ended.
    let last = "kitbag cat --client-name laptop ~/Documents/letter.txt | cmp - ~/Documents/letter.txt\n";
    stage.run("disaster", "other", last, true);
    stage.run("disaster", "other", "kitbag generations --client-name laptop | sed -n 4p | grep .\n", true);
}

#[test]
fn sshd_many_laptops() {
    play_after_the_first("many-laptops");
}

#[test]
fn sshd_append_only() {
    play_after_the_first("append-only");
}

#[test]
fn sshd_monitoring() {
    play_after_the_first("monitoring");
}

#[test]
fn sshd_moving() {
    play_after_the_first("moving");
}

#[test]
fn sshd_how_it_works() {
    play_after_the_first("how-it-works");
}

#[test]
fn fuse_questions() {
    play_after_the_first("questions");
}

#[test]
fn the_summary_names_all_chapters_and_stand_ins_stand_for_something() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("doc/manual/src");
    let summary = fs::read_to_string(sources.join("SUMMARY.md")).expect("a summary");
    let files: BTreeSet<_> = common::files_below(&sources).into_iter().collect();
    assert_eq!(files.len(), CHAPTERS.len() + 1);
    for (name, text) in CHAPTERS {
        assert!(summary.contains(&format!("({name}.md)")), "{name}");
        for link in text.split("](").skip(1) {
            let target = link.split(')').next().expect("a target");
            assert!(files.contains(&sources.join(target)), "{name} leads to {target}");
        }
    }
    let commands: String = CHAPTERS.iter().flat_map(|(_, text)| blocks(text)).map(|(_, text)| text).collect();
    for (name, _) in STAND_INS {
        assert!(commands.contains(&format!("{name} ")), "{name}");
    }
}

/// What is said in passing, between backquotes, exists.
#[test]
fn commands_and_options_named_in_passing_exist() {
    let kitbag = common::Kitbag::new();
    let help = |command: &str| kitbag.run([command, "--help"]).code(0).stdout;
    let mut said: BTreeSet<String> = BTreeSet::new();
    for (_, text) in CHAPTERS {
        let prose: Vec<_> = text.split("```").step_by(2).collect();
        said.extend(prose.join("\n").split('`').skip(1).step_by(2).map(str::to_owned));
    }
    for words in said.iter().filter_map(|said| said.strip_prefix("kitbag ")) {
        let mut words = words.split(' ');
        let command = words.next().expect("a command");
        let help = if command == "help" { String::new() } else { help(command) };
        for word in words.filter(|word| !word.starts_with(char::is_numeric)) {
            assert!(help.contains(word) || word.contains(','), "kitbag {command} knows no {word}");
        }
    }
}
