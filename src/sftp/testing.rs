//! An SFTP server in memory that fails as it is told to. For tests.
//!
//! A [`Machine`] keeps the files and outlives the connections to it. Requests are done when they arrive; answers
//! leave after the machine's latency. A [`Fault`] hits one request, chosen by kind and number; a fault that never
//! fired fails the test that asked for it, when the machine is dropped.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::attrs::Attrs;
use super::fields::{Fields, put_string};
use super::link::{
    ChannelId, ConnectError, ConnectErrorKind, Connector, Link, LinkError, LinkErrorKind, LinkEvent,
};
use super::packet::{Kind, Packets, extension, wire};
use crate::base::time::{Clock, SystemClock};

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not done, and answered by this status.
    Status(u32),
    /// The connection ends before it is done.
    CutBefore,
    /// It is done, and the connection ends before the answer.
    CutAfter,
    /// The connection stands, but nothing comes any more.
    Silence,
    /// Its channel ends.
    CloseChannel,
    /// The answer is no packet.
    Garbage,
    /// Half of the answer comes, and then the connection ends.
    HalfAnswer,
    /// The answer comes after the next one.
    Swap,
    /// The answer comes so much later.
    Late(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Dir,
    File(Vec<u8>),
}

#[derive(Debug)]
struct Rule {
    kind: Option<Kind>,
    /// How many that match still pass.
    left: usize,
    fault: Fault,
    fired: bool,
}

#[derive(Debug)]
struct World {
    nodes: BTreeMap<Vec<u8>, Node>,
    rules: Vec<Rule>,
    seen: Vec<(u64, ChannelId, Kind)>,
    connections: u64,
    refusals: VecDeque<ConnectErrorKind>,
    open: usize,
    most_open: usize,
    latency: Duration,
    extensions: Vec<&'static str>,
    channels: usize,
    payload: usize,
    room: u64,
}

/// A server's machine.
#[derive(Debug, Clone)]
pub struct Machine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    world: Mutex<World>,
    clock: SystemClock,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let world = self.world.get_mut().unwrap();
            let idle: Vec<_> = world.rules.iter().filter(|rule| !rule.fired).collect();
            assert!(idle.is_empty(), "faults that never fired: {idle:?}");
        }
    }
}

impl Machine {
    /// One with an empty directory, all extensions and no latency.
    pub fn new(dir: &str) -> Self {
        let world = World {
            nodes: BTreeMap::from([(dir.as_bytes().to_vec(), Node::Dir)]),
            rules: Vec::new(),
            seen: Vec::new(),
            connections: 0,
            refusals: VecDeque::new(),
            open: 0,
            most_open: 0,
            latency: Duration::ZERO,
            extensions: vec![extension::FSYNC, extension::LIMITS, extension::STATVFS],
            channels: 10,
            payload: 255 * 1024,
            room: 1 << 40,
        };
        Self(Arc::new(Inner { world: Mutex::new(world), clock: SystemClock::new() }))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap()
    }

    pub fn set_latency(&self, latency: Duration) {
        self.world().latency = latency;
    }

    /// Neither extensions nor payloads beyond this.
    pub fn make_plain(&self, payload: usize) {
        let mut world = self.world();
        world.extensions.clear();
        world.payload = payload;
    }

    /// So many channels a connection.
    pub fn set_channels(&self, channels: usize) {
        self.world().channels = channels;
    }

    pub fn set_room(&self, bytes: u64) {
        self.world().room = bytes;
    }

    /// Hits the `nth` request from now on (0: the next) of a kind, or of any.
    pub fn fault(&self, kind: Option<Kind>, nth: usize, fault: Fault) {
        self.world().rules.push(Rule { kind, left: nth, fault, fired: false });
    }

    /// Forgets faults that have not fired; how many these were.
    pub fn forget_faults(&self) -> usize {
        let rules = std::mem::take(&mut self.world().rules);
        rules.iter().filter(|rule| !rule.fired).count()
    }

    /// The next attempts to connect fail like this.
    pub fn refuse(&self, kinds: impl IntoIterator<Item = ConnectErrorKind>) {
        self.world().refusals.extend(kinds);
    }

    pub fn make_dir(&self, path: &str) {
        self.world().nodes.insert(path.as_bytes().to_vec(), Node::Dir);
    }

    pub fn put(&self, path: &str, bytes: &[u8]) {
        self.world().nodes.insert(path.as_bytes().to_vec(), Node::File(bytes.to_vec()));
    }

    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        match self.world().nodes.get(path.as_bytes()) {
            Some(Node::File(bytes)) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Paths of all files.
    pub fn files(&self) -> Vec<String> {
        let world = self.world();
        let files = world.nodes.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect()
    }

    pub fn kinds(&self) -> Vec<Kind> {
        self.world().seen.iter().map(|(_, _, kind)| *kind).collect()
    }

    pub fn channels_seen(&self) -> usize {
        let mut channels: Vec<_> = self.world().seen.iter().map(|(link, id, _)| (*link, *id)).collect();
        channels.sort();
        channels.dedup();
        channels.len()
    }

    pub fn connections(&self) -> u64 {
        self.world().connections
    }

    pub fn open_handles(&self) -> usize {
        self.world().open
    }

    pub fn most_open_handles(&self) -> usize {
        self.world().most_open
    }

    pub fn connector(&self) -> Box<dyn Connector> {
        Box::new(MachineConnector(self.clone()))
    }
}

struct MachineConnector(Machine);

impl Connector for MachineConnector {
    fn connect(&mut self) -> Result<Box<dyn Link>, ConnectError> {
        let mut world = self.0.world();
        if let Some(kind) = world.refusals.pop_front() {
            return Err(ConnectError::new(kind, "the machine refuses"));
        }
        world.connections += 1;
        let number = world.connections;
        drop(world);
        Ok(Box::new(MachineLink {
            machine: self.0.clone(),
            number,
            channels: BTreeMap::new(),
            news: VecDeque::new(),
            dead: None,
            silent: false,
            took_part: false,
        }))
    }

    fn describe(&self) -> String {
        "the machine".to_owned()
    }
}

enum Open {
    File(Vec<u8>),
    Dir(Vec<Vec<u8>>),
}

#[derive(Default)]
struct ServerChannel {
    input: Packets,
    handles: BTreeMap<u32, Open>,
    next: u32,
    swapped: Option<Vec<u8>>,
}

struct MachineLink {
    machine: Machine,
    number: u64,
    channels: BTreeMap<ChannelId, ServerChannel>,
    news: VecDeque<(Duration, LinkEvent)>,
    dead: Option<Duration>,
    silent: bool,
    took_part: bool,
}

impl Drop for MachineLink {
    fn drop(&mut self) {
        let open: usize = self.channels.values().map(|channel| channel.handles.len()).sum();
        self.machine.world().open -= open;
    }
}

impl MachineLink {
    fn now(&self) -> Duration {
        self.machine.0.clock.monotonic()
    }

    fn later(&mut self, extra: Duration, event: LinkEvent) {
        let due = self.now() + self.machine.world().latency + extra;
        let at = self.news.partition_point(|(other, _)| *other <= due);
        self.news.insert(at, (due, event));
    }

    fn packet(&mut self, id: ChannelId, packet: Bytes) {
        let Some((kind, request)) = parse(packet) else {
            panic!("a request that is none");
        };
        let machine = self.machine.clone();
        let mut world = machine.world();
        world.seen.push((self.number, id, kind));
        let mut fault = None;
        for rule in &mut world.rules {
            if rule.fired || rule.kind.is_some_and(|wanted| wanted != kind) {
                continue;
            }
            if rule.left > 0 {
                rule.left -= 1;
            } else if fault.is_none() {
                rule.fired = true;
                fault = Some(rule.fault);
            }
        }
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let answer = match fault {
            Some(Fault::CutBefore) => Vec::new(),
            Some(Fault::Status(code)) => status(request.id, code),
            _ => channel.serve(&mut world, request),
        };
        let swapped = channel.swapped.take();
        drop(world);
        let now = self.now();
        match fault {
            Some(Fault::CutBefore | Fault::CutAfter) => self.dead = Some(now),
            Some(Fault::Silence) => self.silent = true,
            Some(Fault::CloseChannel) => {
                self.later(Duration::ZERO, LinkEvent::Closed(id, "as told".to_owned()));
            }
            Some(Fault::Garbage) => {
                self.later(Duration::ZERO, LinkEvent::Data(id, vec![0xff; 8]));
            }
            Some(Fault::HalfAnswer) => {
                let half = answer.len() / 2;
                self.later(Duration::ZERO, LinkEvent::Data(id, answer[..half].to_vec()));
                self.dead = Some(now + machine.world().latency);
            }
            Some(Fault::Swap) => {
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.swapped = Some(answer);
                }
            }
            Some(Fault::Late(time)) => self.later(time, LinkEvent::Data(id, answer)),
            Some(Fault::Status(_)) | None => self.later(Duration::ZERO, LinkEvent::Data(id, answer)),
        }
        if let Some(swapped) = swapped {
            self.later(Duration::ZERO, LinkEvent::Data(id, swapped));
        }
    }
}

impl Link for MachineLink {
    fn open_channel(&mut self, channel: ChannelId) {
        if self.channels.len() >= self.machine.world().channels {
            self.later(Duration::ZERO, LinkEvent::Refused(channel, "too many".to_owned()));
            return;
        }
        self.channels.insert(channel, ServerChannel::default());
        self.later(Duration::ZERO, LinkEvent::Opened(channel));
    }

    fn send(&mut self, channel: ChannelId, bytes: &[u8]) -> usize {
        // Little at a time now and then, so that packets are cut in all places.
        let taken = if bytes.len().is_multiple_of(7) { bytes.len().div_ceil(2) } else { bytes.len() };
        self.took_part |= taken < bytes.len();
        if self.dead.is_some() || self.silent {
            return taken;
        }
        let Some(open) = self.channels.get_mut(&channel) else {
            return 0;
        };
        open.input.push(&bytes[..taken]);
        let mut packets = Vec::new();
        while let Some(packet) = open.input.next_packet().unwrap() {
            packets.push(packet);
        }
        for packet in packets {
            if self.dead.is_none() && !self.silent {
                self.packet(channel, packet);
            }
        }
        taken
    }

    fn poll(
        &mut self,
        waker: BorrowedFd<'_>,
        timeout: Duration,
        events: &mut Vec<LinkEvent>,
    ) -> Result<(), LinkError> {
        let now = self.now();
        let next = self.news.front().map(|(due, _)| *due).into_iter().chain(self.dead).min();
        let next = if self.silent { None } else { next };
        let timeout = next.map_or(timeout, |due| timeout.min(due.saturating_sub(now)));
        // What took only a part of what it was offered has room again.
        let timeout = if std::mem::take(&mut self.took_part) { Duration::ZERO } else { timeout };
        let timeout = Timespec::try_from(timeout).ok();
        let _ = poll(&mut [PollFd::from_borrowed_fd(waker, PollFlags::IN)], timeout.as_ref());
        if self.silent {
            return Ok(());
        }
        let now = self.now();
        while self.news.front().is_some_and(|(due, _)| *due <= now) {
            let (_, event) = self.news.pop_front().unwrap();
            events.push(event);
        }
        match self.dead {
            Some(due) if due <= now => Err(LinkError::new(LinkErrorKind::Closed, "cut as told")),
            _ => Ok(()),
        }
    }

    fn close_channel(&mut self, channel: ChannelId) {
        if let Some(channel) = self.channels.remove(&channel) {
            self.machine.world().open -= channel.handles.len();
        }
    }

    fn describe(&self) -> String {
        "the machine".to_owned()
    }
}

struct Parsed {
    id: u32,
    number: u8,
    name: Vec<u8>,
    fields: Fields,
}

fn parse(packet: Bytes) -> Option<(Kind, Parsed)> {
    let mut fields = Fields(packet);
    let number = fields.u8().ok()?;
    let id = fields.u32().ok()?;
    let mut name = Vec::new();
    let kind = match number {
        wire::INIT => Kind::Init,
        wire::OPEN => Kind::Open,
        wire::CLOSE => Kind::Close,
        wire::READ => Kind::Read,
        wire::WRITE => Kind::Write,
        wire::LSTAT => Kind::Lstat,
        wire::FSTAT => Kind::Fstat,
        wire::OPENDIR => Kind::OpenDir,
        wire::READDIR => Kind::ReadDir,
        wire::REMOVE => Kind::Remove,
        wire::MKDIR => Kind::MakeDir,
        wire::REALPATH => Kind::RealPath,
        wire::STAT => Kind::Stat,
        wire::RENAME => Kind::Rename,
        wire::EXTENDED => {
            name = fields.string().ok()?.to_vec();
            match std::str::from_utf8(&name).ok()? {
                extension::FSYNC => Kind::Fsync,
                extension::LIMITS => Kind::Limits,
                extension::STATVFS => Kind::StatVfs,
                _ => return None,
            }
        }
        _ => return None,
    };
    Some((kind, Parsed { id, number, name, fields }))
}

fn answer(number: u8, id: u32, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = vec![number];
    packet.put_u32(id);
    body(&mut packet);
    let mut framed = Vec::new();
    put_string(&mut framed, &packet);
    framed
}

fn status(id: u32, code: u32) -> Vec<u8> {
    answer(wire::STATUS, id, |out| {
        out.put_u32(code);
        put_string(out, b"words");
        put_string(out, b"");
    })
}

fn attrs_of(node: &Node) -> Attrs {
    match node {
        Node::Dir => Attrs { size: Some(0), permissions: Some(0o040_700), modified: Some(1) },
        Node::File(bytes) => Attrs {
            size: Some(u64::try_from(bytes.len()).unwrap()),
            permissions: Some(0o100_600),
            modified: Some(1),
        },
    }
}

fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &path[..end]
}

impl ServerChannel {
    fn handle(&mut self, world: &mut World, id: u32, open: Open) -> Vec<u8> {
        // Not text, as OpenSSH's are not.
        let handle = 0x80 + self.next;
        self.next += 1;
        self.handles.insert(handle, open);
        world.open += 1;
        world.most_open = world.most_open.max(world.open);
        answer(wire::HANDLE, id, |out| put_string(out, &handle.to_be_bytes()))
    }

    fn serve(&mut self, world: &mut World, request: Parsed) -> Vec<u8> {
        let Parsed { id, number, name, mut fields } = request;
        let ok = status(id, 0);
        if number == wire::INIT {
            let extensions = world.extensions.clone();
            return answer(wire::VERSION, 3, |out| {
                for name in extensions {
                    put_string(out, name.as_bytes());
                    put_string(out, b"1");
                }
            });
        }
        if name == extension::LIMITS.as_bytes() {
            if !world.extensions.contains(&extension::LIMITS) {
                return status(id, 8);
            }
            let payload = u64::try_from(world.payload).unwrap();
            return answer(wire::EXTENDED_REPLY, id, |out| {
                for number in [payload + 1024, payload, payload, 100] {
                    out.put_u64(number);
                }
            });
        }
        let first = fields.string().unwrap().to_vec();
        if name == extension::STATVFS.as_bytes() {
            let room = world.room;
            return answer(wire::EXTENDED_REPLY, id, |out| {
                for number in [1, 1, 1000, room, room, 1000, 1000, 1000, 0, 0, 255] {
                    out.put_u64(number);
                }
            });
        }
        let handle = <[u8; 4]>::try_from(&first[..]).map_or(0, u32::from_be_bytes);
        let path = match self.handles.get(&handle) {
            Some(Open::File(path)) => path.clone(),
            _ => first.clone(),
        };
        let node = world.nodes.get(&path).cloned();
        match number {
            wire::OPEN => {
                let flags = fields.u32().unwrap();
                let exists = node.is_some();
                match (flags & 0x8 != 0, exists) {
                    (true, true) => return status(id, 4),
                    (true, false) if world.nodes.get(parent(&path)) != Some(&Node::Dir) => {
                        return status(id, 2);
                    }
                    (true, false) => {
                        world.nodes.insert(path.clone(), Node::File(Vec::new()));
                    }
                    (false, false) => return status(id, 2),
                    (false, true) => {}
                }
                self.handle(world, id, Open::File(path))
            }
            wire::OPENDIR => {
                if node != Some(Node::Dir) {
                    return status(id, 2);
                }
                let below = world.nodes.keys().filter(|other| parent(other) == path && **other != path);
                let names = below.cloned().collect();
                self.handle(world, id, Open::Dir(names))
            }
            wire::CLOSE => {
                if self.handles.remove(&handle).is_none() {
                    return status(id, 4);
                }
                world.open -= 1;
                ok
            }
            wire::READDIR => match self.handles.get_mut(&handle) {
                Some(Open::Dir(names)) if !names.is_empty() => {
                    let some: Vec<_> = names.drain(..names.len().min(100)).collect();
                    answer(wire::NAME, id, |out| {
                        out.put_u32(u32::try_from(some.len()).unwrap());
                        for path in some {
                            let name = path.rsplit(|byte| *byte == b'/').next().unwrap();
                            put_string(out, name);
                            put_string(out, b"");
                            attrs_of(world.nodes.get(&path).unwrap_or(&Node::Dir)).put(out);
                        }
                    })
                }
                _ => status(id, 1),
            },
            wire::READ => {
                let offset = usize::try_from(fields.u64().unwrap()).unwrap();
                let len = usize::try_from(fields.u32().unwrap()).unwrap().min(world.payload);
                match node {
                    Some(Node::File(bytes)) if offset < bytes.len() => {
                        let end = bytes.len().min(offset + len);
                        answer(wire::DATA, id, |out| put_string(out, &bytes[offset..end]))
                    }
                    _ => status(id, 1),
                }
            }
            wire::WRITE => {
                let offset = usize::try_from(fields.u64().unwrap()).unwrap();
                let data = fields.string().unwrap();
                assert!(data.len() <= world.payload, "more than the server takes");
                assert!(self.handles.contains_key(&handle), "a handle of another connection");
                // A file that was removed is written to all the same.
                if let Some(Node::File(bytes)) = world.nodes.get_mut(&path) {
                    bytes.resize(bytes.len().max(offset + data.len()), 0);
                    bytes[offset..offset + data.len()].copy_from_slice(&data);
                }
                ok
            }
            wire::EXTENDED => {
                assert!(world.extensions.contains(&extension::FSYNC), "an extension that is not offered");
                ok
            }
            wire::STAT | wire::LSTAT | wire::FSTAT => match node {
                Some(node) => answer(wire::ATTRS, id, |out| attrs_of(&node).put(out)),
                None => status(id, 2),
            },
            wire::REMOVE => match node {
                Some(Node::File(_)) => {
                    world.nodes.remove(&path);
                    ok
                }
                Some(Node::Dir) => status(id, 4),
                None => status(id, 2),
            },
            wire::MKDIR => match (node, world.nodes.get(parent(&path))) {
                (Some(_), _) => status(id, 4),
                (None, Some(Node::Dir)) => {
                    world.nodes.insert(path, Node::Dir);
                    ok
                }
                (None, _) => status(id, 2),
            },
            wire::RENAME => {
                let to = fields.string().unwrap().to_vec();
                match (node, world.nodes.contains_key(&to), world.nodes.get(parent(&to))) {
                    (None, _, _) | (Some(_), false, None | Some(Node::File(_))) => status(id, 2),
                    (Some(_), true, _) => status(id, 4),
                    (Some(node), false, Some(Node::Dir)) => {
                        world.nodes.remove(&path);
                        world.nodes.insert(to.clone(), node);
                        // Open handles follow the file.
                        for open in self.handles.values_mut() {
                            if let Open::File(name) = open
                                && *name == path
                            {
                                name.clone_from(&to);
                            }
                        }
                        ok
                    }
                }
            }
            _ => status(id, 8),
        }
    }
}
