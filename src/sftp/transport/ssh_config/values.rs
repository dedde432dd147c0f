//! Single settings, and what they mean.

use std::path::PathBuf;
use std::time::Duration;

use super::settings::Settings;
use super::tokens::Tokens;
use super::{AddressFamily, ConfigError, Destination, Proxy, Strictness};

/// Refuses names that a program could take for an option, or a shell for more than a name.
pub(super) fn check_names(destination: &Destination) -> Result<(), ConfigError> {
    let sound = |name: &str| {
        !name.is_empty()
            && !name.starts_with('-')
            && !name.contains(|c: char| c.is_control() || c.is_whitespace() || "'\"`$\\;&<>|(){}".contains(c))
    };
    for name in destination.user.iter().chain([&destination.host]) {
        if !sound(name) {
            return Err(ConfigError::Name(name.clone()));
        }
    }
    Ok(())
}

/// Settings that this program's own SSH does not honour although they decide who may log in, or from where.
pub(super) fn needs_openssh(settings: &Settings) -> Vec<String> {
    let named = ["pkcs11provider", "knownhostscommand", "bindaddress", "bindinterface"];
    let switched = ["hostbasedauthentication", "proxyusefdpass", "verifyhostkeydns"];
    let named = named.iter().filter_map(|keyword| Some(format!("{keyword} {}", settings.text(keyword)?)));
    let on = |keyword: &&&str| matches!(settings.text(keyword).as_deref(), Some("yes" | "true"));
    named.chain(switched.iter().filter(on).map(|keyword| format!("{keyword} yes"))).collect()
}

pub(super) fn paths(
    settings: &Settings,
    keyword: &'static str,
    defaults: &[&str],
    tokens: &Tokens,
) -> Result<Vec<PathBuf>, ConfigError> {
    let said = settings.all(keyword);
    let (said, strict) = if said.is_empty() { (defaults.to_vec(), false) } else { (said, true) };
    let mut paths = Vec::with_capacity(said.len());
    for text in said {
        match tokens.path(keyword, text) {
            _ if text.eq_ignore_ascii_case("none") => {}
            Ok(path) => paths.push(path),
            Err(error) if strict => return Err(error),
            // Without a home there are no default files in it.
            Err(_) => {}
        }
    }
    Ok(paths)
}

pub(super) fn identity_files(settings: &Settings, tokens: &Tokens) -> Result<Vec<PathBuf>, ConfigError> {
    let defaults = [
        "~/.ssh/id_rsa",
        "~/.ssh/id_ecdsa",
        "~/.ssh/id_ecdsa_sk",
        "~/.ssh/id_ed25519",
        "~/.ssh/id_ed25519_sk",
    ];
    paths(settings, "identityfile", &defaults, tokens)
}

pub(super) fn identity_agent(settings: &Settings, tokens: &Tokens) -> Result<Option<PathBuf>, ConfigError> {
    let environment = &tokens.environment;
    match settings.all("identityagent").first().copied() {
        None | Some("SSH_AUTH_SOCK") => Ok(environment.agent().map(Into::into)),
        Some(none) if none.eq_ignore_ascii_case("none") => Ok(None),
        Some(text) => match text.strip_prefix('$') {
            Some(name) if !name.starts_with('{') => Ok(environment.text(name).map(PathBuf::from)),
            _ => tokens.path("identityagent", text).map(Some),
        },
    }
}

pub(super) fn strictness(settings: &Settings) -> Result<Strictness, ConfigError> {
    match settings.text("stricthostkeychecking").as_deref() {
        None | Some("ask") => Ok(Strictness::Ask),
        Some("yes" | "true") => Ok(Strictness::Strict),
        Some("accept-new") => Ok(Strictness::AcceptNew),
        Some("no" | "off" | "false") => Ok(Strictness::Off),
        Some(_) => Err(settings.refuse("stricthostkeychecking", "yes, ask, accept-new or no")),
    }
}

pub(super) fn proxy(settings: &Settings, tokens: &Tokens) -> Result<Option<Proxy>, ConfigError> {
    if let Some(jump) = settings.text("proxyjump") {
        return Ok(Some(Proxy::Jump(jump)));
    }
    let command = settings.text("proxycommand");
    command.map(|command| tokens.expand("proxycommand", &command).map(Proxy::Command)).transpose()
}

pub(super) fn address_family(settings: &Settings) -> Result<AddressFamily, ConfigError> {
    match settings.text("addressfamily").as_deref() {
        None | Some("any") => Ok(AddressFamily::Any),
        Some("inet") => Ok(AddressFamily::V4),
        Some("inet6") => Ok(AddressFamily::V6),
        Some(_) => Err(settings.refuse("addressfamily", "any, inet or inet6")),
    }
}

/// A time: a number of seconds, or numbers with units (`1m30s`). Nothing for 0.
pub(super) fn seconds(settings: &Settings, keyword: &'static str) -> Result<Option<Duration>, ConfigError> {
    let Some(text) = settings.text(keyword) else { return Ok(None) };
    let refuse = || settings.refuse(keyword, "a time");
    let (mut total, mut number) = (0_u64, None::<u64>);
    for character in text.chars() {
        if let Some(digit) = character.to_digit(10) {
            let so_far = number.unwrap_or(0).checked_mul(10).ok_or_else(refuse)?;
            number = Some(so_far.checked_add(u64::from(digit)).ok_or_else(refuse)?);
            continue;
        }
        let unit = match character.to_ascii_lowercase() {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return Err(refuse()),
        };
        let part = number.take().and_then(|number| number.checked_mul(unit)).ok_or_else(refuse)?;
        total = total.checked_add(part).ok_or_else(refuse)?;
    }
    let total = total.checked_add(number.unwrap_or(0)).ok_or_else(refuse)?;
    Ok((total > 0).then(|| Duration::from_secs(total)))
}
