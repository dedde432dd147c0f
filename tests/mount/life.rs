//! Coming and going.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use obbench::{clock, need};

use crate::common::{Kitbag, files_below};
use crate::mounted::{Mounted, is_mounted, run, text};
use crate::tree::saved;

#[test]
fn mount_goes_when_it_is_unmounted() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("head -c 20M /dev/urandom > large");
    let mut mounted = Mounted::new(&kitbag, "mnt", &[]);
    let mut file = File::open(mounted.latest(&kitbag.path("live/large"))).unwrap();
    let mut bytes = vec![0; 1 << 20];
    file.read_exact(&mut bytes).unwrap();
    // Somebody reads: it is not taken away by mistake, and can be on purpose.
    assert!(!mounted.fusermount("-u"));
    file.read_exact(&mut bytes).unwrap();
    assert!(mounted.fusermount("-uz"));
    file.read_exact(&mut bytes).unwrap();
    drop(file);
    mounted.end().code(0);
    let mut mounted = Mounted::new(&kitbag, "mnt", &[]);
    assert!(mounted.fusermount("-u"));
    mounted.end().code(0);
}

#[test]
fn mount_goes_at_a_signal_though_somebody_reads() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("head -c 20M /dev/urandom > large");
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut mounted = Mounted::new(&kitbag, "mnt", &[]);
        let mut file = File::open(mounted.latest(&kitbag.path("live/large"))).unwrap();
        let mut bytes = vec![0; 1 << 20];
        file.read_exact(&mut bytes).unwrap();
        mounted.signal(signal);
        mounted.end().code(0);
        let left = std::iter::from_fn(|| file.read_exact(&mut bytes).err()).next();
        drop(left);
    }
}

#[test]
fn mount_only_on_an_empty_directory_elsewhere() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("echo x > file");
    for (at, word) in [
        ("repository", "the repository"),
        ("repository/bags", "the repository"),
        ("home/.cache/kitbag", "the local cache"),
        ("live", "not empty"),
        ("live/file", "no directory"),
        ("nowhere", "mkdir"),
    ] {
        kitbag.run(["mount", at]).code(1).says(&[word]);
        assert!(!is_mounted(&kitbag.path(at)), "{at}");
    }
    fs::create_dir(kitbag.path("mnt")).unwrap();
    kitbag.run(["mount", "mnt", "--memory", "much"]).code(2).says(&["--memory"]);
    kitbag.run(["mount", "mnt", "--refresh", "soon"]).code(2).says(&["--refresh"]);
}

/// Unmounts what a program in the background has mounted.
struct Behind(PathBuf);

impl Drop for Behind {
    fn drop(&mut self) {
        if is_mounted(&self.0) {
            let _ = Command::new("fusermount3").args(["-uz"]).arg(&self.0).status();
        }
    }
}

#[test]
fn mount_in_the_background() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("echo x > file");
    let behind = Behind(kitbag.path("mnt"));
    fs::create_dir(&behind.0).unwrap();
    let outcome = kitbag.run(["mount", "--daemon", "mnt"]).code(0);
    assert!(outcome.stdout.contains("fusermount3 -u"), "{}", outcome.stdout);
    assert!(is_mounted(&behind.0));
    let file = behind.0.join("latest").join(kitbag.path("live/file").strip_prefix("/").unwrap());
    assert_eq!(fs::read_to_string(file).unwrap(), "x\n");
    run("fusermount3", &["-u", text(&behind.0)]);
    assert!(!is_mounted(&behind.0));
    // It says why it cannot, and ends as it would in the foreground.
    kitbag.run(["mount", "--daemon", "live"]).code(1).says(&["not empty"]);
    let nowhere = Kitbag::new().set("KITBAG_REPOSITORY", "nowhere");
    nowhere.run(["mount", "--daemon", "mnt"]).code(10).says(&["no repository"]);
    assert!(clock::wait_until(Duration::from_secs(10), || !is_mounted(&behind.0)));
}

#[test]
fn mount_in_the_background_speaks_to_the_log_file() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("head -c 3000000 /dev/urandom > large");
    damage(&kitbag);
    let behind = Behind(kitbag.path("mnt"));
    fs::create_dir(&behind.0).unwrap();
    kitbag.run(["mount", "--daemon", "--log-file", "log", "mnt"]).code(0);
    let large = behind.0.join("latest").join(kitbag.path("live/large").strip_prefix("/").unwrap());
    assert_eq!(fs::read(large).unwrap_err().raw_os_error(), Some(5));
    run("fusermount3", &["-u", text(&behind.0)]);
    let log = || fs::read_to_string(kitbag.path("log")).unwrap();
    assert!(clock::wait_until(Duration::from_secs(10), || log().contains("exit code 4")), "{}", log());
    assert!(log().lines().any(|line| line.contains("] error: ") && line.contains("damaged")), "{}", log());
}

/// Runs what follows where `/dev` is a few devices and this socket as `/dev/log`, as no other process sees it.
const BEHIND: &str = r#"
set -e
mkdir dev
mount -t tmpfs none dev
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/fuse c 10 229
: > dev/log
mount --bind socket dev/log
mount --rbind dev /dev
"#;

#[test]
fn mount_in_the_background_speaks_to_the_system() {
    if !need::fuse() {
        return;
    }
    let kitbag = saved("head -c 3000000 /dev/urandom > large");
    damage(&kitbag);
    let socket = UnixDatagram::bind(kitbag.path("socket")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    fs::create_dir(kitbag.path("mnt")).unwrap();
    let command = kitbag.command();
    let script = format!(
        "{BEHIND}'{}' mount --daemon mnt; cat 'mnt/latest{}' >/dev/null || :; fusermount3 -u mnt",
        command.get_program().display(),
        kitbag.path("live/large").display()
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", &script]).current_dir(kitbag.path(".")).env_clear();
    unshare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = unshare.output().unwrap();
    if !output.status.success() && !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can hide /dev");
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut bytes = [0; 1000];
    let length = socket.recv(&mut bytes).unwrap();
    let said = String::from_utf8_lossy(&bytes[..length]);
    assert!(said.starts_with("<27>kitbag[") && said.contains("damaged"), "{said}");
}

/// Damages what is saved of a large file.
fn damage(kitbag: &Kitbag) {
    let bags = files_below(&kitbag.path("repository/bags"));
    let bag = bags.iter().find(|bag| fs::metadata(bag).unwrap().len() > 1_000_000).expect("a large one");
    run("chmod", &["u+w", text(bag)]);
    File::options().write(true).open(bag).unwrap().write_all_at(b"damage", 1_000_000).unwrap();
}
