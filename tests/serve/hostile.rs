//! A client that wants to do harm: whatever it tries, what was there stays as it was, and nothing outside is seen.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use crate::attack::{everything, found};
use crate::client::*;
use crate::common::Kitbag;

/// Nobody.
const USER: u32 = 65_534;

const BAG: &str = "bags/ab/ab23456789abcdef0123456789abcdef";

/// A repository, what else a server's directory may hold, and something outside.
struct Site {
    kitbag: Kitbag,
    root: PathBuf,
    outside: PathBuf,
}

/// What is seen of a file: type and mode, owner, length, time, inode, contents or target.
type Seen = (u32, u32, u64, i64, u64, Vec<u8>);

/// Everything below a directory. Of directories, the time is left out: names may come.
fn snapshot(top: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut open, mut seen) = (vec![top.to_owned()], BTreeMap::new());
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut one =
            (meta.mode(), meta.uid(), meta.size(), meta.mtime_nsec() ^ meta.mtime(), meta.ino(), Vec::new());
        if meta.is_dir() {
            (one.2, one.3) = (0, 0);
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if meta.is_symlink() {
            one.5 = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
        } else if meta.is_file() {
            one.5 = fs::read(&path).unwrap();
        }
        seen.insert(path, one);
    }
    seen
}

impl Site {
    fn new() -> Self {
        let kitbag = Kitbag::new();
        for number in 0..40 {
            kitbag.write(&format!("tree/{number}"), format!("{number}\n").repeat(5000));
        }
        fs::create_dir(kitbag.path("srv")).unwrap();
        for line in
            ["init -r srv/r --encryption none", "backup -r srv/r tree", "tag -r srv/r add latest kept"]
        {
            kitbag.run(line.split(' ')).code(0);
        }
        let (root, outside) = (kitbag.path("srv"), kitbag.path("outside"));
        let site = Self { kitbag, root, outside };
        site.put("r/sessions/ab23456789abcdef0123456789abcdef.0123456789abcdef", "another's lease");
        site.put(&format!("r/{BAG}.part"), "another's bag");
        site.put("r/condemned/ab23456789abcdef0123456789abcdef", "a sentence");
        site.put(".ssh/authorized_keys", "a key");
        site.put("plain.part", "no file of ours");
        fs::create_dir_all(&site.outside).unwrap();
        fs::write(site.outside.join("secret"), "secret").unwrap();
        symlink("../outside", site.root.join("out")).unwrap();
        symlink(site.outside.join("secret"), site.root.join("r/index/link")).unwrap();
        symlink("bags", site.root.join("r/inner")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, site.root.join("fifo"), 0o600.into()).unwrap();
        site
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Hands it to another user, who may then do what he likes; the way there is opened.
    fn give_to(&self, user: u32) {
        for path in snapshot(&self.root).into_keys() {
            std::os::unix::fs::lchown(path, Some(user), Some(user)).unwrap();
        }
        chown(&self.outside, Some(user), Some(user)).unwrap();
        chown(self.outside.join("secret"), Some(user), Some(user)).unwrap();
        let home = self.root.parent().unwrap();
        fs::set_permissions(home, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What a hostile client tries: what it finds, what it may guess, and what is never a good path.
    fn paths(&self, rights: &str, client: &mut Client) -> Vec<Vec<u8>> {
        let mut paths = found(client);
        // Those of clients at work are told to those who may do nothing to them, and to those who may do everything.
        let is_told = paths
            .iter()
            .filter(|path| path.ends_with(b"89abcdef.part") || path.ends_with(b".0123456789abcdef"));
        assert_eq!(is_told.count(), if rights == "--append-only" { 0 } else { 2 });
        // A bag or two will do, and few other files: pairs of paths take their time.
        let mut bags = 0;
        paths.retain(|path| {
            bags += u32::from(path.starts_with(b"/r/bags/"));
            !path.starts_with(b"/r/bags/") || bags <= 6
        });
        let guesses = [
            "",
            ".",
            "/",
            "..",
            "../outside",
            "../outside/secret",
            "out/secret",
            "out/new",
            "r/index/link",
            "r/inner/ab",
            "/etc/passwd",
            "/../../../../../../etc/passwd",
            "r/../../outside/secret",
            "missing",
            "r/missing/missing",
            "r/config",
            "r/config/x",
            "r/bags/ab/../../config",
            ".ssh/rc",
            "r/.part",
            "r/condemned/ffffffffffffffffffffffffffffffff",
            "r/moved/ffffffffffffffffffffffffffffffff",
            "r/sessions/ffffffffffffffffffffffffffffffff.ffffffffffffffff",
            "r/bags/ff/ffffffffffffffffffffffffffffffff.part",
            "r/bags/ff/ffffffffffffffffffffffffffffffff",
            "r/config.ffffffffffffffff.part",
            "zero\0byte",
            "r/config\0",
            "/proc/self/root/etc/passwd",
        ];
        paths.extend(guesses.iter().map(|path| path.as_bytes().to_vec()));
        paths.push(b"x".repeat(300));
        paths.push(b"x/".repeat(5000));
        paths.push(b"\xff\xfe".to_vec());
        paths
    }
}

/// All of it, and what was changed by it: nothing that was there; and the new names.
fn attacked(rights: &str, user: Option<u32>) -> Vec<String> {
    let site = Site::new();
    if let Some(user) = user {
        site.give_to(user);
    }
    let before = [snapshot(&site.root), snapshot(&site.outside)];
    let mut client = Client::start(rights, &site.root, user);
    let paths = site.paths(rights, &mut client);
    everything(&mut client, &paths);
    assert!(client.asked() > 20_000, "an attack of {} requests", client.asked());
    assert_eq!(client.end(), Some(0));
    let after = [snapshot(&site.root), snapshot(&site.outside)];
    for (before, after) in before.iter().zip(&after) {
        for (path, seen) in before {
            assert_eq!(after.get(path), Some(seen), "{}", path.display());
        }
    }
    assert_eq!(before[1], after[1], "outside");
    let restored = ["restore", "-r", "srv/r", "--strip-root", "--to", "back"];
    site.kitbag.run(restored).code(0);
    let manifest = |name: &str| crate::common::manifest(&site.kitbag.path(name));
    assert_eq!(manifest("tree"), manifest("back"));
    let new = after[0].keys().filter(|path| !before[0].contains_key(*path));
    new.map(|path| path.strip_prefix(&site.root).unwrap().to_string_lossy().into_owned()).collect()
}

/// What a client of these rights can leave behind: what a backup could, too, and empty directories.
fn check_left_behind(new: &[String]) {
    assert!(!new.is_empty(), "an attack that did nothing is none");
    for name in new {
        let is_file = name.contains("ffffffff");
        let is_hidden = name.split('/').any(|name| name.starts_with('.'));
        let acts = name.contains("condemned/") || name.contains("moved/");
        assert!(!(is_hidden || is_file && acts), "{name}");
    }
}

#[test]
fn append_only_loses_nothing() {
    check_left_behind(&attacked("--append-only", None));
}

#[test]
fn append_only_loses_nothing_for_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    check_left_behind(&attacked("--append-only", Some(USER)));
}

#[test]
fn read_only_changes_nothing_at_all() {
    assert_eq!(attacked("--read-only", None), [""; 0]);
    if rustix::process::geteuid().is_root() {
        assert_eq!(attacked("--read-only", Some(USER)), [""; 0]);
    }
}

#[test]
fn with_all_rights_nothing_outside_is_seen_or_changed() {
    let site = Site::new();
    let before = snapshot(&site.outside);
    let mut client = Client::start("--full", &site.root, None);
    let paths = site.paths("--full", &mut client);
    let secret = b"secret";
    for path in &paths {
        if let Some(handle) = client.open(path, 1, &NO_ATTRS) {
            let said = client.ask(READ, &fields(&[&string(&handle), &[0; 8], &u32::MAX.to_be_bytes()]));
            assert!(!said.body.ends_with(secret), "{}", String::from_utf8_lossy(path));
            client.ask(CLOSE, &string(&handle));
        }
    }
    everything(&mut client, &paths);
    assert!(client.asked() > 20_000, "an attack of {} requests", client.asked());
    assert_eq!(client.end(), Some(0));
    assert_eq!(snapshot(&site.outside), before);
    assert!(!site.root.join("r/config").exists(), "an attack that did nothing is none");
}

#[test]
fn what_was_published_cannot_be_changed_by_who_made_it() {
    let site = Site::new();
    let (part, whole) =
        (format!("r/{}.part", BAG.replace("cdef", "0000")), format!("r/{}", BAG.replace("cdef", "0000")));
    let mut client = Client::start("--append-only", &site.root, None);
    let mut other = Client::start("--append-only", &site.root, None);
    let handle = client.open(part.as_bytes(), 0x2a, &NO_ATTRS).expect("created");
    let second = other.open(part.as_bytes(), 2, &NO_ATTRS).expect("opened");
    let write = |handle: &[u8], text: &str| fields(&[&string(handle), &[0; 8], &string(text)]);
    assert_eq!(client.ask(WRITE, &write(&handle, "contents")).code(), Some(0));
    assert_eq!(other.ask(RENAME, &fields(&[&string(&part), &string(&whole)])).code(), Some(0));
    for (client, handle) in [(&mut client, &handle), (&mut other, &second)] {
        assert_eq!(client.ask(WRITE, &write(handle, "changed!")).code(), Some(3));
        assert_eq!(client.ask(REMOVE, &string(&whole)).code(), Some(3));
        assert_eq!(client.ask(RENAME, &fields(&[&string(&whole), &string(&part)])).code(), Some(3));
    }
    assert_eq!(fs::read(site.root.join(&whole)).unwrap(), b"contents");
}
