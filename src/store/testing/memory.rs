//! A store in memory: as dumb as a server, and as visible.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::{Class, ErrorKind, Listed, Name, Pending, Store, StoreError, Traffic, Upload};

/// What the clock of a new store shows, in seconds since 1970.
const START: i64 = 1_700_000_000;

/// A store in memory; clones are the same store, [`MemoryStore::snapshot`] makes another one.
///
/// Files being written stand under their temporary names at once, as on a server, and what is appended to a file that was removed is lost
/// silently until `commit` tells. Every call is done when it returns. The clock stands still unless [`MemoryStore::set_clock`] moves it.
#[derive(Clone)]
pub struct MemoryStore(Arc<Mutex<State>>);

#[derive(Clone)]
struct State {
    nodes: BTreeMap<String, Node>,
    next_inode: u64,
    clock: i64,
}

#[derive(Clone)]
enum Node {
    Dir { modified: i64 },
    File(File),
}

#[derive(Clone)]
struct File {
    /// Tells a file from another that has taken its name.
    inode: u64,
    bytes: Arc<Vec<u8>>,
    modified: i64,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names();
        f.debug_list().entries(names.iter().map(Name::as_str)).finish()
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State { nodes: BTreeMap::new(), next_inode: 0, clock: START })))
    }

    /// Another store that holds what this one holds now: what a crash at this moment would leave, files being written included.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self(Arc::new(Mutex::new(self.lock().clone())))
    }

    /// The names of all files, in order, temporary ones included.
    #[must_use]
    pub fn names(&self) -> Vec<Name> {
        let state = self.lock();
        let files = state.nodes.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.filter_map(|(name, _)| Name::new(name)).collect()
    }

    /// The names of all files in this directory and below.
    #[must_use]
    pub fn names_below(&self, dir: &str) -> Vec<Name> {
        let prefix = format!("{dir}/");
        self.names().into_iter().filter(|name| name.as_str().starts_with(&prefix)).collect()
    }

    /// The bytes of a file, if it is there.
    #[must_use]
    pub fn contents(&self, name: &Name) -> Option<Vec<u8>> {
        self.lock().file(name).map(|file| file.bytes.to_vec())
    }

    /// Puts a file there by force, replacing what has the name.
    pub fn put(&self, name: &Name, bytes: Vec<u8>) {
        let mut state = self.lock();
        if let Some(parent) = name.parent() {
            // A file in the way is the test's own making.
            let _ = state.make_dirs(&parent, "create");
        }
        let file = state.new_file(bytes);
        state.nodes.insert(name.as_str().to_owned(), Node::File(file));
    }

    /// Deletes a file behind everybody's back.
    ///
    /// # Panics
    /// When it is not there.
    pub fn delete(&self, name: &Name) {
        let gone = self.lock().nodes.remove(name.as_str());
        assert!(matches!(gone, Some(Node::File(_))), "{name} is not there to be deleted");
    }

    /// Cuts a file to `len` bytes.
    ///
    /// # Panics
    /// When it is not there, or no longer than that.
    pub fn truncate(&self, name: &Name, len: usize) {
        self.damage(name, |bytes| {
            assert!(len < bytes.len(), "{name} has only {} bytes", bytes.len());
            bytes.truncate(len);
        });
    }

    /// Inverts all bits of the byte at `offset`.
    ///
    /// # Panics
    /// When there is none.
    pub fn flip(&self, name: &Name, offset: usize) {
        self.damage(name, |bytes| match bytes.get_mut(offset) {
            Some(byte) => *byte = !*byte,
            None => panic!("{name} has no byte {offset}"),
        });
    }

    /// Changes a file's bytes in place.
    ///
    /// # Panics
    /// When it is not there.
    pub fn damage(&self, name: &Name, change: impl FnOnce(&mut Vec<u8>)) {
        match self.lock().nodes.get_mut(name.as_str()) {
            Some(Node::File(file)) => change(Arc::make_mut(&mut file.bytes)),
            _ => panic!("{name} is not there to be damaged"),
        }
    }

    /// Sets the server's clock: files written from now on get this time.
    pub fn set_clock(&self, secs: i64) {
        self.lock().clock = secs;
    }

    /// The server's clock.
    #[must_use]
    pub fn clock(&self) -> i64 {
        self.lock().clock
    }

    /// Sets a file's time of modification.
    ///
    /// # Panics
    /// When it is not there.
    pub fn set_modified(&self, name: &Name, secs: i64) {
        match self.lock().nodes.get_mut(name.as_str()) {
            Some(Node::File(file)) => file.modified = secs,
            _ => panic!("{name} is not there to be dated"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn error(kind: ErrorKind, operation: &'static str, name: &Name) -> StoreError {
    let detail = match kind {
        ErrorKind::NotFound => "it is not there",
        ErrorKind::Exists => "the name is taken",
        ErrorKind::Truncated => "it ends before",
        ErrorKind::TooLong => "it is longer than allowed",
        _ => "a file is where a directory should be, or a directory where a file should be",
    };
    StoreError::new(kind, operation, name, detail)
}

impl State {
    fn file(&self, name: &Name) -> Option<&File> {
        match self.nodes.get(name.as_str()) {
            Some(Node::File(file)) => Some(file),
            _ => None,
        }
    }

    fn existing(&self, name: &Name, operation: &'static str) -> Result<&File, StoreError> {
        match self.nodes.get(name.as_str()) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir { .. }) => Err(error(ErrorKind::Other, operation, name)),
            None => Err(error(ErrorKind::NotFound, operation, name)),
        }
    }

    fn new_file(&mut self, bytes: Vec<u8>) -> File {
        self.next_inode += 1;
        File { inode: self.next_inode, bytes: Arc::new(bytes), modified: self.clock }
    }

    fn make_dirs(&mut self, dir: &Name, operation: &'static str) -> Result<(), StoreError> {
        let mut above = Some(dir.clone()).filter(|dir| *dir != Name::top());
        while let Some(name) = above {
            match self.nodes.get(name.as_str()) {
                Some(Node::File(_)) => return Err(error(ErrorKind::Other, operation, dir)),
                Some(Node::Dir { .. }) => return Ok(()),
                None => {
                    self.nodes.insert(name.as_str().to_owned(), Node::Dir { modified: self.clock });
                }
            }
            above = name.parent();
        }
        Ok(())
    }

    fn create(&mut self, name: &Name) -> Result<u64, StoreError> {
        if let Some(parent) = name.parent() {
            self.make_dirs(&parent, "create")?;
        }
        if self.nodes.contains_key(name.as_str()) {
            return Err(error(ErrorKind::Exists, "create", name));
        }
        let file = self.new_file(Vec::new());
        let inode = file.inode;
        self.nodes.insert(name.as_str().to_owned(), Node::File(file));
        Ok(inode)
    }

    /// Bytes for a file that has no name any more go nowhere, as in a file removed while it is open.
    fn append(&mut self, inode: u64, bytes: &[u8]) {
        let clock = self.clock;
        let file = self.nodes.values_mut().find_map(|node| match node {
            Node::File(file) if file.inode == inode => Some(file),
            _ => None,
        });
        if let Some(file) = file {
            Arc::make_mut(&mut file.bytes).extend_from_slice(bytes);
            file.modified = clock;
        }
    }

    fn rename(&mut self, from: &Name, to: &Name, operation: &'static str) -> Result<(), StoreError> {
        let file = self.existing(from, operation)?.clone();
        if let Some(parent) = to.parent() {
            self.make_dirs(&parent, operation)?;
        }
        if self.nodes.contains_key(to.as_str()) {
            return Err(error(ErrorKind::Exists, operation, to));
        }
        self.nodes.remove(from.as_str());
        self.nodes.insert(to.as_str().to_owned(), Node::File(file));
        Ok(())
    }

    fn list(&self, dir: &Name) -> Result<Vec<Listed>, StoreError> {
        if self.file(dir).is_some() {
            return Err(error(ErrorKind::Other, "list", dir));
        }
        let prefix = if *dir == Name::top() { String::new() } else { format!("{dir}/") };
        let below = self.nodes.range(prefix.clone()..).take_while(|(name, _)| name.starts_with(&prefix));
        let listed = below.filter_map(|(name, node)| {
            let last = name.strip_prefix(&prefix).filter(|rest| !rest.contains('/'))?.to_owned();
            Some(match node {
                Node::Dir { modified } => Listed { name: last, size: 0, modified: *modified, is_dir: true },
                Node::File(file) => {
                    let size = u64::try_from(file.bytes.len()).unwrap_or(u64::MAX);
                    Listed { name: last, size, modified: file.modified, is_dir: false }
                }
            })
        });
        Ok(listed.collect())
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Result<Vec<u8>, StoreError> {
        let bytes = &self.existing(name, "read")?.bytes;
        let range = offset.checked_add(len).and_then(|end| {
            let (start, end) = (usize::try_from(offset).ok()?, usize::try_from(end).ok()?);
            bytes.get(start..end)
        });
        range.map(<[u8]>::to_vec).ok_or_else(|| error(ErrorKind::Truncated, "read", name))
    }

    fn read_tail(&self, name: &Name, len: u64) -> Result<(Vec<u8>, u64), StoreError> {
        let bytes = &self.existing(name, "read")?.bytes;
        let size = bytes.len();
        let start = size.saturating_sub(usize::try_from(len).unwrap_or(usize::MAX));
        Ok((bytes.get(start..).unwrap_or_default().to_vec(), u64::try_from(size).unwrap_or(u64::MAX)))
    }

    fn read_all(&self, name: &Name, limit: u64) -> Result<Vec<u8>, StoreError> {
        let bytes = &self.existing(name, "read")?.bytes;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
            return Err(error(ErrorKind::TooLong, "read", name));
        }
        Ok(bytes.to_vec())
    }

    fn remove(&mut self, name: &Name) -> Result<(), StoreError> {
        self.existing(name, "remove")?;
        self.nodes.remove(name.as_str());
        Ok(())
    }
}

impl Store for MemoryStore {
    fn describe(&self) -> String {
        "a store in memory".to_owned()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        Pending::ready(self.lock().list(dir))
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        Pending::ready(self.lock().read(name, offset, len))
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        Pending::ready(self.lock().read_tail(name, len))
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        Pending::ready(self.lock().read_all(name, limit))
    }

    fn create(&self, name: &Name, _class: Class) -> Box<dyn Upload> {
        let created = self.lock().create(name);
        let (inode, failure) = match created {
            Ok(inode) => (Some(inode), None),
            Err(error) => (None, Some(error)),
        };
        Box::new(MemoryUpload { store: self.clone(), name: name.clone(), inode, failure })
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        Pending::ready(self.lock().remove(name))
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        Pending::ready(self.lock().rename(from, to, "rename"))
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        Pending::ready(self.lock().make_dirs(dir, "create"))
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

struct MemoryUpload {
    store: MemoryStore,
    name: Name,
    /// `None` when it could not be created, or is no longer this upload's to remove.
    inode: Option<u64>,
    failure: Option<StoreError>,
}

impl MemoryUpload {
    fn inode(&mut self) -> Result<u64, StoreError> {
        match (self.failure.take(), self.inode) {
            (None, Some(inode)) => Ok(inode),
            (failure, _) => {
                let failure = failure.unwrap_or_else(|| error(ErrorKind::Other, "write", &self.name));
                self.failure = Some(failure.duplicate());
                Err(failure)
            }
        }
    }
}

impl Upload for MemoryUpload {
    fn created(&mut self) -> Result<(), StoreError> {
        self.inode().map(drop)
    }

    fn append(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        let inode = self.inode()?;
        self.store.lock().append(inode, &bytes);
        Ok(())
    }

    fn commit(mut self: Box<Self>, name: &Name) -> Pending<()> {
        let outcome = self.inode().and_then(|_| self.store.lock().rename(&self.name, name, "store"));
        if outcome.is_ok() {
            self.inode = None;
        }
        Pending::ready(outcome)
    }
}

impl Drop for MemoryUpload {
    fn drop(&mut self) {
        if self.inode.is_some() {
            // It may have been removed by somebody else already.
            let _ = self.store.lock().remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract;

    #[test]
    fn keeps_the_promises() {
        contract::run(&|| Arc::new(MemoryStore::new()));
    }

    #[test]
    fn a_snapshot_is_another_store() {
        let store = MemoryStore::new();
        let (kept, later) = (Name::join(&["a", "kept"]), Name::join(&["later"]));
        let mut upload = store.create(&kept, Class::Control);
        upload.append(vec![1, 2]).unwrap();
        let copy = store.snapshot();
        upload.append(vec![3]).unwrap();
        store.put(&later, vec![9]);
        assert_eq!(copy.names(), vec![kept.clone()]);
        assert_eq!(copy.contents(&kept), Some(vec![1, 2]));
        drop(upload);
        assert_eq!(store.names(), vec![later]);
        assert_eq!(copy.names(), vec![kept]);
    }

    #[test]
    fn damage_is_done() {
        let store = MemoryStore::new();
        let name = Name::join(&["x"]);
        store.put(&name, vec![1, 2, 3]);
        store.flip(&name, 1);
        assert_eq!(store.contents(&name), Some(vec![1, 253, 3]));
        store.truncate(&name, 2);
        assert_eq!(store.contents(&name), Some(vec![1, 253]));
        store.delete(&name);
        assert_eq!(store.contents(&name), None);
    }

    #[test]
    #[should_panic(expected = "not there to be deleted")]
    fn damage_that_hits_nothing_fails() {
        MemoryStore::new().delete(&Name::join(&["x"]));
    }
}
