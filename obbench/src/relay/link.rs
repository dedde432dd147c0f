//! What a link is like, and the ones with a name.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use super::trouble::Trouble;

/// The properties of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// The round-trip time, in microseconds: half of it each way.
    pub rtt_us: u64,
    /// The greatest deviation from half the round trip, either way, in microseconds; bytes stay in order.
    pub jitter_us: u64,
    /// The rate from the client to the server; `None` is as fast as the machine.
    pub up_bits_per_second: Option<u64>,
    /// The rate from the server to the client.
    pub down_bits_per_second: Option<u64>,
    /// What goes wrong by itself.
    pub trouble: Trouble,
}

/// Name, round trip and jitter in milliseconds, rates up and down in Mbit/s.
const PRESETS: [(&str, u64, u64, u64, u64); 5] = [
    ("lan", 1, 0, 1000, 1000),
    ("wifi", 5, 0, 100, 100),
    ("cable", 50, 0, 5, 50),
    ("far", 200, 0, 100, 100),
    ("lte", 70, 15, 10, 30),
];

impl Link {
    /// A link with nothing but a round-trip time.
    #[must_use]
    pub fn delayed(rtt: Duration) -> Self {
        Self { rtt_us: u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX), ..Self::default() }
    }

    /// The same link with these rates.
    #[must_use]
    pub fn with_mbit_per_second(self, up: u64, down: u64) -> Self {
        Self {
            up_bits_per_second: Some(up.saturating_mul(1_000_000)),
            down_bits_per_second: Some(down.saturating_mul(1_000_000)),
            ..self
        }
    }

    /// The round-trip time.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        Duration::from_micros(self.rtt_us)
    }

    /// The greatest deviation from half the round-trip time.
    #[must_use]
    pub fn jitter(&self) -> Duration {
        Duration::from_micros(self.jitter_us)
    }

    /// Whether either way has a rate.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.up_bits_per_second.is_some() || self.down_bits_per_second.is_some()
    }
}

/// The name is neither a preset nor a number of milliseconds.
#[derive(Debug, thiserror::Error)]
#[error("there is no link called “{0}”: use lan, wifi, cable, far, lte, or a round trip such as 50ms")]
pub struct UnknownLink(String);

impl FromStr for Link {
    type Err = UnknownLink;

    /// A preset's name, or a round trip such as `50ms`.
    fn from_str(name: &str) -> Result<Self, UnknownLink> {
        if let Some(&(_, rtt, jitter, up, down)) = PRESETS.iter().find(|preset| preset.0 == name) {
            let link = Self::delayed(Duration::from_millis(rtt)).with_mbit_per_second(up, down);
            return Ok(Self { jitter_us: jitter.saturating_mul(1000), ..link });
        }
        let milliseconds = name.strip_suffix("ms").and_then(|number| number.parse().ok());
        milliseconds
            .map(|number| Self::delayed(Duration::from_millis(number)))
            .ok_or_else(|| UnknownLink(name.to_string()))
    }
}

/// A listening socket on a free port. On a limited link its buffers and segments are those of a real line: loopback's
/// own (segments of 64 KiB, buffers of megabytes) would be a queue before the queue.
pub(super) fn listen(link: &Link) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if link.is_limited() {
        socket.set_tcp_mss(1448)?;
        socket.set_recv_buffer_size(64 * 1024)?;
        socket.set_send_buffer_size(256 * 1024)?;
    }
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(128)?;
    Ok(socket.into())
}
