//! Logging in: with the keys of the agent, then with key files, then with what a person types.
//!
//! The server is not asked which methods it takes before all keys were refused: that costs a round trip. Each key costs
//! one of the tries that the server allows (six, usually), so they are ordered as OpenSSH orders them: keys of the agent
//! that the configuration names, the agent's others, key files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::ssh2::Agent;

use super::conversation::{Conversation, StepError};
use super::key_file::{KeyFile, PublicKey};
use super::libssh2::{Answer, Engine, Fault, fault};
use super::prompt::Prompter;
use super::ssh_config::SshConfig;
use crate::base::secret::Passphrase;
use crate::sftp::link::{ConnectError, ConnectErrorKind};

/// What was typed, so that a connection made anew in the night asks nothing again. Wiped when dropped.
#[derive(Debug, Default)]
pub(super) struct Typed {
    passphrases: HashMap<PathBuf, Passphrase>,
    password: Option<Passphrase>,
}

/// Logs in.
///
/// # Errors
/// When everything was refused, with what was tried; or when the connection broke.
pub(super) fn log_in(
    conversation: &mut Conversation,
    config: &SshConfig,
    prompter: &Arc<dyn Prompter>,
    typed: &mut Typed,
) -> Result<(), ConnectError> {
    let mut login = Login { conversation, config, prompter, typed, tried: Vec::new(), methods: None };
    match login.run() {
        Ok(true) => Ok(()),
        Ok(false) => Err(login.refused(None)),
        // A server that has seen enough keys says so and hangs up; a connection that breaks says nothing.
        Err(error) if !login.tried.is_empty() && login.conversation.engine.farewell().is_some() => {
            Err(login.refused(Some(error)))
        }
        Err(error) => Err(error),
    }
}

struct Login<'a> {
    conversation: &'a mut Conversation,
    config: &'a SshConfig,
    prompter: &'a Arc<dyn Prompter>,
    typed: &'a mut Typed,
    /// For the message at the end: what was tried, or why not.
    tried: Vec<String>,
    /// What the server says it takes.
    methods: Option<String>,
}

/// How an attempt ended.
enum Outcome {
    /// The user is in.
    In,
    /// The server said no.
    No,
    /// It failed on this side, before the server could judge.
    Here(ssh2::Error),
}

impl Login<'_> {
    fn run(&mut self) -> Result<bool, ConnectError> {
        if self.config.pubkey_authentication && self.allowed("publickey") && self.by_key()? {
            return Ok(true);
        }
        let user = &self.config.user;
        let methods = self.conversation.run(|engine| engine.session().auth_methods(user).map(str::to_owned));
        let methods = match methods {
            Ok(methods) => methods,
            Err(StepError::Said(error)) if fault(&error) != Fault::LoginRefused => {
                return Err(self.broken(&error));
            }
            Err(StepError::Said(_)) => String::new(),
            Err(StepError::Lost(error)) => return Err(error),
        };
        if self.conversation.engine.session().authenticated() {
            return Ok(true);
        }
        let offers = |method: &str| methods.split(',').any(|offered| offered == method);
        let questions = offers("keyboard-interactive") && self.config.kbd_interactive_authentication;
        let password = offers("password") && self.config.password_authentication;
        self.methods = Some(methods.clone()).filter(|methods| !methods.is_empty());
        if questions && self.allowed("keyboard-interactive") && self.by_questions()? {
            return Ok(true);
        }
        Ok(password && self.allowed("password") && self.by_password()?)
    }

    fn allowed(&self, method: &str) -> bool {
        let preferred = self.config.preferred_authentications.as_ref();
        preferred.is_none_or(|preferred| preferred.iter().any(|one| one == method))
    }

    fn by_key(&mut self) -> Result<bool, ConnectError> {
        let mut files = Vec::new();
        let mut named = Vec::new();
        for path in &self.config.identity_files {
            match KeyFile::read(path) {
                Ok(Some(file)) => {
                    named.extend(file.certificate.clone());
                    named.extend(file.public.clone());
                    files.push(file);
                }
                Ok(None) => named.extend(KeyFile::public_of(path)),
                Err(error) => {
                    // It may be a public key whose other half the agent has.
                    match KeyFile::public_of(path) {
                        Some(public) => named.push(public),
                        None => self.tried.push(format!("key {} (cannot be read: {error})", path.display())),
                    }
                }
            }
        }
        let certificates = self.certificates();
        named.extend(certificates.iter().cloned());
        let mut done: Vec<Vec<u8>> = Vec::new();
        if let Some(socket) = self.config.identity_agent.clone()
            && self.by_agent(&socket, &named, &mut done)?
        {
            return Ok(true);
        }
        for file in &files {
            let own = file.certificate.iter();
            let others =
                certificates.iter().filter(|one| file.public.as_ref().is_some_and(|key| one.certifies(key)));
            let halves: Vec<&PublicKey> = own.chain(others).chain(&file.public).collect();
            if halves.is_empty() && self.by_file(file, None)? {
                return Ok(true);
            }
            for public in halves {
                if !done.contains(&public.blob) {
                    done.push(public.blob.clone());
                    if self.by_file(file, Some(public))? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// The certificates that the configuration names.
    fn certificates(&mut self) -> Vec<PublicKey> {
        let mut certificates = Vec::new();
        for path in &self.config.certificate_files {
            match std::fs::read_to_string(path).ok().and_then(|text| PublicKey::parse(&text)) {
                Some(certificate) => certificates.push(certificate),
                None => self.tried.push(format!("certificate {} (cannot be read)", path.display())),
            }
        }
        certificates
    }

    /// Tries the agent's keys; `done` collects them.
    fn by_agent(
        &mut self,
        socket: &Path,
        named: &[PublicKey],
        done: &mut Vec<Vec<u8>>,
    ) -> Result<bool, ConnectError> {
        let agent = match self.agent(socket) {
            Ok(agent) => agent,
            Err(error) => {
                self.tried.push(format!("agent {} ({})", socket.display(), error.message()));
                return Ok(false);
            }
        };
        let mut identities = match agent.identities() {
            Ok(identities) => identities,
            Err(error) => {
                self.tried.push(format!("agent {} ({})", socket.display(), error.message()));
                return Ok(false);
            }
        };
        let rank = |blob: &[u8]| named.iter().position(|key| key.blob == blob);
        if self.config.identities_only {
            identities.retain(|identity| rank(identity.blob()).is_some());
        }
        identities.sort_by_key(|identity| rank(identity.blob()).unwrap_or(usize::MAX));
        let user = self.config.user.clone();
        for identity in &identities {
            done.push(identity.blob().to_vec());
            self.tried.push(format!("key {} of the agent", identity.comment()));
            match self.attempt(|_| agent.userauth(&user, identity))? {
                Outcome::In => return Ok(true),
                Outcome::No => {}
                Outcome::Here(error) => self.remark(error.message()),
            }
        }
        Ok(false)
    }

    fn agent(&mut self, socket: &Path) -> Result<Agent, ssh2::Error> {
        let mut agent = self.conversation.engine.session().agent()?;
        agent.set_identity_path(socket)?;
        agent.connect()?;
        agent.list_identities()?;
        Ok(agent)
    }

    /// Tries a key file, with its public key or a certificate. The passphrase is asked for only after the server has
    /// said that it would take the key, where the public half is known.
    fn by_file(&mut self, file: &KeyFile, public: Option<&PublicKey>) -> Result<bool, ConnectError> {
        let certificate = public.is_some_and(|public| public.key_type.contains("-cert-v01@"));
        let what = if certificate { "certificate of key" } else { "key" };
        self.tried.push(format!("{what} {}", file.path.display()));
        if file.public.as_ref().is_some_and(PublicKey::is_in_token) {
            self.remark("needs its security key: use --transport openssh, or add it to an agent");
            return Ok(false);
        }
        let line = public.map(PublicKey::line);
        let mut passphrase = self.typed.passphrases.get(&file.path).cloned();
        let mut asked = 0;
        loop {
            let secret = passphrase.as_ref().map_or(&[][..], Passphrase::expose);
            let Ok(secret) = std::str::from_utf8(secret) else {
                self.remark("its passphrase is not UTF-8");
                return Ok(false);
            };
            let user = &self.config.user;
            let outcome = self.attempt(|engine| {
                engine.session().userauth_pubkey_memory(user, line.as_deref(), &file.text, Some(secret))
            })?;
            match outcome {
                Outcome::In => {
                    if let Some(passphrase) = passphrase {
                        self.typed.passphrases.insert(file.path.clone(), passphrase);
                    }
                    return Ok(true);
                }
                Outcome::No => return Ok(false),
                Outcome::Here(error) if !file.encrypted => {
                    self.remark(error.message());
                    return Ok(false);
                }
                Outcome::Here(_) if asked >= self.config.password_prompts => {
                    self.remark("wrong passphrase");
                    return Ok(false);
                }
                Outcome::Here(_) => {
                    passphrase = self.prompter.passphrase(&file.path, asked > 0);
                    asked = asked.saturating_add(1);
                    if passphrase.is_none() {
                        self.remark("its passphrase is not known; add it to an agent");
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn by_password(&mut self) -> Result<bool, ConnectError> {
        let user = self.config.user.clone();
        let account = self.conversation.server.clone();
        for asked in 0..self.config.password_prompts {
            let password = self.typed.password.take().or_else(|| self.prompter.password(&account, asked > 0));
            let Some(password) = password else { break };
            self.tried.push("password".to_owned());
            let Ok(secret) = std::str::from_utf8(password.expose()) else { continue };
            match self.attempt(|engine| engine.session().userauth_password(&user, secret))? {
                Outcome::In => {
                    self.typed.password = Some(password);
                    return Ok(true);
                }
                Outcome::No => {}
                Outcome::Here(error) => self.remark(error.message()),
            }
        }
        Ok(false)
    }

    fn by_questions(&mut self) -> Result<bool, ConnectError> {
        let user = self.config.user.clone();
        for _ in 0..self.config.password_prompts {
            let questioner = Arc::new(Questioner {
                account: self.conversation.server.clone(),
                prompter: Arc::clone(self.prompter),
                remembered: Mutex::new(self.typed.password.take()),
                last: Mutex::default(),
                declined: AtomicBool::new(false),
            });
            let answerer: Arc<dyn Answer> = Arc::clone(&questioner) as Arc<dyn Answer>;
            let outcome = self.attempt(|engine| engine.answer_questions(&user, &answerer))?;
            if questioner.declined.load(Ordering::SeqCst) {
                return Ok(matches!(outcome, Outcome::In));
            }
            self.tried.push("answers to its questions".to_owned());
            match outcome {
                Outcome::In => {
                    self.typed.password =
                        questioner.last.lock().unwrap_or_else(PoisonError::into_inner).take();
                    return Ok(true);
                }
                Outcome::No => {}
                Outcome::Here(error) => self.remark(error.message()),
            }
        }
        Ok(false)
    }

    /// One attempt. A key takes two packets, a question whether the server would take it and a signature: where fewer
    /// were sent and the server did not refuse, the signature could not be made.
    fn attempt(
        &mut self,
        step: impl FnMut(&mut Engine) -> Result<(), ssh2::Error>,
    ) -> Result<Outcome, ConnectError> {
        let before = self.conversation.engine.packets();
        match self.conversation.run(step) {
            Ok(()) => Ok(Outcome::In),
            Err(StepError::Lost(error)) => Err(error),
            Err(StepError::Said(error)) => match fault(&error) {
                Fault::LoginRefused => Ok(Outcome::No),
                Fault::Protocol => Err(self.broken(&error)),
                _ if self.conversation.engine.packets().wrapping_sub(before) >= 2 => Ok(Outcome::No),
                _ => Ok(Outcome::Here(error)),
            },
        }
    }

    /// Adds to what was tried last why it failed on this side.
    fn remark(&mut self, remark: &str) {
        if let Some(last) = self.tried.last_mut() {
            last.push_str(" (");
            last.push_str(remark);
            last.push(')');
        }
    }

    fn broken(&self, error: &ssh2::Error) -> ConnectError {
        let sentence = format!("the login at {} broke down: {}", self.conversation.server, error.message());
        ConnectError::new(ConnectErrorKind::Protocol, sentence)
    }

    fn refused(&self, hung_up: Option<ConnectError>) -> ConnectError {
        let mut sentence = format!("{} let nobody in", self.conversation.server);
        match self.tried.as_slice() {
            [] => sentence.push_str(" and there was no key to try"),
            tried => {
                sentence.push_str("; tried: ");
                sentence.push_str(&tried.join(", "));
            }
        }
        if let Some(methods) = &self.methods {
            sentence.push_str("; it takes ");
            sentence.push_str(methods);
        }
        sentence.push_str(if hung_up.is_some() {
            "; it then closed the connection: name the right key by IdentityFile and IdentitiesOnly yes"
        } else {
            "; check the user name, or add a public key to its authorized_keys"
        });
        let error = ConnectError::new(ConnectErrorKind::AuthRefused, sentence);
        match hung_up {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }
}

/// Passes a server's questions on to a person, and the last secret answer to the next connection.
struct Questioner {
    account: String,
    prompter: Arc<dyn Prompter>,
    remembered: Mutex<Option<Passphrase>>,
    last: Mutex<Option<Passphrase>>,
    declined: AtomicBool,
}

impl Answer for Questioner {
    fn answer(&self, instructions: &str, question: &str, echo: bool) -> Option<Passphrase> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner).take();
        let answer = remembered.or_else(|| self.prompter.answer(&self.account, instructions, question, echo));
        match &answer {
            None => self.declined.store(true, Ordering::SeqCst),
            Some(answer) if !echo => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer.clone());
            }
            Some(_) => {}
        }
        answer
    }
}
