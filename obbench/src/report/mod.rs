//! One page with everything that was measured: tables, charts, and where it was measured.
//!
//! The page holds its style and charts itself and loads nothing. Figures are medians over repetitions of the newest
//! commit; the trend shows all commits.

mod chart;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::result::{Record, float, median};

pub use chart::ChartError;

const STYLE: &str = include_str!("style.css");

/// The page.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn page(records: &[Record]) -> Result<String, ChartError> {
    let newest = records.iter().max_by_key(|record| record.time).map_or("", |record| record.commit.as_str());
    let current: Vec<&Record> = records.iter().filter(|record| record.commit == newest).collect();
    let mut body = String::from(
        "<h1>Backup programs, measured</h1>\n<p>Time on the clock, and what that is to the best of the others; below it the most memory, \
         how often the program waited for its server, what it sent, and what the repository took then.</p>\n",
    );
    for workload in names(&current, |record| &record.workload) {
        let here: Vec<&Record> =
            current.iter().copied().filter(|record| record.workload == workload).collect();
        body.push_str(&format!("<section><h2>{}</h2>\n", escaped(&workload)));
        if let Some(first) = here.first() {
            let megabytes = float(first.tree.bytes) / 1e6;
            body.push_str(&format!("<p>{} files, {megabytes:.1} MB.</p>\n", first.tree.files));
        }
        for link in names(&here, |record| &record.link) {
            let there: Vec<&Record> = here.iter().copied().filter(|record| record.link == link).collect();
            body.push_str(&format!("<h3>{}</h3>\n{}", escaped(&link), table(&there)));
        }
        body.push_str(&chart::latency(&here)?);
        body.push_str("</section>\n");
    }
    body.push_str(&chart::size(&current)?);
    body.push_str(&chart::trend(&records.iter().collect::<Vec<_>>())?);
    body.push_str(&environment(&current));
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Backup programs, measured</title>\n\
         <style>\n{STYLE}</style></head>\n<body><main>\n{body}</main></body></html>\n"
    ))
}

/// Steps down, programs across; each with its time, what that is to the best of the others, memory and waits.
fn table(records: &[&Record]) -> String {
    let tools = names(records, |record| &record.tool);
    let mut out = String::from("<div class=\"wide\"><table><thead><tr><th>step</th>");
    for tool in &tools {
        let _ = write!(out, "<th>{}</th>", escaped(tool));
    }
    out.push_str("</tr></thead><tbody>\n");
    for step in names(records, |record| &record.step) {
        let cells: BTreeMap<&str, Cell> = tools
            .iter()
            .filter_map(|tool| {
                let runs: Vec<&Record> =
                    records.iter().copied().filter(|one| one.step == step && one.tool == *tool).collect();
                Some((tool.as_str(), Cell::of(&runs)?))
            })
            .collect();
        let _ = write!(out, "<tr><th>{}</th>", escaped(&step));
        for tool in &tools {
            let best = cells.iter().filter(|cell| cell.0 != tool && cell.1.good).map(|cell| cell.1.wall);
            let best = best.min_by(f64::total_cmp);
            let text = cells.get(tool.as_str()).map_or("–".into(), |cell| cell.html(best));
            let _ = write!(out, "<td>{text}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

struct Cell {
    wall: f64,
    megabytes: f64,
    waits: Option<f64>,
    sent: Option<f64>,
    kept: f64,
    good: bool,
}

impl Cell {
    fn of(runs: &[&Record]) -> Option<Self> {
        let middle = |name: &str| median(runs.iter().filter_map(|run| run.metric(name)).collect());
        Some(Self {
            wall: middle("wall")?,
            megabytes: middle("memory")? / 1e6,
            waits: middle("waits"),
            sent: median(runs.iter().filter_map(|run| Some(float(run.link_bytes?[0]) / 1e6)).collect()),
            kept: median(runs.iter().map(|run| float(run.repository.bytes) / 1e6).collect())?,
            good: runs.iter().all(|run| run.complaint.is_none()),
        })
    }

    fn html(&self, best: Option<f64>) -> String {
        if !self.good {
            return "<em class=\"bad\">failed</em>".into();
        }
        let mut text = format!("<b>{:.2} s</b>", self.wall);
        if let Some(best) = best {
            let ratio = self.wall / best;
            let class = if ratio <= 1.0 { "good" } else { "slow" };
            let _ = write!(text, " <span class=\"{class}\">{ratio:.2} ×</span>");
        }
        let _ = write!(text, "<br><small>{:.0} MB", self.megabytes);
        if let Some(waits) = self.waits {
            let _ = write!(text, ", {waits:.0} waits");
        }
        text.push_str("<br>");
        if let Some(sent) = self.sent {
            let _ = write!(text, "{sent:.2} MB sent, ");
        }
        let _ = write!(text, "{:.1} MB kept", self.kept);
        text.push_str("</small>");
        text
    }
}

fn environment(records: &[&Record]) -> String {
    let mut lines = BTreeSet::new();
    for record in records {
        let machine = &record.machine;
        lines.insert(format!(
            "{}: {} × {}, Linux {}",
            machine.host, machine.processors, machine.processor, machine.kernel
        ));
        lines.insert(format!("{}: {}", record.tool, record.tool_version));
        lines.insert(format!("commit {}", record.commit));
    }
    let items: String = lines.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
    format!("<section><h2>Where</h2><ul>{items}</ul></section>\n")
}

/// The different names, in the order in which they first come.
fn names<'a>(records: &[&'a Record], of: impl Fn(&'a Record) -> &'a String) -> Vec<String> {
    let mut seen = Vec::new();
    for name in records.iter().map(|record| of(record)) {
        if !seen.contains(name) {
            seen.push(name.clone());
        }
    }
    seen
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_tables_and_charts_and_escapes_names() {
        let mut records = Vec::new();
        for (time, commit) in [(1, "aaa"), (2, "bbb")] {
            for (link, rtt_us) in [("direct", 0), ("50ms", 50_000)] {
                for (tool, wall) in [("kitbag", 1.5), ("<b>", 3.0)] {
                    let mut record = Record { time, rtt_us, ..Record::default() };
                    (record.commit, record.link, record.tool) = (commit.into(), link.into(), tool.into());
                    (record.workload, record.step) = ("laptop-5".into(), "first".into());
                    record.measured.wall_s = wall;
                    records.push(record);
                }
            }
        }
        let page = page(&records).expect("drawn");
        assert_eq!(page.matches("<table>").count(), 2);
        assert!(page.contains("0.50 ×") && page.contains("2.00 ×"));
        assert!(!page.contains("<th><b></th>"));
        assert_eq!(page.matches("<svg").count(), 2, "latency, and the trend over commits");
        assert!(
            !page.contains("http://")
                || page.matches("http://").count() == page.matches("http://www.w3.org").count()
        );
    }
}
