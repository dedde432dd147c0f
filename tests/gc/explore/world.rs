//! What actors share: whose turn it is, and what each has seen and done.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use kitbag::store::testing::MemoryStore;
use kitbag::store::{ErrorKind, Listed, StoreError};

/// What a test lets go wrong, to see that it would be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Sessions are listed as they were when the actor listed them first.
    SessionsTooEarly,
    /// Generations are listed as they were when the actor listed them first.
    GenerationsTooEarly,
    /// What was moved is listed as it was when the actor began.
    MovesTooEarly,
    /// Whether a list is still there is answered from the first listing.
    ListsTooEarly,
    /// What an actor publishes is published though its lease is gone, and it finds its session wherever it looks.
    NoLease,
    /// A verdict takes the place of one that was published before.
    DoomTwice,
    /// A generation whose bag list was read is gone when its directories are to be looked through.
    NoLookThrough,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    Waiting,
    Done,
    /// Killed: it makes no further call, and its leases stay.
    Dead,
}

pub struct Actor {
    state: State,
    /// What it has seen and done.
    pub history: u64,
    /// What it has read since: in any order.
    pub reads: u64,
    names: u32,
    pub was_reading: bool,
    pub sabotage: Option<Sabotage>,
    pub first_lists: HashMap<String, Vec<Listed>>,
    /// The call that it waits to make.
    pending: String,
    /// Whether its last call changed something.
    has_changed: bool,
    /// What it has written into leases, where that is of use to a saboteur.
    pub leases: HashMap<String, Vec<u8>>,
    /// Records that it has read.
    pub records: HashSet<String>,
}

/// Somebody who is about to make a call.
#[derive(Debug, Clone)]
pub struct Ready {
    pub who: usize,
    /// The call.
    pub pending: String,
    /// Whether its call before has changed something, so that others can tell whether it was killed behind it.
    pub has_changed: bool,
}

pub struct Inner {
    pub actors: Vec<Actor>,
    turn: Option<usize>,
    is_over: bool,
    mutated: bool,
    labels: HashMap<String, (usize, u32)>,
    pub contents: BTreeMap<String, u64>,
    trace: Vec<String>,
}

/// A store shared by actors.
pub struct World {
    pub memory: MemoryStore,
    inner: Mutex<Inner>,
    changed: Condvar,
}

pub fn hash(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

impl World {
    /// What `memory` holds, for so many actors.
    pub fn new(memory: MemoryStore, sabotages: &[Option<Sabotage>]) -> Arc<Self> {
        let actor = |sabotage: &Option<Sabotage>| Actor {
            state: State::Running,
            history: 0,
            reads: 0,
            names: 0,
            was_reading: false,
            sabotage: *sabotage,
            first_lists: HashMap::new(),
            pending: String::new(),
            has_changed: false,
            leases: HashMap::new(),
            records: HashSet::new(),
        };
        let mut inner = Inner {
            actors: sabotages.iter().map(actor).collect(),
            turn: None,
            is_over: false,
            mutated: false,
            labels: HashMap::new(),
            contents: BTreeMap::new(),
            trace: Vec::new(),
        };
        for name in memory.names() {
            let name = inner.canonical(usize::MAX, name.as_str());
            inner.contents.insert(name, 0);
        }
        Arc::new(Self { memory, inner: Mutex::new(inner), changed: Condvar::new() })
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Waits until nobody runs: who is ready to make a call, and a hash of the state.
    pub fn settle(&self) -> (Vec<Ready>, u64) {
        let mut inner = self.lock();
        while inner.turn.is_some() || inner.actors.iter().any(|actor| actor.state == State::Running) {
            let (next, waited) =
                self.changed.wait_timeout(inner, std::time::Duration::from_secs(20)).unwrap();
            inner = next;
            let states: Vec<_> = inner.actors.iter().map(|actor| actor.state).collect();
            assert!(
                !waited.timed_out(),
                "nobody moves: {states:?}, turn {:?}\n{}",
                inner.turn,
                inner.trace.join("\n")
            );
        }
        let ready = inner.actors.iter().enumerate().filter(|(_, actor)| actor.state == State::Waiting).map(
            |(who, actor)| Ready { who, pending: actor.pending.clone(), has_changed: actor.has_changed },
        );
        let ready = ready.collect();
        let actors: Vec<_> = inner
            .actors
            .iter()
            .map(|actor| {
                let is_over = (actor.state == State::Done, actor.state == State::Dead);
                // Whoever is dead does no more, whatever it has seen.
                let seen = (actor.history, actor.reads, actor.was_reading, actor.has_changed);
                (is_over, if is_over.1 { (0, 0, false, false) } else { seen })
            })
            .collect();
        (ready, hash((actors, &inner.contents)))
    }

    /// Kills an actor that is about to make a call.
    pub fn kill(&self, who: usize) {
        let mut inner = self.lock();
        inner.actors[who].state = State::Dead;
        inner.trace.push(format!("{who}: killed"));
    }

    /// Lets an actor make its call. Whether something was changed by it will be told by the next [`Self::take_mutated`].
    pub fn choose(&self, who: usize) {
        self.lock().turn = Some(who);
        self.changed.notify_all();
    }

    /// Whether something was changed since this was last asked.
    pub fn take_mutated(&self) -> bool {
        std::mem::take(&mut self.lock().mutated)
    }

    /// All further calls fail, and nothing is done.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// An actor has come to its end.
    pub fn done(&self, who: usize) {
        let mut inner = self.lock();
        if inner.actors[who].state != State::Dead {
            inner.actors[who].state = State::Done;
        }
        self.changed.notify_all();
    }

    /// What happened.
    pub fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    /// Waits for this actor's turn.
    pub fn enter(&self, who: usize, pending: String) -> Result<MutexGuard<'_, Inner>, StoreError> {
        let mut inner = self.lock();
        if !inner.is_over {
            inner.actors[who].state = State::Waiting;
            inner.actors[who].pending = pending;
        }
        self.changed.notify_all();
        loop {
            if inner.is_over {
                return Err(StoreError::new(ErrorKind::Unreachable, "reach", "the store", "the end"));
            }
            if inner.turn == Some(who) {
                inner.turn = None;
                inner.actors[who].state = State::Running;
                inner.actors[who].has_changed = false;
                self.changed.notify_all();
                return Ok(inner);
            }
            inner = self.changed.wait(inner).unwrap();
        }
    }
}

impl Inner {
    /// The name with ids replaced by who brought them into the world, and as which of his.
    pub fn canonical(&mut self, who: usize, name: &str) -> String {
        let is_id = |part: &str| matches!(part.len(), 16 | 32) && part.bytes().all(|b| b.is_ascii_hexdigit());
        let mut out = String::new();
        for part in name.split_inclusive(['/', '.', '-']) {
            let (id, end) = match part.strip_suffix(['/', '.', '-']) {
                Some(id) => (id, &part[id.len()..]),
                None => (part, ""),
            };
            // The directory of a bag goes with the bag.
            if id.len() == 2 && out == "bags/" {
                continue;
            }
            if is_id(id) {
                let label = match self.labels.get(id) {
                    Some(label) => *label,
                    None => {
                        let count = match self.actors.get_mut(who) {
                            Some(actor) => {
                                actor.names += 1;
                                actor.names
                            }
                            None => u32::try_from(self.labels.len()).unwrap(),
                        };
                        self.labels.insert(id.to_owned(), (who, count));
                        (who, count)
                    }
                };
                out.push_str(&match label.0 {
                    usize::MAX => format!("#{}", label.1),
                    who => format!("{who}#{}", label.1),
                });
            } else {
                out.push_str(id);
            }
            out.push_str(end);
        }
        out
    }

    pub fn note(&mut self, who: usize, op: &str, name: &str, result: impl Hash) {
        self.trace.push(format!("{who}: {op} {name}"));
        let result = hash(result);
        let actor = &mut self.actors[who];
        actor.history = hash((actor.history, actor.reads, op, name, result));
        actor.reads = 0;
        actor.was_reading = false;
    }

    pub fn note_read(&mut self, who: usize, name: &str, result: impl Hash) {
        let actor = &mut self.actors[who];
        if !actor.was_reading {
            self.trace.push(format!("{who}: read {name} …"));
        }
        let actor = &mut self.actors[who];
        actor.reads = actor.reads.wrapping_add(hash((name, hash(result))));
        actor.was_reading = true;
    }

    pub fn moved(&mut self, who: usize, from: Option<&str>, to: Option<&str>) {
        self.mutated = true;
        self.actors[who].has_changed = true;
        let before = from.and_then(|from| self.contents.remove(from));
        if let Some(to) = to {
            let fresh = hash((who, self.actors[who].history, self.actors[who].reads));
            self.contents.insert(to.to_owned(), before.filter(|id| *id != 0).unwrap_or(fresh));
        }
    }
}
