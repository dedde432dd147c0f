//! Keys that nobody types every day: in files, and on paper.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;

use common::{Kitbag, Outcome, files_below, json_field};
use obbench::need;
use obbench::sshd::{Sshd, SshdOptions};

/// A repository with the passphrase "first", and a file of it.
fn locked() -> Kitbag {
    let kitbag = Kitbag::new().set("KITBAG_REPOSITORY", "repository");
    for word in ["first", "second"] {
        kitbag.secret(word, format!("{word} horse\n"));
    }
    kitbag.run(["init", "--passphrase-file", "first"]).code(0);
    kitbag
}

fn opens(kitbag: &Kitbag, option: &str, file: &str) -> i32 {
    kitbag.run(["generations", option, file]).code.unwrap_or(-1)
}

fn slot_of(kitbag: &Kitbag, label: &str) -> String {
    let list = kitbag.run(["key", "list"]).code(0).stdout;
    let line = list.lines().find(|line| line.ends_with(&format!("\t{label}"))).expect("a slot");
    line.split('\t').next().expect("an id").to_owned()
}

#[test]
fn a_key_file_opens_until_it_is_taken_away() {
    let kitbag = locked();
    let add = ["key", "add", "--new-key-file", "key", "--label", "nightly", "--passphrase-file"];
    kitbag.run(add.iter().chain(&["second"])).code(12);
    assert!(!kitbag.path("key").exists());
    kitbag.run(add.iter().chain(&["first"])).code(0);
    assert_eq!(fs::metadata(kitbag.path("key")).expect("made").mode() & 0o777, 0o600);
    assert_eq!((opens(&kitbag, "--key-file", "key"), opens(&kitbag, "--passphrase-file", "first")), (0, 0));
    kitbag.run(add.iter().chain(&["first"])).code(1).says(&["there is a file", "key", "already"]);
    let list = kitbag.run(["key", "list"]).code(0).stdout;
    assert!(list.lines().count() == 2 && list.contains("\tkey file\tnightly\n"), "{list}");
    let json = kitbag.run(["key", "list", "--json"]).code(0).stdout;
    let line = json.lines().find(|line| line.contains("nightly")).expect("listed");
    assert_eq!((json_field(line, "opened_by"), json_field(line, "passphrase")), ("key file", "false"));
    // In a variable and a configuration file, as any option.
    let mut command = kitbag.command();
    Outcome::of(command.env("KITBAG_KEY_FILE", "key").arg("generations")).code(0);
    kitbag.write("home/.config/kitbag/config.toml", format!("key-file = {:?}\n", kitbag.path("key")));
    kitbag.run(["backup", "first"]).code(0);
    kitbag.run(["key", "remove", &slot_of(&kitbag, "nightly"), "--passphrase-file", "first"]).code(0);
    kitbag.run(["generations"]).code(12).says(&[
        "the key file does not open",
        "taken away",
        "kitbag key list",
    ]);
    assert_eq!(opens(&kitbag, "--passphrase-file", "first"), 0);
}

#[test]
fn a_passphrase_that_was_taken_away_opens_nothing() {
    let kitbag = locked();
    kitbag.run(["key", "add", "--new-passphrase-file", "second", "--passphrase-file", "first"]).code(0);
    let list = kitbag.run(["key", "list"]).code(0).stdout;
    let first = list.split('\t').next().expect("an id").to_owned();
    kitbag.run(["key", "remove", &first, "--passphrase-file", "second"]).code(0);
    let refused = kitbag.run(["generations", "--passphrase-file", "first"]).code(12);
    refused.says(&["the passphrase does not open", "kitbag key list"]);
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let kitbag = locked();
    kitbag.run(["key", "add", "--new-key-file", "key", "--passphrase-file", "first"]).code(0);
    for mode in [0o640, 0o604, 0o660] {
        fs::set_permissions(kitbag.path("key"), fs::Permissions::from_mode(mode)).expect("set");
        kitbag
            .run(["generations", "--key-file", "key"])
            .code(1)
            .says(&["read or changed by others", "chmod 600 key"]);
    }
    kitbag.run(["generations", "--key-file", "gone"]).code(1).says(&["cannot read the key file gone"]);
    kitbag.secret("text", "hello\n");
    kitbag.run(["generations", "--key-file", "text"]).code(1).says(&["the key file text", "it holds no key"]);
    kitbag.run(["generations", "--key-file", "key", "--passphrase-file", "first"]).code(2);
}

#[test]
fn a_key_file_may_be_all_there_is() {
    let kitbag = Kitbag::new().set("KITBAG_REPOSITORY", "repository").set("KITBAG_KEY_FILE", "key");
    let said = kitbag.run(["init"]).code(0).stderr;
    assert!(said.contains("made the key file key") && said.contains("keep a copy elsewhere"), "{said}");
    kitbag.run(["generations"]).code(0);
    // An existing one is taken as it is.
    kitbag.run(["init", "-r", "another"]).code(0);
    kitbag.run(["generations", "-r", "another"]).code(0);
    let slot = files_below(&kitbag.path("repository/keys")).pop().expect("a slot");
    let id = slot.file_name().expect("a name").to_str().expect("hexadecimal");
    kitbag.run(["key", "remove", id]).code(1).says(&["no other key slot", "--even-last"]);
    // A passphrase is not asked for in vain.
    kitbag.secret("first", "first");
    for (name, value) in [("KITBAG_KEY_FILE", ""), ("KITBAG_PASSPHRASE_FILE", "first")] {
        let mut command = kitbag.command();
        command.env("KITBAG_KEY_FILE", "").env(name, value).arg("generations");
        Outcome::of(&mut command).code(1).says(&["opened by a key file only", "--key-file"]);
    }
    // Where the repository cannot be made, no key file stays.
    let mut command = kitbag.command();
    Outcome::of(command.env("KITBAG_KEY_FILE", "other").arg("init")).code(1);
    assert!(!kitbag.path("other").exists());
    // It changes into a passphrase, and back.
    kitbag.run(["key", "change", "--new-passphrase-file", "first"]).code(0);
    kitbag.run(["generations"]).code(12);
    kitbag.run(["key", "change", "--new-key-file", "new", "--passphrase-file", "first"]).code(0);
    assert_eq!(opens(&kitbag, "--key-file", "new"), 0);
    assert_eq!(files_below(&kitbag.path("repository/keys")).len(), 1);
}

#[test]
fn a_key_from_paper_opens_and_sets_a_passphrase() {
    let kitbag = locked();
    let paper = kitbag.run(["key", "export", "--passphrase-file", "first"]).code(0).stdout;
    let slot = slot_of(&kitbag, "paper");
    assert!(
        paper.contains(&slot) && paper.contains("opens the repository") && paper.contains(", paper"),
        "{paper}"
    );
    // Typed by somebody in a hurry, without what is said around it.
    let typed: String = paper
        .lines()
        .filter(|line| {
            line.starts_with("    ") && line.trim_start().starts_with(|c: char| c.is_ascii_digit())
        })
        .map(|line| line.trim().to_lowercase().replace('0', "o") + "\n")
        .collect();
    assert_eq!(typed.lines().count(), 5, "{paper}");
    kitbag.secret("typed", &typed);
    assert_eq!(opens(&kitbag, "--key-file", "typed"), 0);
    // The whole paper, scanned, is right as well.
    kitbag.secret("scanned", &paper);
    assert_eq!(opens(&kitbag, "--key-file", "scanned"), 0);
    // The passphrase is forgotten: a new one comes by the paper, from a file or standard input.
    kitbag.run(["key", "import", "typed", "--new-passphrase-file", "second", "--label", "new"]).code(0);
    assert_eq!(opens(&kitbag, "--passphrase-file", "second"), 0);
    kitbag.secret("third", "third horse");
    let mut command = kitbag.command();
    command.args(["key", "import", "--new-passphrase-file", "third"]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
    child.stdin.take().expect("piped").write_all(typed.as_bytes()).expect("taken");
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    assert_eq!(opens(&kitbag, "--passphrase-file", "third"), 0);
    kitbag.run(["key", "remove", &slot, "--passphrase-file", "second"]).code(0);
    kitbag.run(["key", "import", "typed", "--new-passphrase-file", "second"]).code(12).says(&["taken away"]);
}

#[test]
fn a_mistyped_line_is_named() {
    let kitbag = locked();
    let json = kitbag
        .run(["key", "export", "--json", "--label", "safe", "--passphrase-file", "first"])
        .code(0)
        .stdout;
    assert_eq!((json_field(&json, "id"), json_field(&json, "label")), (&*slot_of(&kitbag, "safe"), "safe"));
    let lines = json.split_once("\"lines\":[").expect("lines").1.split_once(']').expect("an end").0;
    let lines: Vec<_> =
        lines.split(',').zip(1..).map(|(one, at)| format!("{at} {}", one.trim_matches('"'))).collect();
    kitbag.secret("key", lines.join("\n"));
    assert_eq!(opens(&kitbag, "--key-file", "key"), 0);
    for at in 0..5 {
        let mut changed = lines.clone();
        let last = changed[at].pop().expect("letters");
        changed[at].push(if last == '7' { '8' } else { '7' });
        kitbag.secret("key", changed.join("\n"));
        let line = format!("line {} of the key has a mistake", at + 1);
        kitbag.run(["generations", "--key-file", "key"]).code(1).says(&["the key file key", &line]);
        kitbag.run(["key", "import", "key"]).code(1).says(&[&line]);
        changed.remove(at);
        kitbag.secret("key", changed.join("\n"));
        kitbag
            .run(["generations", "--key-file", "key"])
            .code(1)
            .says(&[&format!("line {} of the key is missing", at + 1)]);
    }
    kitbag.run(["key", "import"]).code(1).says(&["the key on standard input", "no key"]);
}

/// Where the repository is opened with what was kept of it, that is found out when the server has answered.
#[test]
fn sshd_keys_that_were_taken_away_elsewhere() {
    if !need::program("sshd") {
        return;
    }
    let server = Sshd::start(SshdOptions::default()).expect("a server");
    let kitbag = locked();
    kitbag
        .run(["key", "add", "--new-key-file", "key", "--label", "nightly", "--passphrase-file", "first"])
        .code(0);
    kitbag
        .run([
            "key",
            "add",
            "--new-passphrase-file",
            "second",
            "--label",
            "ada",
            "--passphrase-file",
            "first",
        ])
        .code(0);
    let url = server.url(&kitbag.path("repository"));
    let config = server.ssh_config().to_str().expect("UTF-8").to_owned();
    let there = |line: &[&str]| kitbag.run(line.iter().copied().chain(["-r", &url, "--ssh-config", &config]));
    let secrets = [("--key-file", "key", "nightly"), ("--passphrase-file", "second", "ada")];
    for (option, file, label) in secrets {
        there(&["backup", "first", option, file]).code(0);
        kitbag.run(["key", "remove", &slot_of(&kitbag, label), "--passphrase-file", "first"]).code(0);
        there(&["generations", option, file]).code(12).says(&["does not open", "kitbag key list"]);
        // A key that still opens is not blamed for what became of another.
        there(&["generations", "--passphrase-file", "first"]).code(0);
        kitbag
            .run([
                "key",
                "add",
                "--new-passphrase-file",
                file,
                "--label",
                "other",
                "--passphrase-file",
                "first",
            ])
            .code(0);
        there(&["generations", "--passphrase-file", "first"])
            .code(1)
            .says(&["keys have changed", "run this again"]);
        there(&["generations", "--passphrase-file", "first"]).code(0);
        there(&["fsck", "--passphrase-file", "first"]).code(0);
        kitbag.run(["key", "remove", &slot_of(&kitbag, "other"), "--passphrase-file", "first"]).code(0);
        // It ends a backup as well, without a second question to what can be read only once.
        let refused = there(&["backup", "first", option, file]).code(12).stderr;
        assert!(refused.contains("does not open"), "{refused}");
    }
}

/// What cannot be written for anybody opens nothing.
#[test]
fn a_key_that_nobody_could_read_is_taken_back() {
    let kitbag = locked();
    let mut command = kitbag.command();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("there");
    command.args(["key", "export", "--passphrase-file", "first"]).stdout(full);
    Outcome::of(&mut command).code(1).says(&["cannot write to standard output"]);
    assert_eq!(files_below(&kitbag.path("repository/keys")).len(), 1);
}
