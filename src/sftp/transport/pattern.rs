//! The wildcard patterns of OpenSSH's files: `*` is any number of characters, `?` one.

/// Whether `name` matches one pattern, upper and lower case being the same.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on when what follows the last star does not fit: one more character for the star.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(p), name.get(n)) {
            (Some(b'*'), _) => {
                retry = Some((p, n));
                p += 1;
            }
            (Some(b'?'), Some(_)) => (p, n) = (p + 1, n + 1),
            (Some(a), Some(b)) if a.eq_ignore_ascii_case(b) => (p, n) = (p + 1, n + 1),
            (None, None) => return true,
            _ => match retry {
                Some((star, taken)) if taken < name.len() => {
                    retry = Some((star, taken + 1));
                    (p, n) = (star + 1, taken + 1);
                }
                _ => return false,
            },
        }
    }
}

/// Whether `name` matches a list of patterns of which some may be negated by `!`: at least one must match, and none
/// of the negated ones.
pub fn list_matches<'a>(patterns: impl IntoIterator<Item = &'a str>, name: &str) -> bool {
    let mut found = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(negated) if matches(negated, name) => return false,
            Some(_) => {}
            None => found |= matches(pattern, name),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        assert!(matches("*", ""));
        assert!(matches("*.example.org", "WWW.example.org"));
        assert!(matches("10.0.?.*", "10.0.7.255"));
        assert!(matches("a*b*c", "aXbXbc"));
        assert!(!matches("a*b*c", "aXbXb"));
        assert!(!matches("?", ""));
        assert!(!matches("*.example.org", "example.org"));
    }

    #[test]
    fn negation_wins_wherever_it_stands() {
        assert!(list_matches(["*.org", "!bad.org"], "good.org"));
        assert!(!list_matches(["*.org", "!bad.org"], "bad.org"));
        assert!(!list_matches(["!bad.org"], "good.org"));
    }
}
