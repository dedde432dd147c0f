//! A store on an SFTP server.
//!
//! Each call queues its first requests itself, the reading of something small behind its opening, so that what one thread asks for reaches
//! the server in that order; a task then follows the answers with the next requests. So many calls are in flight at once as there are callers' [`Pending`]s.
//!
//! # What a lost connection means
//!
//! The client connects again by itself, and asks again for what was not answered. The server may have done it already, or
//! may do it still, in the process of the lost connection. Each operation may be repeated, because:
//!
//! | operation | done twice | how the second answer is understood |
//! | --- | --- | --- |
//! | list, read, size, room | changes nothing | files are immutable: a range goes on where it was cut |
//! | create | exclusive, under a name with a random part | "exists" after a loss, with no byte in it: it is ours |
//! | write | the same bytes at the same place | only what was not acknowledged is sent again; a file that has become shorter than what was acknowledged is a failure |
//! | fsync, close | changes nothing | after a loss both are done on a new handle, once all is acknowledged |
//! | rename | never overwrites, and no name is used twice | old name gone and new one there: done |
//! | remove | names are not used again | "no such file" after a loss: done |
//! | make a directory | none is ever removed | "exists" is what was wanted |
//!
//! Not repeated is what the server answered, whatever it said; what the connector says that only a person can mend (a key or
//! a user that is refused); and what lost its connection fifty times in a row without getting on, since it is then what breaks
//! it. A file under way that is gone from the server afterwards fails as not found: for a lease file, that is how a session
//! learns that it was revoked.

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod first_tests;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod pipe_tests;
mod reading;
mod remote;
#[cfg(test)]
mod silence_tests;
mod upload;
mod writer;

use std::future::Future;
use std::sync::Arc;

use self::remote::{Remote, is_missing};
use self::upload::SftpUpload;
use super::{Class, ErrorKind, GiveUp, Listed, Name, Pending, Store, StoreError, Traffic, Upload};
use crate::base::budget::Budget;
use crate::base::time::Clock;
use crate::sftp::link::{ChannelId, Connector};
use crate::sftp::packet::{Kind, Request};
use crate::sftp::tasks::Tasks;
use crate::sftp::{Client, Settings, Target};

/// A directory on an SFTP server.
#[derive(Debug)]
pub struct SftpStore {
    about: String,
    remote: Arc<Remote>,
    budget: Budget,
    tasks: Arc<Tasks>,
}

impl SftpStore {
    /// The store below `root` on the server that `connector` reaches; a relative path counts from the user's home directory. Connecting begins
    /// at once and is not waited for: a failure is told by whatever is asked for first. `about` is its URL, for messages.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn new(
        connector: Box<dyn Connector>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        root: Vec<u8>,
        about: String,
    ) -> Result<Self, StoreError> {
        let budget = Budget::new(settings.link_budget);
        let failed = |error| StoreError::from_io("connect to", &about, error);
        let client = Client::start(connector, clock, settings).map_err(failed)?;
        let tasks = Arc::new(Tasks::new().map_err(failed)?);
        Ok(Self { remote: Arc::new(Remote::new(client, root)), budget, tasks, about })
    }

    /// Kinds of the requests so far and their channels, if [`Settings::keep_log`] is set.
    #[must_use]
    pub fn log(&self) -> Vec<(ChannelId, Kind)> {
        self.remote.client.log()
    }

    /// Runs the rest of an operation as a task.
    fn run<T, F>(&self, rest: impl FnOnce(Arc<Remote>) -> F) -> Pending<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (completer, pending) = Pending::later();
        let rest = rest(self.remote.clone());
        self.tasks.spawn(async move { completer.complete(rest.await) });
        pending
    }
}

impl Store for SftpStore {
    fn describe(&self) -> String {
        self.about.clone()
    }

    fn list(&self, dir: &Name) -> Pending<Vec<Listed>> {
        let (dir, first) = (dir.clone(), self.remote.start_list(dir));
        self.run(|remote| async move { remote.list(&dir, first).await })
    }

    fn read(&self, name: &Name, offset: u64, len: u64) -> Pending<Vec<u8>> {
        let (name, first) = (name.clone(), self.remote.start_read(name, offset, len));
        self.run(|remote| async move { remote.read(&name, offset, len, first).await })
    }

    fn read_tail(&self, name: &Name, len: u64) -> Pending<(Vec<u8>, u64)> {
        let (name, first) = (name.clone(), self.remote.start_read_end(name, 0));
        self.run(move |remote| async move { remote.read_end(&name, |size| Ok(size.min(len)), first).await })
    }

    fn read_all(&self, name: &Name, limit: u64) -> Pending<Vec<u8>> {
        self.read_expected(name, limit, reading::SMALL)
    }

    fn read_expected(&self, name: &Name, limit: u64, expected: u64) -> Pending<Vec<u8>> {
        let (name, first) = (name.clone(), self.remote.start_read_end(name, expected.min(limit)));
        self.run(move |remote| async move {
            let wanted = |size| {
                let detail = format!("it has {size} bytes, at most {limit} were expected");
                let too_long = StoreError::new(ErrorKind::TooLong, "read", remote.subject(&name), detail);
                if size <= limit { Ok(size) } else { Err(too_long) }
            };
            remote.read_end(&name, wanted, first).await.map(|(bytes, _)| bytes)
        })
    }

    fn create(&self, name: &Name, class: Class) -> Box<dyn Upload> {
        Box::new(SftpUpload::start(&self.remote, &self.tasks, &self.budget, name, class))
    }

    fn remove(&self, name: &Name) -> Pending<()> {
        let name = name.clone();
        let path = self.remote.path(&name);
        let answer = self.remote.client.submit(Target::Control, Request::Remove { path });
        self.run(|remote| async move {
            let outcome = answer.await;
            let done_before = outcome.resent && is_missing(&outcome);
            match outcome.done() {
                Err(_) if done_before => Ok(()),
                Err(error) => Err(remote.error("remove", &name, error)),
                Ok(()) => Ok(()),
            }
        })
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<()> {
        let first = self.remote.start_rename(from, to);
        let (from, to) = (from.clone(), to.clone());
        self.run(|remote| async move { remote.rename(&from, &to, first).await })
    }

    fn make_dir(&self, dir: &Name) -> Pending<()> {
        let dir = dir.clone();
        // All in one flight, and then a look at the result: what is there already fails without saying so.
        let mut requests = vec![self.remote.make(&Name::top())];
        if dir != Name::top() {
            requests.extend(self.remote.make_parents(&dir));
            requests.push(self.remote.make(&dir));
        }
        requests.push(Request::Stat { path: self.remote.path(&dir) });
        let mut answers = self.remote.client.submit_many(Target::Control, requests);
        let look = answers.pop();
        let make = answers.pop();
        self.run(|remote| async move {
            let (Some(make), Some(look)) = (make, look) else {
                return Ok(());
            };
            let (made, found) = (make.await.done(), look.await.attrs());
            match (made, found) {
                (_, Ok(attrs)) if attrs.is_dir() => {
                    remote.learn_dir(&dir);
                    Ok(())
                }
                (Ok(()), _) => Ok(()),
                (Err(_), Ok(_)) => {
                    let detail = "a file of that name exists";
                    Err(StoreError::new(ErrorKind::Exists, "create", remote.subject(&dir), detail))
                }
                (Err(error), Err(_)) => Err(remote.error_of_writing("create", &dir, error).await),
            }
        })
    }

    fn lanes(&self) -> usize {
        self.remote.client.lanes()
    }

    fn give_up(&self, when: GiveUp) {
        self.remote.client.give_up(|is_silent| match when {
            GiveUp::IfGone => false,
            GiveUp::IfSilent => is_silent,
            GiveUp::Anyway => true,
        });
    }

    fn traffic(&self) -> Traffic {
        let counts = self.remote.client.counts();
        Traffic {
            requests: counts.requests,
            serial_waits: counts.serial_waits,
            bytes_up: counts.bytes_up,
            bytes_down: counts.bytes_down,
        }
    }
}
