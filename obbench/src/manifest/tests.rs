use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::write(root.join("a"), b"contents").unwrap();
    fs::hard_link(root.join("a"), root.join("b")).unwrap();
    symlink("else\nwhere", root.join("l")).unwrap();
    fs::create_dir(root.join("d")).unwrap();
    let sparse = fs::File::create(root.join("d/s")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    for name in ["a", "d/s", "d", "."] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1, 2);
        fs::File::open(root.join(name)).unwrap().set_modified(time).unwrap();
    }
    dir
}

/// Two trees made alike, but for the link, whose time cannot be set so.
fn without_link(dir: &tempfile::TempDir) -> String {
    of(dir.path())
        .unwrap()
        .lines()
        .filter(|line| !line.contains("symlink"))
        .fold(String::new(), |all, line| all + line + "\n")
}

#[test]
fn trees_made_alike_are_alike() {
    let (one, other) = (tree(), tree());
    assert_eq!(without_link(&one), without_link(&other));
    let text = of(one.path()).unwrap();
    assert!(text.contains("target:else\\nwhere"), "{text}");
    assert!(text.contains("./b\tfile") && text.contains("link:./a"), "{text}");
    assert!(text.contains("1.000000002"), "{text}");
    assert!(text.contains("size:1048576 sum:") && text.contains(" data:\n"), "{text}");
    assert_eq!(text.lines().count(), 6);
}

#[test]
fn whatever_changes_shows() {
    type Edit = fn(&Path);
    let edits: [(&str, Edit); 5] = [
        ("contents", |root| {
            let time = fs::metadata(root.join("a")).unwrap().modified().unwrap();
            fs::write(root.join("a"), b"Contents").unwrap();
            fs::File::open(root.join("a")).unwrap().set_modified(time).unwrap();
        }),
        ("mode", |root| fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o4711)).unwrap()),
        ("a link cut", |root| {
            fs::copy(root.join("a"), root.join("c")).unwrap();
            fs::remove_file(root.join("b")).unwrap();
        }),
        ("a hole filled", |root| fs::write(root.join("d/s"), vec![0; 1 << 20]).unwrap()),
        ("a nanosecond", |root| {
            let time = std::time::UNIX_EPOCH + std::time::Duration::new(1, 3);
            fs::File::open(root.join("d")).unwrap().set_modified(time).unwrap();
        }),
    ];
    for (what, edit) in edits {
        let dir = tree();
        let before = of(dir.path()).unwrap();
        edit(dir.path());
        assert_ne!(of(dir.path()).unwrap(), before, "{what}");
    }
}
