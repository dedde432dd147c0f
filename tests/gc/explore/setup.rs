//! What there is before anybody acts.

use std::sync::Arc;

use kitbag::base::id::ClientId;
use kitbag::gc::{Limits, Options};
use kitbag::repo::{Repository, Stored};
use kitbag::store::testing::MemoryStore;

use super::actors::{self, Plan, Rules, backup, check, collector, forget_all};
use super::search::{Actor, Bound, Outcome, explore};
use super::world::Sabotage;
use crate::bench::{Bench, collect};

pub struct Setup {
    pub memory: MemoryStore,
    pub stored: Stored,
}

impl Setup {
    /// Some backups were made, one after the other.
    pub fn new(made: &[Plan]) -> Self {
        let bench = Bench::new();
        for plan in made {
            backup(&bench.repository, plan).unwrap();
        }
        let stored = Stored::read(&bench.memory).unwrap();
        Self { memory: bench.memory, stored }
    }

    fn repository(&self) -> Repository {
        self.stored.unlock(Arc::new(self.memory.clone()), &mut |_| None).unwrap()
    }

    /// One more backup was made.
    pub fn after(self, plan: &Plan) -> Self {
        backup(&self.repository(), plan).unwrap();
        self
    }

    pub fn client(&self, name: &str) -> ClientId {
        self.repository().keys().names().client_id(name.as_bytes())
    }

    /// Nothing of this client is needed any more.
    pub fn forget(self, name: &str) -> Self {
        let client = self.client(name);
        for name in self.memory.names_below(&format!("generations/{client}")) {
            self.memory.delete(&name);
        }
        self
    }

    /// Time passes: what is there now is older than whoever begins.
    pub fn later(self) -> Self {
        self.memory.set_clock(self.memory.clock() + 100);
        self
    }

    /// Collects so many times, and repacks nothing.
    pub fn gc(&self, times: usize) -> Actor {
        self.gc_of("collector", times)
    }

    /// The same by somebody else.
    pub fn gc_of(&self, client: &str, times: usize) -> Actor {
        let repack = Limits { most: 0, ..Limits::default() };
        collector(&self.stored, &Options { repack, ..Options::new(client) }, times)
    }

    /// Repacks whatever it can.
    pub fn repacker(&self, times: usize) -> Actor {
        let repack = Limits { most: 1 << 30, small: 1 << 20, many: 2, waste: 1 };
        collector(&self.stored, &Options { repack, ..Options::new("collector") }, times)
    }

    /// Repacks bags that are mostly dead, and no others.
    pub fn thinner(&self, times: usize) -> Actor {
        let repack = Limits { most: 1 << 30, small: 0, many: 1000, waste: 1 };
        collector(&self.stored, &Options { repack, ..Options::new("collector") }, times)
    }

    pub fn explore(&self, actors: &[Actor], bound: Bound) -> Outcome {
        let outcome = explore(&self.memory, actors, bound, &|memory| check(&self.stored, memory));
        println!(
            "{} interruptions, {} killed: {} states, {} runs, whole: {}",
            bound.switches, bound.kills, outcome.states, outcome.runs, outcome.is_whole
        );
        outcome
    }

    pub fn holds(&self, actors: &[Actor], bound: Bound) {
        let outcome = self.explore(actors, bound);
        assert!(outcome.failure.is_none(), "{}", outcome.failure.unwrap());
        assert!(outcome.is_whole, "{} states are not all", outcome.states);
    }

    /// The fewest interruptions that are enough are tried first.
    pub fn breaks(&self, actors: &[Actor], bound: Bound) {
        for switches in 0..=bound.switches {
            let outcome = self.explore(actors, Bound { switches, ..bound });
            if let Some(failure) = outcome.failure {
                assert!(failure.contains("cannot be read"), "{failure}");
                return;
            }
        }
        panic!("nothing was found");
    }
}

/// Whether the large bounds are searched: `KITBAG_TEST_LONG=1` asks for that.
pub fn is_long() -> bool {
    std::env::var_os("KITBAG_TEST_LONG").is_some()
}

/// So many interruptions, before any call.
pub fn switches(switches: usize) -> Bound {
    Bound { switches, kills: 0, states: 10_000_000, at: |_| true, kill_at: |_| true }
}

/// Interruptions and killings, the former before calls whose outcome depends on others, or which change what others see.
pub fn where_it_matters(switches: usize, kills: usize) -> Bound {
    let matters = |call: &str| {
        let is_mutual = ["sessions", "condemned", "generations", "moved", "index"];
        let (op, name) = call.split_once(' ').unwrap_or((call, ""));
        op != "read" && (op != "list" || is_mutual.iter().any(|one| name.starts_with(one)))
    };
    Bound { at: matters, ..Bound { kills, ..self::switches(switches) } }
}

/// The same, around verdicts only: before generations are listed, a verdict is published, and a list goes. Killed is who has published one.
pub fn around_verdicts(switches: usize, kills: usize) -> Bound {
    let at = |call: &str| {
        let parts = ["list generations/", "remove condemned/"];
        parts.iter().any(|part| call.starts_with(part)) || call.ends_with(".doomed")
    };
    let kill_at = |call: &str| call == "list condemned";
    Bound { at, kill_at, ..where_it_matters(switches, kills) }
}

pub fn sabotaged(mut actor: Actor, how: Sabotage) -> Actor {
    actor.sabotage = Some(how);
    actor
}

/// A bag that nobody needs, which the backup comes to refer to.
pub fn garbage() -> Setup {
    Setup::new(&[Plan::new("old", &[1]), Plan::new("laptop", &[2])]).forget("old").later()
}

/// Small bags of three nights.
pub fn nights() -> Setup {
    let nights = [&[1][..], &[1, 2], &[1, 2, 3]].map(|objects| Plan::new("laptop", objects));
    Setup::new(&nights).later()
}

/// A bag of three objects, of which one is needed.
pub fn sparse() -> Setup {
    let old = Plan { together: true, ..Plan::new("old", &[1, 2, 3]) };
    Setup::new(&[old, Plan::new("laptop", &[1])]).forget("old").later()
}

/// A generation refers to what was condemned while it was made.
pub fn parent() -> Setup {
    let gc = |repository: &Repository| {
        collect(repository, &Options::new("collector")).unwrap();
    };
    let parent = Plan { meanwhile: Some(Arc::new(gc)), ..Plan::new("laptop", &[1]) };
    let setup = garbage().after(&parent);
    assert_eq!(setup.memory.names_below("condemned").len(), 2, "a list and its waits");
    setup
}

/// Somebody takes over what such a generation refers to, it is forgotten, and the list is swept.
pub fn heirs(rules: Rules) -> (Setup, Vec<Actor>) {
    let setup = parent();
    let heir = Plan { rules, ..Plan::new("laptop", &[1]) };
    let actors = vec![heir.actor(&setup.stored), forget_all(setup.client("laptop")), setup.gc(1)];
    (setup, actors)
}

/// One collector lets off what such a generation refers to, another decides when that is forgotten, and somebody comes to refer to it afresh.
pub fn late_verdict(how: Option<Sabotage>) -> (Setup, Vec<Actor>) {
    let setup = parent();
    let mut late = setup.gc_of("janitor", 1);
    late.sabotage = how;
    let desk = Plan::new("desk", &[1]).actor(&setup.stored);
    let actors = vec![setup.gc(1), forget_all(setup.client("laptop")), late, desk];
    (setup, actors)
}

/// What is left of a bag that is mostly dead is copied while a backup comes to refer to the rest of it; another collector ends it.
pub fn thinned(how: Option<Sabotage>) -> (Setup, Vec<Actor>) {
    let setup = sparse();
    let mut last = setup.gc_of("janitor", 1);
    last.sabotage = how;
    let actors = vec![Plan::new("desk", &[2]).actor(&setup.stored), setup.thinner(1), last];
    (setup, actors)
}

/// A repacker is revoked, and what it has copied is collected by another.
pub fn revoked_repacker(how: Option<Sabotage>) -> (Setup, Vec<Actor>) {
    let setup = nights();
    let mut repacker = setup.repacker(1);
    repacker.sabotage = how;
    let revoker = actors::revoker(setup.client("collector"));
    let actors = vec![repacker, revoker, setup.gc_of("janitor", 1)];
    (setup, actors)
}

/// An index names a bag that is gone, as a slow merger of segments leaves it.
pub fn stale_index() -> Setup {
    let setup = garbage();
    let needed = {
        let repository = setup.repository();
        let generations = repository.catalog();
        let client = setup.client("laptop");
        let ids = kitbag::generation::Catalog::ids(&generations.list(client).wait().unwrap());
        let source = kitbag::bag::source::Source::new(repository.bags(), 1 << 20);
        let lists = generations.read(client, &ids).into_iter().map(|(_, record)| record.unwrap().bag_list);
        lists
            .flat_map(|list| {
                let named = kitbag::generation::baglist::read(&source, &list).unwrap();
                named.into_iter().map(|uses| uses.bag).chain(list.own_bags()).collect::<Vec<_>>()
            })
            .map(kitbag::store::layout::bag)
            .collect::<Vec<_>>()
    };
    for bag in setup.memory.names_below("bags") {
        if !needed.contains(&bag) {
            setup.memory.delete(&bag);
        }
    }
    setup
}
