//! The life of generations through the command line: forgetting, tags, clients, sessions.

#![expect(clippy::expect_used, reason = "a test says so by failing")]
#![expect(clippy::disallowed_methods, reason = "a test may be told what it must not skip")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::{Kitbag, Outcome, files_below, json_field, manifest};

/// A repository with so many generations of `tree`, oldest first, and their ids.
fn filled(count: usize) -> (Kitbag, Vec<String>) {
    let kitbag = Kitbag::with_repository();
    for number in 0..count {
        kitbag.write("tree/file", format!("contents {number}"));
        kitbag.run(["backup", "tree"]).code(0);
    }
    let ids = ids(&kitbag);
    assert_eq!(ids.len(), count);
    (kitbag, ids)
}

fn ids(kitbag: &Kitbag) -> Vec<String> {
    let list = kitbag.run(["generations"]).code(0).stdout;
    list.lines().map(|line| line.split('\t').next().expect("an id").to_owned()).collect()
}

#[test]
fn generations_are_forgotten_by_name() {
    let (kitbag, made) = filled(4);
    let said = kitbag.run(["forget", &made[1], "latest"]).code(0).stdout;
    assert!(said.contains("forgot 2 generations, 2 kept"), "{said}");
    assert_eq!(ids(&kitbag), [made[0].clone(), made[2].clone()]);
    kitbag.run(["forget", "ffffffffffffffff"]).code(1).says(&["no generation"]);
    kitbag.run(["forget", "yesterday"]).code(2).says(&["yesterday"]);
    kitbag.run(["restore", "--to", "out"]).code(0);
    kitbag.run(["fsck"]).code(0);
}

#[test]
fn a_policy_forgets_the_rest_and_says_why() {
    let (kitbag, made) = filled(3);
    let before = files_below(&kitbag.path("repository"));
    let said = kitbag.run(["forget", "--keep", "1,7d", "--dry-run"]).code(0).stdout;
    assert_eq!(files_below(&kitbag.path("repository")), before);
    assert!(said.contains("would forget 2 generations, 1 kept"), "{said}");
    let line = |id: &str| said.lines().find(|line| line.contains(id)).expect("a line");
    assert!(line(&made[0]).starts_with("forget\t") && line(&made[0]).ends_with("no rule keeps it"), "{said}");
    assert!(line(&made[2]).starts_with("keep\t") && line(&made[2]).ends_with("kept by 1, 7d"), "{said}");
    let json = kitbag.run(["forget", "--keep", "1", "--json"]).code(0).stdout;
    assert_eq!((json_field(&json, "forgotten"), json_field(&json, "kept")), ("2", "1"));
    assert_eq!(ids(&kitbag), made[2..]);
    for wrong in ["0d", "7x", ""] {
        kitbag.run(["forget", "--keep", wrong]).code(2).says(&["72h,7d"]);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (kitbag, made) = filled(1);
    for line in
        [&["forget"][..], &["forget", "latest", "--keep", "7d"], &["forget", "latest", "--all-clients"]]
    {
        kitbag.run(line.iter()).code(2);
    }
    assert_eq!(ids(&kitbag), made);
}

#[test]
fn the_last_generation_of_the_same_roots_is_kept() {
    let (kitbag, made) = filled(2);
    kitbag.write("other/file", "x");
    kitbag.run(["backup", "other"]).code(0);
    let outcome = kitbag.run(["forget", &made[0], &made[1]]).code(1);
    outcome.says(&["would be left", "tree", "--allow-empty"]);
    kitbag.run(["forget", "--keep", "1"]).code(0);
    assert_eq!(ids(&kitbag).len(), 2);
    kitbag.run(["forget", "--allow-empty", &made[1]]).code(0);
    assert_eq!(ids(&kitbag).len(), 1);
}

#[test]
fn other_clients_are_left_alone_unless_told() {
    let (kitbag, _) = filled(2);
    let desktop = ["--client-name", "desktop"];
    for contents in ["one", "two"] {
        kitbag.write("tree/file", contents);
        kitbag.run(["backup", "tree"].iter().chain(&desktop)).code(0);
    }
    let count = |name: &str| {
        let all = kitbag.run(["clients"]).code(0).stdout;
        let line = all.lines().find(|line| line.starts_with(name)).expect("a client").to_owned();
        line.split('\t').nth(1).expect("a count").to_owned()
    };
    kitbag.run(["forget", "--keep", "1"]).code(0);
    assert_eq!((count("laptop"), count("desktop")), ("1 generation".into(), "2 generations".into()));
    kitbag.run(["forget", "--keep", "1", "--all-clients"]).code(0);
    assert_eq!((count("laptop"), count("desktop")), ("1 generation".into(), "1 generation".into()));
}

#[test]
fn tags_pin_until_they_are_removed() {
    let (kitbag, made) = filled(2);
    kitbag.write("tree/file", "moved");
    kitbag.run(["backup", "--tag", "moved out", "--tag", "b", "tree"]).code(0);
    kitbag.write("tree/file", "last");
    kitbag.run(["backup", "tree"]).code(0);
    let tagged = ids(&kitbag)[2].clone();
    kitbag.run(["tag", "add", &made[0], "first"]).code(0);
    let list = kitbag.run(["tag", "list"]).code(0).stdout;
    assert_eq!(list, format!("{}\tfirst\n{tagged}\tb, moved out\n", made[0]));
    assert!(kitbag.run(["generations"]).code(0).stdout.contains("\t[b, moved out]\n"));
    kitbag.run(["forget", "--keep", "1"]).code(0);
    assert_eq!(ids(&kitbag).len(), 3);
    kitbag.run(["forget", &tagged]).code(1).says(&["pinned", "moved out", "kitbag tag remove"]);
    kitbag.run(["tag", "remove", &tagged, "b"]).code(0);
    assert_eq!(
        kitbag.run(["tag", "remove", &tagged, "moved out"]).code(0).stdout,
        format!("{tagged}\tno tags\n")
    );
    kitbag.run(["tag", "add", &made[0], "second"]).code(0);
    kitbag.run(["fsck"]).code(0);
    assert_eq!(kitbag.run(["tag", "list"]).code(0).stdout, format!("{}\tfirst, second\n", made[0]));
    kitbag.run(["forget", "--keep", "1"]).code(0);
    assert_eq!(ids(&kitbag).len(), 2);
    for wrong in ["", "a,b", " a"] {
        kitbag.run(["tag", "add", "latest", wrong]).code(2).says(&["no tag"]);
    }
    // Nothing but records is left below the clients' directories.
    kitbag.run(["tag", "remove", &made[0], "first", "second"]).code(0);
    kitbag.run(["forget", "--keep", "1"]).code(0);
    assert_eq!(files_below(&kitbag.path("repository/generations")).len(), 1);
}

#[test]
fn a_tag_is_reason_enough_for_a_generation() {
    let (kitbag, _) = filled(1);
    kitbag.settle();
    kitbag.run(["backup", "tree"]).code(0);
    kitbag.run(["backup", "--skip-if-unchanged", "tree"]).code(0);
    assert_eq!(ids(&kitbag).len(), 2);
    kitbag.run(["backup", "--skip-if-unchanged", "--tag", "a", "tree"]).code(0);
    assert_eq!(ids(&kitbag).len(), 3);
}

#[test]
fn a_client_is_removed_when_it_is_said_twice() {
    let (kitbag, _) = filled(2);
    kitbag.run(["backup", "--client-name", "desktop", "tree"]).code(0);
    kitbag.run(["tag", "add", "latest", "kept"]).code(0);
    kitbag.run(["remove-client", "laptop"]).code(1).says(&["nobody to ask", "--yes"]);
    kitbag.run(["remove-client", "lptop", "--yes"]).code(1).says(&["lptop", "did you mean", "laptop"]);
    let said = kitbag.run(["remove-client", "laptop", "--yes"]).code(0).stdout;
    assert_eq!(said, "forgot 2 generations of client laptop\n");
    assert_eq!(kitbag.run(["clients"]).code(0).stdout.lines().count(), 1);
    assert_eq!(files_below(&kitbag.path("repository/generations")).len(), 1);
    kitbag.run(["fsck"]).code(0);
}

#[test]
fn a_client_that_is_not_known_is_told() {
    let (kitbag, _) = filled(1);
    kitbag.run(["backup", "--client-name", "desktop", "tree"]).code(0);
    let run = |name: &str| kitbag.run(["generations", "--client-name", name]);
    run("laptpo").code(1).says(&["laptpo", "no generations", "did you mean --client-name laptop?"]);
    run("server").code(1).says(&["server", "no generations", "desktop, laptop"]);
    // Where nobody has made one, there is nothing to be mistaken about.
    assert_eq!(Kitbag::with_repository().run(["generations"]).code(0).stderr, "");
}

#[test]
fn sessions_are_told_and_can_be_revoked() {
    let (kitbag, _) = filled(1);
    let client = files_below(&kitbag.path("repository/generations"))[0].clone();
    let client =
        client.parent().and_then(|dir| dir.file_name()).and_then(|name| name.to_str()).expect("a name");
    assert_eq!(kitbag.run(["sessions"]).code(0).stdout, "");
    kitbag.write(&format!("repository/sessions/{client}.00112233445566aa"), "");
    kitbag.write(&format!("repository/sessions/{client}.00112233445566aa.{}", "0b".repeat(16)), "");
    kitbag.write(&format!("repository/sessions/{}.00112233445566bb", "0c".repeat(16)), "");
    let said = kitbag.run(["sessions"]).code(0).stdout;
    assert!(said.contains("00112233445566aa\tlaptop\tsince "), "{said}");
    assert!(said.contains("by the server's clock") && said.contains("without generations"), "{said}");
    let json = kitbag.run(["sessions", "--json"]).code(0).stdout;
    assert_eq!(json_field(&json, "revoked"), "false");
    kitbag.run(["sessions", "revoke", "00112233445566"]).code(2).says(&["several sessions"]);
    kitbag.run(["sessions", "revoke", "11"]).code(1).says(&["no session 11"]);
    kitbag.run(["sessions", "revoke", "00112233445566aa"]).code(0);
    assert_eq!(files_below(&kitbag.path("repository/sessions")).len(), 1);
}

#[test]
fn a_repository_without_its_configuration_is_damaged() {
    let (kitbag, _) = filled(1);
    fs::remove_file(kitbag.path("repository/config")).expect("removed");
    kitbag.run(["generations"]).code(4).says(&["config", "missing", "copy"]);
    kitbag.run(["backup", "--init", "--encryption", "none", "tree"]).code(4).says(&["missing"]);
}

#[test]
fn a_file_is_no_repository() {
    let kitbag = Kitbag::new();
    kitbag.write("file", "x");
    for place in ["file", "file/below", "absent"] {
        kitbag.run(["generations", "-r", place]).code(10).says(&["no repository", place]);
    }
}

#[test]
fn a_damaged_record_is_left_alone_by_a_policy_and_can_be_named() {
    let (kitbag, made) = filled(3);
    let record = files_below(&kitbag.path("repository/generations"))
        .into_iter()
        .find(|path| path.ends_with(&made[0]))
        .expect("a record");
    fs::set_permissions(&record, fs::Permissions::from_mode(0o600)).expect("writable");
    fs::write(&record, "damaged").expect("written");
    let outcome = kitbag.run(["forget", "--no-cache", "--keep", "1"]).code(4);
    assert!(outcome.stderr.contains(&made[0]), "{}", outcome.stderr);
    assert!(record.exists() && files_below(&kitbag.path("repository/generations")).len() == 2);
    kitbag.run(["forget", "--no-cache", &made[0]]).code(4);
    assert!(!record.exists());
    kitbag.run(["fsck"]).code(0);
}

#[test]
fn a_generation_is_compared_with_the_live_data() {
    let (kitbag, made) = filled(2);
    let said = kitbag.run(["verify"]).code(0).stdout;
    assert!(
        said.starts_with("2 entries of generation ") && said.contains("0 differ; 1 file (10 B) read"),
        "{said}"
    );
    kitbag.run(["verify", "--read-data", "--random", "1"]).code(0);
    let said = kitbag.run(["verify", "-g", &made[0]]).code(3).stdout;
    let line = said.lines().next().expect("a line");
    assert!(line.starts_with("contents") && line.ends_with("tree/file"), "{said}");
    let json = kitbag.run(["verify", "--json", "-g", &made[0]]).code(3).stdout;
    assert!(json.starts_with("{\"path\":") && json.contains("\"differs\":[\"contents\","), "{json}");
    assert_eq!(json_field(json.lines().last().expect("a line"), "different"), "1");
    fs::remove_file(kitbag.path("tree/file")).expect("removed");
    assert!(kitbag.run(["verify"]).code(3).stdout.contains("missing\t"));
    kitbag.run(["verify", "absent"]).code(1).says(&["does not hold absent"]);
}

/// The script of the format's description, which runs on a server without any key.
#[test]
fn bags_can_be_scrubbed_without_a_key() {
    let document =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/format.md")).expect("the document");
    let section = document.split("**Scrubbing without a key.**").nth(1).expect("the section");
    let script = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a script");
    assert!(script.lines().count() <= 10, "{script}");
    if std::process::Command::new("b3sum").arg("--version").output().is_err() {
        let must = std::env::var("KITBAG_TEST_MUST_RUN")
            .is_ok_and(|names| names.split(',').any(|name| name == "b3sum"));
        assert!(!must, "b3sum is missing");
        eprintln!("skipped: b3sum is missing");
        return;
    }
    let (kitbag, _) = filled(3);
    let scrub = || {
        let mut command = std::process::Command::new("sh");
        command.args(["-euc", script]).current_dir(kitbag.path("repository"));
        Outcome::of(&mut command).code(0).stdout
    };
    assert_eq!(scrub(), "");
    let bags = files_below(&kitbag.path("repository/bags"));
    assert!(bags.len() >= 3);
    for (at, bag) in bags.iter().enumerate() {
        let mut bytes = fs::read(bag).expect("readable");
        let place = [40, bytes.len() - 1, bytes.len() - 40][at % 3];
        bytes[place] ^= 4;
        fs::set_permissions(bag, fs::Permissions::from_mode(0o600)).expect("writable");
        fs::write(bag, bytes).expect("written");
    }
    let said = scrub();
    assert_eq!(said.lines().filter(|line| line.ends_with(" is damaged")).count(), bags.len(), "{said}");
}

/// What was damaged is found, taken out of the way, and stored again from the live data.
#[test]
fn a_repository_is_repaired_and_healed() {
    let (kitbag, made) = filled(2);
    kitbag.write("tree/large", vec![7; 3_000_000]);
    kitbag.write("tree/other", (0..200_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    kitbag.run(["backup", "tree"]).code(0);
    let damage = |path: &std::path::Path, at: usize| {
        let mut bytes = fs::read(path).expect("readable");
        bytes[at] ^= 4;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("writable");
        fs::write(path, bytes).expect("written");
    };
    let mut bags = files_below(&kitbag.path("repository/bags"));
    bags.sort_by_key(|bag| fs::metadata(bag).expect("a size").len());
    damage(bags.last().expect("a bag"), 100);
    let records = files_below(&kitbag.path("repository/generations"));
    damage(records.iter().find(|path| path.ends_with(&made[0])).expect("a record"), 60);
    let told = kitbag.run(["fsck", "--read-data"]).code(4).stderr;
    for part in ["/tree/", "needed by generation ", " of client laptop", "--repair", "backup --reread"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let said = kitbag.run(["fsck", "--read-data", "--repair"]).code(4).stdout;
    assert!(
        said.contains("1 file that cannot be read is in the repository's directory quarantine now"),
        "{said}"
    );
    assert_eq!(files_below(&kitbag.path("repository/quarantine")).len(), 1);
    kitbag.run(["backup", "--reread", "tree"]).code(0);
    kitbag.run(["restore", "--to", "out"]).code(0);
    let restored = kitbag.path("out").join(kitbag.path("tree").strip_prefix("/").expect("absolute"));
    assert_eq!(manifest(&restored), manifest(&kitbag.path("tree")));
    assert_eq!(ids(&kitbag).len(), 3);
}

#[test]
fn the_data_are_read_in_parts() {
    let (kitbag, _) = filled(1);
    for number in 0..6_u8 {
        kitbag.write("tree/file", vec![number; 4000]);
        kitbag.run(["backup", "tree"]).code(0);
    }
    let left = || {
        let json = kitbag.run(["fsck", "--json", "--read-data", "--sample", "20%"]).code(0).stdout;
        (json_field(&json, "bytes_left_out").to_owned(), json_field(&json, "bytes_read").to_owned())
    };
    let rounds: Vec<_> = (0..3).map(|_| left()).collect();
    assert!(rounds.iter().all(|(left, _)| left != "0"), "{rounds:?}");
    let kept = files_below(&kitbag.path("home/.cache/kitbag"));
    assert!(kept.iter().any(|path| path.ends_with("scrubbed")), "{kept:?}");
    kitbag.run(["fsck", "--read-data", "--time-budget", "1h"]).code(0);
    for wrong in [["--sample", "5"], ["--sample", "0%"], ["--time-budget", "soon"]] {
        kitbag.run(["fsck", "--read-data"].iter().chain(&wrong)).code(2);
        kitbag.run(["fsck"].iter().chain(&wrong)).code(2);
    }
}

#[test]
fn a_night_in_one_run() {
    let (kitbag, _) = filled(2);
    kitbag.write("tree/file", (0..100_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    kitbag.run(["backup", "tree"]).code(0);
    kitbag.write("tree/file", "small again");
    let said = kitbag.run(["backup", "--forget", "1", "--gc", "tree"]).code(0).stdout;
    assert!(said.contains("forgot 3 generations, 1 kept") && said.contains(" removed\n"), "{said}");
    assert_eq!(ids(&kitbag).len(), 1);
    let bytes: u64 = files_below(&kitbag.path("repository/bags"))
        .iter()
        .map(|bag| fs::metadata(bag).expect("a size").len())
        .sum();
    assert!(bytes < 50_000, "{bytes}");
    kitbag.run(["fsck", "--read-data"]).code(0);
    let json = kitbag.run(["backup", "--json", "--forget", "1", "--gc", "tree"]).code(0).stdout;
    assert_eq!(json_field(&json, "forgotten"), "1");
    assert_eq!(json_field(&kitbag.run(["backup", "--json", "tree"]).code(0).stdout, "bytes_removed"), "null");
    kitbag.run(["backup", "--forget", "much", "tree"]).code(2).says(&["much", "72h"]);
    kitbag.run(["backup", "--forget", "1", "--dry-run", "tree"]).code(2);
}
