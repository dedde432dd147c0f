//! Reaching a store on an SFTP server.

use std::sync::Arc;

use super::Context;
use super::args::Transport;
use super::ask::Person;
use super::connect::place;
use super::error::Failure;
use crate::base::text::escape;
use crate::base::time::SystemClock;
use crate::sftp::Settings as SftpSettings;
use crate::sftp::transport::choose::Wish;
use crate::sftp::transport::connector;
use crate::sftp::transport::ssh_config::{Destination, Proxy, SshConfig, SshOptions};
use crate::store::open::{Location, SftpLocation};
use crate::store::sftp::SftpStore;

/// Where a repository is, in words that hold where this machine's settings are not known.
#[derive(Debug, PartialEq, Eq)]
pub struct Address {
    /// The location, with the server's own name, the user and the port.
    pub at: String,
    /// How the server is reached when not directly: a sentence.
    pub way: Option<String>,
}

impl Address {
    /// Of a directory on a server with these settings.
    fn new(location: SftpLocation, config: SshConfig) -> Self {
        let (user, port) = (Some(config.user), Some(config.port));
        let at = SftpLocation { user, host: config.hostname, port, ..location }.to_string();
        let way = config.proxy.map(|proxy| match proxy {
            Proxy::Jump(hosts) => {
                format!("The way to the server leads through {}, as by `ssh -J`.", escape(hosts.as_bytes()))
            }
            Proxy::Command(line) => {
                format!("The way to the server is the ProxyCommand {}", escape(line.as_bytes()))
            }
        });
        Self { at, way }
    }
}

impl Context {
    /// Where the repository is, for somebody at another machine.
    ///
    /// # Errors
    /// As [`Self::sftp`].
    pub fn address(&self) -> Result<Address, Failure> {
        match self.location()? {
            local @ Location::Local(_) => Ok(Address { at: escape(place(&local).as_bytes()), way: None }),
            Location::Sftp(location) => {
                let config = self.ssh_config(&location)?;
                Ok(Address::new(location, config))
            }
        }
    }

    fn ssh_config(&self, location: &SftpLocation) -> Result<SshConfig, Failure> {
        let SftpLocation { user, host, port, .. } = location.clone();
        let ssh = &self.settings.ssh;
        let options = SshOptions { config_file: ssh.config.clone(), options: ssh.options.clone() };
        Ok(SshConfig::load(&Destination { user, host, port }, &options, &ssh.environment)?)
    }

    /// The store at `location`. The server is connected to in the background: that it cannot be reached is told by the first
    /// request.
    ///
    /// # Errors
    /// Settings of SSH that cannot be used.
    pub fn sftp(&self, location: SftpLocation) -> Result<SftpStore, Failure> {
        let about = location.to_string();
        let ssh = &self.settings.ssh;
        let config = self.ssh_config(&location)?;
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
