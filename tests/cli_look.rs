//! `find`, `diff`, `export` and the long form of `ls`.

#![allow(clippy::expect_used, reason = "a test says so by failing")]

mod common;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Kitbag, Outcome, json_field, manifest};

/// Two generations: in between a file was changed, one was moved, one was made, and one got another mode.
fn two_nights() -> Kitbag {
    let kitbag = Kitbag::with_repository();
    kitbag.write("live/docs/letter.txt", "first\n");
    kitbag.write("live/docs/same.txt", "the same\n");
    kitbag.write("live/docs/old.txt", "moved\n");
    kitbag.write("live/mode", "x");
    kitbag.settle();
    kitbag.run(["backup", "live"]).code(0);
    kitbag.settle();
    kitbag.write("live/docs/letter.txt", "second\n");
    run(&kitbag, "mv live/docs/old.txt live/docs/new.txt");
    kitbag.write("live/more/large", vec![b'x'; 2 << 20]);
    run(&kitbag, "chmod 600 live/mode");
    kitbag.settle();
    kitbag.run(["backup", "live"]).code(0);
    kitbag
}

fn run(kitbag: &Kitbag, script: &str) {
    let status = Command::new("bash").args(["-ec", script]).current_dir(kitbag.path("")).status();
    assert!(status.expect("bash").success(), "{script}");
}

/// The lines, with the live data's directory taken off their paths.
fn lines(kitbag: &Kitbag, outcome: &Outcome) -> Vec<String> {
    let top = kitbag.path("live").to_str().expect("UTF-8").to_owned();
    outcome.stdout.lines().map(|line| line.replace(&top, "")).collect()
}

#[test]
fn find_tells_each_state_and_who_has_it() {
    let kitbag = two_nights();
    let found = |arguments: &[&str]| {
        let outcome = kitbag.run(["find", "--json"].iter().chain(arguments)).code(0);
        let path = |line: &str| {
            let path = json_field(line, "path").rsplit('/').next().expect("a name").to_owned();
            let count = line.split("\"generations\":[").nth(1).expect("listed").split(',').count();
            format!("{path} {count}")
        };
        outcome.stdout.lines().map(path).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(found(&["*.txt"]), "letter.txt 1, letter.txt 1, new.txt 1, old.txt 1, same.txt 2");
    assert_eq!(found(&["SAME*", "-i"]), "same.txt 2");
    assert_eq!(found(&["docs/[no]*.txt"]), "new.txt 1, old.txt 1");
    assert_eq!(found(&["--min-size", "1M"]), "large 1");
    assert_eq!(found(&["--type", "directory", "--path", "docs"]), "docs 1, docs 1");
    assert_eq!(found(&["*.txt", "--generation", "latest", "--max-size", "6"]), "new.txt 1");
    assert_eq!(found(&["*.txt", "--newer", "1d"]), found(&["*.txt"]));
    assert_eq!(found(&["*.txt", "--older", "1d"]), "");
    assert_eq!(found(&["mode"]), "mode 1, mode 1");

    let words = kitbag.run(["find", "same.txt"]).code(0).stdout;
    assert!(words.contains("in 2 of 2 generations"), "{words}");
    kitbag.run(["find", "["]).code(2).says(&["\"[\""]);
    kitbag.run(["find", "--newer", "yesterday"]).code(2).says(&["--newer", "7d"]);
    kitbag.run(["find", "--path", "nowhere"]).code(1).says(&["nowhere"]);
}

#[test]
fn diff_of_two_generations() {
    let kitbag = two_nights();
    let outcome = kitbag.run(["diff", "latest~1", "latest"]).code(1);
    let expected = [
        ": mtime",
        "/docs: mtime",
        "/docs/letter.txt: contents, mtime",
        "/docs/new.txt",
        "/docs/old.txt",
        "/mode: mode",
        "/more",
        "/more/large",
    ];
    let letters = "***+-*++";
    let expected: Vec<_> =
        letters.chars().zip(expected).map(|(letter, line)| format!("{letter} {line}")).collect();
    assert_eq!(lines(&kitbag, &outcome), expected);
    assert_eq!(kitbag.run(["diff", "latest", "latest"]).code(0).stdout, "");
    let json = kitbag.run(["diff", "--json", "latest~1", "latest", "docs/letter.txt"]).code(1).stdout;
    assert_eq!(json.lines().count(), 1);
    assert!(json.contains("\"change\":\"changed\",\"what\":[\"contents\",\"mtime\"]"), "{json}");
    kitbag.run(["diff", "latest~9", "latest"]).code(1).says(&["latest~9"]);
    kitbag.run(["diff", "latest", "latest", "nowhere"]).code(1).says(&["nowhere"]);
}

#[test]
fn diff_with_the_live_data() {
    let kitbag = two_nights();
    assert_eq!(kitbag.run(["diff", "latest"]).code(0).stdout, "");
    let outcome = kitbag.run(["diff", "latest~1"]).code(1);
    assert_eq!(outcome.stdout, kitbag.run(["diff", "latest~1", "latest"]).code(1).stdout);

    // What only looks changed is read, and found to be the same; what only looks the same is found by reading.
    run(
        &kitbag,
        "cd live; touch -r docs/same.txt ../time; cp docs/same.txt ../copy; cat ../copy > docs/same.txt; touch -r ../time docs/same.txt",
    );
    assert_eq!(kitbag.run(["diff", "latest", "--reread"]).code(0).stdout, "");
    run(&kitbag, "cd live; printf 'THE same\\n' > docs/same.txt; touch -r ../time docs/same.txt");
    assert_eq!(lines(&kitbag, &kitbag.run(["diff", "latest"]).code(1)), ["* /docs/same.txt: contents"]);

    run(
        &kitbag,
        "cd live; rm -r more; mkdir mode2; ln -s x link; rm mode; mkdir mode; touch mode/inside; setfattr -n user.a -v b docs",
    );
    let outcome = kitbag.run(["diff", "latest", "live", "mode", "more", "docs"]).code(1);
    let expected = [
        "* /docs: xattrs",
        "* /docs/same.txt: contents",
        "* /mode: kind",
        "+ /mode/inside",
        "- /more",
        "- /more/large",
    ];
    assert_eq!(lines(&kitbag, &outcome), expected);
    let all = lines(&kitbag, &kitbag.run(["diff", "latest"]).code(1));
    assert!(all.contains(&"+ /link".to_owned()) && all.contains(&"+ /mode2".to_owned()), "{all:?}");
}

#[test]
fn diff_does_not_miss_what_was_left_out() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("live/keep", "x");
    kitbag.write("live/junk.o", "x");
    kitbag.write("live/cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    kitbag.write("live/cache/junk", "x");
    kitbag.settle();
    kitbag.run(["backup", "--exclude", "*.o", "--exclude-caches", "live"]).code(0);
    assert_eq!(kitbag.run(["diff", "latest"]).code(0).stdout, "");
}

#[test]
fn diff_reads_no_contents_from_the_repository() {
    let kitbag = two_nights();
    run(&kitbag, "touch live/more/large");
    // Directories are in the cache; chunks have names that tell what is in them.
    fs::remove_dir_all(kitbag.path("repository/bags")).expect("removed");
    assert_eq!(lines(&kitbag, &kitbag.run(["diff", "latest"]).code(1)), ["* /more/large: mtime"]);
}

#[test]
fn export_is_what_tar_takes() {
    let kitbag = Kitbag::with_repository();
    run(
        &kitbag,
        r#"
        mkdir -p live/sub/deeper live/empty; cd live
        echo one > file; : > nothing; head -c 3000000 /dev/urandom > large
        truncate -s 20M sparse; printf here | dd of=sparse bs=1 seek=7000000 conv=notrunc status=none
        truncate -s 3M hole; printf end | dd of=tail bs=1 seek=5000000 conv=notrunc status=none
        ln file link; ln file sub/link; ln -s file symlink; mkfifo fifo
        ln -s "$(head -c 150 /dev/zero | tr '\0' t)" long-link
        printf x > "$(printf 'odd\377\n name')"; printf y > "$(head -c 255 /dev/zero | tr '\0' n)"
        mkdir -p "$(head -c 120 /dev/zero | tr '\0' d)/$(head -c 120 /dev/zero | tr '\0' e)"
        echo deep > "$(head -c 120 /dev/zero | tr '\0' d)/$(head -c 120 /dev/zero | tr '\0' e)/file"
        if [ "$(id -u)" = 0 ]; then mknod char c 1 3; mknod block b 7 200; chown 12345:4000000000 sub; fi
        chmod 6755 file; setfattr -n user.colour -v green file; setfattr -n user.a=b -v c sub
        setfacl -m u:1:r-- large; setfacl -d -m g:2:rwx sub
        touch -d '1960-01-02 03:04:05.678901234' file; touch -d '2150-01-01 00:00:00.000000001' large
        touch -h -d '1999-12-31 23:59:59.999999999' symlink; touch -d '2002-02-02 02:02:02.020202' sub empty .
        "#,
    );
    kitbag.run(["backup", "live"]).code(0);
    let archive = kitbag.path("files.tar");
    let mut command = kitbag.command();
    command.arg("export").stdout(File::create(&archive).expect("created"));
    assert!(command.status().expect("it runs").success());
    fs::create_dir(kitbag.path("out")).expect("made");
    run(
        &kitbag,
        "tar -x -p --same-owner --numeric-owner --xattrs --xattrs-include='*' --acls -C out -f files.tar 2>tar.err; cat tar.err",
    );
    let live = kitbag.path("live");
    let out = kitbag.path("out").join(live.strip_prefix("/").expect("absolute"));
    assert!(manifest(&live) == manifest(&out), "the manifests differ: {}", differences(&live, &out));
    // Holes are no data in the archive.
    assert!(fs::metadata(&archive).expect("there").len() < 4_000_000);
}

fn differences(live: &Path, out: &Path) -> String {
    let (one, other) = (manifest(live), manifest(out));
    let lines = one.lines().zip(other.lines()).filter(|(one, other)| one != other);
    lines.take(10).map(|(one, other)| format!("\n{one}\n{other}")).collect()
}

#[test]
fn export_of_a_part_and_of_nothing() {
    let kitbag = two_nights();
    let listed = |arguments: &[&str]| {
        let mut command = kitbag.command();
        let mut export =
            command.arg("export").args(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
        let tar = Command::new("tar").arg("-t").stdin(export.stdout.take().expect("piped")).output();
        assert!(export.wait().expect("ours").success());
        String::from_utf8(tar.expect("tar").stdout).expect("UTF-8")
    };
    let names = listed(&["docs", "--generation", "latest~1"]);
    let names: Vec<_> = names.lines().filter_map(|line| line.split("live/").nth(1)).collect();
    assert_eq!(names, ["docs/", "docs/letter.txt", "docs/old.txt", "docs/same.txt"]);
    kitbag.run(["export", "nowhere"]).code(1).says(&["nowhere"]);
}

#[test]
fn ls_tells_all_when_asked() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("live/file", "x");
    run(&kitbag, "setfattr -n user.colour -v green live/file; ln live/file live/link");
    kitbag.run(["backup", "live"]).code(0);
    let short = kitbag.run(["ls", "file"]).code(0).stdout;
    assert_eq!(short.lines().count(), 1);
    let long = kitbag.run(["ls", "-l", "file"]).code(0).stdout;
    assert!(long.contains("user.colour: 5 bytes") && long.contains("several names"), "{long}");
    let json = kitbag.run(["ls", "--json", "file"]).code(0).stdout;
    assert!(json.contains("\"xattrs\":[\"user.colour\"]"), "{json}");
}
