//! What was explored, and that it would have found what is not right.

use std::sync::Arc;

use kitbag::base::id::ClientId;
use kitbag::gc::{Limits, Options};
use kitbag::repo::{Repository, Stored};
use kitbag::store::testing::MemoryStore;

use super::actors::{self, Plan, Rules, backup, check, collector, forget_all, revoker};
use super::search::{Actor, Bound, Outcome, explore};
use super::world::Sabotage;
use crate::bench::{Bench, collect};

struct Setup {
    memory: MemoryStore,
    stored: Stored,
}

impl Setup {
    /// Some backups were made, one after the other.
    fn new(made: &[Plan]) -> Self {
        let bench = Bench::new();
        for plan in made {
            backup(&bench.repository, plan).unwrap();
        }
        let stored = Stored::read(&bench.memory).unwrap();
        Self { memory: bench.memory, stored }
    }

    /// One more backup was made.
    fn after(self, plan: &Plan) -> Self {
        let repository = self.stored.unlock(Arc::new(self.memory.clone()), &mut |_| None).unwrap();
        backup(&repository, plan).unwrap();
        self
    }

    fn client(&self, name: &str) -> ClientId {
        let repository = self.stored.unlock(Arc::new(self.memory.clone()), &mut |_| None).unwrap();
        repository.keys().names().client_id(name.as_bytes())
    }

    /// Nothing of this client is needed any more.
    fn forget(self, name: &str) -> Self {
        let client = self.client(name);
        for name in self.memory.names_below(&format!("generations/{client}")) {
            self.memory.delete(&name);
        }
        self
    }

    fn gc(&self, times: usize) -> Actor {
        let repack = Limits { most: 0, ..Limits::default() };
        collector(&self.stored, &Options { repack, ..Options::new("collector") }, times)
    }

    /// Repacks whatever it can.
    fn repacker(&self, times: usize) -> Actor {
        let repack = Limits { most: 1 << 30, small: 1 << 20, many: 2, waste: 1 };
        collector(&self.stored, &Options { repack, ..Options::new("collector") }, times)
    }

    fn explore(&self, actors: &[Actor], bound: Bound) -> Outcome {
        let outcome = explore(&self.memory, actors, bound, &|memory| check(&self.stored, memory));
        println!("{} states, {} runs, whole: {}", outcome.states, outcome.runs, outcome.is_whole);
        outcome
    }

    fn holds(&self, actors: &[Actor], bound: Bound) {
        let outcome = self.explore(actors, self::bound(bound));
        assert!(outcome.failure.is_none(), "{}", outcome.failure.unwrap());
        assert!(outcome.is_whole, "{} states are not all", outcome.states);
    }

    /// The fewest interruptions that are enough are tried first.
    fn breaks(&self, actors: &[Actor], bound: Bound) {
        for switches in 1..=bound.switches {
            let outcome = self.explore(actors, Bound { switches, ..bound });
            if outcome.failure.is_some() {
                return;
            }
        }
        panic!("nothing was found");
    }
}

/// Every order there is.
const ALL_ORDERS: Bound = Bound { switches: 1000, states: 1_000_000 };

/// The bound that is searched when nothing must be found: `KITBAG_TEST_LONG=1` asks for the large one.
fn bound(long: Bound) -> Bound {
    let is_long = std::env::var_os("KITBAG_TEST_LONG").is_some();
    if is_long { long } else { Bound { switches: 1, ..long } }
}

fn sabotaged(mut actor: Actor, how: Sabotage) -> Actor {
    actor.sabotage = Some(how);
    actor
}

/// A bag that nobody needs, which the backup comes to refer to.
fn garbage() -> Setup {
    Setup::new(&[Plan::new("old", &[1]), Plan::new("laptop", &[2])]).forget("old")
}

#[test]
fn a_backup_and_a_collector() {
    let setup = garbage();
    setup.holds(&[Plan::new("laptop", &[1]).actor(&setup.stored), setup.gc(2)], ALL_ORDERS);
}

#[test]
fn without_exclusion_it_breaks() {
    let setup = garbage();
    let rules = Rules { excludes: false, ..actors::ALL };
    let plan = Plan { rules, ..Plan::new("laptop", &[1]) };
    setup.breaks(&[plan.actor(&setup.stored), setup.gc(2)], switches(4));
}

#[test]
fn with_a_lease_that_comes_late_it_breaks() {
    let setup = garbage();
    let rules = Rules { lease_first: false, ..actors::ALL };
    let plan = Plan { rules, ..Plan::new("laptop", &[1]) };
    setup.breaks(&[plan.actor(&setup.stored), setup.gc(2)], switches(4));
}

#[test]
fn with_sessions_listed_too_early_it_breaks() {
    let setup = garbage();
    let gc = sabotaged(setup.gc(1), Sabotage::SessionsTooEarly);
    setup.breaks(&[Plan::new("laptop", &[1]).actor(&setup.stored), gc], switches(4));
}

#[test]
fn with_generations_listed_too_early_it_breaks() {
    let setup = garbage();
    let gc = sabotaged(setup.gc(1), Sabotage::GenerationsTooEarly);
    setup.breaks(&[Plan::new("laptop", &[1]).actor(&setup.stored), gc], switches(4));
}

/// Few interruptions are enough for what can go wrong between three and four.
fn switches(switches: usize) -> Bound {
    Bound { switches, states: 1_000_000 }
}

#[test]
fn two_backups_and_a_collector() {
    let setup = garbage();
    let (one, other) = (Plan::new("laptop", &[1]), Plan::new("desk", &[1, 3]));
    setup.holds(&[one.actor(&setup.stored), other.actor(&setup.stored), setup.gc(1)], switches(2));
}

#[test]
fn a_backup_and_two_collectors() {
    let setup = garbage();
    setup.holds(&[Plan::new("laptop", &[1]).actor(&setup.stored), setup.gc(1), setup.gc(1)], switches(2));
}

#[test]
fn a_backup_that_is_revoked_and_a_collector() {
    let setup = garbage();
    let (plan, revoke) = (Plan::new("laptop", &[1]), revoker(setup.client("laptop")));
    setup.holds(&[plan.actor(&setup.stored), revoke, setup.gc(1)], switches(3));
}

#[test]
fn without_a_lease_it_breaks() {
    let setup = garbage();
    let (plan, revoke) = (Plan::new("laptop", &[1]), revoker(setup.client("laptop")));
    let plan = sabotaged(plan.actor(&setup.stored), Sabotage::NoLease);
    setup.breaks(&[plan, revoke, setup.gc(1)], switches(3));
}

/// A generation refers to what was condemned while it was made; somebody takes that over, it is forgotten, and the list is swept.
fn heirs(rules: Rules) -> (Setup, Vec<Actor>) {
    let gc = |repository: &Repository| {
        collect(repository, &Options::new("collector")).unwrap();
    };
    let parent = Plan { meanwhile: Some(Arc::new(gc)), ..Plan::new("laptop", &[1]) };
    let setup = garbage().after(&parent);
    assert_eq!(setup.memory.names_below("condemned").len(), 2, "a list and its waits");
    let heir = Plan { rules, ..Plan::new("laptop", &[1]) };
    let actors = vec![heir.actor(&setup.stored), forget_all(setup.client("laptop")), setup.gc(1)];
    (setup, actors)
}

#[test]
fn what_was_inherited() {
    let (setup, actors) = heirs(actors::ALL);
    setup.holds(&actors, switches(3));
}

#[test]
fn without_suspicion_it_breaks() {
    let (setup, actors) = heirs(Rules { suspects: false, ..actors::ALL });
    setup.breaks(&actors, switches(3));
}

#[test]
fn a_checkpoint_and_a_collector() {
    let setup = garbage();
    let plan = Plan { checkpoint: true, ..Plan::new("laptop", &[2, 1]) };
    setup.holds(&[plan.actor(&setup.stored), setup.gc(2)], switches(3));
}

#[test]
fn without_a_second_look_behind_a_checkpoint_it_breaks() {
    let setup = garbage();
    let rules = Rules { renews: false, ..actors::ALL };
    let plan = Plan { checkpoint: true, rules, ..Plan::new("laptop", &[2, 1]) };
    setup.breaks(&[plan.actor(&setup.stored), setup.gc(2)], switches(3));
}

/// Small bags of two nights.
fn nights() -> Setup {
    Setup::new(&[Plan::new("laptop", &[1]), Plan::new("laptop", &[1, 2]), Plan::new("laptop", &[1, 2, 3])])
}

#[test]
fn a_backup_and_a_repacker() {
    let setup = nights();
    setup.holds(&[Plan::new("laptop", &[1, 3, 4]).actor(&setup.stored), setup.repacker(2)], switches(3));
}

#[test]
fn two_repackers() {
    let setup = nights();
    setup.holds(&[setup.repacker(1), setup.repacker(1)], switches(3));
}
