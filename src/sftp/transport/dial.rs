//! A TCP connection to a host, by whichever of its addresses answers first in order.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use super::libssh2;
use super::ssh_config::{AddressFamily, SshConfig};
use crate::sftp::link::{ConnectError, ConnectErrorKind};

/// At most for each address, where the configuration says nothing.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How much the kernel may hold that is not sent yet.
const UNSENT: i32 = 128 << 10;

/// Connects, and sets the socket up; `patience` is how long sent bytes may stay unacknowledged, the very first among them.
pub(super) fn dial(config: &SshConfig, patience: Duration) -> Result<OwnedFd, ConnectError> {
    let (host, port) = (&config.hostname, config.port);
    let addresses = (host.as_str(), port).to_socket_addrs().map_err(|error| {
        let sentence =
            format!("cannot find the host {host}: {error}; check its name and this machine's network");
        ConnectError::new(ConnectErrorKind::NameNotFound, sentence).caused_by(error)
    })?;
    let suits = |address: &SocketAddr| match config.address_family {
        AddressFamily::Any => true,
        AddressFamily::V4 => address.is_ipv4(),
        AddressFamily::V6 => address.is_ipv6(),
    };
    let timeout = config.connect_timeout.unwrap_or(TIMEOUT.min(patience));
    let mut failure: Option<ConnectError> = None;
    for address in addresses.filter(suits) {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return set_up(stream, patience).map_err(|error| local(host, error)),
            Err(error) => {
                let error = classify(host, port, timeout, error);
                // A refusal says more than silence: something is there.
                if failure.as_ref().is_none_or(|former| former.kind != ConnectErrorKind::ConnectionRefused) {
                    failure = Some(error);
                }
            }
        }
    }
    Err(failure.unwrap_or_else(|| {
        let sentence = format!("the host {host} has no address of the wanted kind; check AddressFamily");
        ConnectError::new(ConnectErrorKind::NameNotFound, sentence)
    }))
}

fn classify(host: &str, port: u16, timeout: Duration, error: io::Error) -> ConnectError {
    let (kind, sentence) = match error.kind() {
        io::ErrorKind::ConnectionRefused => (
            ConnectErrorKind::ConnectionRefused,
            format!(
                "{host} refuses connections to port {port}; check the port, and that an SSH server runs there"
            ),
        ),
        io::ErrorKind::TimedOut => (
            ConnectErrorKind::TimedOut,
            format!(
                "{host} did not answer on port {port} within {} seconds; check that it is switched on and reachable",
                timeout.as_secs()
            ),
        ),
        _ => (ConnectErrorKind::Unreachable, format!("cannot reach {host} port {port}: {error}")),
    };
    ConnectError::new(kind, sentence).caused_by(error)
}

fn local(host: &str, error: io::Error) -> ConnectError {
    let sentence = format!("cannot set up the connection to {host}: {error}");
    ConnectError::new(ConnectErrorKind::LocalConfig, sentence).caused_by(error)
}

fn set_up(stream: TcpStream, patience: Duration) -> io::Result<OwnedFd> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
    let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
    // Not every kernel has these two; the connection works without.
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, millis);
    let _ = libssh2::set_unsent_limit(stream.as_fd(), UNSENT);
    Ok(stream.into())
}
