//! Named immutable files, wherever they are.
//!
//! A store keeps files under relative names ([`Name`]) and promises:
//!
//! - **Written once.** A file is created exclusively under a temporary (or lease) name by [`Store::create`], filled
//!   by [`Upload::append`], and appears under its final name by [`Upload::commit`], whole, or not at all. Nothing
//!   stored is ever changed; there is no overwrite and no append to what is committed.
//! - **Committed means durable.** When `commit` has succeeded, the bytes were fsynced before the rename (where
//!   the server offers it), and the file will be there after a crash of either side.
//! - **A rename never overwrites**: it fails with [`ErrorKind::Exists`].
//! - **Started at once, waited for later.** A call that returns a [`Pending`] has already sent its requests (or will,
//!   without further help); one thread keeps many in flight by collecting their `Pending`s before it waits. Calls made
//!   one after another by one thread on small things (`list`, `create`, `read`) reach a server in that order on one
//!   channel, which is what the lease protocol builds on.
//! - **A short range is an error**: `read` gives exactly the bytes asked for or fails with [`ErrorKind::Truncated`].
//! - **Nothing is cached here**; wrappers do that.

pub mod cached;
pub mod contract;
pub mod discard;
pub mod error;
pub mod layout;
pub mod local;
pub mod name;
pub mod open;
pub mod pending;
pub mod sftp;
pub mod testing;
pub mod throttle;

use std::sync::Arc;

pub use error::{ErrorKind, StoreError};
pub use name::Name;
pub use pending::{Completer, Pending};

/// A file as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The last component of its name.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last modified, by the server's clock, in seconds since 1970.
    pub modified: i64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// What went over the wire so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Requests sent.
    pub requests: u64,
    /// Serial waits: requests that were sent when none was outstanding on any channel.
    pub serial_waits: u64,
    /// Bytes of requests sent.
    pub bytes_up: u64,
    /// Bytes of answers received.
    pub bytes_down: u64,
}

/// Which servers are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// One that is out of reach.
    IfGone,
    /// One that is out of reach, or has owed answers for some seconds and gives none.
    IfSilent,
    /// Any.
    Anyway,
}

/// Named immutable files. See the module's promises.
pub trait Store: Send + Sync {
    /// Where the store is, for messages: a path or a URL.
    fn describe(&self) -> String;

    /// The files of a directory, in no order; none when the directory does not exist. Files that are hidden or temporary are listed too.
    fn list(&self, dir: &Name) -> Pending<Vec<Listed>>;

    /// `len` bytes of a file from `offset`. Fails with `Truncated` when the file ends before, with `NotFound` when it does not exist.
    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>>;

    /// The last `len` bytes of a file (all of it when it is shorter), and its size.
    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)>;

    /// A whole file of at most `limit` bytes; a longer one fails with `TooLong`.
    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>>;

    /// The same of a file that most likely has about `expected` bytes: a distant store may ask for so many before it knows the file's
    /// length, which saves a wait.
    fn read_expected(&self, name: &Name, limit: u64, _expected: u64) -> Pending<Vec<u8>> {
        self.read_all(name, limit)
    }

    /// Creates an empty file exclusively under `name` (making missing directories) and opens it for writing. The file is visible to others under that name at once.
    /// `class` says how it travels. Failures, `Exists` included, are told by the [`Upload`]'s calls.
    fn create(&self, name: &Name, class: Class) -> Box<dyn Upload>;

    /// Removes a file. `NotFound` when it is not there.
    fn remove(&self, name: &Name) -> Pending<()>;

    /// Renames a file without overwriting: `Exists` when the new name is taken, `NotFound` when the old one is not there.
    fn rename(&self, from: &Name, to: &Name) -> Pending<()>;

    /// Makes a directory and its parents; succeeds when it is there already. [`Name::top`] is the store's own, whose parents are not made.
    fn make_dir(&self, dir: &Name) -> Pending<()>;

    /// Drops a copy of the file that is kept nearer, because its seal was found broken: the next reading asks the store itself. Does nothing where no copies
    /// are kept.
    fn forget(&self, _name: &Name) {}

    /// How many files should be written at once to make full use of the store, as far as is known by now; 0 where nothing is known.
    fn lanes(&self) -> usize {
        0
    }

    /// Where a server is waited for: lets all that waits for it fail now, and all that is asked later.
    fn give_up(&self, _when: GiveUp) {}

    /// What went over the wire so far; zeros for a store without one.
    fn traffic(&self) -> Traffic;
}

/// How an upload travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A small file, on the control channel, in order with the other small things.
    Control,
    /// A bag, on one of the bulk channels.
    Bulk,
}

/// A file being written. Dropping it without `commit` abandons it: its temporary file is removed, as far as possible in the background.
pub trait Upload: Send {
    /// Waits until the file was created, or tells why it could not be.
    ///
    /// # Errors
    /// `Exists` when the name is taken; else what the server says.
    fn created(&mut self) -> Result<(), StoreError>;

    /// Appends bytes. Returns as soon as they are queued, which waits while the store's budget of outstanding bytes is used up. A failure of an earlier append may be reported here.
    ///
    /// # Errors
    /// The first failure of this upload.
    fn append(&mut self, bytes: Vec<u8>) -> Result<(), StoreError>;

    /// Says that nothing more will be appended: what is left is sent, made durable, and the file closed, without waiting for it. A
    /// [`commit`](Self::commit) that follows has only the renaming left to do. Stores that gain nothing by it do all of it there.
    ///
    /// # Errors
    /// The first failure of this upload.
    fn finish(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes the bytes durable, closes the file, and when all of it is acknowledged renames it to `name` without overwriting (making missing directories).
    /// `NotFound` when the file was removed in the meantime (a revoked lease), `Exists` when `name` is taken. After a failure the temporary file is removed, as if dropped.
    fn commit(self: Box<Self>, name: &Name) -> Pending<()>;
}

/// A store shared by many threads.
pub type SharedStore = Arc<dyn Store>;
