//! An SFTP server in memory that fails as it is told to. For tests.
//!
//! A [`Machine`] keeps the files and outlives the connections to it. Requests are done when they arrive; answers
//! leave after the machine's latency. A [`Fault`] hits one request, chosen by kind and number; a fault that never
//! fired fails the test that asked for it, when the machine is dropped.

mod link;
mod serve;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::link::{ChannelId, ConnectErrorKind, Connector};
use super::packet::{Kind, extension};
use crate::base::time::{Clock, SystemClock, Timestamp};
use link::MachineConnector;

/// The clock of a machine that can be suspended: it then wakes at once, so much later. Awake, time can be made to pass
/// faster.
#[derive(Debug, Clone)]
pub struct Dozing {
    clock: SystemClock,
    slept: Arc<Mutex<Duration>>,
    passed: Arc<Mutex<Duration>>,
}

impl Dozing {
    /// One that has not slept yet.
    pub fn new() -> Self {
        Self { clock: SystemClock::new(), slept: Arc::default(), passed: Arc::default() }
    }

    /// Sleeps.
    pub fn sleep(&self, time: Duration) {
        *self.slept.lock().unwrap() += time;
    }

    /// Lets time pass at once.
    pub fn pass(&self, time: Duration) {
        *self.passed.lock().unwrap() += time;
    }
}

impl Clock for Dozing {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic() + *self.passed.lock().unwrap()
    }

    fn suspended(&self) -> Duration {
        *self.slept.lock().unwrap()
    }
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is not done, and answered by this status.
    Status(u32),
    /// The connection ends before it is done.
    CutBefore,
    /// It is done, and the connection ends before the answer.
    CutAfter,
    /// It is answered, and the connection ends so much later.
    CutLater(Duration),
    /// The connection stands, but nothing comes any more.
    Silence,
    /// The SFTP programs take all and answer nothing from then on; the server itself gives signs of life.
    Hang,
    /// The SFTP program of its channel takes all and answers nothing from then on.
    HangChannel,
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
    most_channels: usize,
    /// The connection that opens more channels than these hears nothing any more.
    silent_after: Option<usize>,
    payload: usize,
    room: u64,
    /// Clients' wake-ups are lost.
    deaf: bool,
    longest_wait: Duration,
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
            most_channels: 0,
            silent_after: None,
            payload: 255 * 1024,
            room: 1 << 40,
            deaf: false,
            longest_wait: Duration::ZERO,
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

    /// The next connection that opens more channels than these hears nothing any more.
    pub fn fall_silent_after(&self, channels: usize) {
        self.world().silent_after = Some(channels);
    }

    /// From now on, who waits for a connection to this machine is not woken by those who want something.
    pub fn lose_wake_ups(&self) {
        self.world().deaf = true;
    }

    /// The longest that anybody was going to wait for a connection.
    pub fn longest_wait(&self) -> Duration {
        self.world().longest_wait
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

    /// The most channels of a connection that were open at once.
    pub fn most_channels(&self) -> usize {
        self.world().most_channels
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
