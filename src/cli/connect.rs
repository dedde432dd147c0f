//! From what was typed to a store, and to an open repository in it.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Context;
use super::error::Failure;
use super::human;
use super::key_file;
use super::passphrase;
use crate::bag::source::Source;
use crate::base::secret::Key32;
use crate::base::text::escape;
use crate::base::time::{Clock as _, SystemClock};
use crate::cache::CacheError;
use crate::cache::known::{CacheHome, Known, KnownSlot};
use crate::cache::own::{OwnDirectories, own_directories};
use crate::chunker::Limits;
use crate::crypto::{Cost, Secret};
use crate::live::{Own, OwnPlaces};
use crate::repo::keyring::Keyring;
use crate::repo::{self, Encryption, InitError, InitOptions, OpenError, Repository, Stored, StoredSlot};
use crate::store::local::LocalStore;
use crate::store::open::{Location, SftpLocation};
use crate::store::throttle::{Rates, Throttled};
use crate::store::{ErrorKind, SharedStore};

/// How often a person may mistype the passphrase.
const ATTEMPTS: u32 = 3;

impl Context {
    /// The store that the command line names. A server is connected to in the background: that it cannot be reached is told by the first request.
    ///
    /// # Errors
    /// Usage, or settings of SSH that cannot be used.
    pub fn store(&self) -> Result<SharedStore, Failure> {
        let store: SharedStore = match self.location()? {
            Location::Local(path) => Arc::new(LocalStore::new(path)?),
            Location::Sftp(location) => Arc::new(self.sftp(location)?),
        };
        self.reach.set(&store);
        let rates = self.settings.rates;
        if rates == Rates::default() {
            return Ok(store);
        }
        Ok(Arc::new(Throttled::new(store, rates, Arc::new(SystemClock::new()))?))
    }

    /// Where the repository is.
    ///
    /// # Errors
    /// Usage.
    pub(super) fn location(&self) -> Result<Location, Failure> {
        Location::parse(self.settings.repository()?)
            .map_err(|error| Failure::usage(error.to_string()).about("repository"))
    }

    /// The repository, opened, with the local cache before it. On a server that it was opened on before it is opened with what the cache has kept
    /// of it, unconfirmed, so that nobody waits for that; see [`Self::confirm`], for which the store is asked already.
    ///
    /// # Errors
    /// As [`Self::open_bare`].
    pub fn open(&self, store: SharedStore) -> Result<Repository, Failure> {
        let repository = self.open_unasked(store)?;
        repository.ask();
        Ok(repository)
    }

    /// As [`Self::open`], for whoever recognises the repository without asking.
    ///
    /// # Errors
    /// As [`Self::open_bare`].
    pub fn open_unasked(&self, store: SharedStore) -> Result<Repository, Failure> {
        let Some(home) = self.cache_home() else { return self.open_bare(store) };
        let location = self.location()?;
        let before = home.known(&place(&location));
        let asked = Asked::new(self);
        // Nothing is saved on a local disk.
        if let (Location::Sftp(_), Some(Known { config, key_slots, .. })) = (location, before.clone()) {
            let slots =
                key_slots.into_iter().map(|KnownSlot { id, bytes }| StoredSlot { id, bytes }).collect();
            let kept = Stored { config, slots };
            let has_passphrase = kept.has_passphrase();
            match kept.unlock_unconfirmed(store.clone(), &mut |failed| asked.secret(has_passphrase, failed)) {
                Ok(repository) => {
                    self.note_in_the_clear(&repository);
                    return Ok(self.with_cache(repository));
                }
                // It may be out of date.
                Err(error) => ::tracing::debug!(%error, "what was kept of the repository does not open it"),
            }
        }
        let stored = Stored::read(&*store)?;
        let repository = asked.unlock(&stored, store)?;
        self.say_if_it_is_new_here(&home, before.as_ref(), &repository);
        self.remember(&repository, stored);
        Ok(self.with_cache(repository))
    }

    /// Says that another repository was opened here before, or that this one was opened elsewhere.
    fn say_if_it_is_new_here(&self, home: &CacheHome, before: Option<&Known>, repository: &Repository) {
        let (id, at) = (repository.id(), repository.store().describe());
        match before {
            Some(known) if known.repository != id => self.screen.say(&format!(
                "kitbag: another repository than before is at {at}: what was kept of the former is not used for it"
            )),
            // Not so where only its keys were changed, by which what was kept of this place is forgotten.
            None if home.is_known(id) && home.directory(id).is_dir() => self.screen.say(&format!(
                "kitbag: the repository at {at} was opened at another place before: what was kept of it is used"
            )),
            _ => {}
        }
    }

    /// The repository, opened, without a cache. A person is asked for the passphrase again when it was wrong.
    ///
    /// # Errors
    /// See [`OpenError`]; that no passphrase could be had.
    pub fn open_bare(&self, store: SharedStore) -> Result<Repository, Failure> {
        Asked::new(self).unlock(&Stored::read(&*store)?, store)
    }

    /// Makes sure that the repository is the one that was opened here before; if not, what was kept of it is forgotten.
    ///
    /// # Errors
    /// That it is not; or that what opened it then opens it no more.
    pub fn confirm(&self, repository: &Repository) -> Result<(), Failure> {
        let Err(error) = repository.confirm() else { return Ok(()) };
        if !matches!(error, OpenError::Store(_)) {
            self.forget();
        }
        if matches!(error, OpenError::Replaced { .. }) {
            let store = repository.store();
            let given = self.given();
            let stored = Stored::read(&**store)?;
            stored.keyring(&store.describe(), &mut |failed| given.clone().filter(|_| failed == 0))?;
        }
        Err(error.into())
    }

    fn given(&self) -> Option<Secret> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets what was kept of the repository.
    pub fn forget(&self) {
        if let (Some(home), Ok(at)) = (self.cache_home(), self.location()) {
            home.forget(&place(&at));
        }
    }

    /// The repository with the local cache before it. A cache that cannot be used is told, and done without.
    #[must_use]
    pub fn with_cache(&self, repository: Repository) -> Repository {
        let (Some(home), Some(settings)) = (self.cache_home(), &self.settings.cache) else {
            return repository;
        };
        match home.repository(repository.id(), settings.limit) {
            Ok(cache) => repository.with_cache(cache),
            Err(error) => {
                self.say_of_cache(&error);
                repository
            }
        }
    }

    /// Whoever gave a passphrase hears that it was not needed.
    fn note_in_the_clear(&self, repository: &Repository) {
        if repository.is_in_the_clear() && !matches!(self.settings.passphrase, passphrase::Source::Prompt) {
            let at = repository.store().describe();
            self.screen.say(&format!(
                "kitbag: the repository at {at} opened without the passphrase or key file: it is not encrypted, or it is not yours"
            ));
        }
    }

    /// The directory of the caches, if there is one.
    pub(super) fn cache_home(&self) -> Option<CacheHome> {
        let settings = self.settings.cache.as_ref()?;
        CacheHome::open(&settings.dir).map_err(|error| self.say_of_cache(&error)).ok()
    }

    /// The places of kitbag's own as they are now, which are in no generation: what is kept of repositories, and the repository itself where it lies on a local disk.
    #[must_use]
    pub fn own_places(&self) -> OwnPlaces {
        let mut own = OwnPlaces::default();
        let cache = self.settings.cache.iter().map(|cache| &cache.dir);
        for place in cache.chain(&self.settings.turns) {
            match own_directories(place) {
                OwnDirectories::Whole(whole) => own.add(Own::Cache, &whole),
                OwnDirectories::Among(parts) => parts.iter().for_each(|part| own.add(Own::CachePart, part)),
            }
        }
        if let Ok(Location::Local(path)) = self.location() {
            own.add_repository(&path);
        }
        own
    }

    /// Once: the cache is asked for in several places.
    fn say_of_cache(&self, error: &CacheError) {
        if !self.said_of_cache.swap(true, Ordering::Relaxed) {
            self.screen.say(&format!("kitbag: {error}; say --cache-dir DIR, or --no-cache if that is meant"));
        }
    }

    /// Makes a repository, remembers it, and puts the local cache before it.
    ///
    /// # Errors
    /// As [`Self::init_bare`].
    pub fn init(&self, store: SharedStore, encrypted: bool) -> Result<Repository, Failure> {
        let (repository, stored) = self.make(store, encrypted)?;
        self.remember(&repository, stored);
        Ok(self.with_cache(repository))
    }

    /// Makes a repository that nothing is kept of here.
    ///
    /// # Errors
    /// See [`repo::InitError`]; that no passphrase could be had.
    pub fn init_bare(&self, store: SharedStore, encrypted: bool) -> Result<Repository, Failure> {
        self.make(store, encrypted).map(|(repository, _)| repository)
    }

    fn make(&self, store: SharedStore, encrypted: bool) -> Result<(Repository, Stored), Failure> {
        let mut made = None;
        let encryption = match encrypted {
            true => match &self.settings.passphrase {
                passphrase::Source::KeyFile(path) => {
                    let (key, is_new) = self.key_for_new(path, &store.describe())?;
                    made = is_new.then_some(path);
                    Encryption::KeyFile(key)
                }
                source => {
                    let passphrase = source.new_one(&self.screen, passphrase::Purpose::Make)?;
                    Encryption::Passphrase(passphrase, Cost::calibrated(&SystemClock::new()))
                }
            },
            false => Encryption::None,
        };
        let options = InitOptions { encryption, label: String::new(), limits: Limits::default() };
        let repository = repo::make(store, options, &SystemClock::new());
        if let (Some(path), Err(error)) = (made, &repository) {
            self.take_back(path, error);
        }
        repository.map_err(|error| match &error {
            InitError::Store(missing) if missing.kind == ErrorKind::NotFound => {
                let above = self.location().ok().and_then(|location| above(&location));
                let failure = Failure::failed(error.to_string());
                failure.hint(format!("make the directory {} first", above.as_deref().unwrap_or("above it")))
            }
            _ => error.into(),
        })
    }

    /// Removes the key file of a repository that was not made. Where that is not known, it may be the only key that there is.
    fn take_back(&self, path: &Path, error: &InitError) {
        match error {
            InitError::Exists { .. }
            | InitError::NotEmpty { .. }
            | InitError::Limits(_)
            | InitError::KeySlot(_) => {
                let _ = std::fs::remove_file(path);
            }
            InitError::Store(_) => {
                let path = escape(path.as_os_str().as_encoded_bytes());
                self.screen.say(&format!(
                    "kitbag: the key file {path} is kept, since the repository may have been made: if so, it opens it, else it is used when it is made"
                ));
            }
        }
    }

    /// The key file for a new repository, and whether it was made for it.
    fn key_for_new(&self, path: &Path, at: &str) -> Result<(Key32, bool), Failure> {
        if path.symlink_metadata().is_ok() {
            return Ok((key_file::read(path)?, false));
        }
        let key = Key32::random();
        let now = human::local_time(SystemClock::new().now());
        key_file::make(path, &key, &format!("It opens the repository at {at} since {now}."))?;
        let path = escape(path.as_os_str().as_encoded_bytes());
        self.screen.say(&format!(
            "kitbag: made the key file {path}, without which nothing in the repository can be read: keep a copy elsewhere, such as `kitbag key export` prints"
        ));
        Ok((key, true))
    }

    /// The repository's key slots, opened.
    ///
    /// # Errors
    /// As [`Self::open_bare`].
    pub fn keyring(&self, stored: &Stored, store: &SharedStore) -> Result<Keyring, Failure> {
        let asked = Asked::new(self);
        let opened =
            stored.keyring(&store.describe(), &mut |failed| asked.secret(stored.has_passphrase(), failed));
        opened.map_err(|error| asked.failure.take().unwrap_or_else(|| error.into()))
    }

    /// Keeps what opens the repository, so that the next run need not read it first from a server, and knows it again anywhere.
    fn remember(&self, repository: &Repository, stored: Stored) {
        if let (Some(home), Ok(at)) = (self.cache_home(), self.location()) {
            let key_slots =
                stored.slots.into_iter().map(|StoredSlot { id, bytes }| KnownSlot { id, bytes }).collect();
            let known = Known { repository: repository.id(), config: stored.config, key_slots };
            home.remember(&place(&at), &known);
        }
    }
}

/// The one spelling of a location under which it is remembered.
pub(super) fn place(location: &Location) -> String {
    match location {
        Location::Local(path) => {
            // A relative path means another place from another directory.
            let absolute = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
            absolute.unwrap_or_else(|_| path.clone()).display().to_string()
        }
        Location::Sftp(at) => at.to_string(),
    }
}

/// The directory that a repository's is to be made in; of a local one the topmost that is missing.
fn above(location: &Location) -> Option<String> {
    match location {
        Location::Local(path) => {
            let path = std::path::absolute(path).ok()?;
            let missing = path.ancestors().skip(1).take_while(|path| !path.exists());
            missing.last().map(|path| escape(path.as_os_str().as_encoded_bytes()))
        }
        Location::Sftp(SftpLocation { path, .. }) => {
            let end = path.iter().rposition(|byte| *byte == b'/').filter(|end| *end > 0)?;
            path.get(..end).map(|above| format!("{} on the server", escape(above)))
        }
    }
}

/// What opens the repository, asked for when it is needed, and not again for a second attempt to open.
struct Asked<'a> {
    context: &'a Context,
    failure: Cell<Option<Failure>>,
}

impl<'a> Asked<'a> {
    fn new(context: &'a Context) -> Self {
        Self { context, failure: Cell::default() }
    }

    /// A secret after `failed` attempts; a person may try [`ATTEMPTS`] times, others once, and is asked for no passphrase where none is of use.
    fn secret(&self, has_passphrase: bool, failed: u32) -> Option<Secret> {
        let source = &self.context.settings.passphrase;
        let is_person = matches!(source, passphrase::Source::Prompt);
        let is_useless = is_person && !has_passphrase;
        if failed >= ATTEMPTS || (failed > 0 && !is_person) || is_useless {
            return None;
        }
        if failed == 0
            && let Some(given) = self.context.given()
        {
            return Some(given);
        }
        match source.existing(&self.context.screen, failed > 0) {
            Ok(secret) => {
                let mut given = self.context.given.lock().unwrap_or_else(PoisonError::into_inner);
                Some(given.insert(secret).clone())
            }
            Err(failure) => {
                self.failure.set(Some(failure));
                None
            }
        }
    }

    fn unlock(&self, stored: &Stored, store: SharedStore) -> Result<Repository, Failure> {
        let repository = stored
            .unlock(store, &mut |failed| self.secret(stored.has_passphrase(), failed))
            .map_err(|error| self.failure.take().unwrap_or_else(|| error.into()))?;
        self.context.note_in_the_clear(&repository);
        Ok(repository)
    }
}

/// Bytes of opened blocks that are kept while reading.
const OPENED: usize = 32 << 20;

/// The objects of this repository.
#[must_use]
pub fn source(repository: &Repository) -> Source {
    Source::new(repository.bags(), OPENED)
}
