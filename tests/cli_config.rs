//! Configuration files: what holds, and where it was written.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs;

use common::{Kitbag, files_below};

const USER: &str = "home/.config/kitbag/config.toml";
const SYSTEM: &str = "etc/config.toml";

/// The line of `config show` for an option, its value and the end of where it was written.
fn shown(kitbag: &Kitbag, arguments: &[&str], option: &str) -> Option<(String, String)> {
    let all = [&["config", "show"], arguments].concat();
    let show = kitbag.run(all).code(0).stdout;
    let line = show.lines().find_map(|line| line.strip_prefix(&format!("{option} = ")))?;
    let (value, from) = line.split_once("  # ").expect("an origin");
    let from = from.rsplit('/').next().expect("a name");
    Some((value.to_owned(), from.to_owned()))
}

fn some(value: &str, from: &str) -> Option<(String, String)> {
    Some((value.to_owned(), from.to_owned()))
}

#[test]
fn each_level_wins_over_those_below_it() {
    let kitbag = Kitbag::new();
    let look = |kitbag: &Kitbag, arguments: &[&str]| shown(kitbag, arguments, "limit-upload");
    kitbag.write(SYSTEM, "\nlimit-upload = \"1M\"\n");
    assert_eq!(look(&kitbag, &[]), some("\"1M\"", "config.toml:2"));
    kitbag.write(USER, "limit-upload = \"2M\"\n[profile.home]\nlimit-upload = \"3M\"\n");
    assert_eq!(look(&kitbag, &[]), some("\"2M\"", "config.toml:1"));
    assert_eq!(look(&kitbag, &["--profile", "home"]), some("\"3M\"", "config.toml:3, profile home"));
    kitbag.write(SYSTEM, "[profile.home]\nlimit-upload = \"1M\"\n[profile.other]\nlimit-upload = \"7M\"\n");
    assert_eq!(look(&kitbag, &["--profile", "home"]), some("\"3M\"", "config.toml:3, profile home"));
    assert_eq!(look(&kitbag, &["--profile", "other"]), some("\"7M\"", "config.toml:4, profile other"));
    let kitbag = kitbag.set("KITBAG_LIMIT_UPLOAD", "4M").set("KITBAG_PROFILE", "home");
    assert_eq!(look(&kitbag, &[]), some("\"4M\"", "KITBAG_LIMIT_UPLOAD"));
    assert_eq!(look(&kitbag, &["--limit-upload", "5M"]), some("\"5M\"", "command line"));
    let link = shown(&kitbag, &["--link-timeout", "9"], "link-timeout");
    assert_eq!(link, some("\"9\"", "command line"));
}

#[test]
fn a_profile_says_all_that_a_backup_needs() {
    let kitbag = Kitbag::new();
    kitbag.write("home/tree/file", "x");
    kitbag.write("home/tree/cache.o", "x");
    kitbag.write(
        USER,
        "[profile.laptop]\nrepository = \"~/repository\"\nclient-name = \"other\"\n\
         [profile.laptop.backup]\nroots = [\"~/tree\"]\nexclude = [\"*.o\"]\ninit = true\nencryption = \"none\"\n",
    );
    // The harness names a client by a variable, which wins.
    kitbag.run(["backup"]).code(2);
    kitbag.run(["--profile", "laptop", "backup"]).code(0);
    let listed = kitbag.run(["ls", "--profile", "laptop"]).code(0).stdout;
    assert!(listed.contains("tree/file") && !listed.contains("cache.o"), "{listed}");
    kitbag.run(["backup", "--profile", "laptop", "--client-name", "third", "--dry-run"]).code(0);
    // What is typed replaces a list.
    kitbag.run(["backup", "--profile", "laptop", "--exclude", "*.x"]).code(0);
    let listed = kitbag.run(["ls", "--profile", "laptop"]).code(0).stdout;
    assert!(listed.contains("cache.o"), "{listed}");
    kitbag.run(["backup", "--profile", "laptop", "home/.config"]).code(0);
    let listed = kitbag.run(["ls", "--profile", "laptop"]).code(0).stdout;
    assert!(!listed.contains("tree/file") && listed.contains("config.toml"), "{listed}");
}

#[test]
fn paths_go_by_where_the_file_is() {
    let kitbag = Kitbag::new();
    kitbag.write(
        "elsewhere/night.toml",
        "repository = \"repository\"\ncache-dir = \"./cache\"\nssh-config = \"~/ssh\"\n",
    );
    kitbag.run(["init", "--encryption", "none", "--config", "elsewhere/night.toml"]).code(0);
    assert!(kitbag.path("elsewhere/repository/config").is_file());
    assert!(!files_below(&kitbag.path("elsewhere/cache")).is_empty());
    let show = kitbag.run(["--config", "elsewhere/night.toml", "config", "show"]).code(0).stdout;
    assert!(show.contains(&format!("cache-dir = {:?}", kitbag.path("elsewhere/cache"))), "{show}");
    assert!(show.contains(&format!("ssh-config = {:?}", kitbag.path("home/ssh"))), "{show}");
    // Patterns and names are none.
    kitbag.write(
        USER,
        "repository = \"sftp://host/x\"\n[backup]\nexclude = [\"~/x\"]\nexclude-if-present = \".no\"\n",
    );
    let show = kitbag.run(["config", "show"]).code(0).stdout;
    for line in ["repository = \"sftp://host/x\"", "exclude = [\"~/x\"]", "exclude-if-present = [\".no\"]"] {
        assert!(show.contains(line), "{show}");
    }
}

#[test]
fn what_excludes_something_displaces_it() {
    let kitbag = Kitbag::new().set("KITBAG_REPOSITORY", "repository");
    kitbag.secret("right", "right\n");
    kitbag.run(["init", "--passphrase-file", "right"]).code(0);
    kitbag.write(USER, "cache-size = \"1G\"\npassphrase-command = \"echo wrong\"\nverbose = 2\n");
    kitbag.run(["generations", "--no-cache"]).code(12);
    let outcome = kitbag.run(["generations", "--no-cache", "--passphrase-file", "right", "-q"]).code(0);
    assert_eq!(outcome.stderr, "");
    // A variable, too, and the one that is no option.
    for (name, value) in [
        ("KITBAG_PASSPHRASE_FILE", "right"),
        ("KITBAG_PASSPHRASE", "right"),
        ("KITBAG_PASSPHRASE_COMMAND", "cat right"),
    ] {
        let mut command = kitbag.command();
        common::Outcome::of(command.env(name, value).args(["generations", "-q"])).code(0);
        let show =
            common::Outcome::of(kitbag.command().env(name, value).args(["config", "show"])).code(0).stdout;
        assert!(show.contains(name) && !show.contains("echo wrong"), "{show}");
        assert!(name != "KITBAG_PASSPHRASE" || !show.contains("right"), "{show}");
    }
    let mut command = kitbag.command();
    command.env("KITBAG_PASSPHRASE", "wrong").args(["generations", "-q", "--passphrase-file", "right"]);
    common::Outcome::of(&mut command).code(0);
    let mut command = kitbag.command();
    command.envs([("KITBAG_PASSPHRASE", "x"), ("KITBAG_PASSPHRASE_FILE", "right")]).arg("generations");
    common::Outcome::of(&mut command).code(2).says(&["KITBAG_PASSPHRASE", "exclude each other"]);
}

#[test]
fn what_is_typed_without_a_name_displaces_it_too() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("tree/file", "contents");
    kitbag.run(["backup", "tree"]).code(0);
    kitbag.run(["backup", "tree"]).code(0);
    kitbag.write(USER, "[forget]\nkeep = \"7d\"\nall-clients = true\n");
    let said = kitbag.run(["forget", "--dry-run"]).code(0).stdout;
    assert!(said.contains("kept by 7d"), "{said}");
    kitbag.run(["forget", "latest"]).code(0);
    assert_eq!(kitbag.run(["generations"]).code(0).stdout.lines().count(), 1);
    kitbag.write(USER, "[forget]\ngenerations = \"latest\"\n");
    kitbag.run(["forget", "--dry-run"]).code(2).says(&["config.toml:2: ", "one run"]);
}

#[test]
fn a_flag_is_taken_back() {
    let kitbag = Kitbag::new().set("KITBAG_REPOSITORY", "repository");
    kitbag.run(["init", "--encryption", "none"]).code(0);
    kitbag.write(USER, "json = true\nno-cache = true\n[backup]\none-file-system = true\n");
    let is_json = |arguments: &[&str]| {
        kitbag
            .run([&["sessions"][..], arguments, &["backup"]].concat()[..arguments.len() + 1].iter())
            .code(0);
        kitbag.run([&["key", "list"], arguments].concat()).code(0).stdout.starts_with('{')
    };
    assert!(is_json(&[]) && !is_json(&["--json=false"]) && is_json(&["--json=true"]));
    let mut command = kitbag.command();
    command.env("KITBAG_JSON", "no").args(["key", "list"]);
    assert!(!common::Outcome::of(&mut command).code(0).stdout.starts_with('{'));
    let dir = shown(&kitbag, &["--json=false", "--no-cache=false", "--cache-dir", "c"], "cache-dir");
    assert_eq!(dir, some("\"c\"", "command line"));
    kitbag.write("file", "x");
    kitbag.run(["backup", "file", "--one-file-system=false"]).code(0);
    kitbag.run(["backup", "file", "--frobnicate=false"]).code(2);
}

#[test]
fn what_needs_something_else_waits_for_it() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("file", "x");
    kitbag.write(USER, "[backup]\nencryption = \"none\"\nforget = \"7d\"\ngc = true\n[fsck]\nsample = \"5%\"\n[forget]\nkeep = \"7d\"\n");
    kitbag.run(["backup", "file"]).code(0);
    kitbag.run(["backup", "file", "--dry-run"]).code(0);
    kitbag.run(["fsck"]).code(0);
    kitbag.run(["fsck", "--read-data"]).code(0);
    kitbag.run(["forget"]).code(0);
    assert_ne!(files_below(&kitbag.path("repository/generations")).len(), 0);
    kitbag.run(["forget", "latest", "--allow-empty"]).code(0);
    assert_eq!(files_below(&kitbag.path("repository/generations")).len(), 0);
}

#[test]
fn everything_is_shown_as_json() {
    let kitbag = Kitbag::new().set("KITBAG_VERBOSE", "1").set("KITBAG_SSH_OPTION", "Port=1\nUser=x");
    kitbag.write(USER, "[profile.a]\nno-cache = true\n[profile.a.key.add]\nlabel = \"safe\"\n");
    let show = kitbag.run(["config", "show", "--json", "--profile", "a"]).code(0).stdout;
    let path = kitbag.path(USER);
    for line in [
        r#"{"command":null,"option":"verbose","value":1,"from":"variable","variable":"KITBAG_VERBOSE","file":null,"line":null,"profile":null}"#,
        r#""option":"ssh-option","value":["Port=1","User=x"]"#,
        &format!(
            r#"{{"command":null,"option":"no-cache","value":true,"from":"file","variable":null,"file":{path:?},"line":2,"profile":"a"}}"#
        ),
        &format!(
            r#"{{"command":"key add","option":"label","value":"safe","from":"file","variable":null,"file":{path:?},"line":4,"profile":"a"}}"#
        ),
    ] {
        assert!(show.contains(line), "{line} is not in {show}");
    }
    // It is a file like those that were read.
    let show = kitbag.run(["config", "show", "--profile", "a"]).code(0).stdout;
    kitbag.write("copy.toml", &show);
    assert_eq!(
        kitbag.run(["config", "show", "--config", "copy.toml"]).code(0).stdout.matches(" = ").count(),
        5
    );
}

#[test]
fn files_are_checked() {
    let kitbag = Kitbag::new();
    kitbag.write(USER, "[profile.a]\n[profile.b]\n");
    let said = kitbag.run(["config", "check"]).code(0).stdout;
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].ends_with("config.toml: sound, with the profiles a, b"), "{said}");
    assert!(lines[1].ends_with("etc/config.toml: not there"), "{said}");
    let json = kitbag.run(["config", "check", "--json"]).code(0).stdout;
    assert!(json.contains(r#""is_there":true,"profiles":["a","b"]"#), "{json}");
    kitbag.write(USER, "[profile.a]\nno-cache = true\ncache-size = \"1G\"\n");
    kitbag.run(["config", "check"]).code(2).says(&["config.toml:3", "no-cache", "config.toml:2"]);
    kitbag.run(["config", "show"]).code(0);
    fs::remove_file(kitbag.path(USER)).expect("removed");
}

/// The example holds each option there is, and has no mistake when what it shows is taken at its word.
#[test]
fn the_example_is_complete_and_right() {
    let example = include_str!("../doc/config.example.toml");
    assert!(example.lines().all(|line| line.is_empty() || line.starts_with('#')), "something is set");
    let taken: Vec<_> = example
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with([' ', '#'])).unwrap_or_default())
        .collect();
    let kitbag = Kitbag::new();
    kitbag.write("example.toml", taken.join("\n"));
    kitbag.write("home/.config/kitbag/exclude", "*.o\n");
    kitbag.run(["config", "check", "--config", "example.toml"]).code(0);
    let mut section = String::new();
    let mut there = Vec::new();
    for line in example.lines().map(|line| line.trim_start_matches('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name} ");
        } else if let Some((key, _)) = line.split_once(" = ") {
            there.push(format!("{section}{key}"));
        }
    }
    let missing: Vec<_> = settable().into_iter().filter(|one| !there.contains(one)).collect();
    assert!(missing.is_empty(), "doc/config.example.toml lacks {missing:#?}");
}

/// `option` or `command option`, of all that can be set.
fn settable() -> Vec<String> {
    use clap::CommandFactory as _;
    let definition = kitbag::cli::config::definition::Definition::new(kitbag::cli::args::Args::command());
    let sections = [vec![Vec::new()], definition.leaves()].concat();
    let of = |path: &Vec<String>| {
        let options = definition.options(path).into_iter().filter(|option| option.is_settable);
        let name = |option: &str| match path.is_empty() {
            true => option.to_owned(),
            false => format!("{} {option}", path.join(".")),
        };
        options.map(|option| name(&option.key)).collect::<Vec<_>>()
    };
    sections.iter().flat_map(of).collect()
}
