//! How a person names a generation.

use std::str::FromStr;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use super::format::Generation;
use crate::base::time::Timestamp;

/// `latest`, `latest~2`, an id or its beginning, or a date (`2026-11-30`, `2026-11-30 14:00`): the last generation that began by then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    /// The newest complete generation, or the one so many before it.
    Latest(usize),
    /// An id's beginning.
    Id(String),
    /// The newest that began at this time or before, in seconds since 1970.
    By(i64),
}

/// A text that names no generation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It is of no known form.
    #[error(
        "{0:?} does not name a generation: give latest, latest~N, an id or its beginning, or a date such as 2026-11-30 or \"2026-11-30 14:00\""
    )]
    Form(String),
    /// There is none.
    #[error("there is no generation {0}; `kitbag generations` lists them")]
    None(String),
    /// There are several.
    #[error("{0} is the beginning of several generations ({1}); give more of the id")]
    Ambiguous(String, String),
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let form = || SpecError::Form(text.to_owned());
        if text == "latest" {
            return Ok(Self::Latest(0));
        }
        if let Some(back) = text.strip_prefix("latest~") {
            return back.parse().ok().map(Self::Latest).ok_or_else(form);
        }
        if !text.is_empty()
            && text.len() <= 16
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Ok(Self::Id(text.to_owned()));
        }
        let end = if let Ok(time) = text.parse::<jiff::Timestamp>() {
            time.as_second()
        } else {
            let civil = match text.parse::<DateTime>() {
                // A date alone means all of that day.
                Ok(time) if !text.contains(':') => time.date().at(23, 59, 59, 0),
                Ok(time) => time,
                Err(_) => text.parse::<Date>().ok().ok_or_else(form)?.at(23, 59, 59, 0),
            };
            civil.to_zoned(TimeZone::system()).ok().ok_or_else(form)?.timestamp().as_second()
        };
        Ok(Self::By(end))
    }
}

impl Spec {
    /// The generation among `all` (of one client, in any order). A checkpoint or one dated after `now` is only found by its id.
    ///
    /// # Errors
    /// When there is none, or an id's beginning fits several.
    pub fn find<'a>(&self, all: &'a [Generation], now: Timestamp) -> Result<&'a Generation, SpecError> {
        let mut complete: Vec<_> = all.iter().filter(|one| is_ordinary(one, now)).collect();
        complete.sort_by_key(|one| (one.started, one.id));
        match self {
            Self::Latest(back) => {
                complete.iter().rev().nth(*back).copied().ok_or_else(|| SpecError::None(self.to_string()))
            }
            Self::By(end) => complete
                .iter()
                .rfind(|one| one.started.secs <= *end)
                .copied()
                .ok_or_else(|| SpecError::None(self.to_string())),
            Self::Id(beginning) => {
                let fitting: Vec<_> =
                    all.iter().filter(|one| one.id.to_string().starts_with(beginning)).collect();
                match fitting[..] {
                    [] => Err(SpecError::None(beginning.clone())),
                    [one] => Ok(one),
                    _ => {
                        let ids: Vec<_> = fitting.iter().map(|one| one.id.to_string()).collect();
                        Err(SpecError::Ambiguous(beginning.clone(), ids.join(", ")))
                    }
                }
            }
        }
    }
}

/// Whether a generation is complete and not dated in the future: what `latest` chooses from.
#[must_use]
pub fn is_ordinary(generation: &Generation, now: Timestamp) -> bool {
    !generation.partial && !is_from_future(generation, now)
}

/// Whether a generation is dated after `now` (with a minute's grace for clocks).
#[must_use]
pub fn is_from_future(generation: &Generation, now: Timestamp) -> bool {
    generation.started.secs > now.secs.saturating_add(60)
}

impl std::fmt::Display for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Latest(0) => f.write_str("latest"),
            Self::Latest(back) => write!(f, "latest~{back}"),
            Self::Id(id) => f.write_str(id),
            Self::By(secs) => match jiff::Timestamp::from_second(*secs) {
                Ok(time) => write!(f, "by {time}"),
                Err(_) => write!(f, "by second {secs}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::GenerationId;
    use crate::generation::format::{BagListRef, Counts};

    fn generation(id: u8, secs: i64, partial: bool) -> Generation {
        Generation {
            id: GenerationId([id; 8]),
            client: String::new(),
            host: String::new(),
            started: Timestamp { secs, nanos: 0 },
            ended: Timestamp { secs, nanos: 0 },
            partial,
            roots: Vec::new(),
            counts: Counts::default(),
            options: Vec::new(),
            tags: Vec::new(),
            bag_list: BagListRef::default(),
        }
    }

    #[test]
    fn chooses() {
        let all = [
            generation(0xa1, 100, false),
            generation(0xa2, 300, true),
            generation(0xb1, 200, false),
            generation(0xc1, 9000, false),
        ];
        let now = Timestamp { secs: 400, nanos: 0 };
        let find =
            |text: &str| text.parse::<Spec>().and_then(|spec| spec.find(&all, now).map(|one| one.id.0[0]));
        assert_eq!(find("latest"), Ok(0xb1));
        assert_eq!(find("latest~1"), Ok(0xa1));
        assert!(matches!(find("latest~2"), Err(SpecError::None(_))));
        assert_eq!(find("a2a2"), Ok(0xa2));
        assert!(matches!(find("a"), Err(SpecError::Ambiguous(..))));
        assert!(matches!(find("e"), Err(SpecError::None(_))));
        assert_eq!(find("1970-01-01T00:02:00Z"), Ok(0xa1));
        assert_eq!(find("2026-11-30"), Ok(0xb1));
        assert!(matches!(find("yesterday"), Err(SpecError::Form(_))));
    }
}
