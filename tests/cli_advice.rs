//! What is said where something goes wrong that a newcomer meets first: which file, and what to do.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::{Kitbag, Outcome, files_below, json_field};
use obbench::need;
use obbench::sshd::{HOST, Sshd, SshdOptions};

fn locked() -> Kitbag {
    let kitbag = Kitbag::new().set("KITBAG_REPOSITORY", "repository");
    kitbag.secret("old", "correct horse\n");
    kitbag.secret("new", "battery staple\n");
    kitbag.run(["init", "--passphrase-file", "old"]).code(0);
    kitbag
}

#[test]
fn files_that_are_not_there_are_named_without_numbers() {
    let kitbag = locked();
    kitbag.write("file", "x");
    let lines: &[(&[&str], i32, &[&str])] = &[
        (&["generations", "--config", "none.toml"], 2, &["none.toml", "KITBAG_CONFIG"]),
        (&["generations", "--log-file", "/nope/x"], 1, &["/nope/x", "in a directory that is there"]),
        (&["generations", "--passphrase-file", "nope"], 1, &["passphrase file nope", "name one"]),
        (&["generations", "--key-file", "nope"], 1, &["key file nope", "name one"]),
        (&["init", "-r", "a/b/c", "--encryption", "none"], 1, &["make the directory", "/a first"]),
        (&["serve", "--full", "--root", "nix"], 1, &["cannot serve nix", "--root"]),
    ];
    for (line, code, words) in lines {
        let outcome = kitbag.run(line.iter()).code(*code);
        outcome.says(words);
        for noise in ["os error", "entity not found"] {
            assert!(!outcome.stderr.contains(noise), "{}", outcome.stderr);
        }
    }
    let kitbag = Kitbag::with_repository();
    kitbag.write("file", "x");
    let made = kitbag.run(["backup", "file", "--metrics", "/nix/k.prom"]).code(3);
    made.says(&["cannot write the metrics to /nix/k.prom: No such file or directory; ", "--metrics"]);
    kitbag.run(["restore", "--to", "file"]).code(1).says(&["into file: it is not a directory", "--to"]);
}

#[test]
fn what_a_line_lacks_is_shown_by_an_example() {
    let kitbag = Kitbag::with_repository();
    for (line, part) in [
        ("forget", "--keep 7d"),
        ("backup", "[backup]"),
        ("snapshots", "kitbag generations"),
        ("check", "kitbag fsck"),
        ("prune", "kitbag gc"),
    ] {
        let outcome = kitbag.run([line]).code(2);
        assert!(outcome.stderr.contains("tip: ") && outcome.stderr.contains(part), "{}", outcome.stderr);
    }
    let monitor = kitbag.run(["last-backup-age"]).code(3).stdout;
    assert!(monitor.starts_with("UNKNOWN - ") && monitor.contains("not provided: --warn <AGE>"), "{monitor}");
    assert_eq!(monitor.lines().count(), 1, "{monitor}");
    for (line, meant) in [
        (["latest", "/docs"], "kitbag diff latest live /docs"),
        (["/docs", "live"], "diff latest live /docs"),
    ] {
        let line = ["diff"].iter().chain(&line);
        kitbag.run(line).code(2).says(&["/docs does not name a generation", meant]);
    }
}

#[test]
fn a_passphrase_file_is_for_its_owner() {
    let kitbag = locked();
    let open = |mode| {
        fs::set_permissions(kitbag.path("old"), fs::Permissions::from_mode(mode)).expect("changed");
        kitbag.run(["generations", "--passphrase-file", "old"])
    };
    assert_eq!(open(0o640).code(0).stderr, "", "a group may be meant to");
    open(0o644).code(0).says(&["passphrase file old can be read by everybody", "chmod 600 old"]);
    // What umask 002 makes, where the group is the user's own.
    open(0o664)
        .code(0)
        .says(&["passphrase file old can be changed by its group and read by", "chmod 600 old"]);
    open(0o660).code(0).says(&["passphrase file old can be changed by its group;", "chmod 600 old"]);
    open(0o602).code(1).says(&["passphrase file old can be changed by everybody", "chmod 600 old"]);
}

#[test]
fn whoever_changes_a_passphrase_hears_which_file_is_out_of_date() {
    let kitbag = locked();
    kitbag.write("home/.config/kitbag/config.toml", "passphrase-file = \"../../../old\"\n");
    let changed = kitbag.run(["key", "change", "--new-passphrase-file", "new"]).code(0);
    changed.says(&["/old no longer opens the repository", "write the new one into it"]);
    kitbag.run(["generations"]).code(12);
    let add = Outcome::of(kitbag.command().env("KITBAG_PASSPHRASE", "battery staple").args(["key", "add"]));
    add.code(1).says(&["cannot ask for the new passphrase", "--new-passphrase-file"]);
}

#[test]
fn roots_are_shown_where_generations_are() {
    let kitbag = Kitbag::with_repository();
    for root in ["docs", "photos"] {
        kitbag.write(&format!("{root}/file"), "x");
        kitbag.run(["backup", root]).code(0);
    }
    let listed = kitbag.run(["generations"]).code(0).stdout;
    for (line, root) in listed.lines().zip(["docs", "photos"]) {
        let root = kitbag.path(root);
        assert!(line.contains("1 file, ") && line.ends_with(root.to_str().expect("UTF-8")), "{line}");
    }
    // The last one is of one of them.
    let restored = kitbag.run(["restore", "--to", "out"]).code(0);
    restored.says(&["latest is of ", "/photos only; ", "/docs was saved by itself: -g "]);
    let first = listed.split('\t').next().expect("an id");
    assert!(restored.stderr.contains(first), "{}", restored.stderr);
    assert_eq!(kitbag.run(["restore", "--to", "out", "-g", first]).code(0).stderr, "");
    let planned = kitbag.run(["forget", "--keep", "1", "--dry-run"]).code(0).stdout;
    assert_eq!(planned.lines().filter(|line| line.contains("/docs\t")).count(), 1, "{planned}");
}

#[test]
fn many_roots_are_named_on_demand() {
    let kitbag = Kitbag::with_repository();
    let roots = ["a", "b", "c", "d", "e"];
    roots.iter().for_each(|root| kitbag.write(&format!("{root}/file"), "x"));
    kitbag.run(["backup"].iter().chain(&roots)).code(0);
    let (short, all) = (kitbag.run(["generations"]).stdout, kitbag.run(["generations", "-v"]).stdout);
    assert!(short.contains("/c and 2 more") && !short.contains("/d"), "{short}");
    assert!(roots.iter().all(|root| all.contains(&format!("/{root}"))), "{all}");
}

#[test]
fn damage_is_told_with_what_helps_now() {
    let kitbag = Kitbag::with_repository();
    // Blocks of noise: nothing of it is stored beside the names.
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    });
    kitbag.write("docs/file", noise.take(200_000).collect::<Vec<u8>>());
    kitbag.run(["backup", "docs"]).code(0);
    let bags = files_below(&kitbag.path("repository/bags"));
    let bag = bags.iter().max_by_key(|bag| bag.metadata().expect("there").len()).expect("a bag");
    let mut bytes = fs::read(bag).expect("read");
    bytes[100_000] ^= 1;
    fs::set_permissions(bag, fs::Permissions::from_mode(0o600)).expect("writable");
    fs::write(bag, bytes).expect("written");
    let blind = kitbag.run(["fsck"]).code(0).stdout;
    assert!(blind.contains("sound") && blind.contains("--read-data reads"), "{blind}");
    let check = || kitbag.run(["fsck", "--read-data"]);
    check().code(4).says(&["kitbag backup --reread"]);
    kitbag.run(["backup", "--reread", "docs"]).code(0);
    let told = check().code(4);
    told.says(&["kitbag forget", "kitbag gc", "later generations do without it", "--read-data --repair"]);
    assert!(!told.stderr.contains("--reread"), "what has helped is not advised again: {}", told.stderr);
    kitbag.run(["fsck", "--read-data", "--repair"]).code(4);
    let told = check().code(4);
    told.says(&["kitbag forget", "kitbag gc", "later generations do without it"]);
    assert!(!told.stderr.contains("--repair"), "no index offers it any more: {}", told.stderr);
    kitbag.run(["forget", "latest~1"]).code(0);
    kitbag.run(["gc"]).code(0);
    let sound = check().code(0).stdout;
    assert!(sound.starts_with("the repository is sound;"), "{sound}");
}

#[test]
fn profiles_that_are_there_are_not_said_to_be_in_force() {
    let kitbag = Kitbag::with_repository();
    kitbag.write(
        "home/.config/kitbag/config.toml",
        "[backup]\nroots = [\"~\"]\n[profile.photos]\nquiet = true\n",
    );
    let shown = kitbag.run(["config", "show"]).code(0).stdout;
    assert!(shown.contains("config.toml has the profile photos\n"), "{shown}");
    assert!(shown.contains("/home\"]"), "no slash at the end of a home: {shown}");
}

#[test]
fn sshd_a_printed_key_names_the_server_itself() {
    if !need::program("sshd") {
        return;
    }
    let server = Sshd::start(SshdOptions::default()).expect("a server");
    let kitbag = Kitbag::new();
    kitbag.secret("old", "correct horse\n");
    let (url, config) = (server.url(&kitbag.path("repository")), server.ssh_config());
    let common = ["-r", &url, "--ssh-config", config.to_str().expect("UTF-8"), "--passphrase-file", "old"];
    kitbag.run(["init"].iter().chain(&common)).code(0);
    let paper = kitbag.run(["key", "export"].iter().chain(&common)).code(0).stdout;
    let port = server.address().port();
    assert!(paper.contains(&format!("@127.0.0.1:{port}/")) && !paper.contains(HOST), "{paper}");
    let json = Outcome::of(kitbag.command().args(["key", "export", "--json"]).args(common)).code(0).stdout;
    assert!(json_field(&json, "at").contains(&format!("127.0.0.1:{port}")), "{json}");
    assert!(json.contains("\"way\":null"), "{json}");
}

#[test]
fn sshd_a_forced_command_that_fails() {
    if !need::program("sshd") {
        return;
    }
    let server = Sshd::start(SshdOptions::default()).expect("a server");
    let kitbag = Kitbag::new();
    let public = fs::read_to_string(server.identity().with_extension("pub")).expect("a key");
    let forced = format!("restrict,command=\"/nonexistent/kitbag serve --full --root /\" {public}");
    fs::write(server.authorized_keys(), forced).expect("written");
    let (url, config) = (server.url(&kitbag.path("repository")), server.ssh_config());
    for transport in ["ssh2", "openssh"] {
        let line = ["generations", "-r", &url, "--transport", transport, "--ssh-config"];
        let outcome = kitbag.run(line.iter().copied().chain([config.to_str().expect("UTF-8")]));
        outcome.code(1).says(&["forced command", "authorized_keys"]);
    }
}
