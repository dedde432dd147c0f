//! The machine's end of a connection.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::serve::{ServerChannel, parse, status};
use super::{Fault, Machine};
use crate::base::time::Clock;
use crate::sftp::link::{ChannelId, ConnectError, Connector, Link, LinkError, LinkErrorKind, LinkEvent};

pub(super) struct MachineConnector(pub(super) Machine);

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
            hung: false,
            took_part: false,
        }))
    }

    fn describe(&self) -> String {
        "the machine".to_owned()
    }
}

struct MachineLink {
    machine: Machine,
    number: u64,
    channels: BTreeMap<ChannelId, ServerChannel>,
    news: VecDeque<(Duration, LinkEvent)>,
    dead: Option<Duration>,
    silent: bool,
    hung: bool,
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
            Some(Fault::Hang) => self.hung = true,
            Some(Fault::HangChannel) => {
                if let Some(channel) = self.channels.get_mut(&id) {
                    channel.hung = true;
                }
            }
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
            Some(Fault::CutLater(time)) => {
                self.later(Duration::ZERO, LinkEvent::Data(id, answer));
                self.dead = Some(now + time);
            }
            Some(Fault::Status(_)) | None => self.later(Duration::ZERO, LinkEvent::Data(id, answer)),
        }
        if let Some(swapped) = swapped {
            self.later(Duration::ZERO, LinkEvent::Data(id, swapped));
        }
    }
}

impl Link for MachineLink {
    fn open_channel(&mut self, channel: ChannelId) {
        if self.machine.world().silent_after.take_if(|most| self.channels.len() >= *most).is_some() {
            self.silent = true;
            return;
        }
        if self.channels.len() >= self.machine.world().channels {
            self.later(Duration::ZERO, LinkEvent::Refused(channel, "too many".to_owned()));
            return;
        }
        self.channels.insert(channel, ServerChannel::default());
        let mut world = self.machine.world();
        world.most_channels = world.most_channels.max(self.channels.len());
        drop(world);
        self.later(Duration::ZERO, LinkEvent::Opened(channel));
    }

    fn send(&mut self, channel: ChannelId, bytes: &[u8]) -> usize {
        // Little at a time now and then, so that packets are cut in all places.
        let taken = if bytes.len().is_multiple_of(7) { bytes.len().div_ceil(2) } else { bytes.len() };
        self.took_part |= taken < bytes.len();
        if self.dead.is_some() || self.silent || self.hung {
            return taken;
        }
        let Some(open) = self.channels.get_mut(&channel) else {
            return 0;
        };
        if open.hung {
            return taken;
        }
        open.input.push(&bytes[..taken]);
        let mut packets = Vec::new();
        while let Some(packet) = open.input.next_packet().unwrap() {
            packets.push(packet);
        }
        for packet in packets {
            if self.dead.is_none() && !self.silent && !self.hung {
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
        let mut world = self.machine.world();
        world.longest_wait = world.longest_wait.max(timeout);
        let deaf = world.deaf;
        drop(world);
        let now = self.now();
        let next = self.news.front().map(|(due, _)| *due).into_iter().chain(self.dead).min();
        let next = if self.silent { None } else { next };
        let timeout = next.map_or(timeout, |due| timeout.min(due.saturating_sub(now)));
        // What took only a part of what it was offered has room again.
        let timeout = if std::mem::take(&mut self.took_part) { Duration::ZERO } else { timeout };
        if deaf {
            std::thread::sleep(timeout);
        } else {
            let timeout = Timespec::try_from(timeout).ok();
            let _ = poll(&mut [PollFd::from_borrowed_fd(waker, PollFlags::IN)], timeout.as_ref());
        }
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

    fn probe(&mut self) -> bool {
        if !self.silent && self.dead.is_none() {
            self.later(Duration::ZERO, LinkEvent::Heard);
        }
        true
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
