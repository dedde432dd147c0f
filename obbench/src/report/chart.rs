//! Charts: time against latency, against the size of the tree, and over commits.

use std::collections::BTreeMap;

use plotters::prelude::*;

use crate::result::{Record, float, median};

/// A chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("a chart cannot be drawn: {0}")]
pub struct ChartError(String);

/// Colours that are told apart with any eyes, on white.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

type Lines = BTreeMap<String, Vec<(f64, f64)>>;

/// Time of each tool's step against the round trip; nothing where there was but one.
pub(super) fn latency(records: &[&Record]) -> Result<String, ChartError> {
    let at = |record: &Record| Some(float(record.rtt_us) / 1000.0).filter(|_| record.link != "local");
    draw("Seconds against the round trip in ms", &lines(records, |_| String::new(), at))
}

/// Time against the number of files, for workloads that differ by it alone.
pub(super) fn size(records: &[&Record]) -> Result<String, ChartError> {
    let kind = |record: &Record| {
        let kind = record.workload.rsplit_once('-').map_or("", |(kind, _)| kind);
        format!("{kind} {} ", record.link)
    };
    let files = |record: &Record| Some(float(record.tree.files)).filter(|&files| files > 1.0);
    draw("Seconds against the number of files", &lines(records, kind, files))
}

/// Time over commits, oldest first.
pub(super) fn trend(records: &[&Record]) -> Result<String, ChartError> {
    let mut order: BTreeMap<&str, u64> = BTreeMap::new();
    for record in records {
        let first = order.entry(&record.commit).or_insert(record.time);
        *first = record.time.min(*first);
    }
    let at = |record: &Record| {
        let mine = order.get(record.commit.as_str())?;
        u32::try_from(order.values().filter(|time| *time < mine).count()).ok().map(f64::from)
    };
    let kind = |record: &Record| format!("{} {} ", record.workload, record.link);
    draw("Seconds over commits, oldest first", &lines(records, kind, at))
}

/// Medians by line and place; lines of one point are no lines.
fn lines(
    records: &[&Record],
    kind: impl Fn(&Record) -> String,
    at: impl Fn(&Record) -> Option<f64>,
) -> Lines {
    let mut all: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.complaint.is_none()) {
        if let Some(place) = at(record) {
            let name = format!("{}{} {}", kind(record), record.tool, record.step);
            all.entry(name).or_default().push((place, record.measured.wall_s));
        }
    }
    all.into_iter().map(|(name, points)| (name, middle(points))).filter(|line| line.1.len() > 1).collect()
}

fn middle(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
        .chunk_by(|a, b| a.0 == b.0)
        .filter_map(|same| Some((same.first()?.0, median(same.iter().map(|point| point.1).collect())?)))
        .collect()
}

fn draw(title: &str, lines: &Lines) -> Result<String, ChartError> {
    let points = || lines.values().flatten();
    let (Some(left), Some(right), Some(top)) = (
        points().map(|point| point.0).min_by(f64::total_cmp),
        points().map(|point| point.0).max_by(f64::total_cmp),
        points().map(|point| point.1).max_by(f64::total_cmp),
    ) else {
        return Ok(String::new());
    };
    let mut svg = String::new();
    let height = 320 + 18 * u32::try_from(lines.len()).unwrap_or_default();
    plot(&mut svg, title, lines, (left, right.max(left + 1e-6), top.max(1e-3) * 1.05), height)
        .map_err(|error| ChartError(error.to_string()))?;
    Ok(format!("<figure>{svg}</figure>\n"))
}

fn plot(
    svg: &mut String,
    title: &str,
    lines: &Lines,
    (left, right, top): (f64, f64, f64),
    height: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (760, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(320);
    let mut chart = ChartBuilder::on(&above)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .margin_right(36)
        .x_label_area_size(28)
        .y_label_area_size(48)
        .build_cartesian_2d(left..right, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .draw()?;
    for (number, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS.get(number % COLOURS.len()).copied().unwrap_or(BLACK);
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        // The legend stands below, where it hides no line whatever their number.
        let y = 4 + 18 * i32::try_from(number)?;
        below.draw(&Rectangle::new([(56, y + 3), (72, y + 7)], colour.filled()))?;
        below.draw(&Text::new(name.clone(), (80, y), ("sans-serif", 13)))?;
    }
    root.present()?;
    Ok(())
}
