//! The search through all orders of steps.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use kitbag::store::SharedStore;
use kitbag::store::testing::MemoryStore;

use super::store::ActorStore;
use super::world::{Ready, Sabotage, World};
use crate::dice::Dice;

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
    /// Actors that are killed, at most: each behind any of its changes, which are what others see of it.
    pub kills: usize,
    /// States, at most.
    pub states: usize,
    /// Before which calls an actor is interrupted.
    pub at: fn(&str) -> bool,
    /// Before which calls an actor is killed that has changed something just now.
    pub kill_at: fn(&str) -> bool,
}

/// A step of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Go(usize),
    Kill(usize),
}

/// What is left of the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    switches: usize,
    kills: usize,
}

struct Frame {
    choices: Vec<(Choice, Left)>,
    at: usize,
}

/// What can be done next, going on with whoever came last before all else.
fn choices(ready: &[Ready], last: Option<usize>, left: Left, bound: Bound) -> Vec<(Choice, Left)> {
    let going = ready.iter().find(|one| Some(one.who) == last);
    let mut choices = Vec::new();
    if let Some(going) = going {
        choices.push((Choice::Go(going.who), left));
        if going.has_changed && left.kills > 0 && (bound.kill_at)(&going.pending) {
            choices.push((Choice::Kill(going.who), Left { kills: left.kills - 1, ..left }));
        }
    }
    let others = ready.iter().filter(|one| Some(one.who) != last).map(|one| Choice::Go(one.who));
    match going {
        None => choices.extend(others.map(|other| (other, left))),
        Some(going) if left.switches > 0 && (bound.at)(&going.pending) => {
            let left = Left { switches: left.switches - 1, ..left };
            choices.extend(others.map(|other| (other, left)));
        }
        Some(_) => {}
    }
    choices
}

/// States, by who came last and how many may still be killed: with how many interruptions left each was reached.
type Seen = HashMap<(u64, Option<usize>, usize), usize>;

/// Tries every order of the actors' steps within the bound, beginning with what `start` holds; `check` says what is wrong with a state.
pub fn explore(
    start: &MemoryStore,
    actors: &[Actor],
    bound: Bound,
    check: &dyn Fn(&MemoryStore) -> Result<(), String>,
) -> Outcome {
    let mut seen = Seen::new();
    let mut stack: Vec<Frame> = Vec::new();
    let mut outcome = Outcome { states: 0, runs: 0, failure: None, is_whole: true };
    loop {
        outcome.runs += 1;
        if let Some(failure) = run(start, actors, bound, check, &mut seen, &mut stack) {
            outcome.failure = Some(failure);
            break;
        }
        // The next choice that was not tried.
        while let Some(frame) = stack.last_mut() {
            frame.at += 1;
            if frame.at < frame.choices.len() {
                break;
            }
            stack.pop();
        }
        if stack.is_empty() {
            break;
        }
        if seen.len() >= bound.states {
            outcome.is_whole = false;
            break;
        }
    }
    outcome.states = seen.len();
    outcome
}

/// Lets the actors act as `choose` says, until nobody is left; `check` is asked behind each change that `is_new`.
fn act(
    start: &MemoryStore,
    actors: &[Actor],
    check: &dyn Fn(&MemoryStore) -> Result<(), String>,
    choose: &mut Choose<'_>,
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
    let told = |wrong: &str| Some(format!("{wrong}:\n{}", world.trace().join("\n")));
    let mut failure = None;
    let mut is_new = false;
    loop {
        let (ready, state) = world.settle();
        if world.take_mutated()
            && is_new
            && let Err(wrong) = check(&world.memory)
        {
            failure = told(&wrong);
            break;
        }
        if ready.is_empty() {
            break;
        }
        match choose(&ready, state) {
            Ok((Choice::Go(who), new)) if ready.iter().any(|one| one.who == who) => {
                is_new = new;
                world.choose(who);
            }
            Ok((Choice::Kill(who), new)) if ready.iter().any(|one| one.who == who) => {
                is_new = new;
                world.kill(who);
            }
            Ok(_) => {
                failure = told("what happened could not be repeated");
                break;
            }
            Err(Stop) => break,
        }
    }
    world.end();
    for thread in threads {
        thread.join().unwrap();
    }
    failure
}

/// From here on everything is known.
struct Stop;

/// Who does what next, of those who are ready in a state; and whether it is done for the first time.
type Choose<'a> = dyn FnMut(&[Ready], u64) -> Result<(Choice, bool), Stop> + 'a;

fn run(
    start: &MemoryStore,
    actors: &[Actor],
    bound: Bound,
    check: &dyn Fn(&MemoryStore) -> Result<(), String>,
    seen: &mut Seen,
    stack: &mut Vec<Frame>,
) -> Option<String> {
    let mut depth = 0;
    let mut last = None;
    let mut left = Left { switches: bound.switches, kills: bound.kills };
    // What is repeated was checked when it happened first; the last choice of it is a new one.
    let known = stack.len();
    act(start, actors, check, &mut |ready, state| {
        if depth >= stack.len() {
            // With more interruptions left, more can be reached from here.
            let best = seen.entry((state, last, left.kills)).or_insert(usize::MAX);
            if *best != usize::MAX && *best >= left.switches {
                return Err(Stop);
            }
            *best = left.switches;
            stack.push(Frame { choices: choices(ready, last, left, bound), at: 0 });
        }
        let frame = &stack[depth];
        let (choice, rest) = frame.choices[frame.at];
        left = rest;
        last = match choice {
            Choice::Go(who) => Some(who),
            Choice::Kill(_) => None,
        };
        depth += 1;
        Ok((choice, depth >= known))
    })
}

/// Tries one order of steps, chosen at random: whoever is at it goes on three times of four. Now and then somebody is killed.
pub fn wander(
    start: &MemoryStore,
    actors: &[Actor],
    dice: &mut Dice,
    check: &dyn Fn(&MemoryStore) -> Result<(), String>,
) -> Option<String> {
    let mut last = None;
    act(start, actors, check, &mut |ready, _| {
        let going = ready.iter().find(|one| Some(one.who) == last);
        if let Some(going) = going.filter(|one| one.has_changed)
            && ready.len() > 1
            && dice.roll(60) == 0
        {
            return Ok((Choice::Kill(going.who), true));
        }
        let next = match going {
            Some(going) if dice.roll(8) > 0 => going,
            _ => dice.choose(ready).ok_or(Stop)?,
        };
        last = Some(next.who);
        Ok((Choice::Go(next.who), true))
    })
}
