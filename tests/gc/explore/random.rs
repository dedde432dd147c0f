//! Orders of steps at random, by seeds: more actors than can be searched through.

use super::actors::{Plan, check, forget_all, revoker};
use super::search::{Actor, wander};
use super::setup::{Setup, is_long};
use crate::dice::Dice;

/// What is saved: one to four of six objects.
fn objects(dice: &mut Dice) -> Vec<u64> {
    let mut objects: Vec<u64> = (0..=dice.roll(4)).map(|_| 1 + dice.roll(6)).collect();
    objects.sort_unstable();
    objects.dedup();
    objects
}

fn plan(client: &'static str, dice: &mut Dice) -> Plan {
    Plan { checkpoint: dice.roll(4) == 0, ..Plan::new(client, &objects(dice)) }
}

/// Three backups, two collectors of which one or both repack, somebody who forgets, and now and then one who revokes.
fn cast(setup: &Setup, dice: &mut Dice) -> Vec<Actor> {
    let mut actors: Vec<Actor> =
        ["laptop", "desk", "attic"].map(|client| plan(client, dice).actor(&setup.stored)).into();
    actors.push(forget_all(setup.client(["laptop", "old"][usize::try_from(dice.roll(2)).unwrap()])));
    actors.push(if dice.roll(2) == 0 { setup.thinner(2) } else { setup.repacker(2) });
    actors.push(if dice.roll(2) == 0 { setup.gc_of("janitor", 2) } else { setup.repacker(1) });
    if dice.roll(4) == 0 {
        let whom = ["laptop", "collector", "desk"][usize::try_from(dice.roll(3)).unwrap()];
        actors.push(revoker(setup.client(whom)));
    }
    actors
}

fn some(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let old = Plan { together: dice.roll(2) == 0, ..Plan::new("old", &[1, 2, 3]) };
        let made = [old, plan("laptop", &mut dice), plan("laptop", &mut dice)];
        let setup = Setup::new(&made).later();
        let setup = if dice.roll(2) == 0 { setup.forget("old") } else { setup };
        // The same cast in several orders.
        let actors = cast(&setup, &mut dice);
        for _ in 0..3 {
            let failure = wander(&setup.memory, &actors, &mut dice, &|memory| check(&setup.stored, memory));
            assert!(failure.is_none(), "seed {seed}: {}", failure.unwrap());
        }
    }
}

/// 210 orders; `KITBAG_TEST_LONG=1` asks for 6,000.
#[test]
fn orders_at_random() {
    some(0..if is_long() { 2000 } else { 70 });
}
