//! Asking a person while a connection is made.

use std::path::Path;

use crate::base::secret::Passphrase;

/// Somebody who can be asked. Called in the driver's thread; the server waits meanwhile, usually for two minutes.
pub trait Prompter: Send + Sync {
    /// Whether there is anybody; without, nothing below is asked by programs that would ask by themselves, either.
    fn is_there(&self) -> bool {
        true
    }

    /// Whether to trust a host whose key is not known, having shown its fingerprint.
    fn trust_host(&self, host: &str, key_type: &str, fingerprint: &str) -> bool;

    /// The passphrase of a key file; `again` after a wrong one. None to do without the key.
    fn passphrase(&self, key: &Path, again: bool) -> Option<Passphrase>;

    /// The password of an account (`user@host`); `again` after a wrong one. None to give up.
    fn password(&self, account: &str, again: bool) -> Option<Passphrase>;

    /// The answer to a question of the server, to be shown while typed if `echo`. None to give up.
    fn answer(&self, account: &str, instructions: &str, question: &str, echo: bool) -> Option<Passphrase>;
}

/// Nobody is there: everything that needs a person is refused.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Prompter for Nobody {
    fn is_there(&self) -> bool {
        false
    }

    fn trust_host(&self, _host: &str, _key_type: &str, _fingerprint: &str) -> bool {
        false
    }

    fn passphrase(&self, _key: &Path, _again: bool) -> Option<Passphrase> {
        None
    }

    fn password(&self, _account: &str, _again: bool) -> Option<Passphrase> {
        None
    }

    fn answer(
        &self,
        _account: &str,
        _instructions: &str,
        _question: &str,
        _echo: bool,
    ) -> Option<Passphrase> {
        None
    }
}
