//! As root and as somebody else.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use std::process::Command;
use std::sync::Arc;

use super::super::testing::{Scratch, is_root, run};
use super::*;
use crate::base::time::Timestamp;
use crate::entry::Owner;
use crate::live::{RawXattr, flags, read_link, xattrs};
use crate::monitor::collect::Collect;

pub(super) struct Setting {
    scratch: Scratch,
    pub(super) root: Arc<LiveDir>,
    pub(super) target: Target,
    pub(super) monitor: Arc<Collect>,
}

fn setting_in(scratch: Scratch, owner_by: OwnerBy) -> Setting {
    let monitor = Arc::new(Collect::new());
    let target = Target::new(owner_by, Arc::clone(&monitor) as Arc<dyn Monitor>);
    let root = target.open(scratch.join("to/here").as_os_str().as_bytes()).unwrap();
    Setting { scratch, root, target, monitor }
}

pub(super) fn setting() -> Setting {
    setting_in(Scratch::new(), OwnerBy::Number)
}

impl Setting {
    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.scratch.join("to/here").join(name)
    }

    fn stat(&self, name: &str) -> Stat {
        stat_child(self.root.fd().unwrap(), name.as_bytes()).unwrap()
    }

    fn xattrs(&self, name: &str) -> Vec<RawXattr> {
        xattrs::xattrs_of_child(self.root.fd().unwrap(), name.as_bytes()).unwrap()
    }

    fn file(&self, name: &str, contents: &[u8], wanted: &Metadata, xattrs: &[RawXattr]) {
        let file = self.target.begin_file(&self.root, name.as_bytes(), wanted).unwrap();
        file.write_at(0, contents).unwrap();
        self.target.finish_file(file, wanted, xattrs).unwrap();
    }

    fn problems(&self) -> Vec<String> {
        self.monitor.problems()
    }

    pub(super) fn nothing_left_over(&self) {
        let names = self.root.names().unwrap();
        assert!(names.iter().all(|(name, _)| !name.starts_with(b".kitbag-")));
    }
}

pub(super) fn wanted(kind: Kind, mode: u16) -> Metadata {
    let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Metadata {
        kind,
        mode,
        owner: Arc::new(Owner { uid: me.0, gid: me.1, ..Owner::default() }),
        mtime: Timestamp { secs: 1_000_000_000, nanos: 123_456_789 },
        ctime: Timestamp::default(),
        inode: 0,
        size: 0,
        link_group: None,
        rdev: (0, 0),
        flags: 0,
    }
}

fn owned(mut metadata: Metadata, uid: u32, gid: u32) -> Metadata {
    metadata.owner = Arc::new(Owner { uid, gid, ..Owner::default() });
    metadata
}

fn xattr(name: &str, value: &[u8]) -> RawXattr {
    RawXattr { name: name.as_bytes().into(), value: value.into() }
}

fn assert_is(stat: &Stat, wanted: &Metadata) {
    let owner = (wanted.owner.uid, wanted.owner.gid);
    assert_eq!((stat.kind, stat.uid, stat.gid, stat.mtime), (wanted.kind, owner.0, owner.1, wanted.mtime));
    if wanted.kind != Kind::Symlink {
        assert_eq!(stat.mode, wanted.mode, "{:o} {:o}", stat.mode, wanted.mode);
    }
    assert_eq!(stat.rdev, wanted.rdev);
}

#[test]
fn files_with_holes_and_all_metadata() {
    let setting = setting();
    let data = vec![5; 4096];
    let mut metadata = wanted(Kind::File, 0o4754);
    metadata.size = 10 << 20;
    let attributes = [xattr("user.a", b"1"), xattr("user.b", &[0xff; 1000])];
    let file = setting.target.begin_file(&setting.root, b"file", &metadata).unwrap();
    file.write_at(5 << 20, &data).unwrap();
    assert!(!setting.path("file").exists());
    for (name, _) in setting.root.names().unwrap().iter() {
        assert_eq!(stat_child(setting.root.fd().unwrap(), name).unwrap().mode, 0o600);
    }
    setting.target.finish_file(file, &metadata, &attributes).unwrap();
    let stat = setting.stat("file");
    assert_is(&stat, &metadata);
    assert!(looks_same(&stat, &metadata));
    assert_eq!((stat.size, stat.may_have_holes()), (10 << 20, true));
    assert_eq!(setting.xattrs("file"), attributes);

    // Again, with less: what is too much goes, and what was there is replaced.
    metadata.size = 3;
    setting.file("file", b"abc", &metadata, &attributes[1..]);
    assert_eq!(setting.xattrs("file"), attributes[1..]);
    assert_eq!(fs::read(setting.path("file")).unwrap(), b"abc");
    setting.target.set_metadata(&setting.root, b"file", &wanted(Kind::File, 0o600), &[]).unwrap();
    assert_eq!(setting.xattrs("file"), []);
    assert_is(&setting.stat("file"), &wanted(Kind::File, 0o600));
    assert_eq!(setting.problems(), [""; 0]);
    setting.nothing_left_over();
}

#[test]
fn a_second_time_changes_nothing() {
    let setting = setting();
    let metadata = wanted(Kind::File, 0o440);
    setting.file("file", b"", &metadata, &[xattr("user.a", b"1")]);
    let before = setting.stat("file");
    std::thread::sleep(std::time::Duration::from_millis(20));
    setting.target.set_metadata(&setting.root, b"file", &metadata, &[xattr("user.a", b"1")]).unwrap();
    assert_eq!(setting.stat("file"), before);
}

#[test]
fn given_up_files_leave_nothing() {
    let setting = setting();
    setting.file("file", b"old", &wanted(Kind::File, 0o600), &[]);
    let file = setting.target.begin_file(&setting.root, b"file", &wanted(Kind::File, 0o600)).unwrap();
    file.write_at(0, b"new").unwrap();
    assert_eq!(file.path(), setting.path("file").as_os_str().as_bytes());
    drop(file);
    assert_eq!(fs::read(setting.path("file")).unwrap(), b"old");
    setting.nothing_left_over();
}

#[test]
fn links_fifos_and_sockets() {
    let setting = setting();
    let link = wanted(Kind::Symlink, 0o777);
    setting.target.make_symlink(&setting.root, b"link", b"no/where\xff", &link, &[]).unwrap();
    assert_is(&setting.stat("link"), &link);
    assert_eq!(*read_link(&setting.root.fd().unwrap(), b"link").unwrap(), b"no/where\xff"[..]);
    for kind in [Kind::Fifo, Kind::Socket] {
        // Twice: each replaces what was there.
        let metadata = wanted(kind, 0o1620);
        setting.target.make_special(&setting.root, b"link", &metadata, &[]).unwrap();
        setting.target.make_special(&setting.root, b"link", &metadata, &[]).unwrap();
        assert_is(&setting.stat("link"), &metadata);
    }
    assert_eq!(setting.problems(), [""; 0]);
    setting.nothing_left_over();
}

#[test]
fn hard_links_of_any_kind() {
    let setting = setting();
    let link = wanted(Kind::Symlink, 0o777);
    setting.file("file", b"x", &wanted(Kind::File, 0o600), &[]);
    setting.target.make_symlink(&setting.root, b"link", b"target", &link, &[]).unwrap();
    let dir = setting.target.ensure_dir(&setting.root, b"dir").unwrap();
    for name in [&b"file"[..], b"link"] {
        fs::write(setting.path("dir/second"), "in the way").unwrap();
        for _ in 0..2 {
            setting.target.make_link((&setting.root, name), &dir, b"second").unwrap();
            let first = stat_child(setting.root.fd().unwrap(), name).unwrap();
            let second = stat_child(dir.fd().unwrap(), b"second").unwrap();
            assert!(first.is_same_inode(&second));
            assert_eq!(second.nlink, 2);
        }
    }
    assert_eq!(dir.names().unwrap().len(), 1);
}

#[test]
fn whatever_stands_in_the_way() {
    let setting = setting();
    let file = wanted(Kind::File, 0o644);
    fs::create_dir_all(setting.path("x/full/of/things")).unwrap();
    fs::write(setting.path("x/full/file"), "").unwrap();
    fs::set_permissions(setting.path("x/full"), fs::Permissions::from_mode(0o500)).unwrap();
    setting.file("x", b"", &file, &[]);
    assert_is(&setting.stat("x"), &file);
    setting.target.ensure_dir(&setting.root, b"x").unwrap();
    setting.target.make_symlink(&setting.root, b"x", b"y", &wanted(Kind::Symlink, 0o777), &[]).unwrap();
    assert_eq!(setting.stat("x").kind, Kind::Symlink);
    setting.target.remove(&setting.root, b"x").unwrap();
    setting.target.remove(&setting.root, b"x").unwrap();
    assert!(setting.root.names().unwrap().is_empty());
}

#[test]
fn planted_links_are_not_followed() {
    let setting = setting();
    let elsewhere = Scratch::new();
    fs::write(elsewhere.join("precious"), "precious").unwrap();
    fs::set_permissions(elsewhere.path(), fs::Permissions::from_mode(0o705)).unwrap();
    for name in ["dir", "file", "link"] {
        symlink(elsewhere.path(), setting.path(name)).unwrap();
    }
    let dir = setting.target.ensure_dir(&setting.root, b"dir").unwrap();
    setting.target.finish_dir(&dir, &wanted(Kind::Directory, 0o750), &[]).unwrap();
    setting.file("file", b"", &wanted(Kind::File, 0o600), &[]);
    assert_is(&setting.stat("dir"), &wanted(Kind::Directory, 0o750));
    let wrong = setting.target.set_metadata(&setting.root, b"link", &wanted(Kind::Directory, 0o777), &[]);
    assert!(matches!(wrong, Err(LiveError::Replaced)));
    // One planted after the directory was made and closed.
    dir.close();
    fs::remove_dir(setting.path("dir")).unwrap();
    symlink(elsewhere.path(), setting.path("dir")).unwrap();
    assert!(setting.target.begin_file(&dir, b"precious", &wanted(Kind::File, 0o600)).is_err());
    setting.target.remove(&setting.root, b"dir").unwrap();
    assert_eq!(fs::read_to_string(elsewhere.join("precious")).unwrap(), "precious");
    assert_eq!(fs::metadata(elsewhere.path()).unwrap().mode() & 0o7777, 0o705);
}

#[test]
fn deep_trees_with_names_of_255_bytes() {
    let setting = setting();
    let name = [0xfe; 255];
    let mut chain = vec![Arc::clone(&setting.root)];
    for _ in 0..1000 {
        let next = setting.target.ensure_dir(chain.last().unwrap(), &name).unwrap();
        chain.push(next);
    }
    let deepest = chain.last().unwrap();
    let metadata = wanted(Kind::File, 0o600);
    let file = setting.target.begin_file(deepest, &name, &metadata).unwrap();
    setting.target.finish_file(file, &metadata, &[]).unwrap();
    for dir in chain.iter().skip(1).rev() {
        setting.target.finish_dir(dir, &wanted(Kind::Directory, 0o500), &[]).unwrap();
    }
    assert_is(&stat_child(setting.root.fd().unwrap(), &name).unwrap(), &wanted(Kind::Directory, 0o500));
    assert_is(&stat_child(deepest.fd().unwrap(), &name).unwrap(), &metadata);
    setting.target.remove(&setting.root, &name).unwrap();
    assert!(setting.root.names().unwrap().is_empty());
}

#[test]
fn times_of_any_year() {
    let setting = setting_in(Scratch::in_memory(), OwnerBy::Number);
    for (secs, nanos) in [(-3_000_000_000, 1), (-1, 999_999_999), (0, 0), (20_000_000_000, 7)] {
        let mut metadata = wanted(Kind::File, 0o600);
        metadata.mtime = Timestamp { secs, nanos };
        setting.file("file", b"", &metadata, &[]);
        assert_is(&setting.stat("file"), &metadata);
        let mut link = wanted(Kind::Symlink, 0o777);
        link.mtime = metadata.mtime;
        setting.target.make_symlink(&setting.root, b"link", b"file", &link, &[]).unwrap();
        assert_is(&setting.stat("link"), &link);
    }
}

#[test]
fn acls() {
    let setting = setting();
    fs::write(setting.scratch.join("model"), "").unwrap();
    fs::create_dir(setting.scratch.join("dir")).unwrap();
    run("setfacl", &["-m", "u:12345:r,m::rw", "model"], setting.scratch.path());
    run("setfacl", &["-d", "-m", "u:12345:rwx", "dir"], setting.scratch.path());
    let from = setting.scratch.open().fd().unwrap();
    let acl = xattrs::xattrs_of_child(&from, b"model").unwrap();
    let default = xattrs::xattrs_of_child(&from, b"dir").unwrap();
    assert_eq!(&*acl[0].name, b"system.posix_acl_access");
    assert_eq!(&*default[0].name, b"system.posix_acl_default");
    let dir = setting.target.ensure_dir(&setting.root, b"dir").unwrap();
    setting.target.finish_dir(&dir, &wanted(Kind::Directory, 0o755), &default).unwrap();
    // Below a default ACL a new file would inherit one.
    for (name, xattrs) in [(&b"with"[..], &acl[..]), (b"without", &[])] {
        let metadata = wanted(Kind::File, 0o664);
        let file = setting.target.begin_file(&dir, name, &metadata).unwrap();
        setting.target.finish_file(file, &metadata, xattrs).unwrap();
        assert_eq!(xattrs::xattrs_of_child(dir.fd().unwrap(), name).unwrap(), xattrs);
        assert_is(&stat_child(dir.fd().unwrap(), name).unwrap(), &metadata);
    }
    assert_eq!(setting.problems(), [""; 0]);
}

#[test]
fn what_root_can_do() {
    if !is_root() {
        return;
    }
    let setting = setting();
    // A capability: version 2, cap_net_raw permitted.
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let attributes = [xattr("security.capability", &capability), xattr("trusted.t", b"secret")];
    let file = owned(wanted(Kind::File, 0o6755), 1234, 5678);
    setting.file("file", b"data", &Metadata { size: 4, ..file.clone() }, &attributes);
    assert_is(&setting.stat("file"), &file);
    assert_eq!(setting.xattrs("file"), attributes);

    let trusted = &attributes[1..];
    let link = owned(wanted(Kind::Symlink, 0o777), 12, 34);
    setting.target.make_symlink(&setting.root, b"link", b"file", &link, trusted).unwrap();
    assert_is(&setting.stat("link"), &link);
    assert_eq!(setting.xattrs("link"), trusted);
    assert_is(&setting.stat("file"), &file);
    for (kind, rdev) in
        [(Kind::CharDevice, (300, 70_000)), (Kind::BlockDevice, (7, 99)), (Kind::Fifo, (0, 0))]
    {
        let mut metadata = owned(wanted(kind, 0o640), 1, 2);
        metadata.rdev = rdev;
        setting.target.make_special(&setting.root, b"special", &metadata, trusted).unwrap();
        assert_is(&setting.stat("special"), &metadata);
        assert_eq!(setting.xattrs("special"), trusted);
        // Metadata alone, on a thing that must not be opened.
        let other = Metadata { rdev, ..owned(wanted(kind, 0o604), 3, 4) };
        setting.target.set_metadata(&setting.root, b"special", &other, &[]).unwrap();
        assert_is(&setting.stat("special"), &other);
        assert_eq!(setting.xattrs("special"), []);
    }
    assert_eq!(setting.problems(), [""; 0]);
}

#[test]
fn owners_by_name() {
    if !is_root() {
        return;
    }
    let setting = setting_in(Scratch::new(), OwnerBy::Name);
    let mut metadata = wanted(Kind::File, 0o600);
    let (user, group) = (b"daemon"[..].into(), b"no such group"[..].into());
    metadata.owner = Arc::new(Owner { uid: 4321, gid: 8765, user, group });
    setting.file("file", b"", &metadata, &[]);
    let stat = setting.stat("file");
    assert_eq!((stat.uid, stat.gid), (1, 8765));
}

#[test]
fn protected_files_and_directories() {
    let setting = setting();
    let probe = fs::File::create(setting.path("probe")).unwrap();
    if !is_root() || flags::set(&probe, flags::PROTECTION, flags::PROTECTION).is_err() {
        return;
    }
    setting.target.remove(&setting.root, b"probe").unwrap();
    let flags_of = |name: &str| flags::flags_of_fd(fs::File::open(setting.path(name)).unwrap());
    let nodump = rustix::fs::IFlags::NODUMP.bits();
    let mut metadata = wanted(Kind::File, 0o600);
    metadata.flags = flags::PROTECTION | nodump;
    // Twice, over itself, with a second link.
    for _ in 0..2 {
        let dir = setting.target.ensure_dir(&setting.root, b"dir").unwrap();
        let file = setting.target.begin_file(&dir, b"file", &metadata).unwrap();
        setting.target.finish_file(file, &metadata, &[]).unwrap();
        setting.target.make_link((&dir, b"file"), &setting.root, b"link").unwrap();
        setting.target.set_metadata(&setting.root, b"link", &metadata, &[]).unwrap();
        assert_eq!(flags_of("dir/file"), metadata.flags);
        assert_eq!(setting.stat("link").nlink, 2);
        let mut above = wanted(Kind::Directory, 0o700);
        above.flags = rustix::fs::IFlags::IMMUTABLE.bits();
        setting.target.finish_dir(&dir, &above, &[]).unwrap();
        assert_eq!(flags_of("dir"), above.flags);
        assert!(fs::write(setting.path("dir/other"), "").is_err());
    }
    let free = Metadata { flags: 0, ..metadata };
    setting.target.set_metadata(&setting.root, b"link", &free, &[]).unwrap();
    assert_eq!(flags_of("link"), 0);
    setting.file("dir", b"", &free, &[]);
    assert_eq!(setting.problems(), [""; 0]);
    setting.nothing_left_over();
}

/// Runs all tests of this file, and those below that are for ordinary users only, as nobody.
#[test]
fn as_an_ordinary_user() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = scratch.join("tests");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&copy)
        .args(["--include-ignored", "live::"])
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("as_nobody ... ok"), "{text}");
}

#[test]
#[ignore = "run by as_an_ordinary_user"]
fn as_nobody() {
    if is_root() {
        return;
    }
    let setting = setting();
    let foreign = owned(wanted(Kind::File, 0o6755), 1234, 5678);
    let attributes = [xattr("trusted.t", b"secret"), xattr("user.u", b"open")];
    let mut immutable = foreign.clone();
    immutable.flags = flags::PROTECTION | rustix::fs::IFlags::NODUMP.bits();
    for name in ["a", "b"] {
        setting.file(name, b"", &immutable, &attributes);
        let stat = setting.stat(name);
        // Setuid of another owner must not become setuid of this one.
        assert_eq!((stat.mode, stat.uid), (0o755, 65534));
        assert_eq!(stat.mtime, foreign.mtime);
        assert_eq!(setting.xattrs(name), attributes[1..]);
    }
    let file = fs::File::open(setting.path("a")).unwrap();
    assert_eq!(flags::flags_of_fd(&file) & flags::PROTECTION, 0);
    let problems = setting.problems();
    assert_eq!(problems.iter().filter(|text| text.contains("owner")).count(), 1, "{problems:?}");
    assert_eq!(problems.iter().filter(|text| text.contains("extended")).count(), 1, "{problems:?}");
    assert_eq!(setting.monitor.problems_of(Severity::Lost), 0, "{problems:?}");

    let device = Metadata { rdev: (1, 3), ..wanted(Kind::CharDevice, 0o600) };
    let error = setting.target.make_special(&setting.root, b"null", &device, &[]).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::PERM));

    // What this user has locked for itself does not stop it.
    let locked = wanted(Kind::File, 0o000);
    setting.file("locked", b"", &locked, &attributes[1..]);
    setting.target.set_metadata(&setting.root, b"locked", &locked, &[xattr("user.u", b"other")]).unwrap();
    assert_eq!(setting.stat("locked").mode, 0);
    let dir = setting.target.ensure_dir(&setting.root, b"dir").unwrap();
    setting.target.finish_dir(&dir, &wanted(Kind::Directory, 0o000), &[]).unwrap();
    let dir = setting.target.ensure_dir(&setting.root, b"dir").unwrap();
    setting.target.finish_dir(&dir, &wanted(Kind::Directory, 0o000), &[]).unwrap();
    assert_eq!(setting.stat("dir").mode, 0);
    setting.nothing_left_over();
}
