//! Faults of the line: at once, or after so many bytes.

use std::net::TcpStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::Direction;
use super::connection::{Connection, reset};

/// What can happen to the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every connection is reset; new ones are welcome.
    Cut,
    /// Bytes are taken and vanish, both ways, as do those already on their way: the line is dead, and nobody is told.
    Swallow,
    /// Nothing is taken and nothing delivered; after [`heal`](super::Relay::heal) it goes on without loss.
    Stall,
}

/// The state of the line that all connections look at.
#[derive(Default)]
pub(super) struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    plan: Option<Plan>,
    silence: Option<Fault>,
    refusing: bool,
    connections: Vec<Weak<Connection>>,
}

#[derive(Clone, Copy)]
struct Plan {
    direction: Direction,
    at: u64,
    fault: Fault,
}

/// What to do with bytes that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Deliver so many of them, then ask again.
    Deliver(usize),
    /// Drop them all.
    Swallow,
}

impl Faults {
    pub(super) fn register(&self, connection: Weak<Connection>) {
        let mut state = self.lock();
        state.connections.retain(|one| one.strong_count() > 0);
        state.connections.push(connection);
    }

    pub(super) fn refuse(&self, refuse: bool) {
        self.lock().refusing = refuse;
    }

    pub(super) fn refuses(&self) -> bool {
        self.lock().refusing
    }

    pub(super) fn plan(&self, direction: Direction, at: u64, fault: Fault) {
        self.lock().plan = Some(Plan { direction, at, fault });
    }

    pub(super) fn is_planned(&self) -> bool {
        self.lock().plan.is_some()
    }

    pub(super) fn strike(&self, fault: Fault) {
        self.strike_locked(self.lock(), fault);
    }

    fn strike_locked(&self, mut state: MutexGuard<'_, State>, fault: Fault) {
        let connections = match fault {
            Fault::Cut => {
                state.silence = None;
                std::mem::take(&mut state.connections)
            }
            Fault::Swallow | Fault::Stall => {
                state.silence = Some(fault);
                Vec::new()
            }
        };
        drop(state);
        self.changed.notify_all();
        // Outside the lock: what is woken may look at the faults.
        connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.cut());
    }

    pub(super) fn heal(&self) {
        let mut state = self.lock();
        let lossy = state.silence.take() == Some(Fault::Swallow);
        let connections = std::mem::take(&mut state.connections);
        if !lossy {
            state.connections = connections.clone();
        }
        drop(state);
        self.changed.notify_all();
        if lossy {
            // Those that lost nothing yet are cut as well: TCP would have sent the lost bytes again, this cannot.
            connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.cut());
        }
    }

    /// Waits while the line is stalled, as long as the connection lives.
    pub(super) fn wait_while_stalled(&self, connection: &Connection) {
        let mut state = self.lock();
        while state.silence == Some(Fault::Stall) && !connection.is_cut() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What to do with `length` bytes when `delivered` have been delivered in the direction before. Lets a planned
    /// fault happen when its place is reached.
    pub(super) fn judge(
        &self,
        connection: &Connection,
        direction: Direction,
        delivered: u64,
        length: usize,
    ) -> Verdict {
        loop {
            self.wait_while_stalled(connection);
            let mut state = self.lock();
            match state.silence {
                Some(Fault::Swallow) => return Verdict::Swallow,
                Some(_) if !connection.is_cut() => continue,
                _ => {}
            }
            let Some(plan) = state.plan.filter(|plan| plan.direction == direction) else {
                return Verdict::Deliver(length);
            };
            let left = plan.at.saturating_sub(delivered);
            if left > 0 {
                return Verdict::Deliver(usize::try_from(left).unwrap_or(usize::MAX).min(length));
            }
            state.plan = None;
            self.strike_locked(state, plan.fault);
            if plan.fault == Fault::Cut {
                return Verdict::Swallow;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        self.changed.notify_all();
    }
}

/// Resets both ends.
pub(super) fn reset_both(client: &TcpStream, server: Option<&TcpStream>) {
    reset(client);
    if let Some(server) = server {
        reset(server);
    }
}
