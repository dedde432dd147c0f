//! What is said before a connection can carry channels: every step is repeated, between I/O, until it is done.

use std::time::Duration;

use super::libssh2::{Engine, Fault, fault, wait};
use super::proxy::ProxyChild;
use crate::base::time::{Clock as _, SystemClock};
use crate::sftp::link::{ConnectError, ConnectErrorKind};

/// A connection that is being set up.
pub(super) struct Conversation {
    pub(super) engine: Engine,
    pub(super) proxy: Option<ProxyChild>,
    /// For messages: `user@host:port`.
    pub(super) server: String,
    /// How long the server may be silent within one step.
    patience: Duration,
    clock: SystemClock,
}

/// Why a step was not done.
#[derive(Debug)]
pub(super) enum StepError {
    /// libssh2 or the server said no; the connection stands.
    Said(ssh2::Error),
    /// The connection is gone.
    Lost(ConnectError),
}

impl Conversation {
    pub(super) fn new(engine: Engine, proxy: Option<ProxyChild>, server: String, patience: Duration) -> Self {
        Self { engine, proxy, server, patience, clock: SystemClock::new() }
    }

    /// Does one step, waiting for the server as often as it takes.
    pub(super) fn run<T>(
        &mut self,
        mut step: impl FnMut(&mut Engine) -> Result<T, ssh2::Error>,
    ) -> Result<T, StepError> {
        loop {
            let result = step(&mut self.engine);
            // A person may have taken long to answer; the server has its time from then on.
            let silent_since = self.clock.monotonic();
            self.engine.flush().map_err(|error| self.lost(&error.to_string()))?;
            match result {
                Ok(value) => return Ok(value),
                Err(error) => match fault(&error) {
                    Fault::Again => {}
                    Fault::Ended => return Err(self.lost("the server closed the connection")),
                    _ => return Err(StepError::Said(error)),
                },
            }
            loop {
                let received = self.engine.fill().map_err(|error| self.lost(&error.to_string()))?;
                if received > 0 || self.engine.ended() {
                    break;
                }
                let silent = self.clock.monotonic().saturating_sub(silent_since);
                let Some(left) = self.patience.checked_sub(silent).filter(|left| !left.is_zero()) else {
                    let sentence = format!(
                        "{} stopped answering while the connection was set up ({} seconds)",
                        self.server,
                        self.patience.as_secs()
                    );
                    return Err(StepError::Lost(ConnectError::new(ConnectErrorKind::TimedOut, sentence)));
                };
                wait(self.engine.socket(), self.engine.unsent() > 0, None, left)
                    .map_err(|error| self.lost(&error.to_string()))?;
                self.engine.flush().map_err(|error| self.lost(&error.to_string()))?;
            }
        }
    }

    fn lost(&mut self, reason: &str) -> StepError {
        let said = self.engine.farewell().or_else(|| self.proxy.as_mut().and_then(ProxyChild::last_words));
        let server = &self.server;
        let sentence = match (said, &self.proxy) {
            (Some(said), Some(_)) => format!("no connection to {server} through its proxy: {said}"),
            (Some(said), None) => format!("{server} closed the connection: {said}"),
            (None, _) => format!("the connection to {server} was lost while it was set up: {reason}"),
        };
        StepError::Lost(ConnectError::new(ConnectErrorKind::Unreachable, sentence))
    }
}
