//! A disk that is full.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use obbench::relay::Link;

use crate::bench::{Bench, TRANSPORTS, files_below, internal};
use crate::common::{Kitbag, Outcome};

/// A file system in memory, unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// One of this size; none where the user may not mount.
    fn mount(at: &Path, size: &str) -> Option<Self> {
        fs::create_dir_all(at).expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "kitbag"])
            .arg(at)
            .output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at.to_owned()))
    }

    fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        let output = Command::new("mount").args(["-o", &options]).arg(&self.0).output().expect("mount");
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn sshd_on_a_full_disk() {
    for transport in TRANSPORTS {
        let Some(bench) = Bench::start(internal(), Link::default(), transport).map(Bench::patient) else {
            return;
        };
        fs::remove_dir_all(bench.repository()).expect("removed");
        let Some(disk) = Tmpfs::mount(&bench.repository(), "8m") else {
            eprintln!("skipped: no file system can be mounted here");
            return;
        };
        bench.local(&["init", "--encryption", "none"]).code(0);
        bench.make_tree(14 << 20);
        let outcome = bench.backup(&[]).end().code(1);
        outcome.says(&["full"]);
        assert!(bench.parts().is_empty(), "{:?}", bench.parts());
        assert!(files_below(&bench.repository().join("generations")).is_empty(), "nothing is published");
        bench.local(&["fsck"]).code(0);

        disk.grow("64m");
        bench.backup(&[]).end().code(0);
        bench.assert_sound();
        drop(disk);
    }
}

/// More small files than the index of them finds room for.
#[test]
fn a_cache_without_room_stops_no_backup() {
    let kitbag = Kitbag::with_repository();
    for number in 0..18_000_u32 {
        kitbag.write(&format!("tree/{}/{number}", number % 100), number.to_le_bytes().repeat(200));
    }
    for what in ["--cache-dir", "TMPDIR"] {
        let Some(disk) = Tmpfs::mount(&kitbag.path("small"), "96k") else {
            eprintln!("skipped: no file system can be mounted here");
            return;
        };
        let mut command = kitbag.command();
        command.args(["backup", "--reread", "tree"]);
        match what {
            "TMPDIR" => command.arg("--no-cache").env("TMPDIR", kitbag.path("small")),
            _ => command.args([what, "small"]),
        };
        let outcome = Outcome::of(&mut command).code(0);
        assert!(outcome.stderr.contains("No space"), "{}", outcome.stderr);
        drop(disk);
        kitbag.run(["fsck", "--no-cache", "--read-data"]).code(0);
        kitbag.run(["verify", "--no-cache"]).code(0);
        fs::remove_dir_all(kitbag.path("repository")).expect("removed");
        kitbag.run(["init", "--encryption", "none"]).code(0);
    }
}

/// What was stored before is known although no directory takes the index of it.
#[test]
fn a_cache_and_a_tmpdir_that_take_nothing_stop_no_backup() {
    for options in ["96k", "96k,ro"] {
        let kitbag = Kitbag::with_repository();
        for number in 0..9_000_u32 {
            kitbag.write(&format!("tree/{}/{number}", number % 100), number.to_le_bytes().repeat(200));
        }
        kitbag.run(["backup", "--no-cache", "tree"]).code(0);
        let Some(disk) = Tmpfs::mount(&kitbag.path("small"), options) else {
            eprintln!("skipped: no file system can be mounted here");
            return;
        };
        kitbag.write("tree/new", "new");
        for cache in [&["--cache-dir", "small/cache"][..], &["--no-cache"]] {
            let mut command = kitbag.command();
            command.arg("backup").args(cache).arg("tree").env("TMPDIR", kitbag.path("small"));
            let outcome = Outcome::of(&mut command).code(0);
            assert!(outcome.stderr.contains("made elsewhere"), "{}", outcome.stderr);
            assert!(outcome.stderr.contains("small"), "{}", outcome.stderr);
        }
        drop(disk);
        kitbag.run(["fsck", "--no-cache", "--read-data"]).code(0);
        kitbag.run(["verify", "--no-cache"]).code(0);
    }
}
