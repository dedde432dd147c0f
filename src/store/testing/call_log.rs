//! A wrapper that remembers every call, and counts how often latency would be paid.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Op;
use crate::store::{Class, Listed, Name, Pending, SharedStore, Store, StoreError, Traffic, Upload};

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub op: Op,
    /// The file or directory; for a commit or a renaming, the old name.
    pub name: Name,
    /// The new name of a commit or a renaming.
    pub to: Option<Name>,
    /// The bytes read (as asked for) or appended; 0 for other calls.
    pub len: u64,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.op, self.name)?;
        if let Some(to) = &self.to {
            write!(f, " {to}")?;
        }
        if self.len > 0 {
            write!(f, " {}", self.len)?;
        }
        Ok(())
    }
}

/// Remembers the calls to another store; clones share the log.
///
/// Round trips are counted on a clock that ticks in round trips: an answer comes one tick after its request (two for a commit, whose renaming goes
/// out when all else is acknowledged), and waiting for it moves the clock there. What is asked for together is so paid once, however many it is;
/// and waiting for what has come meanwhile costs nothing.
#[derive(Clone)]
pub struct CallLog {
    inner: SharedStore,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    calls: Vec<Call>,
    now: u64,
}

impl CallLog {
    /// Remembers the calls to `inner` from now on.
    #[must_use]
    pub fn new(inner: SharedStore) -> Self {
        Self { inner, log: Arc::default() }
    }

    /// The calls so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// The calls so far as lines: "Create bags/00/x.part", "Commit bags/00/x.part bags/00/x".
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lock().calls.iter().map(ToString::to_string).collect()
    }

    /// How many calls of this kind there were.
    #[must_use]
    pub fn count(&self, op: Op) -> usize {
        self.lock().calls.iter().filter(|call| call.op == op).count()
    }

    /// How many calls of this kind there were for names below a directory ("bags").
    #[must_use]
    pub fn count_below(&self, op: Op, dir: &str) -> usize {
        let below = |name: &Name| name.as_str().strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
        let calls = &self.lock().calls;
        calls.iter().filter(|call| call.op == op && below(call.to.as_ref().unwrap_or(&call.name))).count()
    }

    /// The bytes of all calls of this kind.
    #[must_use]
    pub fn bytes(&self, op: Op) -> u64 {
        self.lock().calls.iter().filter(|call| call.op == op).map(|call| call.len).sum()
    }

    /// Round trips that were waited for one after another.
    #[must_use]
    pub fn serial_round_trips(&self) -> u64 {
        self.lock().now
    }

    /// Forgets what was so far.
    pub fn clear(&self) {
        *self.lock() = Log::default();
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        lock(&self.log)
    }

    /// Remembers a call; whatever is made of its answer moves the clock when it is waited for.
    fn note(&self, op: Op, name: &Name, to: Option<&Name>, len: u64) -> u64 {
        let mut log = self.lock();
        log.calls.push(Call { op, name: name.clone(), to: to.cloned(), len });
        log.now
    }

    fn answer<T: Send + 'static>(&self, pending: Pending<T>, comes: u64) -> Pending<T> {
        let log = Arc::clone(&self.log);
        pending.then(move |result| {
            arrive(&log, comes);
            result
        })
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn arrive(log: &Mutex<Log>, comes: u64) {
    let mut log = lock(log);
    log.now = log.now.max(comes);
}

impl Store for CallLog {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        let sent = self.note(Op::List, dir, None, 0);
        self.answer(self.inner.list(dir), sent + 1)
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        let sent = self.note(Op::Read, name, None, len);
        self.answer(self.inner.read(name, offset, len), sent + 1)
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        let sent = self.note(Op::ReadTail, name, None, len);
        self.answer(self.inner.read_tail(name, len), sent + 1)
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        let sent = self.note(Op::ReadAll, name, None, 0);
        self.answer(self.inner.read_all(name, limit), sent + 1)
    }

    fn read_expected(&self, name: &Name, limit: u64, expected: u64) -> Pending<Vec<u8>> {
        let sent = self.note(Op::ReadAll, name, None, 0);
        self.answer(self.inner.read_expected(name, limit, expected), sent + 1)
    }

    fn create(&self, name: &Name, class: Class) -> Box<dyn Upload> {
        let sent = self.note(Op::Create, name, None, 0);
        let inner = Some(self.inner.create(name, class));
        Box::new(LoggedUpload { inner, log: self.clone(), name: name.clone(), created: sent + 1 })
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        let sent = self.note(Op::Remove, name, None, 0);
        self.answer(self.inner.remove(name), sent + 1)
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        let sent = self.note(Op::Rename, from, Some(to), 0);
        self.answer(self.inner.rename(from, to), sent + 1)
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        let sent = self.note(Op::MakeDir, dir, None, 0);
        self.answer(self.inner.make_dir(dir), sent + 1)
    }

    fn lanes(&self) -> usize {
        self.inner.lanes()
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

struct LoggedUpload {
    /// Taken by the commit.
    inner: Option<Box<dyn Upload>>,
    log: CallLog,
    name: Name,
    created: u64,
}

impl Upload for LoggedUpload {
    fn created(&mut self) -> Result<(), StoreError> {
        arrive(&self.log.log, self.created);
        self.inner.as_mut().map_or(Ok(()), |inner| inner.created())
    }

    fn append(&mut self, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.log.note(Op::Append, &self.name, None, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.inner.as_mut().map_or(Ok(()), |inner| inner.append(bytes))
    }

    fn commit(mut self: Box<Self>, name: &Name) -> Pending<()> {
        let sent = self.log.note(Op::Commit, &self.name, Some(name), 0);
        // What was appended can be sent only when the file is open.
        let comes = sent.max(self.created) + 2;
        match self.inner.take() {
            Some(inner) => self.log.answer(inner.commit(name), comes),
            None => Pending::ready(Ok(())),
        }
    }
}

impl Drop for LoggedUpload {
    fn drop(&mut self) {
        if self.inner.is_some() {
            self.log.note(Op::Abandon, &self.name, None, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryStore;
    use super::*;
    use crate::store::contract;

    fn log() -> CallLog {
        CallLog::new(Arc::new(MemoryStore::new()))
    }

    #[test]
    fn keeps_the_promises() {
        contract::run(&|| Arc::new(log()));
    }

    #[test]
    fn remembers_calls() {
        let log = log();
        let (part, done) = (Name::join(&["bags", "x.part"]), Name::join(&["bags", "x"]));
        let mut upload = log.create(&part, Class::Bulk);
        upload.append(vec![0; 10]).unwrap();
        upload.commit(&done).wait().unwrap();
        drop(log.create(&part, Class::Bulk));
        let expected = [
            "Create bags/x.part",
            "Append bags/x.part 10",
            "Commit bags/x.part bags/x",
            "Create bags/x.part",
            "Abandon bags/x.part",
        ];
        assert_eq!(log.lines(), expected);
        assert_eq!((log.count_below(Op::Create, "bags"), log.count_below(Op::Create, "bag")), (2, 0));
        assert_eq!(log.bytes(Op::Append), 10);
    }

    #[test]
    fn what_flies_together_is_paid_once() {
        let log = log();
        let dir = Name::join(&["d"]);
        let flight: Vec<_> = (0..5).map(|_| log.list(&dir)).collect();
        assert_eq!(log.serial_round_trips(), 0);
        let mut session = log.create(&Name::join(&["s"]), Class::Control);
        for pending in flight {
            pending.wait().unwrap();
        }
        session.created().unwrap();
        assert_eq!(log.serial_round_trips(), 1);
        log.list(&dir).wait().unwrap();
        log.list(&dir).wait().unwrap();
        assert_eq!(log.serial_round_trips(), 3);
        session.commit(&Name::join(&["g"])).wait().unwrap();
        assert_eq!(log.serial_round_trips(), 5);
    }
}
