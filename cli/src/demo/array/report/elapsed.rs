//! Elapsed time by number of disks: one plot for each set, the figures under their points.
//!
//! Numbers of disks are ordinal: the axis goes in steps of more disks, not in disks. The area under
//! the lower bound is shaded, because no run can lie in it.

use super::select::Set;
use crate::demo::array::results::Run;
use crate::demo::page::markup::{NONE, counted, digits, escape, share, tick_label, ticks, usable};

/// Size of a plot and of its parts, in SVG units; about pixels where two stand side by side.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 316.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 350.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 206.0;
/// Distance from the axis' ends to the first and the last point.
const INSET: f64 = 22.0;
/// Distance from one row of figures to the next, and from one label to the next.
const ROW: f64 = 18.0;
/// Most ticks above zero.
const TICKS: usize = 5;

/// One line of a plot.
struct Series {
    class: &'static str,
    label: &'static str,
    value: fn(&Run) -> f64,
}

const BOUND: Series =
    Series { class: "bound", label: "lower bound", value: |run| run.lower_bound_s };

/// From back to front.
const SERIES: [Series; 3] = [
    Series { class: "plain", label: "without", value: |run| run.plain_s },
    Series { class: "hinted", label: "with foretell", value: |run| run.hinted_s },
    BOUND,
];

/// The section: the plots of all sets, with their text.
pub(super) fn section(sets: &[Set<'_>]) -> String {
    if sets.is_empty() {
        return String::new();
    }
    let figures: String = sets.iter().map(figure).collect();
    format!(
        "<section>\n<h2>Elapsed time by number of disks</h2>\n\
         <p>A program that reads one file after another keeps one disk busy at a time, however \
         many there are. With foretell files are fetched from all disks at once. \
         The dashed line is the lower bound, the larger of the warm run (everything in memory) and \
         the busy time of the busiest disk; no run can lie in the area under it. Seconds; each \
         plot has a scale of its own.</p>\n<div class=\"plots\">\n{figures}</div>\n\
         <p class=\"note\">For comparison: <i>agrep</i> over sets like these, with hints of its \
         own, took 80 to 85 % less time on four and more disks of 1995 (TIP).</p>\n</section>\n"
    )
}

fn figure(set: &Set<'_>) -> String {
    let files = counted(set.files as u64, "file");
    let blocks = counted(set.blocks, "block");
    let name = escape(set.name);
    format!(
        "<figure>\n<figcaption><b>{name}</b> {files}, {blocks}</figcaption>\n{}</figure>\n",
        plot(&set.by_disks(), &name),
    )
}

/// The plot of `runs`, one for each number of disks; `name` is escaped.
fn plot(runs: &[&Run], name: &str) -> String {
    let values = runs.iter().flat_map(|run| SERIES.iter().map(|series| (series.value)(run)));
    let max = values.filter_map(usable).fold(0.0, f64::max);
    let ticks = ticks(max, TICKS);
    let scale = Scale { points: runs.len(), top: ticks.last().copied().unwrap_or(1.0) };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name}: elapsed seconds \
         by number of disks\">\n"
    );
    svg += &grid(&ticks, &scale);
    svg += &area(runs, &scale);
    for series in &SERIES {
        svg += &line(series, runs, &scale);
    }
    svg += &labels(runs, &scale);
    svg += &rows(runs, &scale);
    svg += "</svg>\n";
    svg
}

/// Maps data to coordinates.
struct Scale {
    points: usize,
    top: f64,
}

impl Scale {
    fn x(&self, index: usize) -> f64 {
        let (from, to) = (LEFT + INSET, RIGHT - INSET);
        match self.points {
            0 | 1 => (from + to) / 2.0,
            points => from + (to - from) * index as f64 / (points - 1) as f64,
        }
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * value / self.top
    }
}

fn grid(ticks: &[f64], scale: &Scale) -> String {
    let line = |(index, &tick): (usize, &f64)| {
        let (y, class) = (scale.y(tick), if index == 0 { "axis" } else { "grid" });
        let unit = if index + 1 == ticks.len() { " s" } else { "" };
        format!(
            "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}{unit}</text>\n",
            LEFT - 8.0,
            y + 4.0,
            tick_label(tick),
        )
    };
    ticks.iter().enumerate().map(line).collect()
}

/// The points of a series that can be drawn.
fn points(series: &Series, runs: &[&Run], scale: &Scale) -> Vec<(f64, f64)> {
    let place = |(index, run): (usize, &&Run)| {
        usable((series.value)(run)).map(|value| (scale.x(index), scale.y(value)))
    };
    runs.iter().enumerate().filter_map(place).collect()
}

fn joined(points: &[(f64, f64)]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

/// The shaded area under the lower bound, in which no run can lie.
fn area(runs: &[&Run], scale: &Scale) -> String {
    let bound = points(&BOUND, runs, scale);
    let (Some(first), Some(last)) = (bound.first(), bound.last()) else { return String::new() };
    let corners = [(last.0, BOTTOM), (first.0, BOTTOM)];
    format!("<polygon class=\"below\" points=\"{} {}\"/>\n", joined(&bound), joined(&corners))
}

fn line(series: &Series, runs: &[&Run], scale: &Scale) -> String {
    let (class, label) = (series.class, series.label);
    let points_text = joined(&points(series, runs, scale));
    let mut svg = format!("<polyline class=\"line {class}\" points=\"{points_text}\"/>\n");
    let dashed = class == BOUND.class && runs.len() > 1;
    for (index, run) in runs.iter().enumerate().filter(|_| !dashed) {
        if let Some(value) = usable((series.value)(run)) {
            let disks = counted(run.disks as u64, "disk");
            svg += &format!(
                "<circle class=\"dot {class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\">\
                 <title>{label}, {disks}: {} s</title></circle>\n",
                scale.x(index),
                scale.y(value),
                digits(value),
            );
        }
    }
    svg
}

/// Each line's name at its right end. Names are moved apart where the ends are close.
fn labels(runs: &[&Run], scale: &Scale) -> String {
    let mut ends: Vec<(&Series, (f64, f64))> = SERIES
        .iter()
        .filter_map(|series| Some((series, *points(series, runs, scale).last()?)))
        .collect();
    // Lowest on the page first; each is pushed up by the one below it.
    ends.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    let mut floor = BOTTOM + 2.0;
    let mut svg = String::new();
    for (series, (x, y)) in ends {
        let label_y = y.min(floor);
        floor = label_y - (ROW - 2.0);
        svg += &format!(
            "<text class=\"name {}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            series.class,
            x.max(RIGHT - INSET) + 12.0,
            label_y + 4.0,
            series.label,
        );
    }
    svg
}

/// The figures under their points.
fn rows(runs: &[&Run], scale: &Scale) -> String {
    let row = |number: usize, class: &str, head: &str, cell: &dyn Fn(&Run) -> String| {
        let y = BOTTOM + 22.0 + ROW * number as f64 + if number > 0 { 6.0 } else { 0.0 };
        let mut svg = format!(
            "<text class=\"head end {class}\" x=\"{:.1}\" y=\"{y:.1}\">{head}</text>\n",
            LEFT - 8.0
        );
        for (index, run) in runs.iter().enumerate() {
            let (x, text) = (scale.x(index), cell(run));
            svg +=
                &format!("<text class=\"cell {class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n");
        }
        svg
    };
    let rule = BOTTOM + 31.0;
    let mut svg = row(0, "disks", "disks", &|run| run.disks.to_string());
    svg += &format!(
        "<line class=\"grid\" x1=\"4\" x2=\"{RIGHT}\" y1=\"{rule:.1}\" y2=\"{rule:.1}\"/>\n"
    );
    svg += &row(1, "plain", "without", &|run| digits(run.plain_s));
    svg += &row(2, "hinted", "with", &|run| digits(run.hinted_s));
    svg += &row(3, "bound", "bound", &|run| digits(run.lower_bound_s));
    svg += &row(4, "saved", "saved", &|run| share(run.saved_share()).unwrap_or(NONE.into()));
    svg
}
