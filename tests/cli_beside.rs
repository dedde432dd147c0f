//! What happens beside a backup that is frozen, and beside files that somebody has copied within the repository.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Kitbag, Outcome, files_below, json_field, revoke_all};
use obbench::clock;
use obbench::random::Random;

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Random::new(seed).fill(&mut noise);
    noise
}

/// A backup that is under way. Killed when dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    fn end(mut self) -> Outcome {
        assert!(
            clock::wait_until(Duration::from_secs(120), || self.0.try_wait().unwrap().is_some()),
            "it hangs"
        );
        let read = |stream: &mut dyn std::io::Read| {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        let stdout = read(self.0.stdout.as_mut().unwrap());
        let stderr = read(self.0.stderr.as_mut().unwrap());
        Outcome { code: self.0.wait().unwrap().code(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another client has generations of which some are forgotten while a first one is frozen in mid-backup. Its tree shares contents with what is forgotten.
fn frozen() -> (Kitbag, Running) {
    let kitbag = Kitbag::with_repository();
    kitbag.write("other/shared", noise(1, 3_000_000));
    kitbag.run(["backup", "--client-name", "other", "other"]).code(0);
    kitbag.write("other/shared", noise(2, 1_000_000));
    kitbag.run(["backup", "--client-name", "other", "other"]).code(0);
    // Gone from the other's tree by now, but not from the repository.
    kitbag.write("live/first", noise(1, 3_000_000));
    kitbag.write("live/second", noise(3, 6_000_000));
    let mut command = kitbag.command();
    let running = Running::start(command.args(["backup", "--limit-upload", "2M", "live"]));
    let is_writing = || files_below(&kitbag.path("repository/bags")).iter().any(|path| is_part(path));
    assert!(clock::wait_until(Duration::from_secs(60), is_writing), "it stores nothing");
    running.signal("STOP");
    (kitbag, running)
}

fn is_part(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|extension| extension == "part")
}

fn forget_and_collect(kitbag: &Kitbag) -> [Outcome; 2] {
    kitbag.run(["forget", "--client-name", "other", "--keep", "1"]).code(0);
    let collect = || kitbag.run(["gc", "--client-name", "other", "--json"]).code(0);
    let first = collect();
    kitbag.write("other/more", noise(4, 500_000));
    kitbag.run(["backup", "--client-name", "other", "other"]).code(0);
    kitbag.run(["forget", "--client-name", "other", "--keep", "1"]).code(0);
    [first, collect()]
}

/// All that is published can be restored, and what nobody needs goes.
fn assert_sound(kitbag: &Kitbag, clients: &[&str]) {
    kitbag.run(["fsck", "--read-data"]).code(0);
    for client in clients {
        let to = format!("restored-{client}");
        kitbag.run(["restore", "--client-name", client, "--strip-root", "--to", &to]).code(0);
        let live = if *client == "other" { "other" } else { "live" };
        assert!(common::manifest(&kitbag.path(live)) == common::manifest(&kitbag.path(&to)), "{client}");
    }
    kitbag.run(["gc"]).code(0);
    kitbag.run(["gc"]).code(0);
    kitbag.run(["fsck", "--read-data"]).code(0);
    for directory in ["sessions", "condemned"] {
        let left = files_below(&kitbag.path("repository").join(directory));
        assert!(left.is_empty(), "{left:?}");
    }
    let parts: Vec<_> =
        files_below(&kitbag.path("repository")).into_iter().filter(|path| is_part(path)).collect();
    assert!(parts.is_empty(), "{parts:?}");
}

#[test]
fn who_is_frozen_while_others_collect_twice_ends_well() {
    let (kitbag, running) = frozen();
    for outcome in forget_and_collect(&kitbag) {
        // Whatever the frozen one may come to refer to is waited for.
        assert_eq!(json_field(&outcome.stdout, "sessions"), "1", "{}", outcome.stdout);
        assert_eq!(json_field(&outcome.stdout, "bags_removed"), "0", "{}", outcome.stdout);
    }
    running.signal("CONT");
    running.end().code(0);
    assert_sound(&kitbag, &["laptop", "other"]);
}

#[test]
fn who_is_frozen_and_revoked_says_so_and_publishes_nothing() {
    let (kitbag, running) = frozen();
    revoke_all(&kitbag);
    let [first, _] = forget_and_collect(&kitbag);
    assert_ne!(json_field(&first.stdout, "bags_removed"), "0", "{}", first.stdout);
    running.signal("CONT");
    let outcome = running.end();
    assert_ne!(outcome.code, Some(0), "{}", outcome.stderr);
    let said: Vec<_> = outcome.stderr.lines().filter(|line| line.contains("revoked")).collect();
    assert_eq!(said.len(), 1, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    assert_sound(&kitbag, &["other"]);
    // And the next one ends well.
    kitbag.run(["backup", "live"]).code(0);
    assert_sound(&kitbag, &["laptop", "other"]);
}

/// Copies as file managers and tools that synchronise directories make them.
#[test]
fn a_stray_copy_is_named_and_nobody_trips_over_it() {
    let kitbag = Kitbag::with_repository();
    kitbag.write("live/one", noise(1, 300_000));
    kitbag.run(["backup", "live"]).code(0);
    let repository = kitbag.path("repository");
    let mut strays = Vec::new();
    for directory in ["bags", "index", "generations", "keys"] {
        for (file, end) in files_below(&repository.join(directory)).iter().zip([" (copy)", ".bak", "~"]) {
            let name = file.file_name().unwrap().to_str().unwrap();
            let copy = file.with_file_name(format!("{name}{end}"));
            std::fs::copy(file, &copy).unwrap();
            strays.push(copy);
        }
    }
    // And a bag in another bag's directory.
    let bag = files_below(&repository.join("bags"))[0].clone();
    let other = repository.join("bags/zz").join(bag.file_name().unwrap());
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    std::fs::copy(&bag, &other).unwrap();

    let named = kitbag.run(["fsck", "--read-data"]).code(0);
    for stray in &strays {
        let name = stray.strip_prefix(&repository).unwrap().to_str().unwrap();
        assert!(named.stderr.contains(name), "{name} in {}", named.stderr);
    }
    assert!(named.stderr.contains("bags/zz"), "{}", named.stderr);
    kitbag.settle();
    kitbag.write("live/two", noise(2, 200_000));
    kitbag.run(["backup", "live"]).code(0);
    kitbag.run(["generations"]).code(0);
    kitbag.run(["forget", "--keep", "1"]).code(0);
    kitbag.run(["gc"]).code(0);
    kitbag.run(["restore", "--strip-root", "--to", "back"]).code(0);
    assert!(common::manifest(&kitbag.path("live")) == common::manifest(&kitbag.path("back")));
    kitbag.run(["fsck", "--repair", "--read-data"]).code(0);
    assert!(strays.iter().all(|stray| stray.exists()), "what is not ours is left alone");
}

/// The largest bag: it holds contents.
fn damage(kitbag: &Kitbag) {
    let size = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().len();
    let bag = files_below(&kitbag.path("repository/bags")).into_iter().max_by_key(size).unwrap();
    let mut bytes = std::fs::read(&bag).unwrap();
    bytes[1000] ^= 1;
    std::fs::remove_file(&bag).unwrap();
    std::fs::write(&bag, bytes).unwrap();
}

/// Whoever has found damage does not build upon it; neither a repair nor anything else is needed for that.
#[test]
fn what_was_found_damaged_is_healed_by_rereading() {
    for find in [&["fsck", "--read-data"][..], &["restore", "--to", "damaged"], &["verify", "--read-data"]] {
        let kitbag = Kitbag::with_repository();
        kitbag.write("live/one", noise(1, 500_000));
        kitbag.run(["backup", "live"]).code(0);
        damage(&kitbag);
        assert_ne!(kitbag.run(find).code, Some(0), "{find:?}");
        kitbag.run(["backup", "--reread", "live"]).code(0);
        kitbag.run(["restore", "--strip-root", "--to", "back"]).code(0);
        assert!(common::manifest(&kitbag.path("live")) == common::manifest(&kitbag.path("back")), "{find:?}");
        // Once nobody needs the damaged bag, it goes, and all is well.
        kitbag.run(["forget", "--keep", "1"]).code(0);
        kitbag.run(["gc"]).code(0);
        kitbag.run(["fsck", "--read-data"]).code(0);
    }
}
