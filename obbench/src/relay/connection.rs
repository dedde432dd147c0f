//! One client's connection: the handshake, and a pipe each way.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::fault::reset_both;
use super::pipe::{self, Pipe};
use super::{Direction, Shared};
use crate::clock;

/// Both sockets of a connection, and whether it was cut.
pub(super) struct Connection {
    client: TcpStream,
    server: Mutex<Option<TcpStream>>,
    cut: AtomicBool,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    last_direction: AtomicU8,
}

impl Connection {
    /// Resets both sockets and wakes both pipes.
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        reset_both(&self.client, server.as_ref());
        drop(server);
        self.up.wake();
        self.down.wake();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Whether bytes in this direction begin a new turn: something goes up after something came down.
    pub(super) fn turns(&self, direction: Direction) -> bool {
        let now = if direction == Direction::Up { 1 } else { 2 };
        self.last_direction.swap(now, Ordering::Relaxed) != now && direction == Direction::Up
    }
}

/// Starts the threads of a connection that was just accepted.
pub(super) fn start(client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let accepted = clock::now();
    client.set_nodelay(true)?;
    let connection = Arc::new(Connection {
        client,
        server: Mutex::new(None),
        cut: AtomicBool::new(false),
        up: Pipe::default(),
        down: Pipe::default(),
        last_direction: AtomicU8::new(0),
    });
    shared.faults.register(Arc::downgrade(&connection));
    let rtt = shared.link.rtt();
    let from = connection.client.try_clone()?;
    let reader = (Arc::clone(&shared), Arc::clone(&connection));
    spawn("relay-up-in", move || {
        let (shared, connection) = reader;
        pipe::read_all(from, &shared, &connection, Direction::Up, accepted + rtt);
    })?;
    spawn("relay-up-out", move || serve(&shared, &connection, accepted, rtt))
}

/// Connects to the server when the client's first packet would have reached it, and delivers what goes up.
fn serve(shared: &Arc<Shared>, connection: &Arc<Connection>, accepted: Instant, rtt: Duration) {
    connection.up.sleep_until(accepted + rtt / 2, connection);
    shared.faults.wait_while_stalled(connection);
    let Ok(server) = TcpStream::connect(shared.target) else {
        connection.up.sleep_until(accepted + rtt, connection);
        connection.cut();
        return;
    };
    if start_down(&server, shared, connection, accepted + rtt + rtt / 2).is_err() {
        connection.cut();
        return;
    }
    pipe::write_all(server, shared, connection, Direction::Up);
}

fn start_down(
    server: &TcpStream,
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    first: Instant,
) -> io::Result<()> {
    server.set_nodelay(true)?;
    *connection.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.try_clone()?);
    if connection.is_cut() {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    let (from, to) = (server.try_clone()?, connection.client.try_clone()?);
    let reader = (Arc::clone(shared), Arc::clone(connection));
    spawn("relay-down-in", move || {
        let (shared, connection) = reader;
        pipe::read_all(from, &shared, &connection, Direction::Down, first);
    })?;
    let writer = (Arc::clone(shared), Arc::clone(connection));
    spawn("relay-down-out", move || {
        let (shared, connection) = writer;
        pipe::write_all(to, &shared, &connection, Direction::Down);
    })
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).stack_size(256 * 1024).spawn(body).map(drop)
}

/// Resets the connection, as a router that forgot it would. The socket's threads see an error and drop it.
pub(super) fn reset(stream: &TcpStream) {
    // Wakes our own readers and sends nothing: the kernel refuses to disconnect under a thread that waits.
    let _ = stream.shutdown(Shutdown::Read);
    let done = || rustix::net::connect_unspec(stream) != Err(rustix::io::Errno::BUSY);
    if clock::wait_until(Duration::from_millis(20), done) {
        return;
    }
    // A writer waits for a peer that does not read; an orderly end is the next best.
    let _ = stream.shutdown(Shutdown::Both);
}
