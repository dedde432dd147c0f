//! What is seen is what was saved.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use obbench::need;

use crate::common::{Kitbag, manifest};
use crate::mounted::{Mounted, run, text};
use crate::tree::{saved, shell, worst};

#[test]
fn mount_shows_everything_that_a_file_can_be() {
    if !need::fuse() {
        return;
    }
    let kitbag = Kitbag::with_repository();
    worst(&kitbag);
    let live = kitbag.path("live");
    kitbag.run(["backup", "live"]).code(0);
    let mounted = Mounted::new(&kitbag, "mnt", &[]);
    let seen = mounted.latest(&live);
    assert!(manifest(&live) == manifest(&seen), "the manifests differ");
    let (from, to) = (format!("{}/", text(&live)), format!("{}/", text(&seen)));
    for (one, other) in [(&from, &to), (&to, &from)] {
        assert_eq!(run("rsync", &["-aHAXn", "--delete", "--itemize-changes", one, other]), "");
    }
    run(
        "diff",
        &["-r", "--no-dereference", "--exclude=fifo*", "--exclude=char", "--exclude=block", &from, &to],
    );
    let stat = |path: &str| fs::symlink_metadata(seen.join(path)).unwrap();
    let [file, link, other] = ["file", "hard-link", "sub/hard-link"].map(stat);
    assert_eq!([file.nlink(), link.nlink(), other.nlink()], [3; 3]);
    assert_eq!([link.ino(), other.ino()], [file.ino(); 2]);
    assert_eq!(stat("fifo").nlink(), 2);
    assert!(stat("sparse").blocks() * 512 < 100_000 && stat("hole").blocks() == 0);
    // Programs that look for holes find them.
    let copy = kitbag.path("copy");
    run("cp", &["--sparse=auto", text(&seen.join("sparse")), text(&copy)]);
    run("cmp", &[text(&copy), text(&live.join("sparse"))]);
    assert_eq!(fs::metadata(&copy).unwrap().blocks(), fs::metadata(live.join("sparse")).unwrap().blocks());
    assert!(run("getfacl", &["-p", text(&seen.join("file"))]).contains(":r--"));
    mounted.stop().code(0);
}

#[test]
fn mount_shows_clients_dates_and_ids() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("echo one > file");
    kitbag.run(["backup", "--client-name", "other/one", "live"]).code(0);
    let mounted = Mounted::new(&kitbag, "mnt", &["--refresh", "0s"]);
    let names = |path: &str| {
        let entries = fs::read_dir(mounted.path(path)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(""), ["by-id", "clients", "latest"]);
    assert_eq!(names("clients"), ["laptop", "other%2Fone"]);
    assert_eq!(names("by-id").len(), 2);
    assert_eq!(names("clients/laptop").len(), 3);
    let date = &names("clients/laptop/by-date")[0];
    let file = kitbag.path("live/file");
    let inside = file.strip_prefix("/").unwrap();
    let read = |top: &str| fs::read_to_string(mounted.path(top).join(inside)).unwrap();
    let id = names("clients/laptop").iter().find(|name| name.len() == 16).unwrap().clone();
    for top in ["latest", "clients/laptop/latest", "clients/other%2Fone/latest"] {
        assert_eq!(read(top), "one\n");
    }
    assert_eq!(read(&format!("clients/laptop/by-date/{date}")), "one\n");
    assert_eq!(read(&format!("by-id/{id}")), "one\n");

    // What is made now appears, and what was there stays what it was.
    let inode = |path: String| fs::metadata(mounted.path(&path).join(inside)).unwrap().ino();
    let before = inode(format!("clients/laptop/{id}"));
    kitbag.settle();
    kitbag.write("live/file", "two\n");
    kitbag.run(["backup", "live"]).code(0);
    assert_eq!(names("clients/laptop").len(), 4);
    assert_eq!(read("latest"), "two\n");
    assert_eq!(read(&format!("by-id/{id}")), "one\n");
    assert_eq!(inode(format!("clients/laptop/{id}")), before);
    assert!(before > u64::from(u32::MAX));
    mounted.stop().code(0);
}

#[test]
fn mount_shows_one_generation_or_one_client() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("echo one > file");
    kitbag.settle();
    kitbag.write("live/file", "two\n");
    kitbag.run(["backup", "live"]).code(0);
    kitbag.run(["backup", "--client-name", "other", "live"]).code(0);
    let file = kitbag.path("live/file");
    let inside = file.strip_prefix("/").unwrap();
    let mounted = Mounted::new(&kitbag, "one", &["--generation", "latest~1"]);
    assert_eq!(fs::read_to_string(mounted.path("").join(inside)).unwrap(), "one\n");
    let other = Mounted::new(&kitbag, "other", &["--client", "other"]);
    assert_eq!(fs::read_to_string(other.latest(&file)).unwrap(), "two\n");
    assert_eq!(fs::read_dir(other.path("clients")).unwrap().count(), 1);
    mounted.stop().code(0);
    other.stop().code(0);
    let refused = kitbag.run(["mount", "--generation", "latest~9", "one"]).code(1);
    refused.says(&["latest~9", "kitbag generations"]);
    kitbag.run(["mount", "--client", "nobody", "-g", "latest", "one"]).code(1).says(&["nobody"]);
}

#[test]
fn mount_puts_roots_within_roots_where_they_stood() {
    if !need::fuse() {
        return;
    }
    let kitbag = Kitbag::with_repository();
    shell(
        &kitbag.path("live"),
        "mkdir -p a/b/c d; echo 1 > a/file; echo 2 > a/b/file; echo 3 > a/b/c/file; ln a/file d/link; ln a/b/c/file a/b/c/link",
    );
    kitbag.run(["backup", "--exclude", "/a/b", "live", "live/a/b/c", "live/d/link"]).code(0);
    let mounted = Mounted::new(&kitbag, "mnt", &[]);
    let seen = mounted.latest(&kitbag.path("live"));
    let found = run("find", &[text(&seen), "-printf", "%P %y %n\n"]);
    let mut lines: Vec<_> = found.lines().map(str::trim).collect();
    lines.sort_unstable();
    let expected = [
        "a d 1",
        "a/b d 1",
        "a/b/c d 1",
        "a/b/c/file f 2",
        "a/b/c/link f 2",
        "a/file f 2",
        "d d 1",
        "d/link f 2",
        "d 1",
    ];
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    assert_eq!(fs::read_to_string(seen.join("a/b/c/file")).unwrap(), "3\n");
    mounted.stop().code(0);
}

#[test]
fn mount_lists_a_directory_of_many() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("seq 30000 | xargs touch");
    let mounted = Mounted::new(&kitbag, "mnt", &[]);
    let seen = mounted.latest(&kitbag.path("live"));
    for _ in 0..2 {
        let listed = run("ls", &["-f", text(&seen)]);
        let mut names: Vec<u32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
        names.sort_unstable();
        assert_eq!(names, (1..=30000).collect::<Vec<_>>());
    }
    for name in ["1", "15000", "30000"] {
        assert!(seen.join(name).exists());
    }
    for name in ["0", "30001", "1x"] {
        assert!(!seen.join(name).exists());
    }
    mounted.stop().code(0);
}

#[test]
fn mount_lets_others_look_only_if_asked() {
    if !need::fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let kitbag = saved(
        "echo open > open; echo closed > closed; chmod 600 closed; chmod 755 .; echo acl > acl; chmod 600 acl; setfacl -m u:4711:r acl",
    );
    // Somebody else must get there at all.
    run("chmod", &["711", text(&kitbag.path(""))]);
    let as_other = |path: &std::path::Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "4711", "--regid", "4711", "--clear-groups", "cat"]).arg(path);
        command.output().unwrap().status.success()
    };
    let closed = Mounted::new(&kitbag, "closed", &["--generation", "latest"]);
    let live = kitbag.path("live");
    let inside = |mounted: &Mounted, name: &str| mounted.at.join(live.strip_prefix("/").unwrap()).join(name);
    assert!(!as_other(&inside(&closed, "open")));
    closed.stop().code(0);
    let open = Mounted::new(&kitbag, "open", &["--generation", "latest", "--allow-other"]);
    assert!(as_other(&inside(&open, "open")));
    assert!(!as_other(&inside(&open, "closed")));
    assert!(as_other(&inside(&open, "acl")));
    open.stop().code(0);
}
