//! Mounting, waiting, unmounting.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::super::clients::Clients;
use super::super::opened::Opened;
use super::super::pages::Pages;
use super::super::place::{self, PlaceError};
use super::super::readers::Readers;
use super::super::refresh::Refresh;
use super::super::tree::Tree;
use super::super::trouble::Trouble;
use super::super::upper::{Client, Shown, shown};
use super::super::{OPENED, Options};
use super::{Core, Fuse, Handles};
use crate::bag::source::Source;
use crate::base::cancel::Cancel;
use crate::base::program::program;
use crate::base::text::escape;
use crate::base::time::{Clock, SystemClock};
use crate::contents::Blocks;
use crate::entry::Owner;
use crate::monitor::Monitor;
use crate::repo::Repository;
use crate::store::StoreError;

/// Threads that take requests. More than processors, since some wait for directories.
const TAKERS: usize = 16;

/// How often it is looked whether it is over.
const TICK: Duration = Duration::from_millis(50);

/// How long requests that are under way may take to end once it was unmounted.
const WINDING_UP: Duration = Duration::from_secs(2);

/// How long the kernel may remember what stands above the generations, at most.
const UPPER_TTL: Duration = Duration::from_secs(1);

/// Why nothing was mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Not there.
    #[error("cannot mount: {0}")]
    Place(#[from] PlaceError),
    /// The system, or the program that mounts for those who are not root, refused.
    #[error("cannot mount on {at}: {}", .source.to_string().trim_end())]
    System {
        /// The directory.
        at: String,
        /// Whether others were to look, too.
        for_others: bool,
        /// Why.
        source: io::Error,
    },
    /// Threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}

/// How a mount ended.
#[derive(Debug)]
pub enum Ended {
    /// Somebody unmounted it.
    Unmounted,
    /// It was asked to stop, and was unmounted.
    Cancelled,
    /// The store has given up; it was unmounted.
    Gone(StoreError),
}

/// A file system that is mounted. Dropping it unmounts it.
pub struct Mounted {
    at: PathBuf,
    session: Option<BackgroundSession>,
    trouble: Arc<Trouble>,
}

/// Mounts what `clients` has found: `first` is what that was at the beginning. `taken` are directories that nothing may be mounted on or in, and what they
/// belong to. When it returns, the file system is there.
///
/// # Errors
/// See [`MountError`].
pub fn mount(
    repository: &Repository,
    clients: Clients,
    first: &[Client],
    options: &Options,
    taken: &[(&Path, &'static str)],
    monitor: Arc<dyn Monitor>,
) -> Result<Mounted, MountError> {
    let at = place::check(&options.at, taken)?;
    let core = core(repository, clients, first, options, monitor).map_err(MountError::Threads)?;
    let trouble = Arc::clone(&core.trouble);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoAtime,
        MountOption::FSName("kitbag".to_owned()),
        MountOption::Subtype("kitbag".to_owned()),
    ];
    if options.allow_other {
        config.mount_options.push(MountOption::DefaultPermissions);
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(TAKERS);
    let session = Session::new(Fuse(core), &at, &config).and_then(Session::spawn);
    let session = session.map_err(|source| MountError::System {
        at: escape(at.as_os_str().as_encoded_bytes()),
        for_others: options.allow_other,
        source,
    })?;
    Ok(Mounted { at, session: Some(session), trouble })
}

fn core(
    repository: &Repository,
    clients: Clients,
    first: &[Client],
    options: &Options,
    monitor: Arc<dyn Monitor>,
) -> io::Result<Arc<Core>> {
    let clock = Arc::new(SystemClock::new());
    let owner = Owner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..Owner::default()
    };
    let pages = Pages::new(Source::new(repository.bags(), OPENED));
    let tree = Arc::new(Tree::new(pages, repository.cache().clone(), owner, clock.now()));
    let what = {
        let (only, own, clock) = (options.generation, options.client.clone(), Arc::clone(&clock));
        move |clients: &[Client]| match only {
            None => Some(shown(clients, &own, clock.now())),
            Some(id) => {
                let all = clients.iter().flat_map(|client| &client.generations);
                let mut fitting = all.filter(|opened: &&Arc<Opened>| opened.record.id == id);
                fitting.next().map(|opened| Shown::Generation(Arc::clone(opened)))
            }
        }
    };
    if let Some(shown) = what(first) {
        tree.show(shown);
    }
    let trouble = Arc::new(Trouble::new(monitor));
    let look = {
        let (tree, trouble) = (Arc::clone(&tree), Arc::clone(&trouble));
        move || match clients.read(trouble.monitor()) {
            Ok(clients) => {
                if let Some(shown) = what(&clients) {
                    tree.show(shown);
                }
            }
            Err(error) => trouble.store(&error),
        }
    };
    let blocks = Arc::new(Blocks::new(repository.bags(), options.memory));
    let openers = thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    Ok(Arc::new(Core {
        tree,
        readers: Readers::start(&blocks, openers)?,
        blocks,
        refresh: Refresh::start(clock, options.refresh, look)?,
        trouble,
        handles: Handles::default(),
        upper_ttl: UPPER_TTL.min(options.refresh),
        has_permissions: options.allow_other,
    }))
}

impl Mounted {
    /// Where it is.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Waits until somebody unmounts it, `cancel` is set, or the store has given up; unmounts it in the latter two cases.
    #[must_use]
    pub fn wait(mut self, cancel: &Cancel) -> Ended {
        loop {
            if self.is_over() {
                self.session = None;
                return Ended::Unmounted;
            }
            if cancel.is_cancelled() {
                self.unmount();
                return Ended::Cancelled;
            }
            if let Some(error) = self.trouble.gone() {
                self.unmount();
                return Ended::Gone(error);
            }
            thread::sleep(TICK);
        }
    }

    fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts it, from under whoever uses it if need be.
    fn unmount(&mut self) {
        if !self.is_over() {
            match rustix::mount::unmount(&self.at, UnmountFlags::empty()) {
                Ok(()) => {}
                Err(Errno::PERM) => self.ask_fusermount(),
                Err(_) => drop(rustix::mount::unmount(&self.at, UnmountFlags::DETACH)),
            }
        }
        let clock = SystemClock::new();
        while !self.is_over() && clock.monotonic() < WINDING_UP {
            thread::sleep(TICK);
        }
        // Dropped, it would try to unmount whatever stands there by now. The process ends, and what is under way with it.
        if let Some(session) = self.session.take()
            && !session.guard.is_finished()
        {
            std::mem::forget(session);
        }
    }

    /// Who is not root may unmount by this program only.
    fn ask_fusermount(&self) {
        let mut command = program("fusermount3");
        // Nothing else can be done if it fails: the kernel says what became of it when the process has ended.
        let _ = command.args(["-u", "-z", "-q", "--"]).arg(&self.at).status();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.unmount();
        }
    }
}
