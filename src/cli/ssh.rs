//! Reaching a store on an SFTP server.

use std::sync::Arc;

use super::Context;
use super::args::Transport;
use super::ask::Person;
use super::error::Failure;
use crate::base::time::SystemClock;
use crate::sftp::Settings as SftpSettings;
use crate::sftp::transport::choose::Wish;
use crate::sftp::transport::connector;
use crate::sftp::transport::ssh_config::{Destination, SshConfig, SshOptions};
use crate::store::open::SftpLocation;
use crate::store::sftp::SftpStore;

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
        let host = config.describe();
        let person = Arc::new(Person(self.screen.clone()));
        let (choice, connector) = connector(wish, config, person, ssh.link_timeout);
        ::tracing::info!("reaching {host} by {}, since {}", choice.transport, choice.why);
        let clock = Arc::new(SystemClock::new());
        let settings = SftpSettings {
            silent_after: ssh.link_timeout,
            give_up_after: ssh.give_up_after,
            wait_for_first: ssh.wait_for_network,
            ..SftpSettings::default()
        };
        Ok(SftpStore::new(connector, clock, settings, location.path, about)?)
    }
}
