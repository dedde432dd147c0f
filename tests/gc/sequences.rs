//! Random sequences of what three clients do, against plain copies.

use std::collections::BTreeMap;

use kitbag::base::id::GenerationId;
use kitbag::gc::{Limits, Options};

use crate::bench::{Bench, Client, Files, collect, noise, saved_files};

/// A generator of numbers that look random, by a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

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

fn sequence(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let bench = Bench::new();
    let clients: Vec<_> = ["one", "two", "three"].map(|name| bench.client(name)).into();
    let mut saved: BTreeMap<GenerationId, Files> = BTreeMap::new();
    for _ in 0..10 {
        let client = &clients[usize::try_from(dice.roll(3)).unwrap()];
        match dice.roll(10) {
            0..=4 => {
                edit(client, &mut dice);
                let id = client.backup().id;
                saved.insert(id, client.files());
            }
            5..=6 => {
                let all = bench.generations();
                if !all.is_empty() {
                    let (client, generation) = &all[usize::try_from(dice.roll(all.len() as u64)).unwrap()];
                    bench.forget(*client, generation.id);
                    saved.remove(&generation.id);
                }
            }
            _ => {
                let repack = Limits { most: dice.roll(2) << 30, small: 1 << 20, many: 4, waste: 1 };
                collect(&bench.repository, &Options { repack, ..Options::new("collector") }).unwrap();
            }
        }
        let all = bench.generations();
        assert_eq!(all.len(), saved.len(), "seed {seed}");
        for (_, generation) in all {
            assert!(saved_files(&bench.repository, &generation) == saved[&generation.id], "seed {seed}");
        }
    }
    collect(&bench.repository, &Options::new("collector")).unwrap();
    bench.assert_clean();
}

/// How many sequences: `KITBAG_TEST_SEQUENCES` says it; two threads share them.
#[test]
fn no_generation_is_ever_unrestorable() {
    let count =
        std::env::var("KITBAG_TEST_SEQUENCES").ok().and_then(|text| text.parse().ok()).unwrap_or(60u64);
    std::thread::scope(|scope| {
        for odd in 0..2 {
            scope.spawn(move || (0..count).filter(|seed| seed % 2 == odd).for_each(sequence));
        }
    });
}
