//! Random edits: what a backup concludes from comparing must be what reading everything finds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::tests::{Bench, noise};
use super::*;
use crate::base::atomic_file::rename_over;
use crate::base::time::SystemClock;
use crate::dir::reader;
use crate::entry::{Content, Entry, Metadata, Piece, Xattr};
use crate::monitor::collect::Collect;

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// All that a generation says of a path, but for places.
type Saved = (Metadata, Vec<Xattr>, Vec<u8>);

fn saved(source: &Source, entry: &Entry, path: &[u8], all: &mut BTreeMap<Vec<u8>, Saved>) {
    let mut content = Vec::new();
    match &entry.content {
        Content::Directory(top) => {
            for leaf in reader::leaves(source, *top) {
                for child in leaf.unwrap().entries {
                    saved(source, &child, &[path, b"/", &child.name].concat(), all);
                }
            }
        }
        Content::Inline(bytes) | Content::Target(bytes) => content.extend_from_slice(bytes),
        pieces => {
            for piece in reader::pieces(source, pieces) {
                match piece.unwrap() {
                    Piece::Chunk(chunk) => content.extend(chunk.id.0),
                    Piece::Hole(len) => content.extend(len.to_le_bytes()),
                }
            }
        }
    }
    all.insert(path.to_vec(), (entry.metadata.clone(), entry.xattrs.clone(), content));
}

fn backup(bench: &Bench, reread: bool) -> BTreeMap<Vec<u8>, Saved> {
    let monitor: Arc<dyn Monitor> = Arc::new(Collect::new());
    let options = Options { reread, ..bench.options() };
    let summary = run(&bench.repository, &options, &monitor, &SystemClock::new(), &Cancel::new()).unwrap();
    let source = Source::new(bench.repository.bags(), 1 << 20);
    let mut all = BTreeMap::new();
    for root in &summary.generation.roots {
        saved(&source, &root.entry, &root.path, &mut all);
    }
    all
}

fn pick(bench: &Bench, dice: &mut Dice, directories: bool) -> Option<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![bench.live.path().to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let is_dir = path.is_dir() && !path.is_symlink();
            if is_dir {
                open.push(path.clone());
            }
            if is_dir == directories {
                found.push(path);
            }
        }
    }
    found.sort();
    (!found.is_empty()).then(|| found.swap_remove(dice.roll(found.len())))
}

fn is_free(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err()
}

fn remove(path: &PathBuf) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).unwrap();
    } else {
        let _ = fs::remove_file(path);
    }
}

/// A regular file that can be written to.
fn regular(path: &PathBuf) -> Option<File> {
    let plain = fs::symlink_metadata(path).ok()?.is_file();
    plain.then(|| File::options().write(true).open(path).unwrap())
}

fn edit(bench: &Bench, dice: &mut Dice) {
    let fresh = dice.roll(usize::MAX);
    let bytes = noise(u64::try_from(fresh).unwrap(), dice.roll(3000));
    let dir = pick(bench, dice, true).unwrap_or_else(|| bench.live.path().to_owned());
    let place = dir.join(format!("name {}", dice.roll(40)));
    let Some(file) = pick(bench, dice, false) else {
        return fs::write(dir.join(format!("only {fresh}")), bytes).unwrap();
    };
    match dice.roll(14) {
        0 | 1 if is_free(&place) => fs::write(place, bytes).unwrap(),
        2 => drop(regular(&file).map(|_| fs::write(&file, bytes).unwrap())),
        3 | 4 if regular(&file).is_some() => {
            let mode = [0o600, 0o644, 0o755, 0o4711][dice.roll(4)];
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        5 => {
            if let Some(open) = regular(&file) {
                let value = noise(u64::try_from(fresh).unwrap(), dice.roll(2000));
                let name = ["user.one", "user.two"][dice.roll(2)];
                rustix::fs::fsetxattr(&open, name, &value, rustix::fs::XattrFlags::empty()).unwrap();
            }
        }
        6 if is_free(&place) => rename_over(&file, &place).unwrap(),
        7 => drop(regular(&file).map(|open| open.set_modified(SystemTime::now_for_tests()).unwrap())),
        8 => {
            remove(&file);
            match dice.roll(3) {
                0 => symlink("somewhere", &file).unwrap(),
                1 => fs::create_dir(&file).unwrap(),
                _ => rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &file,
                    rustix::fs::FileType::Fifo,
                    rustix::fs::Mode::RUSR,
                    0,
                )
                .unwrap(),
            }
        }
        9 => {
            // Two files change places.
            if let Some(other) = pick(bench, dice, false).filter(|other| *other != file) {
                let aside = bench.live.path().join("aside");
                rename_over(&file, &aside).unwrap();
                rename_over(&other, &file).unwrap();
                rename_over(&aside, &other).unwrap();
            }
        }
        10 => remove(&file),
        11 if is_free(&place) => drop(fs::hard_link(&file, &place)),
        12 if is_free(&place) => fs::create_dir(place).unwrap(),
        13 => {
            // A directory moves, with all that is in it.
            if let Some(from) =
                pick(bench, dice, true).filter(|from| !place.starts_with(from) && is_free(&place))
            {
                rename_over(&from, &place).unwrap();
            }
        }
        _ => {}
    }
}

/// Other contents, the same size and time: only the inode's own time tells.
fn hide(bench: &Bench, dice: &mut Dice) {
    let seed = u64::try_from(dice.roll(usize::MAX)).unwrap();
    if let Some(file) = pick(bench, dice, false)
        && let Some(open) = regular(&file)
    {
        let before = fs::metadata(&file).unwrap();
        fs::write(&file, noise(seed, usize::try_from(before.len()).unwrap())).unwrap();
        open.set_modified(before.modified().unwrap()).unwrap();
    }
}

fn show(path: &[u8], saved: Option<&Saved>) -> String {
    let (metadata, xattrs, content) = match saved {
        Some(saved) => saved,
        None => return "nothing".into(),
    };
    let start = &content[..content.len().min(8)];
    format!("{} {metadata:?} {} xattrs {start:?}", path.escape_ascii(), xattrs.len())
}

/// What one says of a path and the other does not, in words.
fn difference(one: &BTreeMap<Vec<u8>, Saved>, other: &BTreeMap<Vec<u8>, Saved>) -> Option<String> {
    let differs = one.keys().chain(other.keys()).find(|path| one.get(*path) != other.get(*path))?;
    Some(format!("{}\n{}", show(differs, one.get(differs)), show(differs, other.get(differs))))
}

trait NowForTests {
    fn now_for_tests() -> SystemTime;
}

impl NowForTests for SystemTime {
    fn now_for_tests() -> SystemTime {
        let now = SystemClock::new().now();
        SystemTime::UNIX_EPOCH + std::time::Duration::new(u64::try_from(now.secs).unwrap(), now.nanos)
    }
}

#[test]
fn comparing_finds_what_reading_everything_finds() {
    let long = std::env::vars_os().any(|(name, _)| name == "KITBAG_TEST_LONG");
    for seed in 0..if long { 40 } else { 3 } {
        let bench = Bench::cached();
        let mut dice = Dice(seed);
        for round in 0..25 {
            // A change that hides behind its old time is found as long as nothing else explains the time of the inode's last
            // change, so such changes come in rounds of their own.
            let quiet = dice.roll(4) == 0;
            for _ in 0..dice.roll(12) {
                if quiet { hide(&bench, &mut dice) } else { edit(&bench, &mut dice) }
            }
            // No pause before: what changed in the tick in which it was saved must be found too.
            let compared = backup(&bench, false);
            let read = backup(&bench, true);
            assert_eq!(difference(&compared, &read), None, "seed {seed}, round {round}");
        }
        bench.check();
    }
}

#[test]
fn two_runs_at_once_harm_nothing() {
    let bench = Bench::cached();
    let mut dice = Dice(77);
    for _ in 0..300 {
        edit(&bench, &mut dice);
    }
    let before = backup(&bench, false);
    for _ in 0..50 {
        edit(&bench, &mut dice);
    }
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(|| backup(&bench, false));
        let other = scope.spawn(|| backup(&bench, true));
        (one.join().unwrap(), other.join().unwrap())
    });
    assert_eq!(difference(&one, &other), None);
    assert!(difference(&one, &before).is_some());
    bench.check();
}
