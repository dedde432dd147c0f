//! Two sets of results side by side.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::result::{METRICS, Record, median};

/// Figures that belong together, of both sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Workload, link, tool, step.
    pub what: String,
    /// The metric.
    pub metric: &'static str,
    /// The medians of both.
    pub values: [f64; 2],
}

impl Line {
    /// The second as a multiple of the first; 1 where both are nothing.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let [first, second] = self.values;
        if first == second { 1.0 } else { second / first }
    }
}

/// Compares what both sets have measured without failing.
#[must_use]
pub fn compare(first: &[Record], second: &[Record]) -> Vec<Line> {
    let (first, second) = (medians(first), medians(second));
    let both = first.into_iter().filter_map(|(key, a)| second.get(&key).map(|&b| (key, [a, b])));
    both.map(|((what, place), values)| Line {
        what,
        metric: METRICS.get(place).copied().unwrap_or_default(),
        values,
    })
    .collect()
}

fn medians(records: &[Record]) -> BTreeMap<(String, usize), f64> {
    let mut all: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.complaint.is_none()) {
        let what =
            [&record.workload, &record.link, &record.tool, &record.step].map(String::as_str).join(" / ");
        for (place, metric) in METRICS.iter().enumerate() {
            if let Some(value) = record.metric(metric) {
                all.entry((what.clone(), place)).or_default().push(value);
            }
        }
    }
    all.into_iter().filter_map(|(key, values)| Some((key, median(values)?))).collect()
}

/// A condition on the ratio of a metric, such as `wall > 1.1`, under which a comparison fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    metric: String,
    above: bool,
    limit: f64,
}

impl Condition {
    /// Whether it applies to the line.
    #[must_use]
    pub fn applies(&self, line: &Line) -> bool {
        let ratio = line.ratio();
        line.metric == self.metric && if self.above { ratio > self.limit } else { ratio < self.limit }
    }
}

/// Not a condition.
#[derive(Debug, thiserror::Error)]
#[error("“{0}” is no condition: write METRIC > RATIO, with one of {list}", list = METRICS.join(", "))]
pub struct NoCondition(String);

impl FromStr for Condition {
    type Err = NoCondition;

    fn from_str(text: &str) -> Result<Self, NoCondition> {
        let wrong = || NoCondition(text.to_string());
        let above = text.contains('>');
        let (metric, limit) = text.split_once(['>', '<']).ok_or_else(wrong)?;
        let (metric, limit) = (metric.trim(), limit.trim().parse().ok());
        let known = METRICS.contains(&metric);
        limit.filter(|_| known).map(|limit| Self { metric: metric.into(), above, limit }).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(wall: f64) -> Record {
        let mut record = Record { tool: "kitbag".into(), step: "first".into(), ..Record::default() };
        record.measured.wall_s = wall;
        record
    }

    #[test]
    fn compares_medians_and_fails_on_request() {
        let lines = compare(&[record(1.0), record(9.0), record(2.0)], &[record(2.4)]);
        let wall = lines.iter().find(|line| line.metric == "wall").expect("compared");
        assert_eq!(wall.values, [2.0, 2.4]);
        let fails = |text: &str| text.parse::<Condition>().expect("a condition").applies(wall);
        assert!(fails("wall > 1.1") && !fails("wall>1.3") && !fails("cpu > 0.1") && fails("wall < 2"));
        assert!("speed > 1".parse::<Condition>().is_err());
        assert!("wall 1".parse::<Condition>().is_err());
    }
}
