//! A store that lets one actor at a time make one call.

use std::sync::Arc;

use kitbag::store::testing::MemoryStore;
use kitbag::store::{Class, ErrorKind, Listed, Name, Pending, Store, StoreError, Traffic, Upload, layout};

use super::world::{Sabotage, World, hash};

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
            inner = match self.world.enter(self.who, format!("read {name}")) {
                Ok(inner) => inner,
                Err(error) => return Pending::ready(Err(error)),
            };
        }
        let mut result = read(&self.world.memory).wait();
        let actor = &mut inner.actors[self.who];
        if name.as_str().starts_with("generations/")
            && !actor.records.insert(name.to_string())
            && actor.sabotage == Some(Sabotage::NoLookThrough)
        {
            result = Err(StoreError::new(ErrorKind::NotFound, "read", name, "sabotage"));
        }
        let canonical = inner.canonical(self.who, name.as_str());
        let content = inner.contents.get(&canonical).copied();
        inner.note_read(self.who, &canonical, (result.is_ok(), content));
        Pending::ready(result)
    }

    fn is(&self, sabotage: Sabotage) -> bool {
        self.world.lock().actors[self.who].sabotage == Some(sabotage)
    }

    fn change(
        &self,
        op: &str,
        from: &Name,
        to: Option<&Name>,
        change: impl FnOnce(&MemoryStore) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut inner = self.world.enter(self.who, format!("{op} {from} {}", to.map_or("", Name::as_str)))?;
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
            match self.world.enter(self.who, format!("list {dir}")) {
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
            Some(Sabotage::ListsTooEarly) => text == "condemned",
            Some(Sabotage::MovesTooEarly) => text == "moved",
            _ => false,
        };
        if actor.sabotage == Some(Sabotage::NoLease)
            && text == "sessions"
            && let Ok(listed) = &mut result
        {
            // It believes that it is there.
            let gone = actor.first_lists.get("own").into_iter().flatten();
            let gone: Vec<_> =
                gone.filter(|own| listed.iter().all(|one| one.name != own.name)).cloned().collect();
            listed.extend(gone);
        }
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
        let is_forced = name.as_str().starts_with("sessions/") && self.is(Sabotage::NoLease);
        self.read(name, |memory| match memory.read_tail(name, len).wait() {
            Err(error) if error.kind == ErrorKind::NotFound && is_forced => {
                Pending::ready(Ok((Vec::new(), 0)))
            }
            answer => Pending::ready(answer),
        })
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
        if let Some(own) = name.as_str().strip_prefix("sessions/").filter(|_| !is_own) {
            // As the actor begins.
            let mut inner = self.world.lock();
            let moved = self.world.memory.list(&layout::directory("moved")).wait().unwrap_or_default();
            let modified = self.world.memory.clock();
            let own = Listed { name: own.to_owned(), size: 0, modified, is_dir: false };
            let lists = &mut inner.actors[self.who].first_lists;
            lists.entry("moved".to_owned()).or_insert(moved);
            lists.entry("own".to_owned()).or_default().push(own);
        }
        Box::new(upload)
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        Pending::ready(self.change("remove", name, None, |memory| memory.remove(name).wait()))
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        let (is_doom, bytes) = {
            let inner = self.world.lock();
            let actor = &inner.actors[self.who];
            let doomed = to.as_str().ends_with(".doomed");
            (doomed && actor.sabotage == Some(Sabotage::DoomTwice), actor.leases.get(from.as_str()).cloned())
        };
        let is_forced = self.is(Sabotage::NoLease);
        Pending::ready(self.change("rename", from, Some(to), |memory| match memory.rename(from, to).wait() {
            Err(error) if error.kind == ErrorKind::Exists && is_doom => {
                memory.delete(to);
                memory.rename(from, to).wait()
            }
            Err(error) if error.kind == ErrorKind::NotFound && is_forced => {
                memory.put(to, bytes.unwrap_or_default());
                Ok(())
            }
            outcome => outcome,
        }))
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
        if is_forced {
            let mut inner = self.store.world.lock();
            inner.actors[self.store.who].leases.insert(name.to_string(), bytes.clone());
        }
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
