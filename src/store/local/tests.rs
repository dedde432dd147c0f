use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::*;
use crate::store::contract;

fn store() -> (tempfile::TempDir, LocalStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::new(dir.path().join("repo")).unwrap();
    store.make_dir(&Name::join(&["bags"])).wait().unwrap();
    (dir, store)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn put(store: &LocalStore, to: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let mut upload = store.create(&name(to).with_suffix(".part"), Class::Bulk);
    upload.append(bytes.to_vec())?;
    upload.commit(&name(to)).wait()
}

#[test]
fn keeps_the_promises() {
    let dir = tempfile::tempdir().unwrap();
    contract::run(&|| Arc::new(LocalStore::new(dir.path()).unwrap()));
}

#[test]
fn without_renaming_exclusively() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b, c) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "b").unwrap();
    assert_eq!(link_new(&a, &b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    link_new(&a, &c).unwrap();
    assert_eq!(fs::read(&c).unwrap(), b"a");
    assert!(!a.exists());
    assert_eq!(link_new(&a, &dir.path().join("d")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn for_the_owner_alone() {
    let (dir, store) = store();
    put(&store, "bags/00/x", b"secret").unwrap();
    let mode = |text: &str| fs::metadata(dir.path().join(text)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("repo"), 0o700);
    assert_eq!(mode("repo/bags/00"), 0o700);
    assert_eq!(mode("repo/bags/00/x"), 0o600);
}

#[test]
fn a_vanished_top_directory_is_not_made_again() {
    let (dir, store) = store();
    fs::remove_dir_all(dir.path().join("repo")).unwrap();
    assert_eq!(put(&store, "bags/00/x", b"").unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(put(&store, "config", b"").unwrap_err().kind, ErrorKind::NotFound);
    assert!(!dir.path().join("repo").exists());
    store.make_dir(&name("bags")).wait().unwrap();
    put(&store, "config", b"").unwrap();
}

#[test]
fn a_file_is_no_directory() {
    let (_dir, store) = store();
    put(&store, "file", b"").unwrap();
    assert!(store.make_dir(&name("file")).wait().is_err());
    assert!(store.make_dir(&name("file/below")).wait().is_err());
    assert!(store.list(&name("file")).wait().is_err());
    assert!(put(&store, "file/below", b"").is_err());
    assert!(store.remove(&name("bags")).wait().is_err());
}

#[test]
fn symbolic_links_are_not_read_through() {
    let (dir, store) = store();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("repo/link")).unwrap();
    assert!(store.read_all(&name("link"), 1 << 20).wait().is_err());
    let mut upload = store.create(&name("link"), Class::Control);
    assert_eq!(upload.created().unwrap_err().kind, ErrorKind::Exists);
}

#[test]
fn dropping_everything_finishes_what_was_started() {
    let (dir, store) = store();
    let mut abandoned = store.create(&name("abandoned"), Class::Bulk);
    abandoned.append(vec![1; 1 << 20]).unwrap();
    let mut upload = store.create(&name("bags/y.part"), Class::Bulk);
    upload.append(vec![2; 1 << 20]).unwrap();
    drop(upload.commit(&name("bags/y")));
    drop(store);
    drop(abandoned);
    assert_eq!(fs::metadata(dir.path().join("repo/bags/y")).unwrap().len(), 1 << 20);
    assert!(!dir.path().join("repo/abandoned").exists());
}

/// More than the budget of outstanding bytes passes, and a full queue does not stand still.
#[test]
fn more_than_the_budget() {
    let (_dir, store) = store();
    let mut upload = store.create(&name("big.part"), Class::Bulk);
    for _ in 0..9 {
        upload.append(vec![3; 16 << 20]).unwrap();
    }
    upload.commit(&name("big")).wait().unwrap();
    assert_eq!(store.read_tail(&name("big"), 1).wait().unwrap(), (vec![3], 9 * (16 << 20)));
}

/// A file system of its own, when the tests run as root; unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "kitbag-test"]).arg(dir.path());
        let mounted =
            rustix::process::geteuid().is_root() && mount.output().is_ok_and(|ran| ran.status.success());
        if !mounted {
            eprintln!("skipped: only root can mount a small file system");
        }
        mounted.then_some(Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_told_and_left_clean() {
    let Some(disk) = Tmpfs::mount("size=1m") else { return };
    let store = LocalStore::new(disk.0.path()).unwrap();
    put(&store, "before", &[1; 1000]).unwrap();
    let failed = put(&store, "big", &vec![2; 2 << 20]).unwrap_err();
    assert_eq!(failed.kind, ErrorKind::NoSpace, "{failed}");
    let mut upload = store.create(&name("slow"), Class::Bulk);
    let failed = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        upload.append(vec![3; 100_000]).err()
    });
    assert_eq!(failed.unwrap().kind, ErrorKind::NoSpace);
    assert_eq!(upload.commit(&name("slow-done")).wait().unwrap_err().kind, ErrorKind::NoSpace);
    put(&store, "after", &[4; 500_000]).unwrap();
    drop(store);
    let mut left: Vec<_> =
        fs::read_dir(disk.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["after", "before"]);
}

#[test]
fn a_disk_mounted_read_only_is_denied() {
    let Some(disk) = Tmpfs::mount("size=1m,ro") else { return };
    let store = LocalStore::new(disk.0.path()).unwrap();
    assert_eq!(put(&store, "x", b"").unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(store.make_dir(&name("d")).wait().unwrap_err().kind, ErrorKind::Denied);
}

/// Runs `act` in a thread that is nobody, and so are the threads it starts. Only root can become somebody else; others are nobody special already.
fn as_nobody(act: impl FnOnce() + Send) {
    let become_nobody = || {
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        act();
    };
    std::thread::scope(|scope| scope.spawn(become_nobody).join().unwrap());
}

#[test]
fn what_is_not_permitted_is_denied() {
    let dir = tempfile::tempdir().unwrap();
    let permit = |text: &str, mode| {
        fs::set_permissions(dir.path().join(text), fs::Permissions::from_mode(mode)).unwrap();
    };
    let root = dir.path().join("repo");
    let store = LocalStore::new(&root).unwrap();
    for sub in ["bags", "hidden"] {
        store.make_dir(&name(sub)).wait().unwrap();
        put(&store, &format!("{sub}/x"), b"x").unwrap();
    }
    permit("repo/hidden", 0o000);
    permit("repo/bags/x", 0o000);
    permit("repo/bags", 0o555);
    permit("repo", 0o555);
    permit("", 0o755);
    as_nobody(|| {
        let store = LocalStore::new(&root).unwrap();
        let (x, y, hidden) = (name("bags/x"), name("bags/y"), name("hidden/x"));
        let kinds = [
            store.read_all(&x, 10).wait().map(drop),
            store.read_all(&hidden, 10).wait().map(drop),
            store.list(&name("hidden")).wait().map(drop),
            store.remove(&x).wait(),
            store.rename(&x, &y).wait(),
            store.make_dir(&name("bags/new")).wait(),
            put(&store, "bags/new/y", b""),
            put(&store, "bags/y", b""),
        ];
        for (at, outcome) in kinds.into_iter().enumerate() {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Denied, "{at}: {error}");
        }
        assert_eq!(store.list(&name("bags")).wait().unwrap().len(), 1);
    });
    for sub in ["repo", "repo/bags", "repo/hidden"] {
        permit(sub, 0o755);
    }
}
