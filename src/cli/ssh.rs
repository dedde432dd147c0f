//! Reaching a store on an SFTP server.

use std::sync::Arc;
use std::time::Duration;

use super::Context;
use super::args::Transport;
use super::ask::{self, Person};
use super::error::Failure;
use crate::base::time::SystemClock;
use crate::sftp::Settings as SftpSettings;
use crate::sftp::link::Connector;
use crate::sftp::transport::Ssh2Connector;
use crate::sftp::transport::choose::{self, Wish, choose};
use crate::sftp::transport::openssh::OpenSshConnector;
use crate::sftp::transport::ssh_config::{Destination, SshConfig, SshOptions};
use crate::store::open::SftpLocation;
use crate::store::sftp::SftpStore;

/// How long the network may leave sent bytes unacknowledged before a connection counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

impl Context {
    /// The store at `location`. The server is connected to in the background: that it cannot be reached is told by the first
    /// request.
    ///
    /// # Errors
    /// Settings of SSH that cannot be used.
    pub fn sftp(&self, location: SftpLocation) -> Result<SftpStore, Failure> {
        let about = location.to_string();
        let ssh = &self.settings.ssh;
        let destination = Destination { user: location.user, host: location.host, port: location.port };
        let options = SshOptions { config_file: ssh.config.clone(), options: ssh.options.clone() };
        let config = SshConfig::load(&destination, &options, &ssh.environment)?;
        let wish = match ssh.transport {
            Transport::Auto => Wish::Auto,
            Transport::Ssh2 => Wish::Ssh2,
            Transport::Openssh => Wish::OpenSsh,
        };
        let choice = choose(wish, &config);
        ::tracing::info!("reaching {} by {}, since {}", config.describe(), choice.transport, choice.why);
        let connector: Box<dyn Connector> = match choice.transport {
            choose::Transport::Ssh2 => {
                Box::new(Ssh2Connector::new(config, Arc::new(Person(self.screen.clone())), PATIENCE))
            }
            choose::Transport::OpenSsh => Box::new(openssh(&destination, &options)),
        };
        let clock = Arc::new(SystemClock::new());
        Ok(SftpStore::new(connector, clock, SftpSettings::default(), location.path, about)?)
    }
}

/// What was typed goes to `ssh` as it is, which reads its configuration by itself.
fn openssh(destination: &Destination, options: &SshOptions) -> OpenSshConnector {
    let user = destination.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
    let mut connector = OpenSshConnector::new(format!("{user}{}", destination.host));
    connector.arguments =
        options.arguments().iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    if let Some(port) = destination.port {
        connector.arguments.extend(["-p".to_owned(), port.to_string()]);
    }
    connector.batch = !ask::somebody_is_there();
    connector
}
