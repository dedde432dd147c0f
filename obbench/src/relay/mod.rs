//! A link between a client and a server on this machine that behaves like a slow or a distant one.
//!
//! A [`Relay`] listens on a port of 127.0.0.1 and passes what it gets to a server, in order and unchanged, with the
//! delay and at the rate of a [`Link`]. What is emulated, and how:
//!
//! * **Delay**: each byte arrives half a round trip after it left.
//! * **The TCP handshake**: the kernel accepts a connection on loopback at once, so the cost is put on the first
//!   bytes: the client's leave one round trip after it connected, the server's one and a half. What a client gets
//!   first, it gets two round trips after connecting, as over a real line.
//! * **Rates**: bytes leave one after another at the given rate, which all connections share. Before the bottleneck
//!   stands a queue of 256 KiB; when it is full, nothing more is read. A link without a rate holds at most 64 MiB.
//! * **Faults**: the line is cut, falls silent ([`Fault`]), or refuses connections; at a word, or by itself ([`Trouble`]).
//!
//! Two threads for each direction of a connection; every delay is kept to a fraction of a millisecond.

mod connection;
mod fault;
mod link;
mod pipe;
mod trouble;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

pub use fault::Fault;
pub use link::{Link, UnknownLink};
pub use trouble::Trouble;

use fault::Faults;
use pipe::Bottleneck;
use trouble::Maker;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What has passed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections that clients have made.
    pub connections: u64,
    /// Bytes delivered to the server.
    pub bytes_up: u64,
    /// Bytes delivered to clients.
    pub bytes_down: u64,
    /// How often the client sent something after it had heard from the server: round trips, as the line sees them.
    pub turns: u64,
}

/// A running relay; dropping it cuts all its connections.
pub struct Relay {
    shared: Arc<Shared>,
    port: u16,
    acceptor: Option<JoinHandle<()>>,
    trouble: Option<Maker>,
}

/// What all threads of a relay see.
struct Shared {
    link: Link,
    target: SocketAddr,
    faults: Faults,
    up: Bottleneck,
    down: Bottleneck,
    connections: AtomicU64,
    turns: AtomicU64,
    ending: AtomicBool,
}

impl Relay {
    /// Listens on a free port, and connects each client to `target` over the link.
    ///
    /// # Errors
    /// When no port or thread is to be had.
    pub fn start(target: SocketAddr, link: Link) -> io::Result<Self> {
        let listener = link::listen(&link)?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            up: Bottleneck::new(link.up_bits_per_second),
            down: Bottleneck::new(link.down_bits_per_second),
            link,
            target,
            faults: Faults::default(),
            connections: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            ending: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let acceptor = std::thread::Builder::new()
            .name("relay-accept".into())
            .spawn(move || accept(&listener, &theirs))?;
        let trouble = Some(Maker::start(&shared)?);
        Ok(Self { shared, port, acceptor: Some(acceptor), trouble })
    }

    /// The port on 127.0.0.1 that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address that clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The link that is emulated.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.shared.link
    }

    /// What has passed so far, over all connections.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic {
            connections: self.shared.connections.load(Ordering::Relaxed),
            bytes_up: self.shared.up.delivered(),
            bytes_down: self.shared.down.delivered(),
            turns: self.shared.turns.load(Ordering::Relaxed),
        }
    }

    /// Lets the fault happen now.
    pub fn fault(&self, fault: Fault) {
        self.shared.faults.strike(fault);
    }

    /// Lets the fault happen as soon as so many more bytes have been delivered in the direction; those bytes arrive,
    /// the next one does not. A later call takes the place of an earlier one.
    pub fn fault_after(&self, direction: Direction, bytes: u64, fault: Fault) {
        let delivered = self.shared.bottleneck(direction).delivered();
        self.shared.faults.plan(direction, delivered.saturating_add(bytes), fault);
    }

    /// Whether the planned fault has happened; a test in which it did not has tested nothing.
    #[must_use]
    pub fn has_struck(&self) -> bool {
        !self.shared.faults.is_planned()
    }

    /// Ends a silence. Connections that lost bytes are cut; those that were only held go on.
    pub fn heal(&self) {
        self.shared.faults.heal();
    }

    /// While set, new connections are reset at once, as if nobody listened.
    pub fn refuse(&self, refuse: bool) {
        self.shared.faults.refuse(refuse);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.trouble.take());
        self.shared.ending.store(true, Ordering::SeqCst);
        self.shared.faults.strike(Fault::Cut);
        // Wakes the acceptor, which then sees that it is to end.
        if let Ok(stream) = TcpStream::connect(self.address()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.shared.faults.strike(Fault::Cut);
    }
}

impl Shared {
    fn bottleneck(&self, direction: Direction) -> &Bottleneck {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.ending.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else {
            continue;
        };
        if shared.faults.refuses() {
            connection::reset(&client);
            continue;
        }
        shared.connections.fetch_add(1, Ordering::Relaxed);
        // Without threads the connection is dropped, and its client sees it closed.
        let _ = connection::start(client, Arc::clone(shared));
    }
}

#[cfg(test)]
mod tests;
