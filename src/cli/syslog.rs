//! The system's log, for a process that has let go of its terminal. journald listens at the same place.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use super::log::Level;

/// Where the system's log takes messages.
pub const DEV_LOG: &str = "/dev/log";

/// The facility of daemons.
const DAEMON: u8 = 3 << 3;

/// A connection to it.
#[derive(Debug)]
pub struct Syslog(UnixDatagram);

impl Syslog {
    /// Connects. Nothing of it blocks later: what cannot be taken is lost.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Sends a message, a line at a time.
    pub fn send(&self, level: Level, text: &str) {
        for line in text.lines() {
            let message = format!("<{}>kitbag[{}]: {line}", DAEMON | level.priority(), std::process::id());
            // There is nobody left to tell.
            let _ = self.0.send(message.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_priority_and_a_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        assert!(Syslog::connect(&path).is_err());
        let listener = UnixDatagram::bind(&path).expect("bound");
        let syslog = Syslog::connect(&path).expect("connected");
        syslog.send(Level::Error, "one\ntwo");
        for text in ["one", "two"] {
            let mut bytes = [0; 200];
            let length = listener.recv(&mut bytes).expect("received");
            let expected = format!("<27>kitbag[{}]: {text}", std::process::id());
            assert_eq!(String::from_utf8_lossy(&bytes[..length]), expected);
        }
    }
}
