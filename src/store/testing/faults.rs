//! A wrapper that fails as it is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::Op;
use crate::store::{
    Class, ErrorKind, Listed, Name, Pending, SharedStore, Store, StoreError, Traffic, Upload,
};

/// Something that goes wrong once.
#[derive(Debug, Clone)]
pub struct Fault {
    op: Op,
    below: String,
    nth: u64,
    effect: Effect,
}

#[derive(Debug, Clone, Copy)]
enum Effect {
    Fail(ErrorKind),
    LoseAnswer,
    Cut(usize),
}

impl Fault {
    /// A call is not executed and fails. The first one of its kind, unless said otherwise.
    #[must_use]
    pub fn fail(op: Op, kind: ErrorKind) -> Self {
        Self { op, below: String::new(), nth: 1, effect: Effect::Fail(kind) }
    }

    /// A call is executed, but the caller hears only that the server cannot be reached.
    #[must_use]
    pub fn lose_answer(op: Op) -> Self {
        Self { op, below: String::new(), nth: 1, effect: Effect::LoseAnswer }
    }

    /// A file created keeps only its first `keep` bytes, and nobody is told.
    #[must_use]
    pub fn cut(keep: usize) -> Self {
        Self { op: Op::Create, below: String::new(), nth: 1, effect: Effect::Cut(keep) }
    }

    /// Only calls for names that begin with this count; the new name of a commit or a renaming.
    #[must_use]
    pub fn below(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.below);
        self
    }

    /// The `nth` call, counted from 1.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = nth;
        self
    }
}

/// Another store that fails as told; clones share the script.
///
/// When the last clone goes and a fault has not fired, it panics: a test whose fault never happened tests nothing.
#[derive(Clone)]
pub struct FaultyStore {
    inner: SharedStore,
    script: Arc<Script>,
}

struct Script(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: Vec<Fault>,
    stop_after: Option<u64>,
    mutating: u64,
    stopped: bool,
}

/// What is to be done with a call.
enum Verdict {
    Pass,
    Fail(StoreError),
    LoseAnswer(StoreError),
    Cut(usize),
    /// The program has crashed: nothing happens any more, not even cleaning up.
    Stopped(StoreError),
}

impl FaultyStore {
    /// `inner` with faults.
    #[must_use]
    pub fn new(inner: SharedStore, faults: Vec<Fault>) -> Self {
        let state = State { waiting: faults, ..State::default() };
        Self { inner, script: Arc::new(Script(Mutex::new(state))) }
    }

    /// `inner` as a crash after `k` mutating calls leaves it: all later ones fail with `Unreachable` and are not executed; not even what a dropped upload would clean up.
    #[must_use]
    pub fn stop_after(inner: SharedStore, k: u64) -> Self {
        let state = State { stop_after: Some(k), ..State::default() };
        Self { inner, script: Arc::new(Script(Mutex::new(state))) }
    }

    /// Adds a fault; its calls are counted from now.
    pub fn add(&self, fault: Fault) {
        self.script.lock().waiting.push(fault);
    }

    /// Mutating calls that were executed so far.
    #[must_use]
    pub fn mutating_calls(&self) -> u64 {
        self.script.lock().mutating
    }

    /// Whether the crash has happened.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.script.lock().stopped
    }

    /// Ends the script, so that nothing fails any more.
    ///
    /// # Panics
    /// When a fault has not fired.
    pub fn finish(&self) {
        let unfired = self.script.lock().end();
        assert!(unfired.is_empty(), "these faults never fired: {unfired:?}");
    }

    fn judge(&self, op: Op, name: &Name) -> Verdict {
        self.script.lock().judge(op, name)
    }

    fn pass<T: Send + 'static>(
        &self,
        op: Op,
        name: &Name,
        act: impl FnOnce(&dyn Store) -> Pending<T>,
    ) -> Pending<T> {
        match self.judge(op, name) {
            Verdict::Fail(error) | Verdict::Stopped(error) => Pending::ready(Err(error)),
            Verdict::LoseAnswer(error) => act(&*self.inner).then(|_| Err(error)),
            Verdict::Pass | Verdict::Cut(_) => act(&*self.inner),
        }
    }
}

impl Script {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let unfired = self.lock().end();
        assert!(unfired.is_empty() || thread::panicking(), "these faults never fired: {unfired:?}");
    }
}

impl State {
    /// What has not fired, as text.
    fn end(&mut self) -> Vec<String> {
        let mut unfired: Vec<_> = self.waiting.drain(..).map(|fault| format!("{fault:?}")).collect();
        if let (Some(k), false) = (self.stop_after.take(), self.stopped) {
            unfired.push(format!("stop after {k} mutating calls, of which there were {}", self.mutating));
        }
        self.stopped = false;
        unfired
    }

    fn judge(&mut self, op: Op, name: &Name) -> Verdict {
        let error = |kind| StoreError::new(kind, "reach", name, "a fault made by the test");
        if op.mutates() && self.stop_after == Some(self.mutating) {
            self.stopped = true;
            return Verdict::Stopped(error(ErrorKind::Unreachable));
        }
        let mut fires = None;
        for (at, fault) in self.waiting.iter_mut().enumerate() {
            if fault.op == op && name.as_str().starts_with(&fault.below) {
                fault.nth = fault.nth.saturating_sub(1);
                if fault.nth == 0 && fires.is_none() {
                    fires = Some(at);
                }
            }
        }
        let effect = fires.map(|at| self.waiting.remove(at).effect);
        if op.mutates() && !matches!(effect, Some(Effect::Fail(_))) {
            self.mutating += 1;
        }
        match effect {
            None => Verdict::Pass,
            Some(Effect::Fail(kind)) => Verdict::Fail(error(kind)),
            Some(Effect::LoseAnswer) => Verdict::LoseAnswer(error(ErrorKind::Unreachable)),
            Some(Effect::Cut(keep)) => Verdict::Cut(keep),
        }
    }
}

impl Store for FaultyStore {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        self.pass(Op::List, dir, |store| store.list(dir))
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        self.pass(Op::Read, name, |store| store.read(name, offset, len))
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        self.pass(Op::ReadTail, name, |store| store.read_tail(name, len))
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        self.pass(Op::ReadAll, name, |store| store.read_all(name, limit))
    }

    fn read_expected(&self, name: &Name, limit: u64, expected: u64) -> Pending<Vec<u8>> {
        self.pass(Op::ReadAll, name, |store| store.read_expected(name, limit, expected))
    }

    fn create(&self, name: &Name, class: Class) -> Box<dyn Upload> {
        let mut upload = FaultyUpload {
            store: self.clone(),
            name: name.clone(),
            inner: None,
            failed: None,
            keep: usize::MAX,
        };
        match self.judge(Op::Create, name) {
            Verdict::Fail(error) | Verdict::Stopped(error) => upload.failed = Some(error),
            Verdict::LoseAnswer(error) => {
                leave(self.inner.create(name, class));
                upload.failed = Some(error);
            }
            Verdict::Cut(keep) => {
                upload.keep = keep;
                upload.inner = Some(self.inner.create(name, class));
            }
            Verdict::Pass => upload.inner = Some(self.inner.create(name, class)),
        }
        Box::new(upload)
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        self.pass(Op::Remove, name, |store| store.remove(name))
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        self.pass(Op::Rename, to, |store| store.rename(from, to))
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        self.pass(Op::MakeDir, dir, |store| store.make_dir(dir))
    }

    fn lanes(&self) -> usize {
        self.inner.lanes()
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

/// Lets go of an upload without its cleaning up, as a crash does.
fn leave(upload: Box<dyn Upload>) {
    std::mem::forget(upload);
}

struct FaultyUpload {
    store: FaultyStore,
    name: Name,
    /// Absent when it was never created, or is committed.
    inner: Option<Box<dyn Upload>>,
    failed: Option<StoreError>,
    /// Bytes that are still to be kept.
    keep: usize,
}

impl FaultyUpload {
    fn inner(&mut self) -> Result<&mut Box<dyn Upload>, StoreError> {
        match (&self.failed, &mut self.inner) {
            (Some(error), _) => Err(error.duplicate()),
            (None, Some(inner)) => Ok(inner),
            (None, None) => Err(StoreError::new(ErrorKind::Other, "write", &self.name, "it is not open")),
        }
    }

    /// After this no call succeeds.
    fn fail(&mut self, error: StoreError) -> StoreError {
        let told = error.duplicate();
        self.failed = Some(error);
        told
    }
}

impl Upload for FaultyUpload {
    fn created(&mut self) -> Result<(), StoreError> {
        self.inner()?.created()
    }

    fn append(&mut self, mut bytes: Vec<u8>) -> Result<(), StoreError> {
        self.inner()?;
        bytes.truncate(self.keep);
        self.keep = self.keep.saturating_sub(bytes.len());
        match self.store.judge(Op::Append, &self.name) {
            Verdict::Pass | Verdict::Cut(_) => self.inner()?.append(bytes),
            Verdict::Fail(error) | Verdict::Stopped(error) => Err(self.fail(error)),
            Verdict::LoseAnswer(error) => {
                self.inner()?.append(bytes)?;
                Err(self.fail(error))
            }
        }
    }

    fn commit(mut self: Box<Self>, name: &Name) -> Pending<()> {
        if let Err(error) = self.inner() {
            return Pending::ready(Err(error));
        }
        let verdict = self.store.judge(Op::Commit, name);
        let Some(inner) = self.inner.take() else { return Pending::ready(Ok(())) };
        match verdict {
            Verdict::Pass | Verdict::Cut(_) => inner.commit(name),
            Verdict::Fail(error) => Pending::ready(Err(error)),
            Verdict::LoseAnswer(error) => inner.commit(name).then(|_| Err(error)),
            Verdict::Stopped(error) => {
                leave(inner);
                Pending::ready(Err(error))
            }
        }
    }
}

impl Drop for FaultyUpload {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            match self.store.judge(Op::Abandon, &self.name) {
                Verdict::Fail(_) | Verdict::Stopped(_) => leave(inner),
                Verdict::Pass | Verdict::LoseAnswer(_) | Verdict::Cut(_) => drop(inner),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryStore;
    use super::*;
    use crate::store::contract;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn put(store: &dyn Store, text: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let mut upload = store.create(&name(text).with_suffix(".part"), Class::Control);
        upload.append(bytes.to_vec())?;
        upload.commit(&name(text)).wait()
    }

    fn faulty(faults: Vec<Fault>) -> (MemoryStore, FaultyStore) {
        let memory = MemoryStore::new();
        (memory.clone(), FaultyStore::new(Arc::new(memory), faults))
    }

    #[test]
    fn without_faults_keeps_the_promises() {
        contract::run(&|| Arc::new(faulty(Vec::new()).1));
    }

    #[test]
    fn the_nth_call_fails_and_no_other() {
        let fault = Fault::fail(Op::Commit, ErrorKind::NoSpace).below("bags/").nth(2);
        let (memory, store) = faulty(vec![fault]);
        put(&store, "index/a", b"").unwrap();
        put(&store, "bags/a", b"").unwrap();
        assert_eq!(put(&store, "bags/b", b"").unwrap_err().kind, ErrorKind::NoSpace);
        put(&store, "bags/c", b"").unwrap();
        assert_eq!(memory.names(), [name("bags/a"), name("bags/c"), name("index/a")]);
        store.finish();
    }

    #[test]
    fn a_lost_answer_is_of_a_call_that_was_executed() {
        let (memory, store) = faulty(vec![Fault::lose_answer(Op::Commit), Fault::lose_answer(Op::Remove)]);
        assert_eq!(put(&store, "a", b"x").unwrap_err().kind, ErrorKind::Unreachable);
        assert_eq!(memory.names(), [name("a")]);
        assert_eq!(store.remove(&name("a")).wait().unwrap_err().kind, ErrorKind::Unreachable);
        assert!(memory.names().is_empty());
    }

    #[test]
    fn a_file_is_cut_silently() {
        let (memory, store) = faulty(vec![Fault::cut(3)]);
        put(&store, "a", b"abcdef").unwrap();
        assert_eq!(memory.contents(&name("a")).unwrap(), b"abc");
    }

    #[test]
    fn a_crash_leaves_what_was_done_before() {
        let (_, store) = faulty(Vec::new());
        put(&store, "a", b"x").unwrap();
        put(&store, "b", b"x").unwrap();
        assert_eq!(store.mutating_calls(), 6);
        for k in 0..6 {
            let memory = MemoryStore::new();
            let store = FaultyStore::stop_after(Arc::new(memory.clone()), k);
            let outcome = put(&store, "a", b"x").and_then(|()| put(&store, "b", b"x"));
            assert_eq!(outcome.unwrap_err().kind, ErrorKind::Unreachable);
            assert!(store.is_stopped());
            assert_eq!(store.mutating_calls(), k);
            assert!(store.remove(&name("a")).wait().is_err());
            let expected: &[&str] = match k {
                0 => &[],
                1 | 2 => &["a.part"],
                3 => &["a"],
                _ => &["a", "b.part"],
            };
            let names = memory.names();
            assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), expected, "{k}");
        }
    }

    #[test]
    #[should_panic(expected = "never fired")]
    fn a_fault_that_never_fires_fails_the_test() {
        drop(faulty(vec![Fault::fail(Op::List, ErrorKind::Denied)]));
    }

    #[test]
    #[should_panic(expected = "never fired")]
    fn a_crash_that_never_comes_fails_the_test() {
        FaultyStore::stop_after(Arc::new(MemoryStore::new()), 1).finish();
    }
}
