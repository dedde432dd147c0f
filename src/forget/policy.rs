//! Which generations a policy keeps: a pure function of their dates.
//!
//! A policy is a list of rules such as `7d`. Each keeps the newest generation of each of the last so many hours, days, weeks, months or years *that have one*: a laptop that lay
//! in a drawer for a month loses nothing by that. A bare number keeps the newest so many. What any rule keeps is kept.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;

use crate::base::time::Timestamp;

/// What a rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    /// Generations, whenever they were made.
    Each,
    /// Hours.
    Hour,
    /// Days.
    Day,
    /// Weeks, from Monday to Sunday.
    Week,
    /// Months.
    Month,
    /// Years.
    Year,
}

/// Keeps the newest generation of each of the last `count` periods that have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// How many.
    pub count: u32,
    /// Of what.
    pub period: Period,
}

/// Rules: what any of them keeps is kept. There is at least one, and each keeps something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy(Vec<Rule>);

/// A text that is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} says not what to keep: write numbers with h, d, w, m or y for hours, days, weeks, months or years, as in 72h,7d,5w,12m,3y; a bare number keeps the newest so many"
)]
pub struct BadPolicy(String);

impl FromStr for Policy {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        let rules: Result<Vec<_>, _> = text.split(',').map(|word| word.trim().parse()).collect();
        rules.map(Self).map_err(|()| BadPolicy(text.to_owned()))
    }
}

impl FromStr for Rule {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let period = match text.get(digits.len()..) {
            Some("") => Period::Each,
            Some("h") => Period::Hour,
            Some("d") => Period::Day,
            Some("w") => Period::Week,
            Some("m") => Period::Month,
            Some("y") => Period::Year,
            _ => return Err(()),
        };
        let count = digits.parse().ok().filter(|count| *count > 0).ok_or(())?;
        Ok(Self { count, period })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.period {
            Period::Each => "",
            Period::Hour => "h",
            Period::Day => "d",
            Period::Week => "w",
            Period::Month => "m",
            Period::Year => "y",
        };
        write!(f, "{}{unit}", self.count)
    }
}

impl Policy {
    /// For each of these times, given oldest first, the rules that keep it; none for what is not kept. The newest is always kept.
    #[must_use]
    pub fn keeps(&self, times: &[Timestamp], zone: &TimeZone) -> Vec<Vec<Rule>> {
        let mut kept = vec![Vec::new(); times.len()];
        for rule in &self.0 {
            // The newest of each period: later ones take the place of earlier ones.
            let mut newest: BTreeMap<(i64, i64), usize> = BTreeMap::new();
            for (at, time) in times.iter().enumerate() {
                newest.insert(period_of(rule.period, *time, at, zone), at);
            }
            let count = usize::try_from(rule.count).unwrap_or(usize::MAX);
            for at in newest.into_values().rev().take(count) {
                kept.get_mut(at).into_iter().for_each(|rules| rules.push(*rule));
            }
        }
        kept
    }
}

/// The number of the period that a time lies in; of later periods it is greater. A time that no calendar has is a period of its own.
fn period_of(period: Period, time: Timestamp, at: usize, zone: &TimeZone) -> (i64, i64) {
    let own = (time.secs, i64::try_from(at).unwrap_or(i64::MAX));
    let Ok(stamp) = jiff::Timestamp::from_second(time.secs) else { return own };
    let civil = stamp.to_zoned(zone.clone()).datetime();
    let (year, month) = (i64::from(civil.year()), i64::from(civil.month()));
    let day = i64::from(civil.day_of_year());
    match period {
        Period::Each => own,
        // An hour that comes twice, when clocks are set back, is two hours.
        Period::Hour => (time.secs.div_euclid(3600), 0),
        Period::Day => (year, day),
        Period::Week => {
            let week = civil.date().iso_week_date();
            (i64::from(week.year()), i64::from(week.week()))
        }
        Period::Month => (year, month),
        Period::Year => (year, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(texts: &[&str]) -> Vec<Timestamp> {
        let parse = |text: &&str| text.parse::<jiff::Timestamp>().unwrap().as_second();
        texts.iter().map(|text| Timestamp { secs: parse(text), nanos: 0 }).collect()
    }

    /// What is kept, and by which rules.
    fn kept(policy: &str, texts: &[&str]) -> Vec<(usize, String)> {
        let rules = policy.parse::<Policy>().unwrap().keeps(&times(texts), &TimeZone::UTC);
        let shown = |rules: &Vec<Rule>| rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        rules.iter().map(shown).enumerate().filter(|(_, rules)| !rules.is_empty()).collect()
    }

    #[test]
    fn the_newest_of_each_period_is_kept() {
        let made = [
            "2024-12-30T10:00:00Z",
            "2024-12-31T10:00:00Z",
            "2025-01-01T09:00:00Z",
            "2025-01-01T10:10:00Z",
            "2025-01-01T10:50:00Z",
        ];
        let kept = |policy| kept(policy, &made);
        assert_eq!(kept("1"), [(4, "1".into())]);
        assert_eq!(kept("2"), [(3, "2".into()), (4, "2".into())]);
        assert_eq!(kept("2h"), [(2, "2h".into()), (4, "2h".into())]);
        assert_eq!(kept("2d"), [(1, "2d".into()), (4, "2d".into())]);
        // The week of New Year has days of both years.
        assert_eq!(kept("5w"), [(4, "5w".into())]);
        assert_eq!(kept("12m"), [(1, "12m".into()), (4, "12m".into())]);
        assert_eq!(kept("1h, 3y"), [(1, "3y".into()), (4, "1h 3y".into())]);
    }

    #[test]
    fn periods_without_a_generation_do_not_count() {
        let made = ["2020-05-01T00:00:00Z", "2022-07-01T00:00:00Z", "2025-01-01T00:00:00Z"];
        assert_eq!(kept("3d", &made).len(), 3);
        assert_eq!(kept("2y", &made).len(), 2);
    }

    #[test]
    fn days_are_those_of_the_time_zone() {
        let made = times(&["2025-01-01T22:30:00Z", "2025-01-01T23:30:00Z"]);
        let policy: Policy = "9d".parse().unwrap();
        let days =
            |zone: &TimeZone| policy.keeps(&made, zone).iter().filter(|rules| !rules.is_empty()).count();
        assert_eq!(days(&TimeZone::UTC), 1);
        assert_eq!(days(&TimeZone::fixed(jiff::tz::offset(1))), 2);
    }

    #[test]
    fn what_is_no_policy() {
        for text in ["", "7", "0d", "d", "7x", "7D", "-1d", "7d,", "7dd", "99999999999d", "7 d"] {
            assert_eq!(text.parse::<Policy>().is_ok(), text == "7", "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_newest_is_always_kept(mut secs: Vec<i64>, count in 1..5u32, which in 0..6usize) {
            secs.sort_unstable();
            let made: Vec<_> = secs.iter().map(|&secs| Timestamp { secs, nanos: 0 }).collect();
            let units = ["", "h", "d", "w", "m", "y"];
            let policy: Policy = format!("{count}{}", units[which]).parse().unwrap();
            let kept = policy.keeps(&made, &TimeZone::UTC);
            prop_assert!(kept.last().is_none_or(|rules| !rules.is_empty()));
            prop_assert!(kept.iter().filter(|rules| !rules.is_empty()).count() <= usize::try_from(count).unwrap());
        }
    }
}
