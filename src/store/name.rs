//! Names of files in a store.

use std::fmt;

/// A relative name: components of `a`-`z`, `0`-`9`, `-`, `_` and `.`, joined by `/`; no component is empty or begins with a dot.
/// [`Name::top`] alone has no component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The name, if it is one.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let valid = !text.is_empty()
            && text.split('/').all(|component| {
                !component.is_empty()
                    && !component.starts_with('.')
                    && component.bytes().all(|byte| {
                        byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte)
                    })
            });
        valid.then(|| Self(text.to_owned()))
    }

    /// The store's own directory: to be listed and made, and nothing else.
    #[must_use]
    pub fn top() -> Self {
        Self(String::new())
    }

    /// A name made of parts that are known to be valid.
    ///
    /// # Panics
    /// When they are not.
    #[must_use]
    pub fn join(parts: &[&str]) -> Self {
        let text = parts.join("/");
        match Self::new(&text) {
            Some(name) => name,
            None => panic!("{text:?} is not a name"),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory it is in; `None` at the top.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// The last component.
    #[must_use]
    pub fn last(&self) -> &str {
        self.0.rsplit_once('/').map_or(self.0.as_str(), |(_, last)| last)
    }

    /// The name with this added at its end.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        Self(format!("{}{suffix}", self.0))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
