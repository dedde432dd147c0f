//! The same seed gives the same tree, and the sizes are what was asked for.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::*;

/// Every path with its kind and content.
fn picture(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).expect("listed").flatten() {
            let path = entry.path();
            let kind = entry.file_type().expect("its kind");
            let content = if kind.is_dir() {
                todo.push(path.clone());
                b"/".to_vec()
            } else if kind.is_symlink() {
                fs::read_link(&path).expect("a target").into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).expect("content")
            };
            all.insert(path.strip_prefix(root).expect("below").to_path_buf(), content);
        }
    }
    all
}

#[test]
fn trees_and_edits_repeat_themselves() {
    let workloads = [
        Workload::ManyFiles { files: 250, bytes: 10 },
        Workload::BigFile { bytes: 3_000_001 },
        Workload::Laptop { files: 600 },
        Workload::HugeDirectory { files: 50 },
        Workload::VmImage { bytes: 12 << 20 },
    ];
    for workload in workloads {
        let place = tempfile::tempdir().expect("a directory");
        let (first, second) = (place.path().join("a"), place.path().join("b"));
        let size = workload.create(&first, 7).expect("made");
        assert_eq!(workload.create(&second, 7).expect("made"), size);
        let before = picture(&first);
        assert!(before == picture(&second), "{}", workload.name());
        for round in 1..=2 {
            let edits = workload.edit(&first, 7, round).expect("edited");
            assert_eq!(workload.edit(&second, 7, round).expect("edited"), edits);
            assert!(edits.changed > 0);
        }
        let after = picture(&first);
        assert!(after == picture(&second), "{}", workload.name());
        assert!(after != before);
        let other = place.path().join("c");
        workload.create(&other, 8).expect("made");
        assert!(picture(&other) != before, "another seed");
    }
}

#[test]
fn a_laptop_is_as_it_should_be() {
    let place = tempfile::tempdir().expect("a directory");
    let workload = Workload::Laptop { files: 3000 };
    let size = workload.create(&place.path().join("home"), 1).expect("made");
    let mean = size.bytes / size.files;
    assert!((15_000..50_000).contains(&mean), "{mean} bytes a file");
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    laptop_list(&place.path().join("home"), &mut files, &mut directories);
    assert!(directories.len() > 200);
    assert!(files.iter().any(|path| fs::metadata(path).expect("there").nlink() > 1), "hard links");
    let edits = workload.edit(&place.path().join("home"), 1, 1).expect("edited");
    assert!((10..60).contains(&edits.changed), "{edits:?}");
    assert!((10..60).contains(&edits.created), "{edits:?}");
    assert!((4..40).contains(&edits.deleted), "{edits:?}");
}

fn laptop_list(root: &Path, files: &mut Vec<PathBuf>, directories: &mut Vec<PathBuf>) {
    for (path, content) in picture(root) {
        if content == b"/" {
            directories.push(path);
        } else if root.join(&path).is_file() {
            files.push(root.join(path));
        }
    }
}
