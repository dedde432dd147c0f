//! The transport over libssh2: connects, makes sure of the host, logs in.
//!
//! From the first packet to the login's end takes seven round trips, and each channel two more (the first is opened by
//! whoever uses the link). Everything that may go wrong has a sentence of its own, see [`ConnectErrorKind`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::ssh2::{HashType, MethodType};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;

use super::auth::{self, Typed};
use super::conversation::{Conversation, StepError};
use super::known_hosts::{self, HostName, KnownHosts, Place, Verdict};
use super::libssh2::{Engine, Fault, fault};
use super::prompt::{Nobody, Prompter};
use super::proxy::ProxyChild;
use super::ssh_config::{SshConfig, Strictness};
use super::ssh_link::SshLink;
use super::{algorithms, dial, wire};
use crate::sftp::link::{ConnectError, ConnectErrorKind, Connector, Link};

/// Makes connections to one host with libssh2. What a person types is kept for the next connection.
pub struct Ssh2Connector {
    config: SshConfig,
    prompter: Arc<dyn Prompter>,
    typed: Typed,
    patience: Duration,
}

impl Ssh2Connector {
    /// For a host; `prompter` is asked where a person is needed, unless the configuration says `BatchMode`.
    /// `patience` is how long the network may leave sent bytes unacknowledged, and the server a step of the login
    /// unanswered, before the connection counts as lost.
    #[must_use]
    pub fn new(config: SshConfig, prompter: Arc<dyn Prompter>, patience: Duration) -> Self {
        let prompter = if config.batch_mode { Arc::new(Nobody) } else { prompter };
        Self { config, prompter, typed: Typed::default(), patience }
    }

    fn host(&self) -> HostName {
        HostName::new(&self.config.hostname, self.config.port, self.config.host_key_alias.as_deref())
    }

    fn open(&self) -> Result<Conversation, ConnectError> {
        let (proxy, socket) = match &self.config.proxy {
            Some(proxy) => {
                let (child, socket) = ProxyChild::start(&self.config, proxy)?;
                (Some(child), socket)
            }
            None => (None, dial::dial(&self.config, self.patience)?),
        };
        let engine = Engine::new(socket).map_err(|error| {
            let sentence = format!("cannot start an SSH session: {error}");
            ConnectError::new(ConnectErrorKind::LocalConfig, sentence).caused_by(error)
        })?;
        Ok(Conversation::new(engine, proxy, self.config.describe(), self.patience))
    }

    /// Says what to offer: for host keys those first by which the host is known.
    fn offer(&self, conversation: &mut Conversation, known: &KnownHosts) -> Result<(), ConnectError> {
        let allowed = &self.config.algorithms;
        let session = conversation.engine.session();
        let supported =
            |kind| session.supported_algs(kind).map_err(|error| no_algorithms(&self.config, &error));
        let known_types = known.key_types();
        let kex = algorithms::allowed_of(&supported(MethodType::Kex)?, allowed.kex.as_deref());
        let host_keys = algorithms::host_keys(
            &supported(MethodType::HostKey)?,
            allowed.host_key.as_deref(),
            &known_types,
        );
        let ciphers = algorithms::ciphers(&supported(MethodType::CryptCs)?, allowed.ciphers.as_deref());
        let macs = algorithms::allowed_of(&supported(MethodType::MacCs)?, allowed.macs.as_deref());
        let preferences = [
            (MethodType::Kex, &kex),
            (MethodType::HostKey, &host_keys),
            (MethodType::CryptCs, &ciphers),
            (MethodType::CryptSc, &ciphers),
            (MethodType::MacCs, &macs),
            (MethodType::MacSc, &macs),
        ];
        for (kind, names) in preferences {
            session
                .method_pref(kind, &names.join(","))
                .map_err(|error| no_algorithms(&self.config, &error))?;
        }
        session.set_compress(false);
        Ok(())
    }

    fn shake_hands(&self, conversation: &mut Conversation) -> Result<(), ConnectError> {
        conversation.run(|engine| engine.session().handshake()).map_err(|error| match error {
            StepError::Lost(error) => error,
            StepError::Said(error) if fault(&error) == Fault::NoAlgorithm => {
                no_algorithms(&self.config, &error)
            }
            StepError::Said(error) => {
                let server = &conversation.server;
                let sentence = format!("{server} does not speak SSH as it should: {}", error.message());
                ConnectError::new(ConnectErrorKind::Protocol, sentence).caused_by(error)
            }
        })
    }

    /// Makes sure that the host is the one that is meant.
    fn judge(&self, conversation: &mut Conversation, known: &KnownHosts) -> Result<(), ConnectError> {
        let session = conversation.engine.session();
        let key = session.host_key().map(|(key, _)| key.to_vec()).unwrap_or_default();
        let fingerprint = session.host_key_hash(HashType::Sha256).map(|hash| BASE64.encode(hash));
        let (Some(key_type), Some(fingerprint)) = (wire::key_type(&key), fingerprint) else {
            let sentence = format!("{} showed no host key that makes sense", conversation.server);
            return Err(ConnectError::new(ConnectErrorKind::Protocol, sentence));
        };
        let shown = Shown { host: self.host(), key_type, fingerprint: format!("SHA256:{fingerprint}") };
        match (known.check(&key), self.config.strictness) {
            (Verdict::Known, _) => Ok(()),
            (Verdict::Revoked(place), _) => Err(shown.revoked(&place)),
            (Verdict::Changed(_), Strictness::Off) => {
                tracing::warn!(
                    "the host key of {} has changed, which the configuration allows",
                    shown.host.as_str()
                );
                Ok(())
            }
            (Verdict::Changed(place), _) => Err(shown.changed(&place)),
            (Verdict::Unknown { .. }, Strictness::Off | Strictness::AcceptNew) => {
                self.remember(&shown.host, &key);
                Ok(())
            }
            (Verdict::Unknown { .. }, Strictness::Ask)
                if self.prompter.trust_host(shown.host.as_str(), shown.key_type, &shown.fingerprint) =>
            {
                self.remember(&shown.host, &key);
                Ok(())
            }
            (Verdict::Unknown { authority }, _) => Err(shown.unknown(authority.as_ref())),
        }
    }

    /// Writes a trusted key down. That it cannot be written is no reason not to connect.
    fn remember(&self, host: &HostName, key: &[u8]) {
        let Some(file) = self.config.user_known_hosts.first() else { return };
        if let Err(error) = known_hosts::remember(file, host, self.config.hash_known_hosts, key) {
            tracing::warn!("cannot add {} to {}: {error}", host.as_str(), file.display());
        }
    }
}

impl Connector for Ssh2Connector {
    fn connect(&mut self) -> Result<Box<dyn Link>, ConnectError> {
        let mut conversation = self.open()?;
        let files = self.config.user_known_hosts.iter().chain(&self.config.global_known_hosts);
        let known = KnownHosts::read(files, &self.host());
        self.offer(&mut conversation, &known)?;
        self.shake_hands(&mut conversation)?;
        self.judge(&mut conversation, &known)?;
        auth::log_in(&mut conversation, &self.config, &self.prompter, &mut self.typed)?;
        let Conversation { engine, proxy, server, .. } = conversation;
        Ok(Box::new(SshLink::new(engine, proxy, server)))
    }

    fn describe(&self) -> String {
        self.config.describe()
    }
}

fn no_algorithms(config: &SshConfig, error: &ssh2::Error) -> ConnectError {
    let sentence = format!(
        "{} and libssh2 have no common algorithm ({}); try --transport openssh",
        config.describe(),
        error.message()
    );
    ConnectError::new(ConnectErrorKind::Protocol, sentence)
        .caused_by(io::Error::other(error.message().to_owned()))
}

/// The key that a host has shown.
struct Shown<'a> {
    host: HostName,
    key_type: &'a str,
    fingerprint: String,
}

impl Shown<'_> {
    fn unknown(&self, authority: Option<&Place>) -> ConnectError {
        let Self { host, key_type, fingerprint } = self;
        let host = host.as_str();
        let advice = match authority {
            None => "compare it with the server's own, then accept it by connecting once with ssh, or with \
                     --ssh-option StrictHostKeyChecking=accept-new"
                .to_owned(),
            Some(Place { file, line }) => format!(
                "{} line {line} names a certificate authority for it, which only --transport openssh asks",
                file.display()
            ),
        };
        let sentence = format!("the host key of {host} is not known ({key_type} {fingerprint}); {advice}");
        ConnectError::new(ConnectErrorKind::HostKeyUnknown, sentence)
    }

    fn changed(&self, place: &Place) -> ConnectError {
        let Self { host, key_type, fingerprint } = self;
        let host = host.as_str();
        let sentence = format!(
            "the host key of {host} is not the one in {} line {}: it shows {key_type} {fingerprint}, and may be somebody \
             else; if its key was changed on purpose, forget the old one with ssh-keygen -R '{host}'",
            place.file.display(),
            place.line
        );
        ConnectError::new(ConnectErrorKind::HostKeyChanged, sentence)
    }

    fn revoked(&self, place: &Place) -> ConnectError {
        let Self { host, key_type, fingerprint } = self;
        let sentence = format!(
            "the host key of {} ({key_type} {fingerprint}) is marked as revoked in {} line {}; ask who runs the server \
             for its new key",
            host.as_str(),
            place.file.display(),
            place.line
        );
        ConnectError::new(ConnectErrorKind::HostKeyRevoked, sentence)
    }
}
