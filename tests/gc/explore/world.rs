//! A store that lets one actor at a time make one call.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use kitbag::store::testing::MemoryStore;
use kitbag::store::{Class, ErrorKind, Listed, Name, Pending, Store, StoreError, Traffic, Upload};

/// What a test lets go wrong, to see that it would be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Sessions are listed as they were when the actor listed them first.
    SessionsTooEarly,
    /// Generations are listed as they were when the actor had begun.
    GenerationsTooEarly,
    /// What an actor publishes is published though its lease is gone.
    NoLease,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Waiting,
    Done,
}

struct Actor {
    state: State,
    /// What it has seen and done.
    history: u64,
    /// What it has read since: in any order.
    reads: u64,
    names: u32,
    was_reading: bool,
    sabotage: Option<Sabotage>,
    first_lists: HashMap<String, Vec<Listed>>,
}

struct Inner {
    actors: Vec<Actor>,
    turn: Option<usize>,
    is_over: bool,
    mutated: bool,
    labels: HashMap<String, (usize, u32)>,
    contents: BTreeMap<String, u64>,
    trace: Vec<String>,
}

/// A store shared by actors.
pub struct World {
    pub memory: MemoryStore,
    inner: Mutex<Inner>,
    changed: Condvar,
}

fn hash(parts: impl Hash) -> u64 {
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Waits until nobody runs: who is ready to make a call, and a hash of the state.
    pub fn settle(&self) -> (Vec<usize>, u64) {
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
        let ready = (0..inner.actors.len()).filter(|at| inner.actors[*at].state == State::Waiting).collect();
        let actors: Vec<_> = inner
            .actors
            .iter()
            .map(|actor| (actor.state == State::Done, actor.history, actor.reads, actor.was_reading))
            .collect();
        (ready, hash((actors, &inner.contents)))
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
        self.lock().actors[who].state = State::Done;
        self.changed.notify_all();
    }

    /// What happened.
    pub fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    /// Waits for this actor's turn.
    fn enter(&self, who: usize) -> Result<MutexGuard<'_, Inner>, StoreError> {
        let mut inner = self.lock();
        inner.actors[who].state = State::Waiting;
        self.changed.notify_all();
        loop {
            if inner.is_over {
                return Err(StoreError::new(ErrorKind::Unreachable, "reach", "the store", "the end"));
            }
            if inner.turn == Some(who) {
                inner.turn = None;
                inner.actors[who].state = State::Running;
                self.changed.notify_all();
                return Ok(inner);
            }
            inner = self.changed.wait(inner).unwrap();
        }
    }
}

impl Inner {
    /// The name with ids replaced by who brought them into the world, and as which of his.
    fn canonical(&mut self, who: usize, name: &str) -> String {
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

    fn note(&mut self, who: usize, op: &str, name: &str, result: impl Hash) {
        self.trace.push(format!("{who}: {op} {name}"));
        let result = hash(result);
        let actor = &mut self.actors[who];
        actor.history = hash((actor.history, actor.reads, op, name, result));
        actor.reads = 0;
        actor.was_reading = false;
    }

    fn note_read(&mut self, who: usize, name: &str, result: impl Hash) {
        let actor = &mut self.actors[who];
        if !actor.was_reading {
            self.trace.push(format!("{who}: read {name} …"));
        }
        let actor = &mut self.actors[who];
        actor.reads = actor.reads.wrapping_add(hash((name, hash(result))));
        actor.was_reading = true;
    }

    fn moved(&mut self, who: usize, from: Option<&str>, to: Option<&str>) {
        self.mutated = true;
        let before = from.and_then(|from| self.contents.remove(from));
        if let Some(to) = to {
            let fresh = hash((who, self.actors[who].history, self.actors[who].reads));
            self.contents.insert(to.to_owned(), before.filter(|id| *id != 0).unwrap_or(fresh));
        }
    }
}

/// The store as an actor sees it.
pub struct ActorStore {
    pub world: Arc<World>,
    pub who: usize,
}

impl ActorStore {
    fn read<T: Send + 'static>(
        &self,
        name: &Name,
        read: impl FnOnce(&MemoryStore) -> Pending<T>,
    ) -> Pending<T> {
        let mut inner = self.world.lock();
        if !inner.actors[self.who].was_reading || name.as_str().starts_with("sessions/") {
            drop(inner);
            inner = match self.world.enter(self.who) {
                Ok(inner) => inner,
                Err(error) => return Pending::ready(Err(error)),
            };
        }
        let result = read(&self.world.memory).wait();
        let canonical = inner.canonical(self.who, name.as_str());
        let content = inner.contents.get(&canonical).copied();
        inner.note_read(self.who, &canonical, (result.is_ok(), content));
        Pending::ready(result)
    }

    fn change(
        &self,
        op: &str,
        from: &Name,
        to: Option<&Name>,
        change: impl FnOnce(&MemoryStore) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut inner = self.world.enter(self.who)?;
        let result = change(&self.world.memory);
        let from = inner.canonical(self.who, from.as_str());
        let to = to.map(|to| inner.canonical(self.who, to.as_str()));
        let kind = result.as_ref().err().map(|error| error.kind);
        inner.note(self.who, op, &format!("{from} {} {kind:?}", to.as_deref().unwrap_or("")), kind);
        if result.is_ok() {
            match op {
                "create" => inner.moved(self.who, None, Some(&from)),
                _ => inner.moved(self.who, Some(&from), to.as_deref()),
            }
        }
        result
    }
}

impl Store for ActorStore {
    fn describe(&self) -> String {
        self.world.memory.describe()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        let text = dir.as_str();
        let beside = text == "index" || text.starts_with("bags");
        let mut inner = if beside {
            self.world.lock()
        } else {
            match self.world.enter(self.who) {
                Ok(inner) => inner,
                Err(error) => return Pending::ready(Err(error)),
            }
        };
        let mut result = self.world.memory.list(dir).wait();
        if text == "bags" {
            // Which directories there are depends on chance.
            let directory =
                |first| Listed { name: format!("{first:02x}"), size: 0, modified: 0, is_dir: true };
            result = Ok((0..=255u8).map(directory).collect());
        }
        if text.starts_with("bags/") && result.as_ref().is_ok_and(Vec::is_empty) {
            return Pending::ready(result);
        }
        let actor = &mut inner.actors[self.who];
        let stale = match actor.sabotage {
            Some(Sabotage::SessionsTooEarly) => text == "sessions",
            Some(Sabotage::GenerationsTooEarly) => text.starts_with("generations/"),
            _ => false,
        };
        if stale && let Ok(listed) = &result {
            let first = actor.first_lists.entry(text.to_owned()).or_insert_with(|| listed.clone());
            result = Ok(first.clone());
        }
        // In an order that does not hang on chance.
        let mut files: Vec<_> = result
            .iter_mut()
            .flat_map(std::mem::take)
            .map(|file| (inner.canonical(self.who, &format!("{dir}/{}", file.name)), file))
            .collect();
        files.sort_by(|one, other| one.0.cmp(&other.0));
        let (names, files): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let result = result.map(|_| files);
        let canonical = inner.canonical(self.who, text);
        if beside {
            // No step of its own; what comes next is one.
            let actor = &mut inner.actors[self.who];
            actor.reads = actor.reads.wrapping_add(hash((canonical, names)));
        } else {
            inner.note(self.who, "list", &canonical, names);
        }
        Pending::ready(result)
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        self.read(name, |memory| Store::read(memory, name, offset, len))
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        self.read(name, |memory| memory.read_tail(name, len))
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        self.read(name, |memory| memory.read_all(name, limit))
    }

    fn create(&self, name: &Name, class: Class) -> Box<dyn Upload> {
        let store = Self { world: Arc::clone(&self.world), who: self.who };
        let mut upload =
            ActorUpload { store, name: name.clone(), inner: None, bytes: Vec::new(), failure: None };
        let is_own = name.as_str().ends_with(".part");
        let mut create = |memory: &MemoryStore| {
            let mut created = memory.create(name, class);
            created.created()?;
            upload.inner = Some(created);
            Ok(())
        };
        let outcome =
            if is_own { create(&self.world.memory) } else { self.change("create", name, None, create) };
        upload.failure = outcome.err();
        Box::new(upload)
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        Pending::ready(self.change("remove", name, None, |memory| memory.remove(name).wait()))
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        Pending::ready(self.change("rename", from, Some(to), |memory| memory.rename(from, to).wait()))
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        self.world.memory.make_dir(dir)
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

struct ActorUpload {
    store: ActorStore,
    name: Name,
    inner: Option<Box<dyn Upload>>,
    bytes: Vec<u8>,
    failure: Option<StoreError>,
}

impl Upload for ActorUpload {
    fn created(&mut self) -> Result<(), StoreError> {
        self.failure.as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }

    fn append(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.created()?;
        self.bytes.extend_from_slice(&bytes);
        self.inner.as_mut().map_or(Ok(()), |inner| inner.append(bytes))
    }

    fn commit(mut self: Box<Self>, name: &Name) -> Pending<()> {
        if let Some(error) = self.failure.take() {
            return Pending::ready(Err(error));
        }
        let Some(inner) = self.inner.take() else { return Pending::ready(Ok(())) };
        let is_forced = self.store.world.lock().actors[self.store.who].sabotage == Some(Sabotage::NoLease);
        let bytes = std::mem::take(&mut self.bytes);
        Pending::ready(self.store.change("commit", &self.name, Some(name), |memory| {
            match inner.commit(name).wait() {
                Err(error) if error.kind == ErrorKind::NotFound && is_forced => {
                    memory.put(name, bytes);
                    Ok(())
                }
                other => other,
            }
        }))
    }
}

impl Drop for ActorUpload {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if self.name.as_str().ends_with(".part") {
            drop(inner);
            return;
        }
        // Taking a lease away is seen by others; who has come to his end for good takes nothing away.
        let mut held = Some(inner);
        let outcome = self.store.change("abandon", &self.name, None, |_| {
            drop(held.take());
            Ok(())
        });
        if outcome.is_err() {
            std::mem::forget(held.take());
        }
    }
}
