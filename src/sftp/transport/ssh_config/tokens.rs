//! `%` tokens, `~` and `${NAME}` in the paths and commands of a configuration.

use std::path::PathBuf;

use sha1::{Digest, Sha1};

use super::{ConfigError, Environment};

/// What the tokens stand for.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    /// `%n`: the host as it was typed.
    pub(super) typed: String,
    /// `%h`: its real name.
    pub(super) hostname: String,
    /// `%p`.
    pub(super) port: u16,
    /// `%r`: the user there.
    pub(super) user: String,
    /// `%k`: the name its key is known under.
    pub(super) alias: String,
    /// `%j`: the jump hosts.
    pub(super) jump: String,
    /// `%d`, `%u`, and the variables.
    pub(super) environment: Environment,
}

impl Tokens {
    /// Replaces the tokens in the value of `keyword`.
    pub(super) fn expand(&self, keyword: &'static str, text: &str) -> Result<String, ConfigError> {
        let mut expanded = String::with_capacity(text.len());
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                expanded.push(character);
                continue;
            }
            let token = characters.next();
            let value = token.and_then(|token| self.value(token));
            let value = value.ok_or_else(|| ConfigError::Token { keyword, value: text.to_owned() })?;
            expanded.push_str(&value);
        }
        Ok(expanded)
    }

    /// The same for a path, with `~/` and `${NAME}`.
    pub(super) fn path(&self, keyword: &'static str, text: &str) -> Result<PathBuf, ConfigError> {
        let refuse = || ConfigError::Token { keyword, value: text.to_owned() };
        let mut with_variables = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').ok_or_else(refuse)?;
            with_variables.push_str(before);
            with_variables.push_str(self.environment.text(name).ok_or_else(refuse)?);
            rest = after;
        }
        with_variables.push_str(rest);
        let path = match with_variables.strip_prefix('~') {
            None => PathBuf::from(self.expand(keyword, &with_variables)?),
            Some(below) => {
                let below = self.expand(keyword, below)?;
                // The home of another user is none of our business.
                let below = below.strip_prefix('/').ok_or_else(refuse)?;
                self.environment.home().ok_or_else(refuse)?.join(below)
            }
        };
        Ok(path)
    }

    fn value(&self, token: char) -> Option<String> {
        Some(match token {
            '%' => "%".to_owned(),
            'n' => self.typed.clone(),
            'h' => self.hostname.clone(),
            'p' => self.port.to_string(),
            'r' => self.user.clone(),
            'k' => self.alias.clone(),
            'j' => self.jump.clone(),
            'd' => self.environment.home()?.to_str()?.to_owned(),
            'u' => self.environment.user()?.to_owned(),
            'i' => rustix::process::getuid().as_raw().to_string(),
            'l' => self.environment.local_host().to_owned(),
            'L' => self.environment.local_host().split('.').next()?.to_owned(),
            'C' => {
                let port = self.port.to_string();
                let parts = [self.environment.local_host(), &self.hostname, &port, &self.user, &self.jump];
                let mut hash = Sha1::new();
                parts.iter().for_each(|part| hash.update(part));
                hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn tokens() -> Tokens {
        Tokens {
            typed: "box".into(),
            hostname: "box.example.org".into(),
            port: 2222,
            user: "jo".into(),
            alias: "box".into(),
            jump: String::new(),
            environment: Environment::new([("HOME", "/home/jo"), ("USER", "joe"), ("KEYS", "/keys")]),
        }
    }

    #[test]
    fn expands() {
        let path = |text| tokens().path("identityfile", text);
        assert_eq!(path("~/.ssh/%n_%r").unwrap(), Path::new("/home/jo/.ssh/box_jo"));
        assert_eq!(path("${KEYS}/%h:%p%%").unwrap(), Path::new("/keys/box.example.org:2222%"));
        assert_eq!(path("%d/%u").unwrap(), Path::new("/home/jo/joe"));
        assert!(path("~other/x").is_err());
        assert!(path("${NOT_SET}/x").is_err());
        assert!(path("%Z").is_err());
        assert!(path("x%").is_err());
    }
}
