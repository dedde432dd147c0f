//! One request after the other: what is done, and what is said.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::handles::{Handles, MOST, Open};
use super::listing::{self, Listing};
use super::refusal::Refusal;
use super::rights::Rights;
use super::shelf::{self, OpenFile};
use super::spot::Spot;
use super::tree::Tree;
use crate::sftp::Malformed;
use crate::sftp::asked::Asked;
use crate::sftp::attrs::Attrs;
use crate::sftp::packet::{MAX_PACKET, MAX_PAYLOAD, extension};
use crate::sftp::reply::{Code, DirEntry, Hello, Reply, Status};

/// The protocol's version.
const VERSION: u32 = 3;

/// A session.
pub(super) struct Server {
    tree: Tree,
    rights: Rights,
    handles: Handles,
    is_greeted: bool,
}

impl Server {
    pub(super) fn new(tree: Tree, rights: Rights) -> Self {
        Self { tree, rights, handles: Handles::default(), is_greeted: false }
    }

    /// Carries out a request, or refuses.
    ///
    /// # Errors
    /// When the client does not greet, or does so twice.
    pub(super) fn answer(&mut self, asked: Asked) -> Result<Reply, Malformed> {
        match (&asked, self.is_greeted) {
            (Asked::Hello { .. }, false) => {
                self.is_greeted = true;
                return Ok(self.hello());
            }
            (Asked::Hello { .. }, true) => return Err(Malformed("a second greeting")),
            (_, false) => return Err(Malformed("a request before the greeting")),
            (_, true) => {}
        }
        Ok(self.carry_out(asked).unwrap_or_else(|refusal| match self.rights {
            Rights::Full => refusal.into(),
            _ => refusal.of_guarded().into(),
        }))
    }

    fn hello(&self) -> Reply {
        let mut extensions = BTreeMap::new();
        let mut offer = |name: &str, version: &'static [u8]| {
            extensions.insert(name.to_owned(), Bytes::from_static(version));
        };
        offer(extension::LIMITS, b"1");
        offer(extension::STATVFS, b"2");
        offer(extension::FSYNC, b"1");
        if self.rights == Rights::Full {
            offer(extension::POSIX_RENAME, b"1");
        }
        if let Some(notice) = self.rights.notice() {
            offer(notice, b"1");
        }
        Reply::Hello(Hello { version: VERSION, extensions })
    }

    fn carry_out(&mut self, asked: Asked) -> Result<Reply, Refusal> {
        match asked {
            Asked::Open { path, flags, attrs } => self.open(&path, flags, attrs),
            Asked::OpenDir { path } => {
                self.handles.check_room()?;
                let listing = Listing::open(&self.tree, Spot::of(&path)?, self.rights)?;
                Ok(Reply::Handle(self.handles.give(Open::Directory(listing))))
            }
            Asked::Close { handle } => done(self.handles.close(&handle)),
            Asked::Read { handle, offset, len } => {
                let len = usize::try_from(len.min(MAX_PAYLOAD)).unwrap_or_default();
                Ok(Reply::Data(self.handles.file(&handle)?.read(offset, len)?.into()))
            }
            Asked::Write { handle, offset, data } => done(self.handles.file(&handle)?.write(offset, &data)),
            Asked::Fsync { handle } => done(self.handles.file(&handle)?.sync()),
            Asked::ReadDir { handle } => Ok(Reply::Names(self.handles.listing(&handle)?.next()?)),
            Asked::Fstat { handle } => self.fstat(&handle),
            Asked::Lstat { path } => Ok(Reply::Attrs(listing::attrs(&self.tree.stat(&Spot::of(&path)?)?))),
            Asked::Stat { path } => self.stat(&path),
            Asked::SetStat { path, attrs } => {
                self.rights.may_change()?;
                let opened = self.tree.open_at(&Spot::of(&path)?, writing(attrs), Mode::empty())?;
                done(shelf::change(opened, attrs))
            }
            Asked::FsetStat { handle, attrs } => {
                self.rights.may_change()?;
                done(shelf::change(self.handles.file(&handle)?, attrs))
            }
            Asked::Remove { path } => self.remove(&Spot::of(&path)?),
            Asked::RemoveDir { path } => {
                self.rights.may_change()?;
                self.tree.remove(&Spot::of(&path)?, AtFlags::REMOVEDIR)?;
                Ok(ok())
            }
            Asked::MakeDir { path, attrs } => {
                let spot = Spot::of(&path)?;
                self.rights.may_make_dir(&spot)?;
                self.tree.make_dir(&spot, shelf::directory_mode(attrs))?;
                Ok(ok())
            }
            Asked::Rename { from, to } => self.rename(&Spot::of(&from)?, &Spot::of(&to)?),
            Asked::PosixRename { from, to } => {
                self.rights.may_change()?;
                self.tree.rename(&Spot::of(&from)?, &Spot::of(&to)?, true)?;
                Ok(ok())
            }
            Asked::RealPath { path } => {
                let name = Bytes::from(Spot::of(&path)?.absolute());
                let entry = DirEntry { name: name.clone(), long_name: name, attrs: Attrs::default() };
                Ok(Reply::Names(vec![entry]))
            }
            Asked::ReadLink { .. } | Asked::SymLink => {
                Err(Refusal::denied("there are no symbolic links here"))
            }
            Asked::Limits => Ok(limits()),
            Asked::StatVfs { path } => self.room(&Spot::of(&path)?),
            Asked::Hello { .. } | Asked::Unknown => {
                Err(Refusal::new(Code::Unsupported, "there is no such request here"))
            }
        }
    }

    fn open(&mut self, path: &[u8], flags: u32, attrs: Attrs) -> Result<Reply, Refusal> {
        let spot = Spot::of(path)?;
        self.rights.may_open(&spot, flags)?;
        self.handles.check_room()?;
        let is_guarded = self.rights != Rights::Full;
        let file = OpenFile::open(&self.tree, &spot, (flags, attrs), is_guarded)?;
        Ok(Reply::Handle(self.handles.give(Open::File(file))))
    }

    fn fstat(&mut self, handle: &Bytes) -> Result<Reply, Refusal> {
        let stat = match self.handles.file(handle) {
            Ok(file) => file.stat()?,
            Err(_) => self.handles.listing(handle)?.stat()?,
        };
        Ok(Reply::Attrs(listing::attrs(&stat)))
    }

    fn stat(&self, path: &[u8]) -> Result<Reply, Refusal> {
        let attrs = listing::attrs(&self.tree.stat(&Spot::of(path)?)?);
        if attrs.is_link() {
            return Err(Refusal::denied("symbolic links are not followed here"));
        }
        Ok(Reply::Attrs(attrs))
    }

    fn remove(&self, spot: &Spot) -> Result<Reply, Refusal> {
        self.rights.may_remove(spot)?;
        self.tree.remove(spot, AtFlags::empty())?;
        Ok(ok())
    }

    fn rename(&self, from: &Spot, to: &Spot) -> Result<Reply, Refusal> {
        self.rights.may_rename(from, to)?;
        self.may_add_key(to)?;
        match self.rights {
            Rights::Full => self.tree.rename(from, to, false)?,
            _ => shelf::publish(&self.tree, from, to)?,
        }
        Ok(ok())
    }

    /// Whether a name may be published though it is a key slot's: only as long as the repository is being made.
    fn may_add_key(&self, spot: &Spot) -> Result<(), Refusal> {
        match self.rights.forbidden_by(spot).map(|config| self.tree.stat(&config)) {
            None | Some(Err(Errno::NOENT)) => Ok(()),
            Some(Ok(_)) => Err(Refusal::denied("this key may not add keys to a repository")),
            Some(Err(error)) => Err(error.into()),
        }
    }

    fn room(&self, spot: &Spot) -> Result<Reply, Refusal> {
        let room = self.tree.room(spot)?;
        let mut answer = Vec::new();
        for number in [room.f_bsize, room.f_frsize, room.f_blocks, room.f_bfree, room.f_bavail] {
            answer.put_u64(number);
        }
        // Neither the file system's number nor its flags concern the client.
        for number in [room.f_files, room.f_ffree, room.f_favail, 0, 0, room.f_namemax] {
            answer.put_u64(number);
        }
        Ok(Reply::Extended(answer.into()))
    }
}

fn limits() -> Reply {
    let packet = u64::try_from(MAX_PACKET).unwrap_or(u64::MAX);
    let handles = u64::try_from(MOST).unwrap_or(u64::MAX);
    let mut answer = Vec::new();
    for number in [packet, u64::from(MAX_PAYLOAD), u64::from(MAX_PAYLOAD), handles] {
        answer.put_u64(number);
    }
    Reply::Extended(answer.into())
}

/// How something is opened whose attributes are to be changed: a length takes the right to write.
fn writing(attrs: Attrs) -> OFlags {
    if attrs.size.is_some() { OFlags::WRONLY } else { OFlags::RDONLY }
}

fn ok() -> Reply {
    Reply::Status(Status { code: Code::Ok, message: String::new() })
}

fn done(outcome: Result<(), Refusal>) -> Result<Reply, Refusal> {
    outcome.map(|()| ok())
}
