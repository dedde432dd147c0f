//! Cycles of backup, forget and gc of three clients, each of them killed at a random moment or not: every generation that is there afterwards can be restored as it was.
//!
//! `KITBAG_TEST_LONG=1` asks for 200 cycles.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use common::{Kitbag, files_below, manifest, revoke_all};
use obbench::random::Random;

#[expect(clippy::disallowed_methods, reason = "how much is tried, the environment says")]
fn cycles() -> u64 {
    if std::env::var_os("KITBAG_TEST_LONG").is_some() { 200 } else { 8 }
}

struct Cycles {
    kitbag: Kitbag,
    random: Random,
    /// The manifests of what was saved, by record.
    saved: BTreeMap<PathBuf, (&'static str, String)>,
    kills: u64,
}

const CLIENTS: [&str; 3] = ["one", "two", "three"];

impl Cycles {
    fn new() -> Self {
        let kitbag = Kitbag::with_repository();
        for client in CLIENTS {
            kitbag.write(&format!("{client}/always"), client);
        }
        Self { kitbag, random: Random::new(5), saved: BTreeMap::new(), kills: 0 }
    }

    /// Contents are drawn from few, so that garbage comes to be needed again.
    fn edit(&mut self, client: &str) {
        for _ in 0..=self.random.below(3) {
            let (name, seed) = (self.random.below(6), self.random.below(12));
            let mut bytes = vec![0; 20_000 + usize::try_from(seed).unwrap() * 40_000];
            Random::new(seed).fill(&mut bytes);
            self.kitbag.write(&format!("{client}/{name}"), bytes);
        }
    }

    /// Runs the program, and kills it after a while, or lets it end.
    fn run(&mut self, arguments: &[&str]) {
        let mut command = self.kitbag.command();
        let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        if self.random.below(3) > 0 {
            std::thread::sleep(Duration::from_millis(self.random.below(250)));
            let _ = child.kill();
            self.kills += 1;
        }
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_none_or(|code| code == 0), "{arguments:?}: {text}");
    }

    /// Records that are new are of the tree as it is.
    fn learn(&mut self, client: &'static str) {
        let now = manifest(&self.kitbag.path(client));
        let there: Vec<_> = files_below(&self.kitbag.path("repository/generations"));
        self.saved.retain(|record, _| there.contains(record));
        for record in there {
            self.saved.entry(record).or_insert_with(|| (client, now.clone()));
        }
    }

    fn cycle(&mut self) {
        let client = CLIENTS[usize::try_from(self.random.below(3)).unwrap()];
        self.edit(client);
        self.kitbag.settle();
        self.run(&["backup", "--client-name", client, client]);
        self.learn(client);
        // Those of its clients that were killed each time have none.
        let has_any = self.saved.values().any(|(of, _)| *of == client);
        if has_any && self.random.below(2) == 0 {
            self.run(&["forget", "--client-name", client, "--keep", "2"]);
            self.learn(client);
        }
        let repack = ["0", "1G"][usize::try_from(self.random.below(2)).unwrap()];
        self.run(&["gc", "--client-name", client, "--max-repack", repack]);
        if self.random.below(3) == 0 {
            // Somebody knows that nobody is writing.
            revoke_all(&self.kitbag);
            self.run(&["gc", "--client-name", client]);
        }
        self.kitbag.run(["fsck", "--read-data"]).code(0);
    }

    fn restore_all(&self) {
        for (number, (record, (client, saved))) in self.saved.iter().enumerate() {
            let id = record.file_name().unwrap().to_str().unwrap();
            let to = format!("restored/{number}");
            self.kitbag
                .run(["restore", "--client-name", client, "--strip-root", "--to", &to, "-g", id])
                .code(0);
            assert!(*saved == manifest(&self.kitbag.path(&to)), "generation {id} of {client}");
            std::fs::remove_dir_all(self.kitbag.path(&to)).unwrap();
        }
    }
}

fn is_part(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "part")
}

#[test]
fn cycles_with_random_kills_lose_nothing() {
    let mut cycles = Cycles::new();
    for _ in 0..self::cycles() {
        cycles.cycle();
    }
    assert!(cycles.kills > 0 && !cycles.saved.is_empty());
    cycles.restore_all();
    let Cycles { kitbag, saved, kills, .. } = &cycles;
    println!("{} cycles, {kills} runs killed, {} generations left", self::cycles(), saved.len());
    // Whoever was killed holds his lease until it is stale, or revoked; then nothing of his is left.
    revoke_all(kitbag);
    kitbag.run(["gc"]).code(0);
    kitbag.run(["gc"]).code(0);
    kitbag.run(["fsck", "--read-data"]).code(0);
    let left: Vec<_> = files_below(&kitbag.path("repository"))
        .into_iter()
        .filter(|path| is_part(path) || path.to_str().is_some_and(|path| path.contains("/condemned/")))
        .collect();
    assert!(left.is_empty(), "{left:#?}");
    cycles.restore_all();
}
