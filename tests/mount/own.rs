//! A mount below a root is no part of what is saved.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use obbench::need;

use crate::common::{Kitbag, Outcome};
use crate::mounted::Mounted;
use crate::tree::saved;

#[test]
fn a_mount_below_a_root_is_saved_as_an_empty_directory() {
    if !need::fuse() {
        return;
    }
    let kitbag: Kitbag = saved("echo one > file");
    let mounted = Mounted::new(&kitbag, "live/then", &[]);
    let line = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let line = line.lines().find(|line| line.contains("/live/then ")).expect("it is mounted").to_owned();
    assert!(line.contains(" - fuse.kitbag kitbag ") || line.contains(" - fuse kitbag "), "{line}");

    kitbag.settle();
    kitbag.run(["backup", "live"]).code(0).says(&["/live/then: a repository is mounted here", "left out"]);
    let found = kitbag.run(["ls"]).code(0).stdout;
    let names: Vec<_> = found.lines().filter_map(|line| line.rsplit('/').next()).collect();
    assert!(names.contains(&"then") && names.contains(&"file") && !names.contains(&"by-id"), "{names:?}");
    assert_eq!(kitbag.run(["diff", "latest", "live"]).code(0).stdout, "");
    kitbag.run(["verify"]).code(0);
    kitbag.settle();
    let again = kitbag.run(["backup", "--skip-if-unchanged", "live"]).code(0).stdout;
    assert!(again.contains("nothing has changed since the last generation"), "{again}");
    mounted.stop().code(0);
}

/// Nobody else may look into it, not even root, which is no reason to say that something was lost.
#[test]
fn a_mount_of_another_user_is_left_out() {
    const NOBODY: u32 = 65534;
    if !need::fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let kitbag: Kitbag = saved("echo one > file");
    let mounted = Mounted::new(&kitbag, "live/then", &["--cache-dir", "cache"]);
    set_permissions(kitbag.path(""), Permissions::from_mode(0o755)).expect("opened");
    let mut chown = Command::new("chown");
    chown.args(["-R", &NOBODY.to_string()]).args(["home", "repository"].map(|name| kitbag.path(name)));
    assert!(chown.status().expect("it runs").success());

    let run = |line: &[&str]| Outcome::of(kitbag.command().uid(NOBODY).gid(NOBODY).args(line));
    run(&["backup", "live"]).code(0).says(&["/live/then: a repository is mounted here", "left out"]);
    assert!(!run(&["ls"]).code(0).stdout.contains("then"));
    assert_eq!(run(&["diff", "latest", "live"]).code(0).stdout, "");
    run(&["verify"]).code(0);
    kitbag.settle();
    let again = run(&["backup", "--skip-if-unchanged", "live"]).code(0).stdout;
    assert!(again.contains("nothing has changed since the last generation"), "{again}");
    mounted.stop().code(0);
}
