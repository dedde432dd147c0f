//! What goes wrong while somebody looks or reads: told once, and the end when the store has given up.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::file::FileError;
use super::tree::Fault;
use crate::bag::reader::ReadError;
use crate::dir::reader::TreeError;
use crate::monitor::{Monitor, Problem, Severity};
use crate::store::{ErrorKind, StoreError};

/// Different problems that are remembered as told.
const MOST: usize = 10_000;

/// Hears of what went wrong.
pub struct Trouble {
    monitor: Arc<dyn Monitor>,
    told: Mutex<HashSet<String>>,
    gone: Mutex<Option<StoreError>>,
}

impl Trouble {
    /// Tells `monitor`.
    #[must_use]
    pub fn new(monitor: Arc<dyn Monitor>) -> Self {
        Self { monitor, told: Mutex::default(), gone: Mutex::default() }
    }

    /// Whom it tells.
    #[must_use]
    pub fn monitor(&self) -> &dyn Monitor {
        &*self.monitor
    }

    /// Why nothing can be read any more, if that is so. To be asked once.
    #[must_use]
    pub fn gone(&self) -> Option<StoreError> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Something above the files could not be read.
    pub fn fault(&self, fault: &Fault) {
        match fault {
            Fault::Stale | Fault::NotADirectory | Fault::NotALink => {}
            Fault::Tree(error) => self.tree(error),
            Fault::Store(error) => self.store(error),
        }
    }

    /// A file could not be read.
    pub fn file(&self, error: &FileError) {
        match error {
            FileError::Tree(error) => self.tree(error),
            FileError::Read(error) => self.read(error),
            FileError::Short(_) => self.tell(Severity::Damage, error.to_string()),
        }
    }

    /// The store failed.
    pub fn store(&self, error: &StoreError) {
        match error.kind {
            // It has tried for as long as it was told to: nothing will come any more.
            ErrorKind::Unreachable | ErrorKind::Refused | ErrorKind::Cancelled => {
                let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
                gone.get_or_insert_with(|| error.duplicate());
            }
            ErrorKind::NotFound | ErrorKind::Truncated => self.tell(Severity::Damage, error.to_string()),
            _ => self.tell(Severity::Lost, error.to_string()),
        }
    }

    fn tree(&self, error: &TreeError) {
        match error {
            TreeError::Read(error) => self.read(error),
            error => self.tell(Severity::Damage, error.to_string()),
        }
    }

    fn read(&self, error: &ReadError) {
        match error {
            ReadError::Store(error) => self.store(error),
            error => self.tell(Severity::Damage, error.to_string()),
        }
    }

    fn tell(&self, severity: Severity, text: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MOST && told.insert(text.clone()) {
            self.monitor.problem(Problem::new(severity, b"", text));
        }
    }
}
