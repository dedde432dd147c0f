//! One direction of one connection: a reader that stamps bytes with the time they are due, a queue, and a writer
//! that delivers them then.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::fault::Verdict;
use super::{Direction, Shared};
use crate::clock;
use crate::random::Random;

/// What a link without a rate holds at most.
const DEEP: usize = 64 << 20;
/// What stands before the bottleneck of a link with a rate.
const SHALLOW: u64 = 256 << 10;
/// What is read at once on a link without a rate.
const LARGE: usize = 256 << 10;

/// The rate of one direction, which all connections share.
pub(super) struct Bottleneck {
    bits_per_second: Option<u64>,
    free_at: Mutex<Option<Instant>>,
    delivered: AtomicU64,
}

impl Bottleneck {
    pub(super) fn new(bits_per_second: Option<u64>) -> Self {
        Self { bits_per_second, free_at: Mutex::new(None), delivered: AtomicU64::new(0) }
    }

    /// Bytes delivered so far.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// How much to read at once: about a millisecond's worth.
    fn chunk(&self) -> usize {
        let Some(rate) = self.bits_per_second else {
            return LARGE;
        };
        usize::try_from(rate / 8000).unwrap_or(LARGE).clamp(1448, LARGE)
    }

    /// How long so many bytes take to leave.
    fn duration(&self, bytes: u64) -> Duration {
        match self.bits_per_second {
            Some(rate) if rate > 0 => {
                let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(rate);
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            _ => Duration::ZERO,
        }
    }

    /// Puts bytes into the queue, no earlier than `earliest`; when they will have left it.
    fn enqueue(&self, bytes: usize, earliest: Instant) -> Instant {
        let now = clock::now().max(earliest);
        if self.bits_per_second.is_none() {
            return now;
        }
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = free_at.map_or(now, |at| at.max(now));
        let end = begin + self.duration(u64::try_from(bytes).unwrap_or(u64::MAX));
        *free_at = Some(end);
        end
    }

    /// When the queue will have room again.
    fn room_at(&self) -> Option<Instant> {
        let free_at = (*self.free_at.lock().unwrap_or_else(PoisonError::into_inner))?;
        free_at.checked_sub(self.duration(SHALLOW))
    }
}

/// The bytes on their way.
#[derive(Default)]
pub(super) struct Pipe {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    ended: bool,
}

struct Chunk {
    due: Instant,
    data: Vec<u8>,
}

impl Pipe {
    pub(super) fn wake(&self) {
        // Under the lock, so that nobody who has just looked misses it.
        let _queue = self.lock();
        self.changed.notify_all();
    }

    /// Sleeps until the time has come or the connection is cut.
    pub(super) fn sleep_until(&self, time: Instant, connection: &Connection) {
        let mut queue = self.lock();
        while !connection.is_cut() {
            let left = time.saturating_duration_since(clock::now());
            if left.is_zero() {
                return;
            }
            queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn push(&self, chunk: Chunk, connection: &Connection) {
        let mut queue = self.lock();
        while queue.bytes >= DEEP && !connection.is_cut() {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.bytes += chunk.data.len();
        queue.chunks.push_back(chunk);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// The next bytes, when they are due; `None` at the end or when the connection is cut.
    fn pop(&self, connection: &Connection) -> Option<Vec<u8>> {
        let mut queue = self.lock();
        loop {
            if connection.is_cut() {
                return None;
            }
            let Some(due) = queue.chunks.front().map(|chunk| chunk.due) else {
                if queue.ended {
                    return None;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = due.saturating_duration_since(clock::now());
            if left.is_zero() {
                break;
            }
            queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let chunk = queue.chunks.pop_front()?;
        let was_full = queue.bytes >= DEEP;
        queue.bytes -= chunk.data.len();
        if was_full {
            self.changed.notify_all();
        }
        Some(chunk.data)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads until the end; the first bytes leave no earlier than `first`.
pub(super) fn read_all(
    mut from: TcpStream,
    shared: &Shared,
    connection: &Connection,
    direction: Direction,
    first: Instant,
) {
    precise_timers();
    let (bottleneck, pipe) = (shared.bottleneck(direction), connection.pipe(direction));
    let mut buffer = vec![0; bottleneck.chunk()];
    let mut random = Random::new(shared.link.rtt_us ^ bottleneck.delivered());
    let mut last_due = first;
    loop {
        if let Some(time) = bottleneck.room_at() {
            pipe.sleep_until(time, connection);
        }
        shared.faults.wait_while_stalled(connection);
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(_) => {
                connection.cut();
                break;
            }
        };
        if connection.turns(direction) {
            shared.turns.fetch_add(1, Ordering::Relaxed);
        }
        let left = bottleneck.enqueue(count, first);
        // In order, whatever the jitter.
        last_due = last_due.max(left + one_way(&shared.link, &mut random));
        let data = buffer.get(..count).unwrap_or_default().to_vec();
        pipe.push(Chunk { due: last_due, data }, connection);
    }
    pipe.end();
}

/// Delivers what is due until the end, which is passed on.
pub(super) fn write_all(mut to: TcpStream, shared: &Shared, connection: &Connection, direction: Direction) {
    precise_timers();
    let (bottleneck, pipe) = (shared.bottleneck(direction), connection.pipe(direction));
    while let Some(data) = pipe.pop(connection) {
        let mut rest = data.as_slice();
        while !rest.is_empty() {
            let count = match shared.faults.judge(connection, direction, bottleneck.delivered(), rest.len()) {
                Verdict::Deliver(count) => count,
                Verdict::Swallow => break,
            };
            let (now, later) = rest.split_at(count);
            // Before the peer can know of them, so that whoever has their answer finds them counted.
            bottleneck.delivered.fetch_add(u64::try_from(now.len()).unwrap_or_default(), Ordering::Relaxed);
            if to.write_all(now).is_err() {
                connection.cut();
                return;
            }
            rest = later;
        }
    }
    shared.faults.wait_while_stalled(connection);
    let _ = to.shutdown(Shutdown::Write);
}

impl Connection {
    fn pipe(&self, direction: Direction) -> &Pipe {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

fn one_way(link: &super::Link, random: &mut Random) -> Duration {
    let half = link.rtt() / 2;
    if link.jitter_us == 0 {
        return half;
    }
    let offset = Duration::from_micros(random.below(link.jitter_us.saturating_mul(2).saturating_add(1)));
    (half + offset).saturating_sub(link.jitter())
}

/// The kernel may let a sleeper sleep 50 µs longer than asked unless told otherwise; that is a tenth of a LAN's delay.
fn precise_timers() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}
