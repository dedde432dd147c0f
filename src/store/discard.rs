//! A store that reads and never writes: what a dry run is given.

use super::{Class, GiveUp, Listed, Name, Pending, SharedStore, Store, StoreError, Traffic, Upload};

/// Another store, of which nothing is changed: what is written is thrown away, and all that would change something succeeds.
///
/// Not a store as the module promises it: what was written cannot be read, and no name is ever taken.
pub struct Discard(SharedStore);

impl Discard {
    /// Reads from `inner`.
    #[must_use]
    pub fn new(inner: SharedStore) -> Self {
        Self(inner)
    }
}

impl Store for Discard {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        self.0.list(dir)
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        self.0.read(name, offset, len)
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        self.0.read_tail(name, len)
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        self.0.read_all(name, limit)
    }

    fn create(&self, _name: &Name, _class: Class) -> Box<dyn Upload> {
        Box::new(Nowhere)
    }

    fn remove(&self, _name: &Name) -> Pending<()> {
        Pending::ready(Ok(()))
    }

    fn rename(&self, _from: &Name, _to: &Name) -> Pending<()> {
        Pending::ready(Ok(()))
    }

    fn make_dir(&self, _dir: &Name) -> Pending<()> {
        Pending::ready(Ok(()))
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    fn give_up(&self, when: GiveUp) {
        self.0.give_up(when);
    }

    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }
}

struct Nowhere;

impl Upload for Nowhere {
    fn created(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn append(&mut self, _bytes: Vec<u8>) -> Result<(), StoreError> {
        Ok(())
    }

    fn commit(self: Box<Self>, _name: &Name) -> Pending<()> {
        Pending::ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::layout;
    use crate::store::testing::MemoryStore;

    #[test]
    fn nothing_is_changed() {
        let memory = MemoryStore::new();
        memory.put(&layout::config(), b"kept".to_vec());
        let store = Discard::new(Arc::new(memory.clone()));
        let mut upload = store.create(&Name::join(&["a"]), Class::Bulk);
        upload.created().unwrap();
        upload.append(b"lost".to_vec()).unwrap();
        upload.commit(&Name::join(&["b"])).wait().unwrap();
        store.remove(&layout::config()).wait().unwrap();
        store.make_dir(&Name::join(&["c"])).wait().unwrap();
        assert_eq!(store.read_all(&layout::config(), 10).wait().unwrap(), b"kept");
        assert_eq!(memory.names().len(), 1);
    }
}
