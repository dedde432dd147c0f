//! The search through all orders of steps.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use kitbag::store::SharedStore;
use kitbag::store::testing::MemoryStore;

use super::world::{ActorStore, Sabotage, World};

/// Somebody who uses the store.
#[derive(Clone)]
pub struct Actor {
    pub run: Arc<dyn Fn(SharedStore) + Send + Sync>,
    pub sabotage: Option<Sabotage>,
}

/// What was found.
#[derive(Debug)]
pub struct Outcome {
    /// States that were reached.
    pub states: usize,
    /// Times that the actors were run.
    pub runs: usize,
    /// How it came to what must not be, if it did.
    pub failure: Option<String>,
    /// Whether all was tried.
    pub is_whole: bool,
}

/// How far to search.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Times that an actor who could go on is interrupted for another, at most.
    pub switches: usize,
    /// States, at most.
    pub states: usize,
}

struct Frame {
    ready: Vec<usize>,
    at: usize,
    /// Whose step came before.
    last: Option<usize>,
    left: usize,
}

impl Frame {
    fn cost(&self, who: usize) -> usize {
        usize::from(self.last.is_some_and(|last| last != who && self.ready.contains(&last)))
    }
}

/// Tries every order of the actors' steps within the bound, beginning with what `start` holds; `check` says what is wrong with a state.
pub fn explore(
    start: &MemoryStore,
    actors: &[Actor],
    bound: Bound,
    check: &dyn Fn(&MemoryStore) -> Result<(), String>,
) -> Outcome {
    let mut seen: HashMap<(u64, Option<usize>), usize> = HashMap::new();
    let mut stack: Vec<Frame> = Vec::new();
    let mut outcome = Outcome { states: 0, runs: 0, failure: None, is_whole: true };
    loop {
        outcome.runs += 1;
        if let Some(failure) = run(start, actors, bound, check, &mut seen, &mut stack) {
            outcome.failure = Some(failure);
            break;
        }
        // The next choice that was not tried.
        loop {
            let Some(frame) = stack.last_mut() else {
                outcome.states = seen.len();
                return outcome;
            };
            frame.at += 1;
            while frame.at < frame.ready.len() && frame.cost(frame.ready[frame.at]) > frame.left {
                frame.at += 1;
            }
            if frame.at < frame.ready.len() {
                break;
            }
            stack.pop();
        }
        if seen.len() >= bound.states {
            outcome.is_whole = false;
            break;
        }
    }
    outcome.states = seen.len();
    outcome
}

fn run(
    start: &MemoryStore,
    actors: &[Actor],
    bound: Bound,
    check: &dyn Fn(&MemoryStore) -> Result<(), String>,
    seen: &mut HashMap<(u64, Option<usize>), usize>,
    stack: &mut Vec<Frame>,
) -> Option<String> {
    let sabotages: Vec<_> = actors.iter().map(|actor| actor.sabotage).collect();
    let world = World::new(start.snapshot(), &sabotages);
    let threads: Vec<_> = actors
        .iter()
        .cloned()
        .enumerate()
        .map(|(who, actor)| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let store: SharedStore = Arc::new(ActorStore { world: Arc::clone(&world), who });
                (actor.run)(store);
                world.done(who);
            })
        })
        .collect();
    let mut failure = None;
    let mut depth = 0;
    let (mut last, mut left) = (None, bound.switches);
    loop {
        let (ready, state) = world.settle();
        if world.take_mutated()
            && depth >= stack.len()
            && let Err(wrong) = check(&world.memory)
        {
            failure = Some(format!("{wrong}:\n{}", world.trace().join("\n")));
            break;
        }
        if ready.is_empty() {
            break;
        }
        if depth >= stack.len() {
            // With more switches left, more can be reached from here.
            let best = seen.entry((state, last)).or_insert(usize::MAX);
            if *best != usize::MAX && *best >= left {
                break;
            }
            *best = left;
            // First whoever came before goes on.
            let mut order = ready.clone();
            order.sort_by_key(|who| Some(*who) != last);
            stack.push(Frame { ready: order, at: 0, last, left });
        }
        let frame = &stack[depth];
        let who = frame.ready[frame.at];
        if !ready.contains(&who) {
            failure = Some(format!("what happened could not be repeated:\n{}", world.trace().join("\n")));
            break;
        }
        left = frame.left - frame.cost(who);
        last = Some(who);
        depth += 1;
        world.choose(who);
    }
    world.end();
    for thread in threads {
        thread.join().unwrap();
    }
    failure
}
