//! Keywords and their arguments, as OpenSSH gives them a meaning: the first value of a keyword counts.

use std::collections::BTreeMap;

use super::{ConfigError, Origin};

/// Keywords of which every occurrence counts.
const ACCUMULATING: &[&str] =
    &["identityfile", "certificatefile", "sendenv", "setenv", "localforward", "remoteforward"];

/// What was said for one host, by keyword in lower case.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    values: BTreeMap<String, Vec<(Vec<String>, Origin)>>,
}

impl Settings {
    /// Adds a setting, unless an earlier one has decided.
    pub(super) fn add(&mut self, keyword: &str, arguments: Vec<String>, origin: Origin) {
        let keyword = keyword.to_ascii_lowercase();
        let accumulates = ACCUMULATING.contains(&keyword.as_str());
        let said = self.values.entry(keyword).or_default();
        if said.is_empty() || accumulates {
            said.push((arguments, origin));
        }
    }

    /// All arguments of a keyword, of every occurrence that counts.
    pub(super) fn all(&self, keyword: &str) -> Vec<&str> {
        let said = self.values.get(keyword).map_or(&[][..], Vec::as_slice);
        said.iter().flat_map(|(arguments, _)| arguments.iter().map(String::as_str)).collect()
    }

    /// The rest of the line after a keyword. `none` counts as nothing.
    pub(super) fn text(&self, keyword: &str) -> Option<String> {
        let (arguments, _) = self.values.get(keyword)?.first()?;
        let text = arguments.join(" ");
        (!text.is_empty() && !text.eq_ignore_ascii_case("none")).then_some(text)
    }

    /// A yes or no.
    pub(super) fn flag(&self, keyword: &str, default: bool) -> Result<bool, ConfigError> {
        match self.text(keyword).as_deref() {
            None => Ok(default),
            Some("yes" | "true" | "always") => Ok(true),
            Some("no" | "false" | "never") => Ok(false),
            Some(_) => Err(self.refuse(keyword, "yes or no")),
        }
    }

    /// A number.
    pub(super) fn number<N: std::str::FromStr>(&self, keyword: &str, default: N) -> Result<N, ConfigError> {
        match self.text(keyword) {
            None => Ok(default),
            Some(text) => text.parse().ok().ok_or_else(|| self.refuse(keyword, "a number")),
        }
    }

    /// The error for a value that makes no sense.
    pub(super) fn refuse(&self, keyword: &str, expected: &'static str) -> ConfigError {
        let first = self.values.get(keyword).and_then(|said| said.first());
        let (value, origin) = first.map_or((String::new(), Origin::Default), |(arguments, origin)| {
            (arguments.join(" "), origin.clone())
        });
        ConfigError::Value { keyword: keyword.to_owned(), value, expected, origin }
    }
}

/// Splits the arguments of a line: by blanks and one `=`, double quotes hold together; none if a quote stays open.
pub(super) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut started, mut quoted) = (false, false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => (started, quoted) = (true, !quoted),
            '\\' if matches!(characters.peek(), Some('"' | '\\')) => {
                started = true;
                word.extend(characters.next());
            }
            '#' if !quoted && !started => break,
            // `Keyword=value` and `Keyword = value` are as good as `Keyword value`.
            '=' if !quoted
                && words.len() <= 1
                && (words.is_empty() && started || words.len() == 1 && !started) =>
            {
                if started {
                    words.push(std::mem::take(&mut word));
                    started = false;
                }
            }
            blank if blank.is_whitespace() && !quoted => {
                if started {
                    words.push(std::mem::take(&mut word));
                    started = false;
                }
            }
            other => {
                started = true;
                word.push(other);
            }
        }
    }
    if started {
        words.push(word);
    }
    (!quoted).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let words = |line| split(line).unwrap();
        assert_eq!(words("  Host a b # no"), ["Host", "a", "b"]);
        assert_eq!(words("Port=22"), ["Port", "22"]);
        assert_eq!(words("Port = 22"), ["Port", "22"]);
        assert_eq!(words("IdentityFile \"~/my keys/a\""), ["IdentityFile", "~/my keys/a"]);
        assert_eq!(words("ProxyCommand nc -o a=b %h"), ["ProxyCommand", "nc", "-o", "a=b", "%h"]);
        assert_eq!(words("# x"), Vec::<String>::new());
        assert_eq!(split("User \"open"), None);
    }

    #[test]
    fn first_value_counts_but_keys_add_up() {
        let mut settings = Settings::default();
        for (keyword, value) in [("User", "a"), ("USER", "b"), ("IdentityFile", "x"), ("IdentityFile", "y")] {
            settings.add(keyword, vec![value.to_owned()], Origin::Default);
        }
        assert_eq!(settings.text("user").as_deref(), Some("a"));
        assert_eq!(settings.all("identityfile"), ["x", "y"]);
    }
}
