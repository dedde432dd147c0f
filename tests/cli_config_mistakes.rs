//! Mistakes in configuration files: one sentence, with the line and the word that was meant.

mod common;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use common::{Kitbag, Outcome};

const USER: &str = "home/.config/kitbag/config.toml";

#[test]
fn each_mistake_is_one_sentence() {
    let kitbag = Kitbag::new().set("KITBAG_REPOSITORY", "repository");
    kitbag.run(["init", "--encryption", "none"]).code(0);
    let mistakes: &[(&str, &[&str])] = &[
        ("\n\nrepositroy = \"x\"\n", &["config.toml:3: ", "repositroy", "did you mean repository?"]),
        (
            "[backup]\nexlude = []\n",
            &["config.toml:2: ", "backup has no option exlude", "did you mean exclude?"],
        ),
        ("frobnicate = 1\n", &["config.toml:1: ", "frobnicate", "--help"]),
        ("[bakcup]\n", &["config.toml:1: ", "no command bakcup", "[backup]"]),
        ("[profiles.x]\n", &["config.toml:1: ", "[profile]"]),
        ("exclude = [\"x\"]\n", &["config.toml:1: ", "below [backup]"]),
        ("[backup]\nlimit-upload = \"1M\"\n", &["config.toml:2: ", "above the first"]),
        ("profile = \"x\"\n", &["config.toml:1: ", "[profile.NAME]"]),
        ("[profile]\nx = 1\n", &["config.toml:2: ", "[profile.NAME]"]),
        ("backup = true\n", &["config.toml:1: ", "[backup]"]),
        ("no-cache = \"yes\"\n", &["config.toml:1: ", "no-cache", "true or false", "a text"]),
        ("verbose = -1\n", &["config.toml:1: ", "verbose", "0 to 255"]),
        ("cache-size = true\n", &["config.toml:1: ", "cache-size", "quotes"]),
        ("cache-size = [\"1G\"]\n", &["config.toml:1: ", "a list"]),
        ("[find]\nnewer = 2026-11-30\n", &["config.toml:2: ", "a date without quotes"]),
        ("[backup]\nexclude = [\n  \"x\",\n  true,\n]\n", &["config.toml:4: ", "exclude"]),
        ("transport = \"opnessh\"\n", &["config.toml:1: ", "opnessh", "auto, ssh2, openssh", "\"openssh\"?"]),
        ("[verify]\nrandom = \"x\"\n", &["config.toml:2: ", "random \"x\"", "digit"]),
        ("\ncache-size = \"much\"\n", &["config.toml:2: ", "--cache-size \"much\" is no size", "500M"]),
        ("limit-upload = \"0\"\n", &["config.toml:1: ", "is no rate"]),
        ("link-timeout = 0\n", &["config.toml:1: ", "is no time"]),
        ("ssh-option = \"Port\"\n", &["config.toml:1: ", "KEY=VALUE"]),
        ("repository = \"sftp://ada:secret@host/x\"\n", &["config.toml:1: ", "password"]),
        ("ssh-config = \"~ada/x\"\n", &["config.toml:1: ", "only your own home"]),
        ("cache-dir = \"\"\n", &["config.toml:1: ", "cache-dir is empty"]),
        ("passphrase = \"secret\"\n", &["config.toml:1: ", "passphrase-file", "passphrase-command"]),
        ("dry-run = true\n", &["config.toml:1: "]),
        ("[backup]\ndry-run = true\n", &["config.toml:2: ", "one run"]),
        ("config = \"x\"\n", &["config.toml:1: ", "one run"]),
        ("json = true\njson = true\n", &["config.toml:2: ", "duplicate"]),
        ("repository = \n", &["config.toml:1: ", "no TOML"]),
        (
            "passphrase-file = \"x\"\npassphrase-command = \"y\"\n",
            &["config.toml:2: ", "exclude each other", "config.toml:1"],
        ),
        // In a profile that is not in use, too.
        ("[profile.x]\n\n[profile.x.gc]\nmax = 1\n", &["config.toml:4: ", "gc has no option max"]),
    ];
    for (text, words) in mistakes {
        kitbag.write(USER, text);
        let outcome = kitbag.run(["generations"]).code(2);
        outcome.says(words);
        assert!(outcome.stdout.is_empty() && !outcome.stderr.contains("secret"), "{}", outcome.stderr);
        // Help is never kept back.
        kitbag.run(["generations", "--help"]).code(0);
    }
}

#[test]
fn a_value_that_the_command_refuses_is_told_where_it_stands() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("file", "x");
    for (text, command, words) in [
        ("[gc]\nmax-repack = \"much\"\n", &["gc"][..], &["config.toml:2: ", "--max-repack"][..]),
        ("[backup]\ncheckpoint = \"x\"\n", &["backup", "file"], &["config.toml:2: ", "--checkpoint"]),
        ("[backup]\nforget = \"x\"\n", &["backup", "file"], &["config.toml:2: "]),
        (
            "[backup]\nexclude-from = \"gone\"\n",
            &["backup", "file"],
            &["config.toml:2: ", ".config/kitbag/gone"],
        ),
        ("[forget]\nkeep = \"x\"\n", &["forget"], &["config.toml:2: "]),
        ("[fsck]\nread-data = true\nsample = \"x\"\n", &["fsck"], &["config.toml:3: ", "--sample"]),
        ("[find]\nmin-size = \"x\"\n", &["find"], &["config.toml:2: ", "--min-size"]),
    ] {
        kitbag.write(USER, text);
        kitbag.run(command).code(2).says(words);
    }
    // What is typed is the person's own.
    let typed = kitbag.run(["find", "--min-size", "y"]).code(2).stderr;
    assert!(typed.starts_with("kitbag: --min-size"), "{typed}");
}

#[test]
fn a_check_tells_all_mistakes_each_in_a_line() {
    let kitbag = Kitbag::new().set("KITBAG_LIMIT_UPLAOD", "1M");
    let text = [
        "limit-upload = \"0\"",
        "repositroy = \"x\"",
        "link-timeout = true",
        "passphrase-file = \"x\"",
        "passphrase-command = \"y\"",
        "[backup]",
        "forget = \"7x\"",
        "checkpoint = \"zz\"",
        "hook-timeout = \"q\"",
        "exclude = [\"fine\", \"bad[\"]",
        "exclude-from = \"gone\"",
        "tag = \"\"",
        "compression = \"9\"",
        "[fsck]",
        "sample = \"x\"",
        "[profile.night]",
        "cache-size = \"much\"",
        "no-cache = true",
        "[profile.night.find]",
        "newer = \"soon\"",
        "min-size = \"1M\"",
        "[profile]",
        "odd = 1",
    ];
    kitbag.write(USER, text.join("\n"));
    kitbag.write("etc/config.toml", "[gc]\nmax-repack = \"much\"\n");
    let outcome = kitbag.run(["config", "check"]).code(2);
    assert_eq!(outcome.stdout, "");
    let lines: Vec<_> = outcome.stderr.lines().collect();
    let expected: &[&[&str]] = &[
        &["config.toml:1: ", "is no rate"],
        &["config.toml:2: ", "did you mean repository?"],
        &["config.toml:3: ", "link-timeout"],
        &["config.toml:5: ", "passphrase-command and passphrase-file exclude each other"],
        &["config.toml:7: ", "7x"],
        &["config.toml:8: ", "--checkpoint \"zz\""],
        &["config.toml:9: ", "--hook-timeout \"q\""],
        &["config.toml:10: ", "bad["],
        &["config.toml:11: ", ".config/kitbag/gone"],
        &["config.toml:12: "],
        &["config.toml:13: ", "compression"],
        &["config.toml:15: ", "--sample \"x\""],
        &["config.toml:17: ", "is no size"],
        &["config.toml:20: ", "--newer \"soon\""],
        &["config.toml:23: ", "[profile.NAME]"],
        &["etc/config.toml:2: ", "--max-repack \"much\""],
        &["KITBAG_LIMIT_UPLAOD", "did you mean"],
    ];
    assert_eq!(lines.len(), expected.len(), "{}", outcome.stderr);
    for (line, words) in lines.iter().zip(expected) {
        assert!(
            line.starts_with("kitbag: ") && words.iter().all(|word| line.contains(word)),
            "{words:?}: {line}"
        );
    }
    // Others tell the first, and only of what they would have to believe.
    kitbag.run(["generations"]).code(2).says(&["config.toml:2: "]);
}

#[test]
fn variables_have_mistakes_too() {
    for (name, value, words) in [
        ("KITBAG_NO_CACHE", "x", &["KITBAG_NO_CACHE: ", "neither true nor false"][..]),
        ("KITBAG_VERBOSE", "much", &["KITBAG_VERBOSE: ", "no number of times"]),
        ("KITBAG_TRANSPORT", "pigeon", &["KITBAG_TRANSPORT: ", "pigeon"]),
        ("KITBAG_CACHE_SIZE", "much", &["KITBAG_CACHE_SIZE: ", "no size"]),
        ("KITBAG_CLIENT_NAME", "a\nb", &["KITBAG_CLIENT_NAME: ", "client's name"]),
    ] {
        let kitbag = Kitbag::new().set(name, value);
        kitbag.run(["generations"]).code(2).says(words);
    }
}

/// Other programs may have variables of their own: only who asks for a check is told.
#[test]
fn a_mistyped_variable_is_found_by_a_check() {
    let kitbag = Kitbag::with_repository().set("KITBAG_LIMIT_UPLAOD", "1M").set("KITBAG_TEST_MUST_RUN", "x");
    kitbag.run(["generations"]).code(0);
    kitbag
        .run(["config", "check"])
        .code(2)
        .says(&["KITBAG_LIMIT_UPLAOD", "did you mean KITBAG_LIMIT_UPLOAD?"]);
}

#[test]
fn unknown_profiles_and_files() {
    let kitbag = Kitbag::new();
    kitbag.run(["generations", "--profile", "x"]).code(2).says(&[
        "no profile x",
        "config.toml",
        "[profile.NAME]",
    ]);
    kitbag.write(USER, "[profile.laptop]\n[profile.server]\n");
    kitbag
        .run(["generations", "--profile", "lapotp"])
        .code(2)
        .says(&["no profile lapotp", "--profile laptop?"]);
    kitbag.run(["generations", "--profile", "x"]).code(2).says(&["there is laptop, server"]);
    kitbag.run(["generations", "--config", "gone.toml"]).code(2).says(&["cannot read", "gone.toml"]);
    kitbag.run(["generations", "--config", "home"]).code(2).says(&["cannot read", "home"]);
    kitbag.write("latin.toml", b"client-name = \"ok\"\n# K\xe4se\n");
    kitbag.run(["generations", "--config", "latin.toml"]).code(2).says(&["latin.toml:2: ", "UTF-8"]);
    kitbag.write("long.toml", "#".repeat((1 << 20) + 1));
    kitbag.run(["generations", "--config", "long.toml"]).code(2).says(&["long.toml", "megabyte"]);
}

#[test]
fn what_others_can_write_is_not_believed() {
    let kitbag = Kitbag::new();
    for file in [USER, "etc/config.toml"] {
        kitbag.write(file, "passphrase-command = \"touch run\"\n");
        for mode in [0o664, 0o646] {
            fs::set_permissions(kitbag.path(file), fs::Permissions::from_mode(mode)).expect("set");
            kitbag.run(["generations", "-r", "x"]).code(2).says(&["written by others", "chmod go-w"]);
        }
        fs::set_permissions(kitbag.path(file), fs::Permissions::from_mode(0o644)).expect("set");
        kitbag.run(["generations", "-r", "x"]).code(10);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(kitbag.path(file), Some(4711), None).expect("given away");
            kitbag.run(["generations", "-r", "x"]).code(2).says(&["belongs to the user 4711", "chown"]);
        }
        fs::remove_file(kitbag.path(file)).expect("removed");
    }
}

#[test]
fn a_variable_is_judged_as_a_file_is() {
    let kitbag = Kitbag::new();
    let run = |name: &str, value: &[u8]| {
        let value = std::ffi::OsStr::from_bytes(value);
        Outcome::of(kitbag.command().env(name, value).args(["config", "show"])).code(2)
    };
    let outcome = run("KITBAG_REPOSITORY", b"sftp://ada:secret@host/x");
    outcome.says(&["KITBAG_REPOSITORY: ", "password"]);
    assert!(!outcome.stdout.contains("secret") && !outcome.stderr.contains("secret"));
    run("KITBAG_LIMIT_UPLOAD", b"\xff").says(&["KITBAG_LIMIT_UPLOAD: ", "it is no text"]);
}

/// A pipe that nobody writes to would be waited for without end.
#[test]
fn a_pipe_is_read_only_where_it_was_named() {
    let kitbag = Kitbag::with_repository();
    kitbag.write(USER, "");
    fs::remove_file(kitbag.path(USER)).expect("removed");
    rustix::fs::mkfifoat(rustix::fs::CWD, kitbag.path(USER), 0o600.into()).expect("made");
    kitbag.run(["generations"]).code(2).says(&["config.toml", "it is a pipe", "--config"]);
}
