//! From a host's settings to what makes connections to it.

use std::sync::Arc;
use std::time::Duration;

use super::Ssh2Connector;
use super::choose::{Choice, Transport, Wish, choose};
use super::openssh::OpenSshConnector;
use super::prompt::Prompter;
use super::ssh_config::SshConfig;
use crate::sftp::link::Connector;

/// What makes connections to the host by the transport that is wished for or chosen, and which that is, to be shown.
/// `patience` is how long the network may leave sent bytes unacknowledged, and a server a step of the login unanswered,
/// before a connection counts as lost.
#[must_use]
pub fn connector(
    wish: Wish,
    config: SshConfig,
    prompter: Arc<dyn Prompter>,
    patience: Duration,
) -> (Choice, Box<dyn Connector>) {
    let choice = choose(wish, &config);
    let connector: Box<dyn Connector> = match choice.transport {
        Transport::Ssh2 => Box::new(Ssh2Connector::new(config, prompter, patience)),
        Transport::OpenSsh => Box::new(openssh(&config, prompter.is_there(), patience)),
    };
    (choice, connector)
}

/// `ssh` reads the same settings again, from the same files and options.
fn openssh(config: &SshConfig, somebody: bool, patience: Duration) -> OpenSshConnector {
    let mut arguments: Vec<String> =
        config.options.arguments().iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    // Without, a server that accepts connections but says nothing would be waited for without end. These come last: the first
    // value of an option counts.
    let seconds = patience.as_secs().max(1);
    let connect = config.connect_timeout.map_or(seconds, |own| own.as_secs());
    arguments.extend(["-o".to_owned(), format!("ConnectTimeout={connect}")]);
    arguments.extend(["-o".to_owned(), format!("ServerAliveInterval={}", (seconds / 3).max(1))]);
    arguments.extend(["-o".to_owned(), "ServerAliveCountMax=2".to_owned()]);
    let destination = &config.destination;
    if let Some(user) = &destination.user {
        arguments.extend(["-l".to_owned(), user.clone()]);
    }
    if let Some(port) = destination.port {
        arguments.extend(["-p".to_owned(), port.to_string()]);
    }
    let mut connector = OpenSshConnector::new(destination.host.clone());
    connector.arguments = arguments;
    connector.batch = config.batch_mode || !somebody;
    connector.patience = Duration::from_secs(connect.saturating_add(seconds));
    connector
}
