//! Random sequences of what three clients do, against plain copies.

use std::collections::BTreeMap;
use std::sync::Arc;

use kitbag::base::id::GenerationId;
use kitbag::gc::{Limits, Options};

use crate::bench::{Bench, Client, Files, collect, noise, saved_files};
use crate::dice::Dice;

/// Edits a file or two. Contents are drawn from few, so that much is garbage that somebody comes to need again.
fn edit(client: &Client, dice: &mut Dice) {
    for _ in 0..=dice.roll(2) {
        let name = format!("{}/{}", dice.roll(2), dice.roll(4));
        let seed = dice.roll(12);
        if dice.roll(5) == 0 {
            let _ = std::fs::remove_file(client.path(&name));
        } else {
            client.write(&name, &noise(seed, 600 + usize::try_from(seed).unwrap() * 150));
        }
    }
}

/// What was saved, as it must come back.
struct Model {
    bench: Bench,
    saved: BTreeMap<GenerationId, Files>,
    seed: u64,
}

impl Model {
    /// Restores all generations, as somebody does who has just come.
    fn check(&self) {
        let repository = self.bench.over(Arc::new(self.bench.memory.clone()));
        let all = self.bench.generations();
        assert_eq!(all.len(), self.saved.len(), "seed {}", self.seed);
        for (_, generation) in all {
            let files = saved_files(&repository, &generation);
            assert!(files == self.saved[&generation.id], "seed {}, generation {}", self.seed, generation.id);
        }
    }

    fn step(&mut self, clients: &[Client], dice: &mut Dice) {
        let client = &clients[usize::try_from(dice.roll(3)).unwrap()];
        match dice.roll(10) {
            0..=3 => {
                edit(client, dice);
                let id = client.backup().id;
                self.saved.insert(id, client.files());
            }
            4..=5 => {
                let all = self.bench.generations();
                if let Some((client, generation)) = dice.choose(&all) {
                    self.bench.forget(*client, generation.id);
                    self.saved.remove(&generation.id);
                }
            }
            6..=7 => {
                let repack = Limits { most: dice.roll(2) << 30, small: 1 << 20, many: 4, waste: 1 };
                collect(&self.bench.repository, &Options { repack, ..Options::new("collector") }).unwrap();
                self.check();
            }
            _ => {
                // With whatever this client holds in its cache and its memory.
                let all = self.bench.generations();
                if let Some((_, generation)) = dice.choose(&all) {
                    let files = saved_files(&client.repository, generation);
                    assert!(files == self.saved[&generation.id], "seed {}", self.seed);
                }
            }
        }
    }
}

fn sequence(seed: u64) {
    let mut dice = Dice::new(seed);
    let bench = if seed / 4 % 16 == 5 { Bench::with_passphrase() } else { Bench::new() };
    let is_cached = seed / 4 % 8 == 1;
    let clients: Vec<_> = ["one", "two", "three"]
        .map(|name| bench.client_over(name, bench.over(Arc::new(bench.memory.clone())), is_cached))
        .into();
    let mut model = Model { bench, saved: BTreeMap::new(), seed };
    for _ in 0..12 {
        model.step(&clients, &mut dice);
    }
    collect(&model.bench.repository, &Options::new("collector")).unwrap();
    model.check();
    model.bench.assert_clean();
}

/// How many sequences in each of four parts: `KITBAG_TEST_SEQUENCES` says it.
fn part(which: u64) {
    let count = std::env::var("KITBAG_TEST_SEQUENCES").ok().and_then(|text| text.parse().ok());
    (0..count.unwrap_or(500u64)).map(|number| number * 4 + which).for_each(sequence);
}

#[test]
fn no_generation_is_ever_unrestorable_0() {
    part(0);
}

#[test]
fn no_generation_is_ever_unrestorable_1() {
    part(1);
}

#[test]
fn no_generation_is_ever_unrestorable_2() {
    part(2);
}

#[test]
fn no_generation_is_ever_unrestorable_3() {
    part(3);
}
